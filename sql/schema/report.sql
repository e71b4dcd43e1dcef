-- Settings of one report's transaction. $1 its time-out in milliseconds as text, $2 the schema whose views it reads.
-- One row, of no interest. A report is planned for the tables as they are, so it may count on scans.
select
    set_config('statement_timeout', $1, true),
    set_config('search_path', $2 || ', pg_temp', true),
    set_config('enable_seqscan', 'on', true)
