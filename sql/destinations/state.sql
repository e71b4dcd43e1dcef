-- Pause and circuit of destination $1.
-- Result: seconds until the pause ends (0: not paused), failures in a row.
select
    least(greatest(extract(epoch from d.paused_until - clock_timestamp()), 0), 86400)::float8 as paused_for,
    d.failures
from leadsync.destinations as d
where d.name = $1;
