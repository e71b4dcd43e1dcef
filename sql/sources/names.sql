-- Sources by number, for people.
-- Result: source_id, name.
select s.source_id, s.name from leadsync.sources as s;
