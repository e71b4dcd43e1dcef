-- State of lead $1 at every destination.
-- Result: one row per destination; state is `leased` while somebody is pushing it.
select
    s.destination,
    case when s.state = 'due' and s.lease_until > clock_timestamp() then 'leased' else s.state end as state,
    s.wanted_version, s.confirmed_version, s.remote_id, s.attempts,
    case when s.state = 'due' then s.next_attempt_at end as next_attempt_at,
    s.last_error_kind, s.last_error_code, s.last_error_message, s.dropped_fields
from leadsync.lead_sync as s
where s.lead_id = $1
order by s.destination;
