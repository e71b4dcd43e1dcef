-- When there is something to do for destination $1.
-- Result: seconds until the earliest lead is due or its lease runs out (0: now, null: nothing is due).
select case when count(*) > 0 then
    extract(epoch from greatest(min(d.ready_at) - statement_timestamp(), interval '0'))
end::float8 as seconds
from (
    select r.ready_at
    from unnest(array[false, true]) as b (backfill)
    cross join lateral (
        select greatest(s.next_attempt_at, coalesce(s.lease_until, '-infinity')) as ready_at
        from leadsync.lead_sync as s
        where s.destination = $1 and s.backfill = b.backfill and s.state = 'due'
        order by s.next_attempt_at
        limit 1000
    ) as r
) as d;
