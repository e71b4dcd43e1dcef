-- Count further copies of archived deliveries. $1 delivery_id[], $2 copies[], $3 last received_at[], $4 outcome[],
-- $5 lead_ids[] (each the text of an array, null for none), $6 items[].
-- Leads that a delivery turns out to speak about (the mapping was mended) are added to those known. A delivery
-- that was rejected and now became a lead takes the new outcome; where something was wrong with a lead in it,
-- the latest copy's detail stands.
-- Rows are locked in key order.
-- Result: the number of rows changed.
with repeat as (
    select *
    from unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[], $5::text[], $6::jsonb[]) as r (
        delivery_id, copies, last_received_at, outcome, lead_ids, items
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
    items = case
        when a.items @> '[{"outcome": "rejected"}]' or jsonb_path_exists(a.items, '$[*].field_errors') then r.items
        else a.items
    end,
    lead_ids = case
        when r.lead_ids is null or a.lead_ids @> r.lead_ids::uuid[] then a.lead_ids
        else (select array_agg(distinct id order by id) from unnest(a.lead_ids || r.lead_ids::uuid[]) as id)
    end
from locked as k
join repeat as r on r.delivery_id = k.delivery_id
where a.delivery_id = k.delivery_id and a.week = k.week;
