-- New leads per day and first source.
-- days (integer, 30): how many days back, today included
-- source (text, optional): only this first source
select a.day, a.first_source as source, sum(a.leads)::bigint as leads, sum(a.consented)::bigint as consented
from attribution as a
where a.day > current_date - :'days'::integer and (:'source' = '' or a.first_source = :'source')
group by a.day, a.first_source
order by a.day desc, leads desc, source;
