-- Bring the counts by day and source forward, by a week at most.
-- Result: whether there is more to count.
select leadsync.count_days() as more;
