-- A call to destination $1 failed: no calls for $2 seconds, because of $3 (kind), $4 (code), $5 (message).
-- A longer pause that is already there stays.
-- Result: failures in a row, this one included.
update leadsync.destinations as d set
    failures = d.failures + 1,
    paused_until = greatest(d.paused_until, clock_timestamp() + make_interval(secs => $2)),
    pause_kind = $3,
    pause_code = $4,
    pause_message = $5
where d.name = $1
returning d.failures;
