-- Mark leads $2 due again for destination $1, behind those that change. $3: what the CRM has is not what was last sent, so
-- the same again is to be sent. Rows are locked in key order.
-- Result: the number of rows marked; those that were due anyway are not counted.
with chosen as (
    select s.lead_id
    from leadsync.lead_sync as s
    where s.destination = $1 and s.state <> 'due' and s.lead_id = any ($2::uuid[])
    order by s.lead_id
    for update
)
update leadsync.lead_sync as s set
    state = 'due',
    next_attempt_at = clock_timestamp(),
    attempts = 0,
    backfill = true,
    sent_hash = case when not $3 then s.sent_hash end
from chosen as c
where s.lead_id = c.lead_id and s.destination = $1;
