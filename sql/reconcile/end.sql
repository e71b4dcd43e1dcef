-- Run $1 of reconciling is over: forget what it has seen.
-- Result: the number of rows deleted.
delete from leadsync.reconciled as r where r.run = $1;
