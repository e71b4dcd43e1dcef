-- The delivery that came with Idempotency-Key $1.
-- Result: delivery_id, none or one row.
select a.delivery_id from leadsync.deliveries as a where a.idempotency_key = $1 order by a.received_at limit 1;
