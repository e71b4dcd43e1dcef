-- Drop the partitions of lead_changes whose every change is older than $1 seconds.
-- Result: how many.
select leadsync.drop_change_months(((statement_timestamp() - make_interval(secs => $1)) at time zone 'utc')::date) as dropped;
