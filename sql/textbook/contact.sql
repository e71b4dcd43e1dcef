-- The contact that the textbook handler knows for e-mail $1.
-- Result: remote_id, none or one row.
select remote_id from leadsync_textbook.contacts where email = $1 order by id limit 1;
