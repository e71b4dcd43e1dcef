-- Identity at CRMs, limits as CRMs tell them, backfill, reconciling.
-- All of it may be there while the previous version still runs: new columns are empty or have a default.

alter table leadsync.lead_sync
    add column creating_since timestamptz,
    add column dropped_fields jsonb,
    add column backfill boolean not null default false,
    drop constraint lead_sync_state_check,
    add constraint lead_sync_state_check check (state in ('due', 'synced', 'parked'));
comment on column leadsync.lead_sync.state is 'due: to be pushed (leased while lease_until is ahead); synced: the CRM confirmed exactly wanted_version; parked: refused by the CRM until the lead changes or somebody requeues it';
comment on column leadsync.lead_sync.creating_since is 'At a CRM that keeps no key: a contact may be made by a call of that time, so none is made again before destination.create_grace is over and a look-up found nothing';
comment on column leadsync.lead_sync.dropped_fields is 'Properties that the CRM refused and that were left out of the last push: list of property, code, message';
comment on column leadsync.lead_sync.backfill is 'Due because the destination or its mapping is new, not because the lead changed: waits for the others';

-- Leads that changed come before those of a backfill, without walking over the backfill's rows.
create index lead_sync_queue on leadsync.lead_sync (destination, backfill, next_attempt_at) where state = 'due';
drop index leadsync.lead_sync_due;
create index lead_sync_remote on leadsync.lead_sync (destination, remote_id) where remote_id is not null;
create index lead_sync_dropped on leadsync.lead_sync (destination) where dropped_fields is not null;

alter table leadsync.destinations
    add column slowdown float8 not null default 1,
    add column slowed_at timestamptz not null default 'epoch',
    add column told_period float8 not null default 0,
    add column day_hour bigint not null default 0,
    add column day_spent integer[] not null default array_fill(0, array[25]),
    add column day_left integer,
    add column day_allowed integer,
    add column day_left_until timestamptz not null default '-infinity',
    add column mapping bytea,
    add column sealed_token bytea;
comment on column leadsync.destinations.slowdown is 'Calls were this many times further apart than the rate asks for at slowed_at: doubles when the CRM asks to slow down';
comment on column leadsync.destinations.slowed_at is 'When slowdown was written; it halves every minute since';
comment on column leadsync.destinations.told_period is 'Seconds between calls that the CRM''s own headers ask for; 0: they do not say';
comment on column leadsync.destinations.day_hour is 'Newest hour since 1970 that day_spent knows of';
comment on column leadsync.destinations.day_spent is 'What was spent of the day''s budget in the last 25 hours: hour h in element h % 25 + 1';
comment on column leadsync.destinations.day_left is 'What the CRM''s headers say is left of its day, less what was spent since; null: they do not say';
comment on column leadsync.destinations.day_allowed is 'What the CRM''s headers say its day allows';
comment on column leadsync.destinations.day_left_until is 'day_left is believed until then';
comment on column leadsync.destinations.mapping is 'Digest of the mapping that every lead in sync was sent with, or compared with';
comment on column leadsync.destinations.sealed_token is 'Newest refresh token that the CRM gave, encrypted with the configured credentials';

create function leadsync.day_spent(spent integer[], known bigint, hour bigint) returns integer[]
language sql immutable parallel safe set search_path = pg_catalog
as $$
    -- Element i holds the newest hour up to `known` with hour % 25 = i - 1.
    select array_agg(case when known - (known - (i - 1)) % 25 > hour - 25 then spent[i] else 0 end order by i)
    from generate_series(1, 25) as i
$$;
comment on function leadsync.day_spent(integer[], bigint, bigint) is 'destinations.day_spent as it is at an hour: older ones are forgotten';

create function leadsync.slowdown(factor float8, at timestamptz, now timestamptz) returns float8
language sql immutable parallel safe set search_path = pg_catalog
as $$
    select greatest(1, factor * power(0.5, least(greatest(extract(epoch from now - at), 0) / 60, 60)))
$$;
comment on function leadsync.slowdown(float8, timestamptz, timestamptz) is 'destinations.slowdown as it is at a time: it halves every minute';

create unlogged table leadsync.reconciled (
    run uuid not null,
    remote_id text collate "C" not null,
    email text collate "C",
    archived boolean not null,
    at timestamptz not null default clock_timestamp(),
    constraint reconciled_pkey primary key (run, remote_id)
);
comment on table leadsync.reconciled is 'Contacts that a run of leadsync reconcile has seen; emptied at its end';
comment on column leadsync.reconciled.run is 'The run';
comment on column leadsync.reconciled.remote_id is 'The CRM''s id';
comment on column leadsync.reconciled.email is 'E-mail there, in lower case';
comment on column leadsync.reconciled.archived is 'In the CRM''s bin';
comment on column leadsync.reconciled.at is 'When it was seen';
create index reconciled_email on leadsync.reconciled (run, email);

select leadsync.grant_roles();
