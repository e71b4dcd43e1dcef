-- As page.sql, of those that were rejected, also only in part ($2 says so), which have an index of their own.
-- Result: one row per delivery, without what is large.
select
    a.delivery_id, a.source, a.received_at, a.last_received_at, a.copies, a.outcome, a.reason, a.lead_ids, a.items, a.body_bytes
from leadsync.deliveries as a
where (a.outcome = 'rejected' or a.items @> '[{"outcome": "rejected"}]')
    and $2::text = 'rejected'
    and (a.received_at, a.delivery_id)
        < (coalesce($7::timestamptz, 'infinity'), coalesce($8::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff'))
    and a.received_at >= coalesce($4::timestamptz, '-infinity')
    and a.received_at < coalesce($5::timestamptz, 'infinity')
    and ($1::text is null or a.source = $1)
    and ($3::text is null or a.reason = $3 or a.items @> jsonb_build_array(jsonb_build_object('reason', $3)))
    and ($6::uuid is null or a.lead_ids @> array[$6])
order by a.received_at desc, a.delivery_id desc
limit $9;
