-- Write what became of readings at source $1.
-- Parameters: $2 object[], $3 remote_id[], $4 lease_token[], $5 wanted[] (as claimed), $6 result[] (done, parked,
-- retry or released), $7 changed_at[] (as the document says), $8 outcome[] and $9 reason[] of its delivery,
-- $10 lead_id[], $11 delay[] (seconds to the next attempt), $12 error kind[], $13 error code[], $14 error message[].
-- Only the holder of the newest token may settle. What changed, or was deleted, during the reading stays as that
-- made it. Rows are locked in key order.
-- Result: the number of rows settled; another instance has the others.
with result as (
    select *
    from unnest(
        $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::timestamptz[], $8::text[], $9::text[],
        $10::uuid[], $11::float8[], $12::text[], $13::text[], $14::text[]
    ) as r (
        object, remote_id, lease_token, wanted, result, changed_at, outcome, reason, lead_id, delay, error_kind,
        error_code, error_message
    )
),
locked as (
    select
        f.object,
        f.remote_id,
        r.result = 'done' as done,
        r.result in ('retry', 'parked') as failed,
        f.wanted > r.wanted as outdated
    from leadsync.fetches as f
    join result as r on r.object = f.object and r.remote_id = f.remote_id and r.lease_token = f.lease_token
    where f.source = $1
    order by f.object, f.remote_id
    for update of f
)
update leadsync.fetches as f set
    state = case
        when k.outdated then f.state
        when r.result in ('done', 'parked') then r.result
        else 'due'
    end,
    next_attempt_at = case
        when r.result = 'retry' then clock_timestamp() + make_interval(secs => r.delay)
        when r.result = 'released' then f.next_attempt_at
        else clock_timestamp()
    end,
    changed_at = greatest(f.changed_at, r.changed_at),
    attempts = case when k.done then 0 when k.failed then f.attempts + 1 else f.attempts end,
    lease_until = null,
    lease_holder = null,
    fetched_at = case when k.done then clock_timestamp() else f.fetched_at end,
    outcome = case when k.done then r.outcome else f.outcome end,
    reason = case when k.done then r.reason else f.reason end,
    lead_id = coalesce(r.lead_id, f.lead_id),
    last_error_kind = case when k.done then null when k.failed then r.error_kind else f.last_error_kind end,
    last_error_code = case when k.done then null when k.failed then r.error_code else f.last_error_code end,
    last_error_message = case when k.done then null when k.failed then r.error_message else f.last_error_message end,
    last_error_at = case when k.done then null when k.failed then clock_timestamp() else f.last_error_at end
from locked as k
join result as r on r.object = k.object and r.remote_id = k.remote_id
where f.source = $1 and f.object = k.object and f.remote_id = k.remote_id and f.lease_token = r.lease_token;
