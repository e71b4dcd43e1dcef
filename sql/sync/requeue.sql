-- Make parked leads due now, and leads that wait after a failure due at once.
-- $1 destination (null: all), $2 error code (null: all), $3 e-mail (null: all). Rows are locked in key order.
-- Result: the number of rows made due.
with chosen as (
    select s.lead_id, s.destination
    from leadsync.lead_sync as s
    where (s.state = 'parked' or (s.state = 'due' and s.attempts > 0))
        and ($1::text is null or s.destination = $1)
        and ($2::text is null or s.last_error_code = $2)
        and ($3::text is null or s.lead_id = (select l.lead_id from leadsync.leads as l where l.email = $3))
    order by s.lead_id, s.destination
    for update
)
update leadsync.lead_sync as s set state = 'due', next_attempt_at = clock_timestamp(), attempts = 0, backfill = false
from chosen as c
where s.lead_id = c.lead_id and s.destination = c.destination;
