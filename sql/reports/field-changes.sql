-- Which fields change, and which source changes them.
-- days (integer, 7): how many days back, today included
select c.field, c.to_source as source, count(*) as changes, count(distinct c.lead_id) as leads
from lead_changes as c
where c.recorded and c.changed_at > current_date - :'days'::integer
group by 1, 2
order by changes desc, 1, 2
limit 100;
