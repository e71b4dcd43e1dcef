-- A call to the API of source $1 failed: no calls for $2 seconds, because of $3 (kind), $4 (code), $5 (message).
-- $6: the call was the one that probes, so its word is the newest. Otherwise a longer pause that is already
-- there stays, and calls that were under way when it began are not counted as failures in a row.
-- Result: failures in a row, this one included.
update leadsync.source_apis as a set
    failures = a.failures + ($6 or a.paused_until <= clock_timestamp())::int,
    (paused_until, pause_kind, pause_code, pause_message) = (
        select
            case when n.wins then n.until else a.paused_until end,
            case when n.wins then $3 else a.pause_kind end,
            case when n.wins then $4 else a.pause_code end,
            case when n.wins then $5 else a.pause_message end
        from (
            select t.until, $6 or t.until >= a.paused_until as wins
            from (select clock_timestamp() + make_interval(secs => $2) as until) as t
        ) as n
    )
where a.name = $1
returning a.failures;
