-- The sealed refresh token of destination $1 that was kept last.
-- Result: one row at most; null where none was kept.
select d.sealed_token from leadsync.destinations as d where d.name = $1;
