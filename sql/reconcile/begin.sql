-- A run of reconciling begins: forget what runs that were cut off have left behind.
-- Result: the number of rows deleted, and the time of the database.
with old as (
    delete from leadsync.reconciled as r where r.at < clock_timestamp() - interval '1 day'
    returning 1
)
select count(*) as forgotten, clock_timestamp() as began from old;
