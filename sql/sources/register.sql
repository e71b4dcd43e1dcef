-- Give every configured source $1 (name[]) its number.
-- Result: name and source_id of each. Run it twice where two instances start at once: the second sees all.
with made as (
    insert into leadsync.sources (name)
    select n
    from unnest($1::text[]) as n
    where not exists (select from leadsync.sources as s where s.name = n)
    order by n
    on conflict (name) do nothing
    returning name, source_id
)
select m.name, m.source_id from made as m
union all
select s.name, s.source_id from leadsync.sources as s where s.name = any ($1::text[]);
