-- While calls to the API of source $1 fail, one at a time is made to see whether it is back: take that turn for $2 seconds.
-- Result: one row when the turn is ours; none while it is paused, somebody else's, or when it is back.
update leadsync.source_apis as a
set paused_until = clock_timestamp() + make_interval(secs => $2)
where a.name = $1 and a.failures > 0 and a.paused_until <= clock_timestamp()
returning a.failures;
