-- Deliveries per source, for `status`.
-- Result: source, distinct deliveries, repeats absorbed, newest receipt.
select a.source, count(*) as deliveries, (sum(a.copies) - count(*))::bigint as repeats, max(a.last_received_at) as newest
from leadsync.deliveries as a
group by a.source
order by a.source;
