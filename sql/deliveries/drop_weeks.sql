-- Drop the partitions whose every delivery is older than $1 seconds.
-- Result: how many.
select leadsync.drop_delivery_weeks(((statement_timestamp() - make_interval(secs => $1)) at time zone 'utc')::date) as dropped;
