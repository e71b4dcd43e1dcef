-- Delivery $1 as it was archived; of two copies in two weeks the first.
-- Result: none or one row.
select
    a.delivery_id, a.source, a.received_at, a.last_received_at, a.copies, a.outcome, a.reason, a.lead_ids, a.items, a.body_bytes,
    a.idempotency_key, a.query, a.headers, a.body
from leadsync.deliveries as a
where a.delivery_id = $1
order by a.week
limit 1;
