-- The day's budget of destination $1 is spent: no calls for $2 seconds, because of $3. Not a failure.
-- Result: the number of rows changed; none where it is paused already.
update leadsync.destinations as d set
    paused_until = clock_timestamp() + make_interval(secs => $2),
    pause_kind = 'slow_down', pause_code = 'daily', pause_message = $3
where d.name = $1 and d.paused_until <= clock_timestamp();
