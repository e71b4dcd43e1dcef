-- A call to destination $1 failed: no calls for $2 seconds, because of $3 (kind), $4 (code), $5 (message).
-- $6: the call was the one that probes, so its word is the newest. Otherwise a longer pause that is already
-- there stays, and calls that were under way when it began are not counted as failures in a row. Asked to slow down, it
-- also calls half as often from then on, and recovers.
-- Result: failures in a row, this one included.
update leadsync.destinations as d set
    slowdown = case
        when $3 = 'slow_down' and ($6 or d.paused_until <= clock_timestamp())
        then least(2 * leadsync.slowdown(d.slowdown, d.slowed_at, clock_timestamp()), 32)
        else d.slowdown
    end,
    slowed_at = case
        when $3 = 'slow_down' and ($6 or d.paused_until <= clock_timestamp()) then clock_timestamp()
        else d.slowed_at
    end,
    failures = d.failures + ($6 or d.paused_until <= clock_timestamp())::int,
    (paused_until, pause_kind, pause_code, pause_message) = (
        select
            case when n.wins then n.until else d.paused_until end,
            case when n.wins then $3 else d.pause_kind end,
            case when n.wins then $4 else d.pause_code end,
            case when n.wins then $5 else d.pause_message end
        from (
            select t.until, $6 or t.until >= d.paused_until as wins
            from (select clock_timestamp() + make_interval(secs => $2) as until) as t
        ) as n
    )
where d.name = $1
returning d.failures;
