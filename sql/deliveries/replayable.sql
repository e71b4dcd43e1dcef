-- Stored deliveries in order of receipt, for replay: up to $6 after ($4 received_at, $5 delivery_id).
-- $1 source (null: all), $2 since (null: ever), $3 outcome (null: all).
-- Result: the delivery as it arrived; body is null where it was not kept.
select a.delivery_id, a.received_at, a.source, a.idempotency_key, a.query, a.headers, a.body
from leadsync.deliveries as a
where (a.received_at, a.delivery_id) > ($4, $5)
    and ($1::text is null or a.source = $1)
    and ($2::timestamptz is null or a.received_at >= $2)
    and ($3::text is null or a.outcome = $3)
order by a.received_at, a.delivery_id
limit $6;
