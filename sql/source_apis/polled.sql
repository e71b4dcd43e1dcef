-- A listing at source $1 ended: complete up to $2, or failed (null) because of $4; the next one in $3 seconds.
-- Result: the number of rows changed.
update leadsync.source_apis as a set
    poll_error = $4,
    polled_to = greatest(a.polled_to, $2::timestamptz),
    next_poll_at = clock_timestamp() + make_interval(secs => $3)
where a.name = $1;
