-- Roles: the service without DDL. The function is there so that the owner can call it again when a role is made later.

create function leadsync.grant_roles() returns text[]
language plpgsql set search_path = pg_catalog
as $$
declare
    granted text[] := '{}';
begin
    if exists (select from pg_roles where rolname = 'leadsync_app') then
        grant usage on schema leadsync to leadsync_app;
        grant select, insert, update, delete on all tables in schema leadsync to leadsync_app;
        revoke insert, update, delete on leadsync.schema_history from leadsync_app;
        alter default privileges in schema leadsync grant select, insert, update, delete on tables to leadsync_app;
        grant execute on all functions in schema leadsync to leadsync_app;
        revoke execute on function leadsync.grant_roles() from leadsync_app;
        granted := array_append(granted, 'leadsync_app');
    end if;
    return granted;
end
$$;
comment on function leadsync.grant_roles() is 'Gives the role leadsync_app, where it exists, what the service needs; returns the roles found';

-- Functions are executable by everybody unless told otherwise, and these act with the owner's rights.
revoke execute on function leadsync.ensure_delivery_weeks(date, integer) from public;
revoke execute on function leadsync.drop_delivery_weeks(date) from public;
revoke execute on function leadsync.grant_roles() from public;

select leadsync.grant_roles();
