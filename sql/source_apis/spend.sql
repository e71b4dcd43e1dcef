-- Take the next free call of the API of source $1, where one call is allowed every $2 seconds over all instances,
-- unless it is further away than $3 seconds.
-- Result: seconds to wait before the call; no row while the destination is paused or the call too far away.
update leadsync.source_apis as a
set next_call_at = greatest(a.next_call_at, clock_timestamp()) + make_interval(secs => $2)
where a.name = $1
    and a.paused_until <= clock_timestamp()
    and a.next_call_at <= clock_timestamp() + make_interval(secs => $3)
returning greatest(extract(epoch from a.next_call_at - make_interval(secs => $2) - clock_timestamp()), 0)::float8 as wait;
