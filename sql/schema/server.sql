-- What the server is, and what it would promise without our own session settings. One row.
select
    current_setting('server_version') as version,
    current_setting('server_version_num')::int as version_num,
    (select reset_val from pg_settings where name = 'synchronous_commit') as synchronous_commit,
    current_setting('fsync') as fsync,
    current_setting('full_page_writes') as full_page_writes,
    pg_is_in_recovery() as in_recovery
