-- Remember event $1 as processed, and contact $3 of e-mail $2 as created.
-- Result: nothing.
with event as (insert into leadsync_textbook.processed_events values ($1) on conflict do nothing)
insert into leadsync_textbook.contacts (email, remote_id) values ($2, $3);
