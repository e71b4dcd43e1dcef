-- What the headers of an answer say of the limits of destination $1: seconds between calls $2 (0: nothing), no call for
-- $3 seconds, left of the day $4 of $5 (null: nothing), to be believed for $6 seconds. Writes nothing that is known.
-- Result: the number of rows changed.
update leadsync.destinations as d set
    told_period = $2::float8,
    next_call_at = greatest(d.next_call_at, clock_timestamp() + make_interval(secs => $3::float8)),
    day_left = $4::int,
    day_allowed = $5::int,
    day_left_until = case when $4::int is null then d.day_left_until else clock_timestamp() + make_interval(secs => $6::float8) end
where d.name = $1
    and (
        d.told_period <> $2::float8
        or $3::float8 > 0
        or d.day_allowed is distinct from $5::int
        or d.day_left is distinct from $4::int
        or d.day_left_until < clock_timestamp() + make_interval(secs => $6::float8 / 2) and $4::int is not null
    );
