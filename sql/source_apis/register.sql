-- Make sure that the APIs of the configured sources $1 are known, and forget pauses that only somebody with a new
-- configuration could end.
-- Result: the number of rows touched.
insert into leadsync.source_apis as a (name)
select n from unnest($1::text[]) as n order by n collate "C"
on conflict (name) do update set paused_until = '-infinity', pause_kind = null, pause_code = null, pause_message = null
where a.pause_kind in ('credentials', 'misconfigured');
