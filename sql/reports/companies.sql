-- Companies with the most leads.
-- days (integer, 30): leads created in so many days, today included
-- limit (integer, 20): how many companies
select l.company, count(*) as leads, max(l.created_at) as newest
from leads as l
where l.created_day > current_date - :'days'::integer and l.company is not null
group by l.company
order by leads desc, l.company
limit :'limit'::integer;
