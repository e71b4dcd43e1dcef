-- Bringing destinations in line with leads.

create table leadsync.destinations (
    name text collate "C" not null primary key,
    active boolean not null default true,
    next_call_at timestamptz not null default '-infinity',
    failures integer not null default 0,
    paused_until timestamptz not null default '-infinity',
    pause_kind text check (pause_kind in ('credentials', 'misconfigured', 'slow_down', 'unavailable')),
    pause_code text,
    pause_message text,
    registered_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table leadsync.destinations is 'CRM accounts: what all instances share about them';
comment on column leadsync.destinations.name is 'Name in the configuration';
comment on column leadsync.destinations.active is 'Whether changed leads are marked due for it';
comment on column leadsync.destinations.next_call_at is 'Rate budget: the earliest time of the next call that nobody has taken yet';
comment on column leadsync.destinations.failures is 'Circuit: failed calls in a row; while above 0 one probing call at a time is made';
comment on column leadsync.destinations.paused_until is 'No calls before this time';
comment on column leadsync.destinations.pause_kind is 'Why it is paused';
comment on column leadsync.destinations.pause_code is 'The CRM''s code for it';
comment on column leadsync.destinations.pause_message is 'The CRM''s words for it';
comment on column leadsync.destinations.registered_at is 'When an instance first had it in its configuration';

-- No foreign keys: they would lock a leads and a destinations row for every change of a lead, and the
-- rows are only ever made together with their lead, by one statement.
create table leadsync.lead_sync (
    lead_id uuid not null,
    wanted_version bigint not null,
    confirmed_version bigint,
    next_attempt_at timestamptz not null,
    lease_token bigint not null default 0,
    lease_until timestamptz,
    confirm_after timestamptz,
    sent_at timestamptz,
    synced_at timestamptz,
    last_error_at timestamptz,
    attempts integer not null default 0,
    destination text collate "C" not null,
    state text collate "C" not null check (state in ('due', 'synced', 'parked', 'skipped')),
    lease_holder text,
    remote_id text,
    sent_hash bytea,
    last_error_kind text,
    last_error_code text,
    last_error_message text,
    constraint lead_sync_pkey primary key (lead_id, destination)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table leadsync.lead_sync is 'One row per lead and destination: what the CRM should have, what it has confirmed, what is next';
comment on column leadsync.lead_sync.lead_id is 'leads.lead_id';
comment on column leadsync.lead_sync.destination is 'destinations.name';
comment on column leadsync.lead_sync.state is 'due: to be pushed (leased while lease_until is ahead); synced: the CRM confirmed exactly wanted_version; parked: refused by the CRM until the lead changes or somebody requeues it; skipped: nothing to send';
comment on column leadsync.lead_sync.wanted_version is 'leads.version that the CRM should have';
comment on column leadsync.lead_sync.confirmed_version is 'leads.version that the CRM last confirmed';
comment on column leadsync.lead_sync.next_attempt_at is 'Place in the queue; after a failure the end of its backoff';
comment on column leadsync.lead_sync.lease_token is 'Fence: only the holder of the newest token may settle';
comment on column leadsync.lead_sync.lease_until is 'The lead belongs to lease_holder until then, by the clock of the database';
comment on column leadsync.lead_sync.lease_holder is 'Instance that is pushing it; still set after a lease ran out, which tells a stolen lease';
comment on column leadsync.lead_sync.confirm_after is 'After a stolen lease or an unknown outcome: not in sync before a push made after this time';
comment on column leadsync.lead_sync.attempts is 'Failed attempts since the last success';
comment on column leadsync.lead_sync.remote_id is 'The CRM''s id of the contact';
comment on column leadsync.lead_sync.sent_hash is 'Digest of what the CRM last confirmed; the same again needs no call';
comment on column leadsync.lead_sync.sent_at is 'When it was last pushed';
comment on column leadsync.lead_sync.synced_at is 'When it was last in sync';
comment on column leadsync.lead_sync.last_error_kind is 'record, slow_down, unavailable, unknown, credentials or misconfigured';
comment on column leadsync.lead_sync.last_error_code is 'The CRM''s code';
comment on column leadsync.lead_sync.last_error_message is 'The CRM''s words';
comment on column leadsync.lead_sync.last_error_at is 'When';

-- Lease columns stay out of the index and its predicate, so that claiming and settling back to due are HOT.
create index lead_sync_due on leadsync.lead_sync (destination, next_attempt_at) where state = 'due';
-- What people ask for: nearly empty where all is well.
create index lead_sync_parked on leadsync.lead_sync (destination, last_error_code) where state = 'parked';
create index lead_sync_last_error on leadsync.lead_sync (destination, last_error_at) where last_error_at is not null;
