-- Lease up to $2 things that are due to be read at source $1 to instance $3 for $4 seconds.
-- Result: object, remote_id, and what settling needs.
with due as (
    select f.object, f.remote_id
    from leadsync.fetches as f
    where f.source = $1
        and f.state = 'due'
        and f.next_attempt_at <= statement_timestamp()
        and (f.lease_until is null or f.lease_until < statement_timestamp())
    order by f.next_attempt_at
    limit $2
    for update skip locked
)
update leadsync.fetches as f set
    lease_token = f.lease_token + 1,
    lease_until = clock_timestamp() + make_interval(secs => $4),
    lease_holder = $3
from due as d
where f.source = $1 and f.object = d.object and f.remote_id = d.remote_id
returning f.object, f.remote_id, f.lease_token, f.wanted, f.attempts;
