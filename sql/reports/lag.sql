-- How long changes took to reach the CRM, per hour: half, 90 and 99 of 100, and the slowest, in seconds.
-- hours (integer, 24): how many hours back, up to a week
-- destination (text, optional): only this one
select l.hour, l.destination, l.leads, round(l.p50_seconds::numeric, 2) as p50, round(l.p90_seconds::numeric, 2) as p90,
    round(l.p99_seconds::numeric, 2) as p99, round(l.max_seconds::numeric, 2) as max
from sync_lag as l
where l.hour > now() - make_interval(hours => :'hours'::integer) and (:'destination' = '' or l.destination = :'destination')
order by l.hour desc, l.destination;
