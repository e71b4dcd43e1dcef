-- Stored deliveries for replay, in the order of their ids, which the primary key has; to the merge the order
-- does not matter. Up to $5 after $4. A delivery archived in two weeks is the same, so missing one is harmless.
-- $1 source (null: all), $2 since (null: ever), $3 outcome (null: all; `rejected` also finds deliveries of several
-- leads of which some were rejected).
-- Result: the delivery as it arrived; body is null where it was not kept.
select a.delivery_id, a.received_at, a.source, a.idempotency_key, a.query, a.headers, a.body
from leadsync.deliveries as a
where a.delivery_id > $4
    and ($1::text is null or a.source = $1)
    and ($2::timestamptz is null or a.received_at >= $2)
    and (
        $3::text is null
        or a.outcome = $3
        or ($3 = 'rejected' and a.items @> '[{"outcome": "rejected"}]')
    )
order by a.delivery_id
limit $5;
