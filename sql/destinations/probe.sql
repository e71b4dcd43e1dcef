-- While calls to destination $1 fail, one at a time is made to see whether it is back: take that turn for $2 seconds.
-- Result: one row when the turn is ours; none while it is paused, somebody else's, or when it is back.
update leadsync.destinations as d
set paused_until = clock_timestamp() + make_interval(secs => $2)
where d.name = $1 and d.failures > 0 and d.paused_until <= clock_timestamp()
returning d.failures;
