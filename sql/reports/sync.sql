-- One lead: what each CRM has of it, and what is next.
-- lead (text): its address or its id
select s.destination, s.state, s.wanted_version, s.confirmed_version, s.remote_id, s.synced_at, s.attempts, s.next_attempt_at,
    s.last_error_code as code, s.last_error_message as message
from sync_state as s
where s.lead_id = case
    when :'lead' ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then (:'lead'::text)::uuid
    else (select l.lead_id from leads as l where l.email = lower(btrim(:'lead')))
end
order by s.destination;
