-- Pause and circuit of destination $1.
-- Result: seconds until the pause ends (0: not paused), failures in a row.
select
    case
        when d.paused_until <= clock_timestamp() then 0
        when isfinite(d.paused_until) then extract(epoch from d.paused_until - clock_timestamp())
        else 86400
    end::float8 as paused_for,
    d.failures
from leadsync.destinations as d
where d.name = $1;
