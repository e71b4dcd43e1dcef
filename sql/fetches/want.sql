-- Remember what sources told of: $1 source[], $2 object[], $3 remote_id[], $4 changed_at[] (null: it never changes),
-- $5 deleted[], $6 what told of it (webhook or poll).
-- New ones are due, and so are known ones that changed since the newest change known. Whatever is known already
-- writes nothing and locks nothing. A deletion at the same time as a change wins. Rows are locked in key order.
-- Result: the number of rows written.
with told as (
    select distinct on (n.source, n.object, n.remote_id) n.*
    from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::boolean[])
        as n (source, object, remote_id, changed_at, deleted)
    order by n.source, n.object, n.remote_id, n.changed_at desc nulls last, n.deleted desc
)
insert into leadsync.fetches as f (source, object, remote_id, changed_at, state, found_by, next_attempt_at)
select t.source, t.object, t.remote_id, t.changed_at, case when t.deleted then 'deleted' else 'due' end, $6, clock_timestamp()
from told as t
where not exists (
    select from leadsync.fetches as k
    where k.source = t.source and k.object = t.object and k.remote_id = t.remote_id
        and (
            coalesce(k.changed_at, '-infinity') > coalesce(t.changed_at, '-infinity')
            or (
                coalesce(k.changed_at, '-infinity') = coalesce(t.changed_at, '-infinity')
                and (not t.deleted or k.state = 'deleted')
            )
        )
)
order by t.source collate "C", t.object collate "C", t.remote_id collate "C"
on conflict (source, object, remote_id) do update set
    changed_at = excluded.changed_at,
    wanted = f.wanted + 1,
    state = excluded.state,
    -- Its place in the queue, and the end of a backoff, stay.
    next_attempt_at = case when f.state = 'due' then f.next_attempt_at else excluded.next_attempt_at end,
    attempts = case when f.state = 'due' then f.attempts else 0 end
where coalesce(f.changed_at, '-infinity') < coalesce(excluded.changed_at, '-infinity')
    or (
        coalesce(f.changed_at, '-infinity') = coalesce(excluded.changed_at, '-infinity')
        and excluded.state = 'deleted' and f.state <> 'deleted'
    );
