-- Make the partitions of lead_changes of this month and the next two.
-- Result: how many were missing.
select leadsync.ensure_change_months((statement_timestamp() at time zone 'utc')::date, 3) as made;
