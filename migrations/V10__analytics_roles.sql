-- Roles for people: who sees what, and the functions for operators.
--
-- leadsync_analyst reads the views of the schema analytics and nothing else. leadsync_analyst_masked reads views of the
-- same names and columns in the schema analytics_masked, in which personal values are masked. Masking is done by views
-- of their own, so that no expression, function or plan of the reader ever holds the value itself.

create schema analytics_masked;
comment on schema analytics_masked is 'The views of the schema analytics with personal values masked: same names, columns and types';

create function leadsync.masked(value text) returns text
language sql immutable parallel safe
return case when value is not null then '***' end;
comment on function leadsync.masked(text) is 'Nothing of the value but whether there is one';

create function leadsync.masked_word(word text) returns text
language sql immutable parallel safe
return case when position('@' in word) > 0 or word ~ '[0-9]{7}' then '***' else word end;
comment on function leadsync.masked_word(text) is 'A word of a vocabulary (source, campaign, country ...) unless somebody put an address or a long number into it';

create function leadsync.masked_page(page text) returns text
language sql immutable parallel safe
return leadsync.masked_word(split_part(split_part(page, '?', 1), '#', 1));
comment on function leadsync.masked_page(text) is 'A page without query and fragment';

create function leadsync.masked_field(field text) returns text
language sql immutable parallel safe
return case when field like 'attributes.%' then 'attributes.***' else field end;
comment on function leadsync.masked_field(text) is 'A field; custom ones without their name, which the sender may choose';

create function leadsync.masked_value(field text, value text) returns text
language sql immutable parallel safe
return case
    when field in ('lifecycle_stage', 'marketing_consent', 'first_seen_at', 'last_seen_at') then value
    when field in (
        'region', 'country', 'language', 'first_source', 'last_source', 'utm_source', 'utm_medium', 'utm_campaign', 'utm_term', 'utm_content'
    ) then leadsync.masked_word(value)
    when field = 'landing_page' then leadsync.masked_page(value)
    else leadsync.masked(value)
end;
comment on function leadsync.masked_value(text, text) is 'The value of a field as analytics_masked.leads shows it';

create view analytics_masked.leads with (security_barrier) as
select
    v.lead_id, leadsync.masked(v.email) as email, leadsync.masked(v.email_as_typed) as email_as_typed,
    leadsync.masked(v.first_name) as first_name, leadsync.masked(v.last_name) as last_name,
    leadsync.masked(v.full_name) as full_name, leadsync.masked(v.phone) as phone, leadsync.masked(v.company) as company,
    leadsync.masked(v.job_title) as job_title, leadsync.masked(v.website) as website, leadsync.masked(v.city) as city,
    leadsync.masked_word(v.region) as region, leadsync.masked_word(v.country) as country,
    leadsync.masked_word(v.language) as language, leadsync.masked(v.message) as message, v.lifecycle_stage,
    v.marketing_consent, array_fill('***'::text, array[cardinality(v.tags)]) as tags,
    case when v.attributes = '{}' then '{}' else jsonb '{"***": "***"}' end as attributes,
    leadsync.masked_word(v.first_source) as first_source, v.first_seen_at, leadsync.masked_word(v.utm_source) as utm_source,
    leadsync.masked_word(v.utm_medium) as utm_medium, leadsync.masked_word(v.utm_campaign) as utm_campaign,
    leadsync.masked_word(v.utm_term) as utm_term, leadsync.masked_word(v.utm_content) as utm_content,
    leadsync.masked_page(v.landing_page) as landing_page, leadsync.masked_word(v.last_source) as last_source, v.last_seen_at,
    v.version, v.created_at, v.created_day, v.updated_at
from analytics.leads as v;

comment on view analytics_masked.leads is 'One row per lead, as it is now';
comment on column analytics_masked.leads.lead_id is 'Id of the lead';
comment on column analytics_masked.leads.email is 'Normalised address; masked';
comment on column analytics_masked.leads.email_as_typed is 'The address as the newest event wrote it; masked';
comment on column analytics_masked.leads.first_name is 'Given name; masked';
comment on column analytics_masked.leads.last_name is 'Family name; masked';
comment on column analytics_masked.leads.full_name is 'The whole name; masked';
comment on column analytics_masked.leads.phone is 'E.164; masked';
comment on column analytics_masked.leads.company is 'Company; masked';
comment on column analytics_masked.leads.job_title is 'Job title; masked';
comment on column analytics_masked.leads.website is 'Web address; masked';
comment on column analytics_masked.leads.city is 'City; masked';
comment on column analytics_masked.leads.region is 'State, province or region; masked';
comment on column analytics_masked.leads.country is 'Country, as the sender writes it; masked';
comment on column analytics_masked.leads.language is 'Language, as the sender writes it; masked';
comment on column analytics_masked.leads.message is 'Free text the lead wrote; masked';
comment on column analytics_masked.leads.lifecycle_stage is 'Stage in the life cycle; only moves forward';
comment on column analytics_masked.leads.marketing_consent is 'True: opted in. False: opted out. Null: unknown';
comment on column analytics_masked.leads.tags is 'Tags, sorted; masked';
comment on column analytics_masked.leads.attributes is 'Custom attributes by name; null: cleared on purpose; masked';
comment on column analytics_masked.leads.first_source is 'Source of the first touch; masked';
comment on column analytics_masked.leads.first_seen_at is 'Event time of the first touch; null where no event had one';
comment on column analytics_masked.leads.utm_source is 'utm_source of the first touch; masked';
comment on column analytics_masked.leads.utm_medium is 'utm_medium of the first touch; masked';
comment on column analytics_masked.leads.utm_campaign is 'utm_campaign of the first touch; masked';
comment on column analytics_masked.leads.utm_term is 'utm_term of the first touch; masked';
comment on column analytics_masked.leads.utm_content is 'utm_content of the first touch; masked';
comment on column analytics_masked.leads.landing_page is 'Page of the first touch; masked';
comment on column analytics_masked.leads.last_source is 'Source of the last touch; masked';
comment on column analytics_masked.leads.last_seen_at is 'Event time of the last touch; null where no event had one';
comment on column analytics_masked.leads.version is 'Moves by one whenever a value changes';
comment on column analytics_masked.leads.created_at is 'When the first event was stored';
comment on column analytics_masked.leads.created_day is 'The same as a day (UTC); filter by it, it is indexed';
comment on column analytics_masked.leads.updated_at is 'When version last moved';

create view analytics_masked.lead_fields with (security_barrier) as
select
    v.lead_id, leadsync.masked(v.email) as email, leadsync.masked_field(v.field) as field,
    leadsync.masked_value(v.field, v.value) as value, v.occurred_at, leadsync.masked_word(v.source) as source, v.trust,
    v.changed_at, v.delivery_id
from analytics.lead_fields as v;

comment on view analytics_masked.lead_fields is 'One row per lead and value: where it comes from';
comment on column analytics_masked.lead_fields.lead_id is 'Id of the lead';
comment on column analytics_masked.lead_fields.email is 'Normalised address; masked';
comment on column analytics_masked.lead_fields.field is 'Column of leads, or attributes.NAME; masked';
comment on column analytics_masked.lead_fields.value is 'The value as text; null: cleared on purpose; masked';
comment on column analytics_masked.lead_fields.occurred_at is 'Event time of the word that stands; null where it had none';
comment on column analytics_masked.lead_fields.source is 'Source that said it; null where several did (tags); masked';
comment on column analytics_masked.lead_fields.trust is 'Trust of that source when it said it; null where trust plays no part';
comment on column analytics_masked.lead_fields.changed_at is 'When the value last changed here, as far as the history goes back';
comment on column analytics_masked.lead_fields.delivery_id is 'The delivery that most likely brought the value: the newest of that source, up to changed_at, that changed the lead; null where it is not archived any more';

create view analytics_masked.lead_changes with (security_barrier) as
select
    v.lead_id, leadsync.masked(v.email) as email, v.version, v.changed_at, leadsync.masked_field(v.field) as field,
    leadsync.masked_value(v.field, v.from_value) as from_value, leadsync.masked_value(v.field, v.to_value) as to_value,
    leadsync.masked_word(v.from_source) as from_source, leadsync.masked_word(v.to_source) as to_source, v.from_occurred_at,
    v.to_occurred_at, v.recorded
from analytics.lead_changes as v;

comment on view analytics_masked.lead_changes is 'History of leads: one row per changed value, from the first on';
comment on column analytics_masked.lead_changes.lead_id is 'Id of the lead';
comment on column analytics_masked.lead_changes.email is 'Normalised address; masked';
comment on column analytics_masked.lead_changes.version is 'Version of the lead with this change; 1: as it was created';
comment on column analytics_masked.lead_changes.changed_at is 'When it was stored';
comment on column analytics_masked.lead_changes.field is 'Column of leads, or attributes.NAME; masked';
comment on column analytics_masked.lead_changes.from_value is 'The value before; null: none; masked';
comment on column analytics_masked.lead_changes.to_value is 'The value after; null: cleared; masked';
comment on column analytics_masked.lead_changes.from_source is 'Source of the value before; masked';
comment on column analytics_masked.lead_changes.to_source is 'Source of the value after; masked';
comment on column analytics_masked.lead_changes.from_occurred_at is 'Event time of the value before';
comment on column analytics_masked.lead_changes.to_occurred_at is 'Event time of the value after';
comment on column analytics_masked.lead_changes.recorded is 'True: written when it happened. False: a value the lead began with, as far as the history goes back';

create view analytics_masked.lead_timeline with (security_barrier) as
select
    v.lead_id, leadsync.masked(v.email) as email, v.at, v.event, leadsync.masked_word(v.who) as who, v.version,
    v.delivery_id, leadsync.masked_word(v.summary) as summary, leadsync.masked(v.detail) as detail
from analytics.lead_timeline as v;

comment on view analytics_masked.lead_timeline is 'Everything that happened to a lead, in the order of at; ask for one lead, by lead_id or email';
comment on column analytics_masked.lead_timeline.lead_id is 'Id of the lead';
comment on column analytics_masked.lead_timeline.email is 'Normalised address; masked';
comment on column analytics_masked.lead_timeline.at is 'When; of event next a time to come';
comment on column analytics_masked.lead_timeline.event is 'delivery, created, change, push (the last one), synced (the last time), error (the last one) or next';
comment on column analytics_masked.lead_timeline.who is 'The source of a delivery; the destination of a push, an error and what is next; masked';
comment on column analytics_masked.lead_timeline.version is 'Version of the lead that it is about';
comment on column analytics_masked.lead_timeline.delivery_id is 'The delivery';
comment on column analytics_masked.lead_timeline.summary is 'What happened, without personal data; masked';
comment on column analytics_masked.lead_timeline.detail is 'Values and words: may hold personal data; masked';

create view analytics_masked.sync_state with (security_barrier) as
select
    v.lead_id, leadsync.masked(v.email) as email, v.destination, v.state, v.wanted_version, v.confirmed_version, v.attempts,
    v.next_attempt_at, v.last_error_kind, leadsync.masked_word(v.last_error_code) as last_error_code,
    leadsync.masked(v.last_error_message) as last_error_message, v.last_error_at, leadsync.masked(v.remote_id) as remote_id,
    v.sent_at, v.synced_at, v.lag
from analytics.sync_state as v;

comment on view analytics_masked.sync_state is 'One row per lead and destination: what the CRM has, and what is next';
comment on column analytics_masked.sync_state.lead_id is 'Id of the lead';
comment on column analytics_masked.sync_state.email is 'Normalised address; masked';
comment on column analytics_masked.sync_state.destination is 'The CRM account';
comment on column analytics_masked.sync_state.state is 'due, leased (somebody is sending it now), synced, parked (refused until the lead changes or somebody requeues it) or skipped (nothing to send)';
comment on column analytics_masked.sync_state.wanted_version is 'Version that the CRM should have';
comment on column analytics_masked.sync_state.confirmed_version is 'Version that it last confirmed';
comment on column analytics_masked.sync_state.attempts is 'Failed attempts since the last success';
comment on column analytics_masked.sync_state.next_attempt_at is 'When it is tried next; null where nothing is due';
comment on column analytics_masked.sync_state.last_error_kind is 'record, slow_down, unavailable, unknown, credentials or misconfigured';
comment on column analytics_masked.sync_state.last_error_code is 'The CRM''s code; masked';
comment on column analytics_masked.sync_state.last_error_message is 'The CRM''s words; masked';
comment on column analytics_masked.sync_state.last_error_at is 'When';
comment on column analytics_masked.sync_state.remote_id is 'Id of the contact there; masked';
comment on column analytics_masked.sync_state.sent_at is 'When it was last sent';
comment on column analytics_masked.sync_state.synced_at is 'When it was last in sync';
comment on column analytics_masked.sync_state.lag is 'How long the change that the CRM does not have yet has been waiting; null where it has all';

create view analytics_masked.sync_backlog with (security_barrier) as
select
    v.destination, v.active, v.due, v.leased, v.waiting, v.parked, v.oldest_change_at, v.next_attempt_at, v.paused_until,
    v.pause_kind, leadsync.masked_word(v.pause_code) as pause_code, leadsync.masked(v.pause_message) as pause_message,
    v.failures
from analytics.sync_backlog as v;

comment on view analytics_masked.sync_backlog is 'One row per destination: what waits, and why';
comment on column analytics_masked.sync_backlog.destination is 'The CRM account';
comment on column analytics_masked.sync_backlog.active is 'Whether it is in the configuration';
comment on column analytics_masked.sync_backlog.due is 'Leads to push, those being pushed included';
comment on column analytics_masked.sync_backlog.leased is 'Leads being pushed now';
comment on column analytics_masked.sync_backlog.waiting is 'Leads due that wait after a failed attempt or to be confirmed once more';
comment on column analytics_masked.sync_backlog.parked is 'Leads that the CRM refused';
comment on column analytics_masked.sync_backlog.oldest_change_at is 'Time of the change that has waited longest';
comment on column analytics_masked.sync_backlog.next_attempt_at is 'When the next lead is tried';
comment on column analytics_masked.sync_backlog.paused_until is 'Until when no calls are made; null: not paused';
comment on column analytics_masked.sync_backlog.pause_kind is 'Why: credentials, misconfigured, slow_down or unavailable';
comment on column analytics_masked.sync_backlog.pause_code is 'The CRM''s code for it; masked';
comment on column analytics_masked.sync_backlog.pause_message is 'The CRM''s words for it; masked';
comment on column analytics_masked.sync_backlog.failures is 'Failed calls in a row';

create view analytics_masked.sync_failures with (security_barrier) as
select
    v.destination, v.state, v.kind, leadsync.masked_word(v.code) as code, v.leads, v.max_attempts, v.first_at, v.last_at,
    leadsync.masked(v.message) as message, v.example_lead_id, leadsync.masked(v.example_email) as example_email
from analytics.sync_failures as v;

comment on view analytics_masked.sync_failures is 'What goes wrong at the CRMs, by cause; leads whose last push succeeded are not in it';
comment on column analytics_masked.sync_failures.destination is 'The CRM account';
comment on column analytics_masked.sync_failures.state is 'due (tried again) or parked (refused until the lead changes or somebody requeues it)';
comment on column analytics_masked.sync_failures.kind is 'record, slow_down, unavailable, unknown, credentials or misconfigured';
comment on column analytics_masked.sync_failures.code is 'The CRM''s code; masked';
comment on column analytics_masked.sync_failures.leads is 'How many leads';
comment on column analytics_masked.sync_failures.max_attempts is 'Most failed attempts of one of them';
comment on column analytics_masked.sync_failures.first_at is 'Oldest of their last errors';
comment on column analytics_masked.sync_failures.last_at is 'Newest';
comment on column analytics_masked.sync_failures.message is 'The CRM''s words, of the newest; masked';
comment on column analytics_masked.sync_failures.example_lead_id is 'The lead of the newest';
comment on column analytics_masked.sync_failures.example_email is 'Its address; masked';

create view analytics_masked.sync_lag with (security_barrier) as
select
    v.hour, v.destination, v.leads, v.p50_seconds, v.p90_seconds, v.p99_seconds, v.max_seconds
from analytics.sync_lag as v;

comment on view analytics_masked.sync_lag is 'From the change to the CRM''s confirmation, per hour of the last seven days: of leads whose newest version came in sync in that hour';
comment on column analytics_masked.sync_lag.hour is 'Hour (UTC) of the confirmation; filter by it, it is indexed';
comment on column analytics_masked.sync_lag.destination is 'The CRM account';
comment on column analytics_masked.sync_lag.leads is 'How many leads';
comment on column analytics_masked.sync_lag.p50_seconds is 'Half of them took no longer';
comment on column analytics_masked.sync_lag.p90_seconds is '90 of 100 took no longer';
comment on column analytics_masked.sync_lag.p99_seconds is '99 of 100 took no longer';
comment on column analytics_masked.sync_lag.max_seconds is 'The longest';

create view analytics_masked.deliveries with (security_barrier) as
select
    v.delivery_id, v.received_at, v.last_received_at, v.copies, v.source, v.outcome,
    leadsync.masked_word(v.reason) as reason, leadsync.masked(v.detail) as detail, leadsync.masked(v.problems) as problems,
    v.lead_id, v.lead_ids, leadsync.masked(v.idempotency_key) as idempotency_key, v.body_bytes
from analytics.deliveries as v;

comment on view analytics_masked.deliveries is 'What arrived, once per distinct body and source; never the body itself';
comment on column analytics_masked.deliveries.delivery_id is 'The same delivery again has the same id';
comment on column analytics_masked.deliveries.received_at is 'When the first copy was received; indexed';
comment on column analytics_masked.deliveries.last_received_at is 'When the latest copy was received';
comment on column analytics_masked.deliveries.copies is 'How often it was received';
comment on column analytics_masked.deliveries.source is 'Source it was sent to';
comment on column analytics_masked.deliveries.outcome is 'created, updated, unchanged, rejected or ignored; of several leads in it the first in that order';
comment on column analytics_masked.deliveries.reason is 'Stable word saying why it was rejected or ignored; masked';
comment on column analytics_masked.deliveries.detail is 'The same in words; may quote what was sent; masked';
comment on column analytics_masked.deliveries.problems is 'Values that could not be used: field and problem; null: none; masked';
comment on column analytics_masked.deliveries.lead_id is 'The lead it speaks about, the first of several';
comment on column analytics_masked.deliveries.lead_ids is 'All leads it speaks about';
comment on column analytics_masked.deliveries.idempotency_key is 'Idempotency-Key of the request; masked';
comment on column analytics_masked.deliveries.body_bytes is 'Size of the body';

create view analytics_masked.sources_daily with (security_barrier) as
select
    v.day, v.source, v.deliveries, v.created, v.updated, v.unchanged, v.rejected, v.ignored, v.repeats, v.bytes
from analytics.sources_daily as v;

comment on view analytics_masked.sources_daily is 'Deliveries per source and day, by outcome; goes back further than the deliveries are kept';
comment on column analytics_masked.sources_daily.day is 'Day (UTC) of the receipt';
comment on column analytics_masked.sources_daily.source is 'Source they were sent to';
comment on column analytics_masked.sources_daily.deliveries is 'Distinct deliveries';
comment on column analytics_masked.sources_daily.created is 'Of these: made a lead';
comment on column analytics_masked.sources_daily.updated is 'Of these: changed a lead';
comment on column analytics_masked.sources_daily.unchanged is 'Of these: said nothing new';
comment on column analytics_masked.sources_daily.rejected is 'Of these: could not become a lead';
comment on column analytics_masked.sources_daily.ignored is 'Of these: not about a lead';
comment on column analytics_masked.sources_daily.repeats is 'Further copies received on that day, of deliveries of any day';
comment on column analytics_masked.sources_daily.bytes is 'Size of their bodies, without repeats';

create view analytics_masked.duplicate_deliveries with (security_barrier) as
select
    v.day, v.source, v.deliveries, v.repeats, v.share
from analytics.duplicate_deliveries as v;

comment on view analytics_masked.duplicate_deliveries is 'Repeats that were absorbed, per source and day: each would have been a double or an overwrite elsewhere';
comment on column analytics_masked.duplicate_deliveries.day is 'Day (UTC) of the repeats';
comment on column analytics_masked.duplicate_deliveries.source is 'Source they were sent to';
comment on column analytics_masked.duplicate_deliveries.deliveries is 'Distinct deliveries of that day';
comment on column analytics_masked.duplicate_deliveries.repeats is 'Further copies received on that day, of deliveries of any day';
comment on column analytics_masked.duplicate_deliveries.share is 'Repeats in all that arrived on that day, 0 to 1';

create view analytics_masked.rejected_deliveries with (security_barrier) as
select
    v.day, v.source, leadsync.masked_word(v.reason) as reason, v.deliveries, v.copies, v.last_received_at,
    v.example_delivery_id, leadsync.masked(v.example_detail) as example_detail
from analytics.rejected_deliveries as v;

comment on view analytics_masked.rejected_deliveries is 'Deliveries that could not become leads, or of several leads some could not, by day and cause';
comment on column analytics_masked.rejected_deliveries.day is 'Day (UTC) of the receipt';
comment on column analytics_masked.rejected_deliveries.source is 'Source they were sent to';
comment on column analytics_masked.rejected_deliveries.reason is 'Stable word saying why; masked';
comment on column analytics_masked.rejected_deliveries.deliveries is 'Distinct deliveries';
comment on column analytics_masked.rejected_deliveries.copies is 'How often they were received in all';
comment on column analytics_masked.rejected_deliveries.last_received_at is 'When the latest copy was received';
comment on column analytics_masked.rejected_deliveries.example_delivery_id is 'The newest one';
comment on column analytics_masked.rejected_deliveries.example_detail is 'Its cause in words; may quote what was sent; masked';

create view analytics_masked.invalid_values with (security_barrier) as
select
    v.day, leadsync.masked_word(v.source) as source, leadsync.masked_field(v.field) as field,
    leadsync.masked_word(v.problem) as problem, v.deliveries, v.last_received_at, v.example_delivery_id
from analytics.invalid_values as v;

comment on view analytics_masked.invalid_values is 'Values that could not be used and were left out, by day, source, field and problem';
comment on column analytics_masked.invalid_values.day is 'Day (UTC) of the receipt; filter by it, it is indexed';
comment on column analytics_masked.invalid_values.source is 'Source they were sent to; masked';
comment on column analytics_masked.invalid_values.field is 'Column of leads, or attributes.NAME; masked';
comment on column analytics_masked.invalid_values.problem is 'What was wrong with the value; masked';
comment on column analytics_masked.invalid_values.deliveries is 'Distinct deliveries';
comment on column analytics_masked.invalid_values.last_received_at is 'When the newest of them was received first';
comment on column analytics_masked.invalid_values.example_delivery_id is 'The newest one';

create view analytics_masked.attribution with (security_barrier) as
select
    v.day, leadsync.masked_word(v.first_source) as first_source, leadsync.masked_word(v.utm_source) as utm_source,
    leadsync.masked_word(v.utm_medium) as utm_medium, leadsync.masked_word(v.utm_campaign) as utm_campaign,
    leadsync.masked_word(v.last_source) as last_source, v.leads, v.consented, v.qualified, v.customers
from analytics.attribution as v;

comment on view analytics_masked.attribution is 'Leads by day, first and last touch, and what became of them; filter by day, it is indexed';
comment on column analytics_masked.attribution.day is 'Day (UTC) on which the lead was created';
comment on column analytics_masked.attribution.first_source is 'Source of the first touch; masked';
comment on column analytics_masked.attribution.utm_source is 'utm_source of the first touch; masked';
comment on column analytics_masked.attribution.utm_medium is 'utm_medium of the first touch; masked';
comment on column analytics_masked.attribution.utm_campaign is 'utm_campaign of the first touch; masked';
comment on column analytics_masked.attribution.last_source is 'Source of the last touch; masked';
comment on column analytics_masked.attribution.leads is 'How many leads';
comment on column analytics_masked.attribution.consented is 'Of these: opted in to marketing';
comment on column analytics_masked.attribution.qualified is 'Of these: at least marketing_qualified_lead';
comment on column analytics_masked.attribution.customers is 'Of these: at least customer';

create view analytics_masked.funnel with (security_barrier) as
select
    v.day, leadsync.masked_word(v.first_source) as first_source, v.stage, v.stage_rank, v.leads, v.reached
from analytics.funnel as v;

comment on view analytics_masked.funnel is 'Leads by day, first source and stage; filter by day, it is indexed';
comment on column analytics_masked.funnel.day is 'Day (UTC) on which the lead was created';
comment on column analytics_masked.funnel.first_source is 'Source of the first touch; masked';
comment on column analytics_masked.funnel.stage is 'Stage the leads are in now; null: unknown';
comment on column analytics_masked.funnel.stage_rank is 'Its place, from 1; 0: unknown';
comment on column analytics_masked.funnel.leads is 'Leads in exactly that stage';
comment on column analytics_masked.funnel.reached is 'Leads in that stage or further';

create view analytics_masked.data_quality with (security_barrier) as
select
    v.day, leadsync.masked_word(v.source) as source, v.problem, v.found, v.checked
from analytics.data_quality as v;

comment on view analytics_masked.data_quality is 'What is missing or doubtful in leads, by day, first source and check; filter by day, it is indexed';
comment on column analytics_masked.data_quality.day is 'Day (UTC) on which the lead was created; of invalid_value the day of the receipt';
comment on column analytics_masked.data_quality.source is 'Source of the first touch; of invalid_value the source of the delivery; masked';
comment on column analytics_masked.data_quality.problem is 'missing_phone, missing_name, missing_company, missing_country, unknown_consent, role_address, disposable_address, shared_phone (another lead has it), or invalid_value (a delivery with a value that could not be used)';
comment on column analytics_masked.data_quality.found is 'How many leads; of invalid_value how many deliveries';
comment on column analytics_masked.data_quality.checked is 'Of how many leads; null for invalid_value';

create view analytics_masked.possible_duplicates with (security_barrier) as
select
    v.reason, leadsync.masked(v.key) as key, v.leads, v.lead_ids,
    array_fill('***'::text, array[cardinality(v.emails)]) as emails, v.newest_at
from analytics.possible_duplicates as v;

comment on view analytics_masked.possible_duplicates is 'Leads that may be one person under different addresses: shown, never merged';
comment on column analytics_masked.possible_duplicates.reason is 'phone (the same phone) or name_company (the same name and company, letter case aside)';
comment on column analytics_masked.possible_duplicates.key is 'What they share; masked';
comment on column analytics_masked.possible_duplicates.leads is 'How many leads';
comment on column analytics_masked.possible_duplicates.lead_ids is 'Which';
comment on column analytics_masked.possible_duplicates.emails is 'Their addresses; masked';
comment on column analytics_masked.possible_duplicates.newest_at is 'When the newest of them was created';

-- For operators.

create function analytics.requeue(destination text default null, code text default null, email text default null) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    requeued bigint;
begin
    if coalesce(requeue.destination, requeue.code, requeue.email) is null then
        raise exception 'say which leads: requeue(destination => ...), requeue(code => ...) or requeue(email => ...)';
    end if;
    -- As sql/sync/requeue.sql. Rows are locked in key order.
    with chosen as (
        select s.lead_id, s.destination
        from leadsync.lead_sync as s
        where (s.state = 'parked' or (s.state = 'due' and s.attempts > 0))
            and (requeue.destination is null or s.destination = requeue.destination)
            and (requeue.code is null or s.last_error_code = requeue.code)
            and (requeue.email is null or s.lead_id = (select l.lead_id from leadsync.leads as l where l.email = lower(btrim(requeue.email))))
        order by s.lead_id, s.destination
        for update
    )
    update leadsync.lead_sync as s set state = 'due', next_attempt_at = clock_timestamp(), attempts = 0
    from chosen as c
    where s.lead_id = c.lead_id and s.destination = c.destination;
    get diagnostics requeued = row_count;
    return requeued;
end
$$;
comment on function analytics.requeue(text, text, text) is 'Makes parked leads due now, and leads that wait after a failure due at once: of a destination, with a code of the CRM, of one address, or all of these; returns how many';

create function analytics.explain(email text) returns setof text
language plpgsql stable
as $$
declare
    lead record;
    line record;
begin
    select v.lead_id, v.email, v.version, v.created_at, v.updated_at into lead
    from analytics.leads as v
    where v.email = lower(btrim(explain.email));
    if not found then
        return next 'there is no such lead';
        return;
    end if;
    return next format('%s is lead %s, version %s', lead.email, lead.lead_id, lead.version);
    return next format('  made %s, last changed %s', to_char(lead.created_at, 'YYYY-MM-DD HH24:MI:SS'), to_char(lead.updated_at, 'YYYY-MM-DD HH24:MI:SS'));
    return next 'Values, and where they come from';
    for line in
        select f.field, f.value, f.source, f.occurred_at, f.trust, f.delivery_id
        from analytics.lead_fields as f
        where f.lead_id = lead.lead_id
        order by f.field collate "C"
    loop
        return next format('  %s: %s', line.field, coalesce(line.value, '(cleared)'))
            || coalesce(', from ' || line.source, '')
            || coalesce(' at ' || to_char(line.occurred_at, 'YYYY-MM-DD HH24:MI:SS'), '')
            || coalesce(', trust ' || line.trust, '')
            || coalesce(', delivery ' || line.delivery_id, '');
    end loop;
    return next 'What happened';
    for line in
        select t.at, t.event, t.who, t.summary, t.detail
        from analytics.lead_timeline as t
        where t.lead_id = lead.lead_id and t.event <> 'next'
        order by t.at, t.event
    loop
        return next format('  %s %s', to_char(line.at, 'YYYY-MM-DD HH24:MI:SS'), line.event)
            || coalesce(' ' || line.who, '') || ': ' || line.summary || coalesce(' (' || line.detail || ')', '');
    end loop;
    return next 'The CRMs, and what is next';
    for line in
        select s.*, b.paused_until, b.pause_kind
        from analytics.sync_state as s
        left join analytics.sync_backlog as b on b.destination = s.destination
        where s.lead_id = lead.lead_id
        order by s.destination
    loop
        return next format('  %s: ', line.destination) || case line.state
            when 'synced' then format('has version %s since %s; nothing is due', line.confirmed_version, to_char(line.synced_at, 'YYYY-MM-DD HH24:MI:SS'))
            when 'leased' then format('version %s is being sent now', line.wanted_version)
            when 'due' then format(
                'version %s is due %s', line.wanted_version,
                case when line.next_attempt_at > statement_timestamp() then 'at ' || to_char(line.next_attempt_at, 'YYYY-MM-DD HH24:MI:SS') else 'now' end
            )
            when 'parked' then format('refused version %s; waits until the lead changes or is requeued', line.wanted_version)
            else line.state
        end
            || case when line.attempts > 0 then format(', after %s failed attempts', line.attempts) else '' end
            || case
                when line.last_error_at is not null then format(
                    '; last error %s at %s', concat_ws(' ', line.last_error_kind, line.last_error_code, '(' || line.last_error_message || ')'),
                    to_char(line.last_error_at, 'YYYY-MM-DD HH24:MI:SS')
                )
                else ''
            end
            || case
                when line.paused_until is not null then format('; the destination is paused (%s) until %s', line.pause_kind, to_char(line.paused_until, 'YYYY-MM-DD HH24:MI:SS'))
                else ''
            end;
    end loop;
end
$$;
comment on function analytics.explain(text) is 'A readable account of one lead, by its address: where each value comes from, what happened, what each CRM has, what is next';

create function analytics_masked.explain(lead_id uuid) returns setof text
language plpgsql stable
as $$
declare
    lead record;
    line record;
begin
    select v.lead_id, v.email, v.version, v.created_at, v.updated_at into lead
    from analytics_masked.leads as v
    where v.lead_id = explain.lead_id;
    if not found then
        return next 'there is no such lead';
        return;
    end if;
    return next format('%s is lead %s, version %s', lead.email, lead.lead_id, lead.version);
    return next format('  made %s, last changed %s', to_char(lead.created_at, 'YYYY-MM-DD HH24:MI:SS'), to_char(lead.updated_at, 'YYYY-MM-DD HH24:MI:SS'));
    return next 'Values, and where they come from';
    for line in
        select f.field, f.value, f.source, f.occurred_at, f.trust, f.delivery_id
        from analytics_masked.lead_fields as f
        where f.lead_id = lead.lead_id
        order by f.field collate "C"
    loop
        return next format('  %s: %s', line.field, coalesce(line.value, '(cleared)'))
            || coalesce(', from ' || line.source, '')
            || coalesce(' at ' || to_char(line.occurred_at, 'YYYY-MM-DD HH24:MI:SS'), '')
            || coalesce(', trust ' || line.trust, '')
            || coalesce(', delivery ' || line.delivery_id, '');
    end loop;
    return next 'What happened';
    for line in
        select t.at, t.event, t.who, t.summary, t.detail
        from analytics_masked.lead_timeline as t
        where t.lead_id = lead.lead_id and t.event <> 'next'
        order by t.at, t.event
    loop
        return next format('  %s %s', to_char(line.at, 'YYYY-MM-DD HH24:MI:SS'), line.event)
            || coalesce(' ' || line.who, '') || ': ' || line.summary || coalesce(' (' || line.detail || ')', '');
    end loop;
    return next 'The CRMs, and what is next';
    for line in
        select s.*, b.paused_until, b.pause_kind
        from analytics_masked.sync_state as s
        left join analytics_masked.sync_backlog as b on b.destination = s.destination
        where s.lead_id = lead.lead_id
        order by s.destination
    loop
        return next format('  %s: ', line.destination) || case line.state
            when 'synced' then format('has version %s since %s; nothing is due', line.confirmed_version, to_char(line.synced_at, 'YYYY-MM-DD HH24:MI:SS'))
            when 'leased' then format('version %s is being sent now', line.wanted_version)
            when 'due' then format(
                'version %s is due %s', line.wanted_version,
                case when line.next_attempt_at > statement_timestamp() then 'at ' || to_char(line.next_attempt_at, 'YYYY-MM-DD HH24:MI:SS') else 'now' end
            )
            when 'parked' then format('refused version %s; waits until the lead changes or is requeued', line.wanted_version)
            else line.state
        end
            || case when line.attempts > 0 then format(', after %s failed attempts', line.attempts) else '' end
            || case
                when line.last_error_at is not null then format(
                    '; last error %s at %s', concat_ws(' ', line.last_error_kind, line.last_error_code, '(' || line.last_error_message || ')'),
                    to_char(line.last_error_at, 'YYYY-MM-DD HH24:MI:SS')
                )
                else ''
            end
            || case
                when line.paused_until is not null then format('; the destination is paused (%s) until %s', line.pause_kind, to_char(line.paused_until, 'YYYY-MM-DD HH24:MI:SS'))
                else ''
            end;
    end loop;
end
$$;
comment on function analytics_masked.explain(uuid) is 'A readable account of one lead, by its id, with personal values masked';

create or replace function leadsync.grant_roles() returns text[]
language plpgsql set search_path = pg_catalog
as $$
declare
    granted text[] := '{}';
    reader record;
    helper regprocedure;
begin
    if exists (select from pg_roles where rolname = 'leadsync_app') then
        grant usage on schema leadsync, analytics, analytics_masked to leadsync_app;
        grant select, insert, update, delete on all tables in schema leadsync to leadsync_app;
        revoke insert, update, delete on leadsync.schema_history from leadsync_app;
        alter default privileges in schema leadsync grant select, insert, update, delete on tables to leadsync_app;
        grant execute on all functions in schema leadsync to leadsync_app;
        revoke execute on function leadsync.grant_roles() from leadsync_app;
        grant select on all tables in schema analytics, analytics_masked to leadsync_app;
        grant execute on all functions in schema analytics, analytics_masked to leadsync_app;
        granted := array_append(granted, 'leadsync_app');
    end if;
    for reader in
        select r.rolname as name, s.schema
        from (values ('leadsync_analyst', 'analytics'), ('leadsync_analyst_masked', 'analytics_masked')) as s (role, schema)
        join pg_roles as r on r.rolname = s.role
    loop
        execute format('grant usage on schema %I to %I', reader.schema, reader.name);
        execute format('grant select on all tables in schema %I to %I', reader.schema, reader.name);
        execute format('grant execute on function %I.explain to %I', reader.schema, reader.name);
        -- A view may read tables that its reader may not, but functions in it run as the reader.
        for helper in
            select p.oid
            from pg_proc as p
            where p.pronamespace = 'leadsync'::regnamespace and p.provolatile <> 'v' and not p.prosecdef
        loop
            execute format('grant execute on function %s to %I', helper, reader.name);
        end loop;
        granted := array_append(granted, reader.name::text);
    end loop;
    return granted;
end
$$;
comment on function leadsync.grant_roles() is 'Gives the roles leadsync_app, leadsync_analyst and leadsync_analyst_masked, those that exist, what they need; returns the roles found';

-- Functions are executable by everybody unless told otherwise.
revoke execute on function leadsync.grant_roles() from public;
revoke execute on function analytics.requeue(text, text, text) from public;
revoke execute on function analytics.explain(text) from public;
revoke execute on function analytics_masked.explain(uuid) from public;

select leadsync.grant_roles();
