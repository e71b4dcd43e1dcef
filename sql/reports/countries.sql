-- Leads by country.
-- days (integer, 30): leads created in so many days, today included
select coalesce(l.country, '(unknown)') as country, count(*) as leads, count(distinct l.company) as companies
from leads as l
where l.created_day > current_date - :'days'::integer
group by 1
order by leads desc, country
limit 100;
