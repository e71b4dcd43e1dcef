-- Moves from one lifecycle stage to another, per day.
-- days (integer, 7): how many days back, today included
select (c.changed_at at time zone 'utc')::date as day, coalesce(c.from_value, '(none)') as from_stage, c.to_value as to_stage, count(*) as leads
from lead_changes as c
where c.recorded and c.field = 'lifecycle_stage' and c.changed_at > current_date - :'days'::integer
group by 1, 2, 3
order by day desc, leads desc, 2, 3;
