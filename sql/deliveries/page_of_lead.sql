-- As page.sql, of one lead $6: a lead has few deliveries, so all of them are taken by the index on leads first. Left to
-- itself the planner of PostgreSQL would look through all deliveries for them, in the order of the page.
-- Result: one row per delivery, without what is large.
with of_lead as materialized (
    select
        d.delivery_id, d.source, d.received_at, d.last_received_at, d.copies, d.outcome, d.reason, d.lead_ids, d.items,
        d.body_bytes
    from leadsync.deliveries as d
    where (d.lead_ids[1] = $6::uuid or (cardinality(d.lead_ids) > 1 and d.lead_ids @> array[$6::uuid]))
)
select
    a.delivery_id, a.source, a.received_at, a.last_received_at, a.copies, a.outcome, a.reason, a.lead_ids, a.items, a.body_bytes
from of_lead as a
where (a.received_at, a.delivery_id)
        < (coalesce($7::timestamptz, 'infinity'), coalesce($8::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    and a.received_at >= coalesce($4::timestamptz, '-infinity')
    and a.received_at < coalesce($5::timestamptz, 'infinity')
    and ($1::text is null or a.source = $1)
    and ($2::text is null or a.outcome = $2 or ($2 = 'rejected' and a.items @> '[{"outcome": "rejected"}]'))
    and ($3::text is null or a.reason = $3 or a.items @> jsonb_build_array(jsonb_build_object('reason', $3)))
order by a.received_at desc, a.delivery_id desc
limit $9;
