-- Make other instances wait that hold a copy of the same deliveries $1 (sorted), until this transaction ends:
-- events without a time of their own count with the receipt of the first copy, so there must be one first.
-- Result: nothing of interest.
select count(pg_advisory_xact_lock(hashtextextended(d::text, 0))) from unnest($1::uuid[]) as d;
