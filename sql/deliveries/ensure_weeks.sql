-- Make the partitions of this week and the next three.
-- Result: how many were missing.
select leadsync.ensure_delivery_weeks(date_trunc('week', statement_timestamp() at time zone 'utc')::date, 4) as made;
