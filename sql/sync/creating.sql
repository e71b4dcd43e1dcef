-- A contact is about to be made at destination $1, which keeps no key, for leads $2 with lease tokens $3: committed
-- before the call, so that whatever becomes of it nobody makes another one in haste. Rows are locked in key order.
-- Result: the lead_ids that still belong to the holder of the lease; of the others none may be made.
with held as (
    select s.lead_id
    from leadsync.lead_sync as s
    join unnest($2::uuid[], $3::bigint[]) as h (lead_id, lease_token) using (lead_id, lease_token)
    where s.destination = $1 and s.lease_until > clock_timestamp()
    order by s.lead_id
    for update of s
)
update leadsync.lead_sync as s set creating_since = clock_timestamp()
from held as h
where s.lead_id = h.lead_id and s.destination = $1
returning s.lead_id;
