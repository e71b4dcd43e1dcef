-- Renew the leases of leads $2 with tokens $3 at destination $1, to $4 seconds from now. Rows are locked in key order.
-- Result: the lead_ids that still belong to the holder; the others were taken over.
with held as (
    select s.lead_id
    from leadsync.lead_sync as s
    join unnest($2::uuid[], $3::bigint[]) as h (lead_id, lease_token)
        on h.lead_id = s.lead_id and h.lease_token = s.lease_token
    where s.destination = $1
    order by s.lead_id
    for update of s
)
update leadsync.lead_sync as s set lease_until = clock_timestamp() + make_interval(secs => $4)
from held as h
where s.lead_id = h.lead_id and s.destination = $1
returning s.lead_id;
