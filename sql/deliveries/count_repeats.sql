-- Count further copies of archived deliveries. $1 delivery_id[], $2 copies[], $3 last received_at[], $4 outcome[],
-- $5 lead_ids[] (each the text of an array, null for none).
-- A delivery that was rejected and now became a lead (the mapping was mended) takes the new outcome and its leads.
-- Rows are locked in key order.
-- Result: the number of rows changed.
with repeat as (
    select *
    from unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[]) as r (
        delivery_id, copies, last_received_at, outcome, lead_ids
    )
),
locked as (
    select a.delivery_id, a.week
    from leadsync.deliveries as a
    join repeat as r on r.delivery_id = a.delivery_id
    order by a.delivery_id, a.week
    for update of a
)
update leadsync.deliveries as a set
    copies = a.copies + r.copies,
    last_received_at = greatest(a.last_received_at, r.last_received_at),
    outcome = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then r.outcome else a.outcome end,
    reason = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then null else a.reason end,
    items = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then null else a.items end,
    lead_ids = case when a.outcome = 'rejected' and r.outcome <> 'rejected' then r.lead_ids::uuid[] else a.lead_ids end
from locked as k
join repeat as r on r.delivery_id = k.delivery_id
where a.delivery_id = k.delivery_id and a.week = k.week;
