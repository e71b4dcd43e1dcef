-- Sources and leads. A lead row is a join of registers: see the README, "How the merge works".

create table leadsync.sources (
    source_id smallint generated always as identity primary key,
    name text collate "C" not null unique,
    registered_at timestamptz not null default clock_timestamp()
);
comment on table leadsync.sources is 'Lead sources by the number that registers carry. Rows are never removed or renumbered.';
comment on column leadsync.sources.source_id is 'Number in the *_source columns of leads';
comment on column leadsync.sources.name is 'Name in the configuration and in the route /hooks/NAME';
comment on column leadsync.sources.registered_at is 'When an instance first had this source in its configuration';

-- Fixed-width columns first, so that no padding is lost. An absent value, its stamp and its source are
-- null and cost nothing.
create table leadsync.leads (
    lead_id uuid not null,
    version bigint not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    first_seen_at timestamptz,
    last_seen_at timestamptz,
    email_as_typed_stamp bigint,
    first_name_stamp bigint,
    last_name_stamp bigint,
    full_name_stamp bigint,
    phone_stamp bigint,
    company_stamp bigint,
    job_title_stamp bigint,
    website_stamp bigint,
    city_stamp bigint,
    region_stamp bigint,
    country_stamp bigint,
    language_stamp bigint,
    message_stamp bigint,
    lifecycle_stage_stamp bigint,
    consent_out_stamp bigint,
    consent_in_stamp bigint,
    consent_proven_stamp bigint,
    first_name_source smallint,
    last_name_source smallint,
    full_name_source smallint,
    phone_source smallint,
    company_source smallint,
    job_title_source smallint,
    website_source smallint,
    city_source smallint,
    region_source smallint,
    country_source smallint,
    language_source smallint,
    message_source smallint,
    lifecycle_stage_source smallint,
    consent_out_source smallint,
    consent_in_source smallint,
    consent_proven_source smallint,
    first_seen_reliable boolean not null,
    last_seen_reliable boolean not null,
    moved boolean not null,
    marketing_consent boolean generated always as (
        case
            when consent_proven_stamp > coalesce(consent_out_stamp, 0) then true
            when consent_out_stamp is not null then false
            when consent_in_stamp is not null then true
        end
    ) stored,
    email text collate "C" not null primary key,
    email_as_typed text collate "C",
    first_name text collate "C",
    last_name text collate "C",
    full_name text collate "C",
    phone text collate "C",
    company text collate "C",
    job_title text collate "C",
    website text collate "C",
    city text collate "C",
    region text collate "C",
    country text collate "C",
    language text collate "C",
    message text collate "C",
    lifecycle_stage text collate "C",
    first_source text collate "C" not null,
    utm_source text collate "C",
    utm_medium text collate "C",
    utm_campaign text collate "C",
    utm_term text collate "C",
    utm_content text collate "C",
    landing_page text collate "C",
    last_source text collate "C" not null,
    tags jsonb,
    attributes jsonb,
    constraint leads_lead_id_key unique (lead_id),
    constraint leads_email_normalised check (email = btrim(email) and octet_length(email) between 3 and 254)
) with (fillfactor = 85);
-- Fillfactor 85 leaves room for HOT updates: 100 % of them stay off the indexes, 85 % at 100 (measured).

comment on table leadsync.leads is 'One row per person, by normalised e-mail: a pure function of the set of events received about them';
comment on column leadsync.leads.lead_id is 'Id for the outside: stable, says nothing about the person';
comment on column leadsync.leads.version is 'Moves by one when a value changed, and only then; what destinations are brought in line with';
comment on column leadsync.leads.created_at is 'When the first event was stored';
comment on column leadsync.leads.updated_at is 'When version last moved';
comment on column leadsync.leads.first_seen_at is 'Event time of the first touch; null where no event had one';
comment on column leadsync.leads.last_seen_at is 'Event time of the last touch; null where no event had one';
comment on column leadsync.leads.first_seen_reliable is 'False: the time is missing or not believable; any believable one comes before it';
comment on column leadsync.leads.last_seen_reliable is 'False: the time is missing or not believable; any believable one replaces it';
comment on column leadsync.leads.moved is 'Whether the last statement that wrote this row moved its version; read back by that statement';
comment on column leadsync.leads.marketing_consent is 'True: opted in. False: opted out, and no later opt-in with proof. Null: unknown';
comment on column leadsync.leads.consent_out_stamp is 'Latest opt-out (stamp without trust)';
comment on column leadsync.leads.consent_in_stamp is 'Latest opt-in without proof (stamp without trust)';
comment on column leadsync.leads.consent_proven_stamp is 'Latest opt-in with proof (stamp without trust)';
comment on column leadsync.leads.consent_out_source is 'Source of the latest opt-out';
comment on column leadsync.leads.consent_in_source is 'Source of the latest opt-in without proof';
comment on column leadsync.leads.consent_proven_source is 'Source of the latest opt-in with proof';
comment on column leadsync.leads.email is 'Normalised address, the key';
comment on column leadsync.leads.email_as_typed is 'The address as the newest event wrote it';
comment on column leadsync.leads.email_as_typed_stamp is 'Order of email_as_typed; see lead_stamp_time()';
comment on column leadsync.leads.first_name is 'Given name';
comment on column leadsync.leads.first_name_stamp is 'Order of first_name: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.first_name_source is 'Source of first_name: sources.source_id';
comment on column leadsync.leads.last_name is 'Family name, with its particles';
comment on column leadsync.leads.last_name_stamp is 'Order of last_name: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.last_name_source is 'Source of last_name: sources.source_id';
comment on column leadsync.leads.full_name is 'The whole name as one text';
comment on column leadsync.leads.full_name_stamp is 'Order of full_name: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.full_name_source is 'Source of full_name: sources.source_id';
comment on column leadsync.leads.phone is 'E.164';
comment on column leadsync.leads.phone_stamp is 'Order of phone: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.phone_source is 'Source of phone: sources.source_id';
comment on column leadsync.leads.company is 'Company or organisation';
comment on column leadsync.leads.company_stamp is 'Order of company: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.company_source is 'Source of company: sources.source_id';
comment on column leadsync.leads.job_title is 'Job title or role';
comment on column leadsync.leads.job_title_stamp is 'Order of job_title: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.job_title_source is 'Source of job_title: sources.source_id';
comment on column leadsync.leads.website is 'Web address';
comment on column leadsync.leads.website_stamp is 'Order of website: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.website_source is 'Source of website: sources.source_id';
comment on column leadsync.leads.city is 'City';
comment on column leadsync.leads.city_stamp is 'Order of city: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.city_source is 'Source of city: sources.source_id';
comment on column leadsync.leads.region is 'State, province or region';
comment on column leadsync.leads.region_stamp is 'Order of region: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.region_source is 'Source of region: sources.source_id';
comment on column leadsync.leads.country is 'Country, as the sender writes it';
comment on column leadsync.leads.country_stamp is 'Order of country: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.country_source is 'Source of country: sources.source_id';
comment on column leadsync.leads.language is 'Language, as the sender writes it';
comment on column leadsync.leads.language_stamp is 'Order of language: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.language_source is 'Source of language: sources.source_id';
comment on column leadsync.leads.message is 'Free text the lead wrote';
comment on column leadsync.leads.message_stamp is 'Order of message: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.message_source is 'Source of message: sources.source_id';
comment on column leadsync.leads.lifecycle_stage is 'Stage in the customer''s life cycle; only moves forward';
comment on column leadsync.leads.lifecycle_stage_stamp is 'Order of lifecycle_stage: what a newer word must exceed; see lead_stamp_time()';
comment on column leadsync.leads.lifecycle_stage_source is 'Source of lifecycle_stage: sources.source_id';
comment on column leadsync.leads.first_source is 'Source of the first touch';
comment on column leadsync.leads.utm_source is 'utm_source of the first touch';
comment on column leadsync.leads.utm_medium is 'utm_medium of the first touch';
comment on column leadsync.leads.utm_campaign is 'utm_campaign of the first touch';
comment on column leadsync.leads.utm_term is 'utm_term of the first touch';
comment on column leadsync.leads.utm_content is 'utm_content of the first touch';
comment on column leadsync.leads.landing_page is 'Page of the first touch';
comment on column leadsync.leads.last_source is 'Source of the last touch';
comment on column leadsync.leads.tags is 'Tags as the keys of an object ({"vip": true}); they are only ever added';
comment on column leadsync.leads.attributes is 'Custom attributes, each a register: {"budget": [stamp, source, "10k"]}; a null third element was cleared';

create function leadsync.lead_stamp_time(stamp bigint) returns timestamptz
language sql immutable parallel safe
return case
    when (stamp >> 1) & ((1::bigint << 55) - 1) = 0 then null
    -- In two parts: the product of a number and an interval is a float, exact up to 2^53 only.
    else timestamptz '2000-01-01 00:00:00+00'
        + ((stamp >> 1) & ((1::bigint << 54) - 1)) / 1000000 * interval '1 second'
        + ((stamp >> 1) & ((1::bigint << 54) - 1)) % 1000000 * interval '1 microsecond'
end;
comment on function leadsync.lead_stamp_time(bigint) is 'Event time in a stamp. A stamp is, from the top: 7 bits trust (for lifecycle_stage the rank of the stage), 1 bit reliable time, 54 bits microseconds since 2000, 1 bit set';

create function leadsync.register_wins(
    stamp bigint, value text, source smallint, current_stamp bigint, current_value text, current_source smallint
) returns boolean
language sql immutable parallel safe
return (stamp, coalesce(value, '') collate "C", source)
    > (coalesce(current_stamp, 0), coalesce(current_value, '') collate "C", coalesce(current_source, 0::smallint));
comment on function leadsync.register_wins(bigint, text, smallint, bigint, text, smallint) is 'Whether a register replaces the current one: greater (stamp, value bytewise, source); null where the event says nothing';

create function leadsync.attribute_wins(candidate jsonb, current jsonb) returns boolean
language sql immutable parallel safe
return current is null or (
    ((candidate ->> 0)::bigint, coalesce(candidate ->> 2, '') collate "C", (candidate ->> 1)::smallint)
    > ((current ->> 0)::bigint, coalesce(current ->> 2, '') collate "C", (current ->> 1)::smallint)
);
comment on function leadsync.attribute_wins(jsonb, jsonb) is 'Whether an attribute register replaces the current one: greater (stamp, value bytewise, source)';

-- Both sides are opened once. `current -> name` for each name would read all of a large `current` each time.
create function leadsync.attributes_win(candidate jsonb, current jsonb) returns boolean
language sql immutable parallel safe
return exists (
    select from jsonb_each(candidate) as c (name, register)
    left join jsonb_each(current) as o (name, register) using (name)
    where leadsync.attribute_wins(c.register, o.register)
);
comment on function leadsync.attributes_win(jsonb, jsonb) is 'Whether any attribute register of an event replaces the current one';

create function leadsync.attributes_join(current jsonb, candidate jsonb) returns jsonb
language sql immutable parallel safe
return coalesce(current, '{}') || coalesce((
    select jsonb_object_agg(name, c.register)
    from jsonb_each(candidate) as c (name, register)
    left join jsonb_each(current) as o (name, register) using (name)
    where leadsync.attribute_wins(c.register, o.register)
), '{}');
comment on function leadsync.attributes_join(jsonb, jsonb) is 'Join of two sets of attribute registers';

create function leadsync.attributes_changed(current jsonb, candidate jsonb) returns boolean
language sql immutable parallel safe
return exists (
    select from jsonb_each(candidate) as c (name, register)
    left join jsonb_each(current) as o (name, register) using (name)
    where leadsync.attribute_wins(c.register, o.register)
      and (o.register is null or o.register ->> 2 is distinct from c.register ->> 2)
);
comment on function leadsync.attributes_changed(jsonb, jsonb) is 'Whether joining an event changes the value of an attribute, not only its stamp';
