-- Sources that send only ids: what is to be read at their APIs.

create table leadsync.source_apis (
    name text collate "C" not null primary key,
    next_call_at timestamptz not null default '-infinity',
    failures integer not null default 0,
    paused_until timestamptz not null default '-infinity',
    pause_kind text check (pause_kind in ('credentials', 'misconfigured', 'slow_down', 'unavailable')),
    pause_code text,
    pause_message text,
    next_poll_at timestamptz not null default '-infinity',
    polled_to timestamptz,
    poll_error text,
    registered_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
comment on table leadsync.source_apis is 'APIs of sources that send only ids: what all instances share about them';
comment on column leadsync.source_apis.name is 'Name of the source in the configuration';
comment on column leadsync.source_apis.next_call_at is 'Rate budget: the earliest time of the next call that nobody has taken yet';
comment on column leadsync.source_apis.failures is 'Circuit: failed calls in a row; while above 0 one probing call at a time is made';
comment on column leadsync.source_apis.paused_until is 'No calls before this time';
comment on column leadsync.source_apis.pause_kind is 'Why it is paused';
comment on column leadsync.source_apis.pause_code is 'The API''s code for it';
comment on column leadsync.source_apis.pause_message is 'The API''s words for it';
comment on column leadsync.source_apis.next_poll_at is 'When one instance looks next for leads whose webhook never came';
comment on column leadsync.source_apis.polled_to is 'Leads up to this time were listed completely; null before the first time';
comment on column leadsync.source_apis.poll_error is 'Why the last listing failed; null where it did not';
comment on column leadsync.source_apis.registered_at is 'When an instance first had it in its configuration';

create table leadsync.fetches (
    changed_at timestamptz,
    next_attempt_at timestamptz not null,
    wanted bigint not null default 1,
    lease_token bigint not null default 0,
    lease_until timestamptz,
    requested_at timestamptz not null default clock_timestamp(),
    fetched_at timestamptz,
    last_error_at timestamptz,
    lead_id uuid,
    attempts integer not null default 0,
    source text collate "C" not null,
    object text collate "C" not null,
    remote_id text collate "C" not null,
    state text collate "C" not null default 'due' check (state in ('due', 'done', 'parked', 'deleted')),
    found_by text collate "C" not null check (found_by in ('webhook', 'poll')),
    lease_holder text,
    outcome text,
    reason text,
    last_error_kind text,
    last_error_code text,
    last_error_message text,
    constraint fetches_pkey primary key (source, object, remote_id)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
comment on table leadsync.fetches is 'One row per thing at a source that was told of by its id: whether it is read, what became of it, what is next';
comment on column leadsync.fetches.source is 'source_apis.name';
comment on column leadsync.fetches.object is 'Kind of thing: lead or contact';
comment on column leadsync.fetches.remote_id is 'Its id at the source';
comment on column leadsync.fetches.state is 'due: to be read (leased while lease_until is ahead); done: read and delivered; parked: the API does not give it, until it changes or somebody requeues it; deleted: gone at the source, not read';
comment on column leadsync.fetches.found_by is 'What told of it first: a webhook, or the poll for leads whose webhook never came';
comment on column leadsync.fetches.changed_at is 'Newest change that an event or the document itself told of; null where it never changes';
comment on column leadsync.fetches.wanted is 'Counts the changes that made it due: a reading settles only the one that it was claimed for';
comment on column leadsync.fetches.next_attempt_at is 'Place in the queue; after a failure the end of its backoff';
comment on column leadsync.fetches.lease_token is 'Fence: only the holder of the newest token may settle';
comment on column leadsync.fetches.lease_until is 'It belongs to lease_holder until then, by the clock of the database';
comment on column leadsync.fetches.lease_holder is 'Instance that is reading it';
comment on column leadsync.fetches.attempts is 'Failed attempts since the last success';
comment on column leadsync.fetches.requested_at is 'When it was first told of';
comment on column leadsync.fetches.fetched_at is 'When it was last read and delivered';
comment on column leadsync.fetches.outcome is 'What became of the document: the outcome of its delivery';
comment on column leadsync.fetches.reason is 'Stable word saying why that was rejected or ignored';
comment on column leadsync.fetches.lead_id is 'leads.lead_id that it became';
comment on column leadsync.fetches.last_error_kind is 'record, unavailable or storage';
comment on column leadsync.fetches.last_error_code is 'The API''s code';
comment on column leadsync.fetches.last_error_message is 'The API''s words';
comment on column leadsync.fetches.last_error_at is 'When';

-- Lease columns stay out of the index and its predicate, so that claiming is HOT.
create index fetches_due on leadsync.fetches (source, next_attempt_at) where state = 'due';
-- What people ask for: nearly empty where all is well.
create index fetches_parked on leadsync.fetches (source, last_error_code) where state = 'parked';
create index fetches_last_error on leadsync.fetches (source, last_error_at) where last_error_at is not null;

-- A delivery that only tells of ids is `queued`. Not validated: the constraint that goes was narrower.
alter table leadsync.deliveries
    drop constraint deliveries_outcome_check,
    add constraint deliveries_outcome_check
        check (outcome in ('created', 'updated', 'unchanged', 'queued', 'rejected', 'ignored')) not valid;
comment on column leadsync.deliveries.outcome is 'What became of it: created, updated, unchanged, queued, rejected or ignored; of several leads in it the first in that order';
comment on column leadsync.deliveries.items is 'One object per lead in it where there are several or something is to be told of one: outcome, reason, detail, field_errors, remote_id';

select leadsync.grant_roles();
