-- Repeats that were absorbed, per source and day: each would have been a double or an overwrite elsewhere.
-- days (integer, 7): how many days back, today included
select d.day, d.source, d.deliveries, d.repeats, round(100 * d.share, 1) as percent
from duplicate_deliveries as d
where d.day > current_date - :'days'::integer
order by d.day desc, d.repeats desc, d.source;
