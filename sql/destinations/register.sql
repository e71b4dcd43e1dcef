-- Make sure that the configured destinations $1 exist and are active, and forget pauses that only somebody
-- with a new configuration could end. Others stop being marked due, when $2 says that $1 is all there is.
-- Result: the number of rows touched.
with configured as (
    insert into leadsync.destinations as d (name)
    select n from unnest($1::text[]) as n order by n
    on conflict (name) do update set
        active = true,
        paused_until = case when d.pause_kind in ('credentials', 'misconfigured') or d.pause_code = 'daily' then '-infinity' else d.paused_until end,
        pause_kind = case when d.pause_kind in ('credentials', 'misconfigured') or d.pause_code = 'daily' then null else d.pause_kind end
    where not d.active or d.pause_kind in ('credentials', 'misconfigured') or d.pause_code = 'daily'
)
update leadsync.destinations as d set active = false
where $2 and d.active and d.name <> all ($1::text[]);
