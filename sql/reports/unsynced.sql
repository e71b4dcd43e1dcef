-- Leads that a CRM does not have in their newest version, by state.
select s.destination, s.state, count(*) as leads, max(s.attempts) as max_attempts, extract(epoch from max(s.lag))::bigint as oldest_seconds
from sync_state as s
where s.next_attempt_at is not null or s.state = 'parked'
group by s.destination, s.state
order by s.destination, s.state;
