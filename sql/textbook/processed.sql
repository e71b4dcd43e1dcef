-- Has the textbook handler processed event $1?
-- Result: one boolean.
select exists (select from leadsync_textbook.processed_events where event_id = $1);
