-- The digest of the mapping that every lead at destination $1 was sent with, or compared with.
-- Result: one row at most; null where none was kept yet.
select d.mapping from leadsync.destinations as d where d.name = $1;
