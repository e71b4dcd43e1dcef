-- A call to the API of source $1 succeeded: the circuit closes. Writes nothing when it was closed.
-- Result: the number of rows changed.
update leadsync.source_apis as a set
    failures = 0, paused_until = '-infinity', pause_kind = null, pause_code = null, pause_message = null
where a.name = $1 and (a.failures > 0 or a.pause_kind is not null);
