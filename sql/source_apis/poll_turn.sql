-- Take the turn to list what is new at source $1; nobody else has it for $2 seconds.
-- Result: one row when the turn is ours: from when on to list (what was listed last, or else a day before the source
-- was first configured), and the time now, up to which this listing will be complete.
update leadsync.source_apis as a
set next_poll_at = clock_timestamp() + make_interval(secs => $2)
where a.name = $1 and a.next_poll_at <= clock_timestamp() and a.paused_until <= clock_timestamp()
returning coalesce(a.polled_to, a.registered_at - interval '1 day') as since, statement_timestamp() as now;
