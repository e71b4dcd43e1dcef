-- Tries to become the one that migrates; $1 is the lock's number. Never waits: a waiting session would deadlock with
-- CREATE INDEX CONCURRENTLY in the session that holds the lock. One row.
select pg_try_advisory_lock($1) as locked
