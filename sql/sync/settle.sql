-- Write the results of a push to destination $1.
-- Parameters: $2 lead_id[], $3 lease_token[], $4 version[] (that was sent), $5 claimed_at[], $6 result[]
-- (confirmed, parked, retry, unknown, postponed or released), $7 remote_id[], $8 sent_hash[], $9 delay[] (seconds to
-- the next attempt), $10 error kind[], $11 error code[], $12 error message[], $13 grace in seconds after an
-- unknown outcome, $14 creating[] (a contact may be being made), $15 dropped fields[].
-- Only the holder of the newest token may settle, and a lead is in sync only when the version that was sent
-- is the one wanted now and the push was claimed after every grace time. Rows are locked in key order.
-- Result: the lead_ids that were settled; the caller was fenced off from the others.
with result as (
    select *
    from unnest(
        $2::uuid[], $3::bigint[], $4::bigint[], $5::timestamptz[], $6::text[], $7::text[], $8::bytea[],
        $9::float8[], $10::text[], $11::text[], $12::text[], $14::boolean[], $15::jsonb[]
    ) as r (
        lead_id, lease_token, version, claimed_at, result, remote_id, sent_hash, delay, error_kind,
        error_code, error_message, creating, dropped_fields
    )
),
locked as (
    select
        s.lead_id,
        r.result = 'confirmed' as confirmed,
        r.result in ('retry', 'unknown') as failed,
        r.result in ('released', 'postponed') as uncounted,
        s.wanted_version > r.version as outdated,
        coalesce(s.confirm_after > r.claimed_at, false) as early
    from leadsync.lead_sync as s
    join result as r on r.lead_id = s.lead_id and r.lease_token = s.lease_token
    where s.destination = $1
    order by s.lead_id
    for update of s
)
update leadsync.lead_sync as s set
    state = case
        when k.confirmed and not k.outdated and not k.early then 'synced'
        when r.result = 'parked' and not k.outdated then 'parked'
        else 'due'
    end,
    confirmed_version = case when k.confirmed then r.version else s.confirmed_version end,
    next_attempt_at = case
        when k.failed then clock_timestamp() + make_interval(secs => r.delay)
        when k.uncounted then s.next_attempt_at
        when k.outdated then clock_timestamp()
        when k.early then s.confirm_after
        else s.next_attempt_at
    end,
    confirm_after = case
        when r.result = 'unknown' then clock_timestamp() + make_interval(secs => $13)
        when k.confirmed and not k.early then null
        else s.confirm_after
    end,
    attempts = case
        when k.confirmed then 0
        when k.uncounted then s.attempts
        else s.attempts + 1
    end,
    lease_until = null,
    lease_holder = null,
    -- The holder of the lease knows best: it may have followed a merge, or found that the contact is gone.
    remote_id = r.remote_id,
    creating_since = case when r.creating then s.creating_since end,
    dropped_fields = r.dropped_fields,
    backfill = s.backfill and not k.confirmed and r.result <> 'parked',
    -- After a call that confirmed nothing, nobody knows what the CRM has.
    sent_hash = case
        when k.confirmed then r.sent_hash
        when r.result = 'released' then s.sent_hash
    end,
    sent_at = case when r.result = 'released' then s.sent_at else clock_timestamp() end,
    synced_at = case when k.confirmed and not k.outdated and not k.early then clock_timestamp() else s.synced_at end,
    last_error_kind = case when k.confirmed then null else coalesce(r.error_kind, s.last_error_kind) end,
    last_error_code = case when k.confirmed then null when r.error_kind is null then s.last_error_code else r.error_code end,
    last_error_message = case when k.confirmed then null when r.error_kind is null then s.last_error_message else r.error_message end,
    last_error_at = case when k.confirmed then null when r.error_kind is null then s.last_error_at else clock_timestamp() end
from locked as k
join result as r on r.lead_id = k.lead_id
where s.lead_id = k.lead_id and s.destination = $1 and s.lease_token = r.lease_token
returning s.lead_id;
