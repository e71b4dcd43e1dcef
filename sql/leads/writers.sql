-- Transactions that are writing leads now. One that begins to write later sees every destination that is
-- registered by now, because a statement takes its snapshot after its locks.
-- Result: one row per transaction: its virtual id, which is never used again.
select distinct k.virtualtransaction as writer
from pg_catalog.pg_locks as k
where k.locktype = 'relation'
    and k.database = (select d.oid from pg_catalog.pg_database as d where d.datname = current_database())
    and k.relation = 'leadsync.leads'::regclass
    and k.mode = 'RowExclusiveLock'
    and k.granted;
