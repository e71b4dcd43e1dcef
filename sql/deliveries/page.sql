-- Up to $9 deliveries from the newest on, as GET /v1/deliveries shows them.
-- $1 source, $2 outcome, $3 reason (also of one lead in a delivery of several), $4 received since, $5 received before,
-- $6 a lead that it speaks about: null for any.
-- $7 and $8 the received_at and delivery_id after which the page begins (null: at the newest).
-- The bounds are never null in the end, so that they are conditions of the index under a generic plan, too.
-- Result: one row per delivery, without what is large.
select
    a.delivery_id, a.source, a.received_at, a.last_received_at, a.copies, a.outcome, a.reason, a.lead_ids, a.items, a.body_bytes
from leadsync.deliveries as a
where (a.received_at, a.delivery_id)
        < (coalesce($7::timestamptz, 'infinity'), coalesce($8::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    and a.received_at >= coalesce($4::timestamptz, '-infinity')
    and a.received_at < coalesce($5::timestamptz, 'infinity')
    and a.week >= coalesce(date_trunc('week', $4::timestamptz at time zone 'utc')::date, '-infinity')
    and a.week <= coalesce(date_trunc('week', least($5::timestamptz, $7::timestamptz) at time zone 'utc')::date, 'infinity')
    and ($1::text is null or a.source = $1)
    and ($2::text is null or a.outcome = $2)
    and ($3::text is null or a.reason = $3 or a.items @> jsonb_build_array(jsonb_build_object('reason', $3)))
    and ($6::uuid is null or a.lead_ids @> array[$6])
order by a.received_at desc, a.delivery_id desc
limit $9;
