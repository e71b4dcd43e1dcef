-- Make parked readings due now, and those that wait after a failure due at once.
-- $1 source (null: all), $2 error code (null: all). Rows are locked in key order.
-- Result: the number of rows made due.
with chosen as (
    select f.source, f.object, f.remote_id
    from leadsync.fetches as f
    where (f.state = 'parked' or (f.state = 'due' and f.attempts > 0))
        and ($1::text is null or f.source = $1)
        and ($2::text is null or f.last_error_code = $2)
    order by f.source, f.object, f.remote_id
    for update
)
update leadsync.fetches as f set state = 'due', next_attempt_at = clock_timestamp(), attempts = 0
from chosen as c
where f.source = c.source and f.object = c.object and f.remote_id = c.remote_id;
