-- Keep the sealed refresh token $2 of destination $1, which may not be registered yet: then nothing is marked due for it.
-- Result: the number of rows written.
insert into leadsync.destinations as d (name, active, sealed_token)
values ($1, false, $2)
on conflict (name) do update set sealed_token = excluded.sealed_token;
