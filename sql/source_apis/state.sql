-- Pause, circuit and budget of the API of source $1.
-- Result: seconds until the pause ends (0: not paused), failures in a row, seconds until the next free call.
select
    case
        when a.paused_until <= clock_timestamp() then 0
        when isfinite(a.paused_until) then extract(epoch from a.paused_until - clock_timestamp())
        else 86400
    end::float8 as paused_for,
    a.failures,
    extract(epoch from greatest(a.next_call_at, clock_timestamp()) - clock_timestamp())::float8 as next_call_in
from leadsync.source_apis as a
where a.name = $1;
