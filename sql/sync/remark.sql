-- Mark leads $2 due again for destination $1: a holder that was fenced off may have overwritten the CRM with
-- what it knew. They cannot be in sync before a push made $3 seconds from now. Rows are locked in key order.
-- Result: the number of rows marked.
with fenced as (
    select s.lead_id
    from leadsync.lead_sync as s
    where s.destination = $1 and s.lead_id = any ($2::uuid[])
    order by s.lead_id
    for update
)
update leadsync.lead_sync as s set
    state = 'due',
    next_attempt_at = case when s.state = 'due' then s.next_attempt_at else clock_timestamp() end,
    confirm_after = clock_timestamp() + make_interval(secs => $3),
    sent_hash = null
from fenced as f
where s.lead_id = f.lead_id and s.destination = $1;
