-- First source against last source: where people come from and where they come back to.
-- days (integer, 30): leads created in so many days, today included
select a.first_source, a.last_source, sum(a.leads)::bigint as leads, sum(a.customers)::bigint as customers
from attribution as a
where a.day > current_date - :'days'::integer
group by 1, 2
order by leads desc, 1, 2;
