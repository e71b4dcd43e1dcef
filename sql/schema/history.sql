-- The applied migrations, oldest first; no rows where there is no history table yet is told by exists.sql.
select version, name, checksum, applied_on from leadsync.schema_history order by version
