-- Parked leads by destination and cause, for `status`.
-- Result: destination, code, message of the newest one, count; most frequent first.
select
    s.destination,
    s.last_error_code as code,
    (array_agg(s.last_error_message order by s.last_error_at desc))[1] as message,
    count(*) as leads
from leadsync.lead_sync as s
where s.state = 'parked'
group by s.destination, s.last_error_code
order by count(*) desc, s.destination, s.last_error_code
limit 20;
