-- Pause, circuit and budget of destination $1, whose day allows $2 (null: nothing is known), of which a backfill may use
-- the part $3 (0 to 1). $4: what a call costs of it.
-- Result: seconds until the pause ends (0: not paused), failures in a row, seconds until the next free call, seconds
-- until the day's budget may have room again for a lead that changed and for one of a backfill (0: it has).
select
    case
        when d.paused_until <= clock_timestamp() then 0
        when isfinite(d.paused_until) then extract(epoch from d.paused_until - clock_timestamp())
        else 86400
    end::float8 as paused_for,
    d.failures,
    extract(epoch from greatest(d.next_call_at, clock_timestamp()) - clock_timestamp())::float8 as next_call_in,
    greatest(
        case when s.spent + $4::int > $2::int then h.next_hour else 0 end,
        case when t.left_over < $4::int then t.told_for else 0 end
    )::float8 as day_wait,
    greatest(
        case when s.spent + $4::int > $2::int * $3::float8 then h.next_hour else 0 end,
        case when t.left_over - $4::int < coalesce(d.day_allowed, $2::int, 0) * (1 - $3::float8) then t.told_for else 0 end
    )::float8 as backfill_wait
from leadsync.destinations as d
cross join lateral (
    select n.now / 3600 as hour, 3600 - n.now % 3600 as next_hour
    from (select floor(extract(epoch from statement_timestamp()))::bigint as now) as n
) as h
cross join lateral (select sum(x) as spent from unnest(leadsync.day_spent(d.day_spent, d.day_hour, h.hour)) as x) as s
cross join lateral (
    select
        case when d.day_left_until > statement_timestamp() then d.day_left end as left_over,
        case
            when d.day_left_until > statement_timestamp()
            then extract(epoch from d.day_left_until - statement_timestamp())
        end as told_for
) as t
where d.name = $1;
