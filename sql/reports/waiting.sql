-- Leads whose change has waited longest for a CRM.
-- destination (text, optional): only this one
-- limit (integer, 50): how many
select s.destination, s.email, s.lead_id, s.state, s.confirmed_version, s.wanted_version, s.attempts, s.next_attempt_at, s.last_error_code as code,
    extract(epoch from s.lag)::bigint as waiting_seconds
from sync_state as s
where s.next_attempt_at is not null and (:'destination' = '' or s.destination = :'destination')
order by s.lag desc nulls last, s.lead_id
limit :'limit'::integer;
