-- Campaigns by the share of their leads that became customers.
-- days (integer, 30): leads created in so many days, today included
-- least (integer, 20): campaigns with fewer leads are left out
select
    a.utm_campaign as campaign, sum(a.leads)::bigint as leads, sum(a.qualified)::bigint as qualified, sum(a.customers)::bigint as customers,
    round(100 * sum(a.customers) / sum(a.leads), 1) as customers_percent, round(100 * sum(a.consented) / sum(a.leads), 1) as consented_percent
from attribution as a
where a.day > current_date - :'days'::integer and a.utm_campaign is not null
group by a.utm_campaign
having sum(a.leads) >= :'least'::integer
order by customers_percent desc, leads desc, campaign;
