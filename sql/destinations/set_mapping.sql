-- Every lead at destination $1 was sent with the mapping of digest $2, or compared with it.
-- Result: the number of rows changed.
update leadsync.destinations as d set mapping = $2 where d.name = $1 and d.mapping is distinct from $2;
