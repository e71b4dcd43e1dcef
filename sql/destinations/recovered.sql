-- A call to destination $1 succeeded: the circuit closes. Writes nothing when it was closed.
-- Result: the number of rows changed.
update leadsync.destinations as d set
    failures = 0, paused_until = '-infinity', pause_kind = null, pause_code = null, pause_message = null
where d.name = $1 and (d.failures > 0 or d.pause_kind is not null);
