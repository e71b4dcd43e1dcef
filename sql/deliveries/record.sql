-- Archive deliveries that are not archived yet.
-- Parameters: one array per column of `delivery` below, all of one length.
-- Result: the delivery_ids that are new here; the others are repeats, counted in the background.
with delivery as (
    select *
    from unnest(
        $1::uuid[], $2::timestamptz[], $3::text[], $4::text[], $5::text[], $6::text[], $7::jsonb[],
        $8::text[], $9::text[], $10::jsonb[], $11::bytea[], $12::integer[]
    ) as d (
        delivery_id, received_at, source, outcome, reason, lead_ids, items, idempotency_key, query,
        headers, body, body_bytes
    )
)
insert into leadsync.deliveries (
    delivery_id, week, received_at, last_received_at, source, outcome, reason, lead_ids, items,
    idempotency_key, query, headers, body, body_bytes
)
select
    d.delivery_id, date_trunc('week', d.received_at at time zone 'utc')::date, d.received_at, d.received_at,
    d.source, d.outcome, d.reason, d.lead_ids::uuid[], d.items, d.idempotency_key, d.query, d.headers, d.body, d.body_bytes
from delivery as d
where not exists (select from leadsync.deliveries as a where a.delivery_id = d.delivery_id)
order by d.delivery_id
on conflict (delivery_id, week) do nothing
returning delivery_id;
