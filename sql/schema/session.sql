-- Settings of every pooled session. $1 statement, $2 lock, $3 idle-in-transaction time-out, each in milliseconds as text;
-- $4 on or off: whether changes of leads are kept in lead_changes.
-- One row, of no interest. remote_apply is stronger than on and stays.
select
    set_config('statement_timeout', $1, false),
    set_config('lock_timeout', $2, false),
    set_config('idle_in_transaction_session_timeout', $3, false),
    set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'remote_apply' then 'remote_apply' else 'on' end, false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('timezone', 'UTC', false),
    -- Prepared while tables are small, plans stay in use while they grow, so none may count on a scan. A plan
    -- that has no other way is taken to cost so much that it would be compiled: not worth it, and no longer done.
    set_config('enable_seqscan', 'off', false),
    set_config('jit', 'off', false),
    -- Only our schema: an object that somebody puts into public cannot stand in for one of ours.
    set_config('search_path', 'leadsync, pg_temp', false),
    set_config('leadsync.history', $4, false)
