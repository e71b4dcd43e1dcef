-- Take the next free call of destination $1, where one call is allowed every $2 seconds over all instances,
-- unless it is further away than $3 seconds. It costs $4 of the day's budget $5 (null: none is known), of which this
-- call may use the part $6 (0 to 1).
-- Result: seconds to wait before the call; no row while the destination is paused, the call too far away, or the
-- day's budget spent.
update leadsync.destinations as d set
    next_call_at = greatest(d.next_call_at, clock_timestamp())
        + make_interval(secs => greatest($2, d.told_period) * leadsync.slowdown(d.slowdown, d.slowed_at, statement_timestamp())),
    (day_hour, day_spent) = (
        select h.hour, s.spent[:h.at] || (s.spent[h.at + 1] + $4::int) || s.spent[h.at + 2:]
        from (
            select n.hour, (n.hour % 25)::int as at
            from (select greatest(d.day_hour, floor(extract(epoch from statement_timestamp()) / 3600)::bigint) as hour) as n
        ) as h
        cross join lateral (select leadsync.day_spent(d.day_spent, d.day_hour, h.hour) as spent) as s
    ),
    day_left = d.day_left - $4::int
where d.name = $1
    and d.paused_until <= clock_timestamp()
    and d.next_call_at <= clock_timestamp() + make_interval(secs => $3)
    and (
        $5::int is null
        or (
            select sum(s.spent) + $4::int
            from unnest(leadsync.day_spent(
                d.day_spent, d.day_hour, floor(extract(epoch from statement_timestamp()) / 3600)::bigint
            )) as s (spent)
        ) <= $5::int * $6::float8
    )
    and (
        d.day_left is null
        or d.day_left_until <= statement_timestamp()
        or d.day_left - $4::int >= coalesce(d.day_allowed, $5::int, 0) * (1 - $6::float8)
    )
returning greatest(
    extract(epoch from d.next_call_at - clock_timestamp())
        - greatest($2, d.told_period) * leadsync.slowdown(d.slowdown, d.slowed_at, statement_timestamp()),
    0
)::float8 as wait;
