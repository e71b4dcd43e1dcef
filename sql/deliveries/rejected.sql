-- Rejected deliveries by source and reason, for `status`.
-- Result: source, reason, count, newest receipt; most frequent first.
select a.source, a.reason, count(*) as deliveries, max(a.last_received_at) as newest
from leadsync.deliveries as a
where a.outcome = 'rejected'
group by a.source, a.reason
order by count(*) desc, a.source, a.reason
limit 20;
