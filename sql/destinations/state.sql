-- Pause, circuit and budget of destination $1.
-- Result: seconds until the pause ends (0: not paused), failures in a row, seconds until the next free call.
select
    case
        when d.paused_until <= clock_timestamp() then 0
        when isfinite(d.paused_until) then extract(epoch from d.paused_until - clock_timestamp())
        else 86400
    end::float8 as paused_for,
    d.failures,
    extract(epoch from greatest(d.next_call_at, clock_timestamp()) - clock_timestamp())::float8 as next_call_in
from leadsync.destinations as d
where d.name = $1;
