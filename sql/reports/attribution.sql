-- Where leads came from first (source and campaign), and what became of them.
-- days (integer, 30): leads created in so many days, today included
-- limit (integer, 50): how many lines
select
    a.first_source, a.utm_source, a.utm_medium, a.utm_campaign, sum(a.leads)::bigint as leads, sum(a.consented)::bigint as consented,
    sum(a.qualified)::bigint as qualified, sum(a.customers)::bigint as customers
from attribution as a
where a.day > current_date - :'days'::integer
group by 1, 2, 3, 4
order by leads desc, 1, 2, 3, 4
limit :'limit'::integer;
