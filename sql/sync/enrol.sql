-- Mark leads due for destination $1 that it has never heard of, or that changed while it was not configured:
-- up to $3 leads after lead_id $2.
-- Result: the last lead_id looked at (null: there are no more) and how many were marked.
with page as (
    select l.lead_id, l.version
    from leadsync.leads as l
    where l.lead_id > $2
    order by l.lead_id
    limit $3
),
marked as (
    insert into leadsync.lead_sync as s (lead_id, destination, state, wanted_version, next_attempt_at, backfill)
    select p.lead_id, $1, 'due', p.version, clock_timestamp(), true
    from page as p
    where not exists (
        select from leadsync.lead_sync as s
        where s.lead_id = p.lead_id and s.destination = $1 and s.wanted_version >= p.version
    )
    order by p.lead_id
    on conflict (lead_id, destination) do update set
        state = 'due',
        wanted_version = excluded.wanted_version,
        next_attempt_at = case when s.state = 'due' then s.next_attempt_at else excluded.next_attempt_at end,
        backfill = s.backfill or s.state <> 'due'
    where s.wanted_version < excluded.wanted_version
    returning lead_id
)
select (select lead_id from page order by lead_id desc limit 1) as last_lead_id, (select count(*) from marked) as marked;
