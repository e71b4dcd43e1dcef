-- Leads that a CRM refused, the newest first.
-- destination (text, optional): only this one
-- code (text, optional): only with this code of the CRM
-- limit (integer, 50): how many
select s.destination, s.email, s.lead_id, s.last_error_code as code, s.last_error_message as message, s.last_error_at, s.attempts
from sync_state as s
where s.state = 'parked' and (:'destination' = '' or s.destination = :'destination') and (:'code' = '' or s.last_error_code = :'code')
order by s.last_error_at desc, s.lead_id
limit :'limit'::integer;
