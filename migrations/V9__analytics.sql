-- The schema of people: views that answer everything with SQL. Their columns are promised, nothing else is.
--
-- Rules for changing them: a view is only ever replaced (create or replace view), and a column is only ever added, at
-- the end. A column that has lost its meaning stays and says so in its comment. Another meaning is another name. Views
-- name every column; none counts on columns beyond those it names.

create schema analytics;
comment on schema analytics is 'For people: views with promised columns, and functions. Times are UTC; a day begins at 00:00 UTC';

-- What the views need to be quick. An update of an indexed column cannot stay in place (HOT) and touches every index, so of
-- the columns of leads that change only phone has one: it seldom changes, and people look for it. A new lead costs a tenth more
-- with the two on leads, a delivery a third more with those on deliveries (processor time of the statement, measured).

create index leads_created_day on leadsync.leads (((created_at at time zone 'utc')::date));
comment on index leadsync.leads_created_day is 'Leads of a span of days';
create index leads_phone on leadsync.leads (phone, lead_id) where phone is not null;
comment on index leadsync.leads_phone is 'Leads with one phone, and phones that several leads have';
-- Nearly every delivery is about one lead. A tree on the first takes as much time as an inverted index on all, which only puts
-- it off, but less than a third of its WAL and half of its size (measured).
create index deliveries_lead on leadsync.deliveries ((lead_ids[1])) where lead_ids[1] is not null;
comment on index leadsync.deliveries_lead is 'Deliveries about one lead';
create index deliveries_leads on leadsync.deliveries using gin (lead_ids) where cardinality(lead_ids) > 1;
comment on index leadsync.deliveries_leads is 'Deliveries about several leads, by lead';
create index deliveries_rejected_day on leadsync.deliveries (((received_at at time zone 'utc')::date))
    where outcome = 'rejected' or items @> '[{"outcome": "rejected"}]';
comment on index leadsync.deliveries_rejected_day is 'Deliveries rejected in a span of days';
create index deliveries_problems_day on leadsync.deliveries (((received_at at time zone 'utc')::date))
    where jsonb_path_exists(items, '$[*].field_errors');
comment on index leadsync.deliveries_problems_day is 'Deliveries with values that could not be used in a span of days';
-- Not partial: the planner does not use what it knows of the values in a partial index.
create index lead_sync_synced_hour on leadsync.lead_sync ((date_trunc('hour', synced_at at time zone 'utc') at time zone 'utc'));
comment on index leadsync.lead_sync_synced_hour is 'Leads that came in sync in a span of hours';

-- Counts per day and source, so that nobody has to count millions of deliveries, and that outlive the deliveries.

create table leadsync.daily_counts (
    day date not null,
    source text collate "C" not null,
    what text not null check (what in ('created', 'updated', 'unchanged', 'queued', 'rejected', 'ignored', 'repeat')),
    deliveries bigint not null,
    bytes bigint not null default 0,
    primary key (day, source, what)
) with (fillfactor = 50);
comment on table leadsync.daily_counts is 'Deliveries per day, source and outcome, up to daily_counts_until; kept for ever';
comment on column leadsync.daily_counts.day is 'Day (UTC) of the receipt; of a repeat the day of the repeat';
comment on column leadsync.daily_counts.source is 'deliveries.source';
comment on column leadsync.daily_counts.what is 'Outcome of the first copy when it was counted, or repeat for further copies';
comment on column leadsync.daily_counts.deliveries is 'How many';
comment on column leadsync.daily_counts.bytes is 'Size of their bodies; 0 for repeats';

create table leadsync.daily_counts_until (
    single boolean primary key default true check (single),
    until timestamptz not null
);
comment on table leadsync.daily_counts_until is 'One row: up to where daily_counts goes';
comment on column leadsync.daily_counts_until.single is 'Always true: there is one row';
comment on column leadsync.daily_counts_until.until is 'First copies received before are in daily_counts, later ones are counted when somebody asks';
insert into leadsync.daily_counts_until (until) values ('-infinity');

insert into leadsync.daily_counts (day, source, what, deliveries)
select (a.last_received_at at time zone 'utc')::date, a.source, 'repeat', sum(a.copies - 1)
from leadsync.deliveries as a
where a.copies > 1
group by 1, 2;

create function leadsync.count_days() returns boolean
language plpgsql
as $$
declare
    counted timestamptz;
    goal timestamptz := date_trunc('minute', statement_timestamp()) - interval '1 minute';
    first_day date;
begin
    select u.until into counted from leadsync.daily_counts_until as u for update skip locked;
    if not found then
        -- Another instance is at it.
        return false;
    end if;
    if counted = '-infinity' then
        select coalesce(date_trunc('week', min(a.received_at) at time zone 'utc') at time zone 'utc', goal)
        into counted from leadsync.deliveries as a;
    end if;
    -- A week at a time: it has to be done within the time of a statement.
    goal := greatest(counted, least(goal, counted + interval '7 days'));
    -- The last days anew: deliveries may have been stored long after their receipt, or have another outcome now.
    first_day := ((counted at time zone 'utc')::date) - 3;
    delete from leadsync.daily_counts as c
    where c.day >= first_day and c.what <> 'repeat';
    insert into leadsync.daily_counts (day, source, what, deliveries, bytes)
    select (a.received_at at time zone 'utc')::date, a.source, a.outcome, count(*), sum(a.body_bytes)
    from leadsync.deliveries as a
    where a.week >= date_trunc('week', first_day)::date
        and a.received_at >= first_day::timestamp at time zone 'utc' and a.received_at < goal
    group by 1, 2, 3;
    update leadsync.daily_counts_until set until = goal;
    return goal < date_trunc('minute', statement_timestamp()) - interval '1 minute';
end
$$;
comment on function leadsync.count_days() is 'Brings daily_counts forward, by a week at most; returns whether there is more to count';

-- One place that knows the registers of a lead.

create function leadsync.time_stamp(at timestamptz) returns bigint
language sql stable parallel safe
return ((extract(epoch from at) * 1000000)::bigint - 946684800000000) << 1 | 1;
comment on function leadsync.time_stamp(timestamptz) is 'A stamp with nothing but that time';

create function leadsync.utc_text(at timestamptz) returns text
language sql stable parallel safe
return to_char(at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');
comment on function leadsync.utc_text(timestamptz) is 'A time as text, RFC 3339';

create view leadsync.lead_registers as
-- One branch per field, so that who asks for one field pays for one.
select l.lead_id, l.email, l.created_at, 'first_name'::text as field, l.first_name as value, l.first_name_stamp as stamp, l.first_name_source as source_id,
    null::text as source, true as trusted, true as counts
from leadsync.leads as l where l.first_name_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'last_name', l.last_name, l.last_name_stamp, l.last_name_source, null, true, true
from leadsync.leads as l where l.last_name_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'full_name', l.full_name, l.full_name_stamp, l.full_name_source, null, true, true
from leadsync.leads as l where l.full_name_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'phone', l.phone, l.phone_stamp, l.phone_source, null, true, true
from leadsync.leads as l where l.phone_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'company', l.company, l.company_stamp, l.company_source, null, true, true
from leadsync.leads as l where l.company_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'job_title', l.job_title, l.job_title_stamp, l.job_title_source, null, true, true
from leadsync.leads as l where l.job_title_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'website', l.website, l.website_stamp, l.website_source, null, true, true
from leadsync.leads as l where l.website_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'city', l.city, l.city_stamp, l.city_source, null, true, true
from leadsync.leads as l where l.city_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'region', l.region, l.region_stamp, l.region_source, null, true, true
from leadsync.leads as l where l.region_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'country', l.country, l.country_stamp, l.country_source, null, true, true
from leadsync.leads as l where l.country_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'language', l.language, l.language_stamp, l.language_source, null, true, true
from leadsync.leads as l where l.language_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'message', l.message, l.message_stamp, l.message_source, null, true, true
from leadsync.leads as l where l.message_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'lifecycle_stage', l.lifecycle_stage, l.lifecycle_stage_stamp, l.lifecycle_stage_source, null, false, true
from leadsync.leads as l where l.lifecycle_stage_stamp is not null
union all
select l.lead_id, l.email, l.created_at, 'email_as_typed', l.email_as_typed, l.email_as_typed_stamp, null, null, true, false
from leadsync.leads as l where l.email_as_typed is not null
union all
select l.lead_id, l.email, l.created_at, 'tags', leadsync.tags_text(l.tags), null, null, null, false, true
from leadsync.leads as l where l.tags is not null
union all
select l.lead_id, l.email, l.created_at, 'first_seen_at', leadsync.utc_text(l.first_seen_at), leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.first_seen_at is not null
union all
select l.lead_id, l.email, l.created_at, 'first_source', l.first_source, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.first_source is not null
union all
select l.lead_id, l.email, l.created_at, 'utm_source', l.utm_source, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.utm_source is not null
union all
select l.lead_id, l.email, l.created_at, 'utm_medium', l.utm_medium, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.utm_medium is not null
union all
select l.lead_id, l.email, l.created_at, 'utm_campaign', l.utm_campaign, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.utm_campaign is not null
union all
select l.lead_id, l.email, l.created_at, 'utm_term', l.utm_term, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.utm_term is not null
union all
select l.lead_id, l.email, l.created_at, 'utm_content', l.utm_content, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.utm_content is not null
union all
select l.lead_id, l.email, l.created_at, 'landing_page', l.landing_page, leadsync.time_stamp(l.first_seen_at), null, l.first_source, false, true
from leadsync.leads as l where l.landing_page is not null
union all
select l.lead_id, l.email, l.created_at, 'last_seen_at', leadsync.utc_text(l.last_seen_at), leadsync.time_stamp(l.last_seen_at), null, l.last_source, false, false
from leadsync.leads as l where l.last_seen_at is not null
union all
select l.lead_id, l.email, l.created_at, 'last_source', l.last_source, leadsync.time_stamp(l.last_seen_at), null, l.last_source, false, false
from leadsync.leads as l
union all
select
    l.lead_id, l.email, l.created_at, 'marketing_consent', l.marketing_consent::text,
    case
        when not l.marketing_consent then l.consent_out_stamp
        when l.consent_proven_stamp > coalesce(l.consent_out_stamp, 0) then l.consent_proven_stamp
        else l.consent_in_stamp
    end,
    case
        when not l.marketing_consent then l.consent_out_source
        when l.consent_proven_stamp > coalesce(l.consent_out_stamp, 0) then l.consent_proven_source
        else l.consent_in_source
    end,
    null, false, true
from leadsync.leads as l where l.marketing_consent is not null
union all
select
    l.lead_id, l.email, l.created_at, 'attributes.' || a.name, a.register ->> 2,
    case when jsonb_typeof(a.register -> 0) = 'number' then (a.register -> 0)::bigint end,
    case when jsonb_typeof(a.register -> 1) = 'number' then (a.register -> 1)::smallint end,
    null, true, true
from leadsync.leads as l
cross join lateral jsonb_each(l.attributes) as a (name, register)
where l.attributes is not null;
comment on view leadsync.lead_registers is 'Everything a lead holds, one row each';
comment on column leadsync.lead_registers.lead_id is 'leads.lead_id';
comment on column leadsync.lead_registers.email is 'leads.email';
comment on column leadsync.lead_registers.created_at is 'leads.created_at';
comment on column leadsync.lead_registers.field is 'Column of leads, or attributes.NAME';
comment on column leadsync.lead_registers.value is 'The value as text; null: cleared on purpose';
comment on column leadsync.lead_registers.stamp is 'See lead_stamp_time(); null: it has no order';
comment on column leadsync.lead_registers.source_id is 'sources.source_id, where the source is known by number';
comment on column leadsync.lead_registers.source is 'The source, where it is known by name';
comment on column leadsync.lead_registers.trusted is 'Whether the stamp carries trust';
comment on column leadsync.lead_registers.counts is 'Whether its change moves the version';

create function leadsync.address_kind(email text) returns text
language sql immutable parallel safe
return case
    when split_part(email, '@', 1) = any ('{abuse,accounts,admin,billing,compras,contact,contato,financeiro,hello,help,hr,info,jobs,kontakt,mail,marketing,no-reply,noreply,office,postmaster,recepcao,rh,sac,sales,service,support,suporte,team,test,vendas,webmaster}')
        then 'role'
    when split_part(email, '@', 2) = any ('{10minutemail.com,dispostable.com,emailondeck.com,fakeinbox.com,getnada.com,grr.la,guerrillamail.com,guerrillamail.info,mailcatch.com,maildrop.cc,mailinator.com,mailnesia.com,mintemail.com,mohmal.com,moakt.com,sharklasers.com,spamgourmet.com,temp-mail.org,tempail.com,tempmail.com,throwawaymail.com,trashmail.com,trashmail.de,yopmail.com,yopmail.fr}')
        or split_part(email, '@', 2) like any ('{%tempmail%,%temp-mail%,%mailtemp%,%tempinbox%,%trashmail%,%throwaway%,%throw-away%,%disposable%,%fakemail%,%fakeinbox%,%spammail%,%burnermail%,%minutemail%,%minutesmail%}')
        then 'disposable'
    when split_part(email, '@', 2) = any ('{aol.com,bol.com.br,free.fr,gmail.com,gmx.de,gmx.net,googlemail.com,hotmail.com,icloud.com,ig.com.br,live.com,mail.ru,me.com,msn.com,orange.fr,outlook.com,outlook.com.br,proton.me,protonmail.com,qq.com,terra.com.br,uol.com.br,web.de,yahoo.com,yahoo.com.br,yandex.ru}')
        then 'free'
    else 'other'
end;
comment on function leadsync.address_kind(text) is 'role (info@, sales@ ...), disposable (of a known or typical throw-away domain), free (of a mail provider) or other';

create function leadsync.stage_rank(stage text) returns integer
language sql immutable parallel safe
return array_position('{subscriber,lead,marketing_qualified_lead,sales_qualified_lead,opportunity,customer,evangelist}'::text[], stage);
comment on function leadsync.stage_rank(text) is 'Place of a lifecycle stage, from 1';

create view analytics.leads as
select
    l.lead_id, l.email, l.email_as_typed, l.first_name, l.last_name, l.full_name, l.phone, l.company, l.job_title, l.website,
    l.city, l.region, l.country, l.language, l.message, l.lifecycle_stage, l.marketing_consent,
    coalesce((select array_agg(t order by t collate "C") from jsonb_object_keys(l.tags) as t), '{}') as tags,
    coalesce((select jsonb_object_agg(a.name, a.register -> 2) from jsonb_each(l.attributes) as a (name, register)), '{}') as attributes,
    l.first_source, l.first_seen_at, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term, l.utm_content, l.landing_page,
    l.last_source, l.last_seen_at, l.version, l.created_at, (l.created_at at time zone 'utc')::date as created_day, l.updated_at
from leadsync.leads as l;

comment on view analytics.leads is 'One row per lead, as it is now';
comment on column analytics.leads.lead_id is 'Id of the lead';
comment on column analytics.leads.email is 'Normalised address';
comment on column analytics.leads.email_as_typed is 'The address as the newest event wrote it';
comment on column analytics.leads.first_name is 'Given name';
comment on column analytics.leads.last_name is 'Family name';
comment on column analytics.leads.full_name is 'The whole name';
comment on column analytics.leads.phone is 'E.164';
comment on column analytics.leads.company is 'Company';
comment on column analytics.leads.job_title is 'Job title';
comment on column analytics.leads.website is 'Web address';
comment on column analytics.leads.city is 'City';
comment on column analytics.leads.region is 'State, province or region';
comment on column analytics.leads.country is 'Country, as the sender writes it';
comment on column analytics.leads.language is 'Language, as the sender writes it';
comment on column analytics.leads.message is 'Free text the lead wrote';
comment on column analytics.leads.lifecycle_stage is 'Stage in the life cycle; only moves forward';
comment on column analytics.leads.marketing_consent is 'True: opted in. False: opted out. Null: unknown';
comment on column analytics.leads.tags is 'Tags, sorted';
comment on column analytics.leads.attributes is 'Custom attributes by name; null: cleared on purpose';
comment on column analytics.leads.first_source is 'Source of the first touch';
comment on column analytics.leads.first_seen_at is 'Event time of the first touch; null where no event had one';
comment on column analytics.leads.utm_source is 'utm_source of the first touch';
comment on column analytics.leads.utm_medium is 'utm_medium of the first touch';
comment on column analytics.leads.utm_campaign is 'utm_campaign of the first touch';
comment on column analytics.leads.utm_term is 'utm_term of the first touch';
comment on column analytics.leads.utm_content is 'utm_content of the first touch';
comment on column analytics.leads.landing_page is 'Page of the first touch';
comment on column analytics.leads.last_source is 'Source of the last touch';
comment on column analytics.leads.last_seen_at is 'Event time of the last touch; null where no event had one';
comment on column analytics.leads.version is 'Moves by one whenever a value changes';
comment on column analytics.leads.created_at is 'When the first event was stored';
comment on column analytics.leads.created_day is 'The same as a day (UTC); filter by it, it is indexed';
comment on column analytics.leads.updated_at is 'When version last moved';

create view analytics.lead_fields as
select
    r.lead_id, r.email, r.field, r.value, leadsync.lead_stamp_time(r.stamp) as occurred_at,
    coalesce(s.name, r.source) as source,
    case when r.trusted then (r.stamp >> 56)::integer end as trust,
    coalesce((select max(c.changed_at) from leadsync.lead_changes as c where c.lead_id = r.lead_id and c.changes ? r.field), r.created_at) as changed_at,
    (
        select d.delivery_id
        from (
            select a.delivery_id, a.received_at, a.source, a.outcome
            from leadsync.deliveries as a
            where a.lead_ids[1] = r.lead_id
            union all
            select a.delivery_id, a.received_at, a.source, a.outcome
            from leadsync.deliveries as a
            where cardinality(a.lead_ids) > 1 and a.lead_ids @> array[r.lead_id] and a.lead_ids[1] <> r.lead_id
        ) as d
        where d.source = coalesce(s.name, r.source)
            and d.outcome in ('created', 'updated')
            -- The clocks of an instance and of the database may differ a little.
            and d.received_at <= interval '1 second' + coalesce(
                (select max(c.changed_at) from leadsync.lead_changes as c where c.lead_id = r.lead_id and c.changes ? r.field),
                r.created_at
            )
        -- An event without a time of its own counts with the receipt.
        order by
            d.received_at = leadsync.lead_stamp_time(r.stamp) desc,
            d.received_at <= coalesce(
                (select max(c.changed_at) from leadsync.lead_changes as c where c.lead_id = r.lead_id and c.changes ? r.field),
                r.created_at
            ) desc,
            d.received_at desc
        limit 1
    ) as delivery_id
from leadsync.lead_registers as r
left join leadsync.sources as s on s.source_id = r.source_id;

comment on view analytics.lead_fields is 'One row per lead and value: where it comes from';
comment on column analytics.lead_fields.lead_id is 'Id of the lead';
comment on column analytics.lead_fields.email is 'Normalised address';
comment on column analytics.lead_fields.field is 'Column of leads, or attributes.NAME';
comment on column analytics.lead_fields.value is 'The value as text; null: cleared on purpose';
comment on column analytics.lead_fields.occurred_at is 'Event time of the word that stands; null where it had none';
comment on column analytics.lead_fields.source is 'Source that said it; null where several did (tags)';
comment on column analytics.lead_fields.trust is 'Trust of that source when it said it; null where trust plays no part';
comment on column analytics.lead_fields.changed_at is 'When the value last changed here, as far as the history goes back';
comment on column analytics.lead_fields.delivery_id is 'The delivery that most likely brought the value: the newest of that source, up to changed_at, that changed the lead; null where it is not archived any more';

create view analytics.lead_changes as
select
    c.lead_id, l.email, c.version, c.changed_at, k.field,
    k.change ->> 0 as from_value, k.change ->> 1 as to_value,
    coalesce(f.name, case when jsonb_typeof(k.change -> 2) = 'string' then k.change ->> 2 end) as from_source,
    coalesce(t.name, case when jsonb_typeof(k.change -> 3) = 'string' then k.change ->> 3 end) as to_source,
    leadsync.lead_stamp_time((k.change ->> 4)::bigint) as from_occurred_at,
    leadsync.lead_stamp_time((k.change ->> 5)::bigint) as to_occurred_at,
    true as recorded
from leadsync.lead_changes as c
left join leadsync.leads as l on l.lead_id = c.lead_id
cross join lateral jsonb_each(c.changes) as k (field, change)
-- A source is a number, of the first touch a name.
left join leadsync.sources as f on f.source_id = case when jsonb_typeof(k.change -> 2) = 'number' then (k.change -> 2)::smallint end
left join leadsync.sources as t on t.source_id = case when jsonb_typeof(k.change -> 3) = 'number' then (k.change -> 3)::smallint end
union all
select
    l.lead_id, l.email, 1, l.created_at, b.field, null, b.value, null, case jsonb_typeof(b.source) when 'number' then (select s.name from leadsync.sources as s where s.source_id = (b.source)::smallint) when 'string' then b.source #>> '{}' end, null,
    leadsync.lead_stamp_time(b.stamp), false
from leadsync.leads as l
cross join lateral (
    -- What the first change of a field replaced; the value of today where none did.
    select distinct on (v.field) v.field, v.value, v.source, v.stamp
    from (
        select c.version, k.field, k.change ->> 0 as value, k.change -> 2 as source, (k.change ->> 4)::bigint as stamp
        from leadsync.lead_changes as c
        cross join lateral jsonb_each(c.changes) as k (field, change)
        where c.lead_id = l.lead_id
        union all
        select 9223372036854775807, r.field, r.value, coalesce(to_jsonb(r.source_id), to_jsonb(r.source)), r.stamp
        from leadsync.lead_registers as r
        where r.lead_id = l.lead_id and r.counts
    ) as v (version, field, value, source, stamp)
    order by v.field, v.version
) as b
where b.value is not null;

comment on view analytics.lead_changes is 'History of leads: one row per changed value, from the first on';
comment on column analytics.lead_changes.lead_id is 'Id of the lead';
comment on column analytics.lead_changes.email is 'Normalised address';
comment on column analytics.lead_changes.version is 'Version of the lead with this change; 1: as it was created';
comment on column analytics.lead_changes.changed_at is 'When it was stored';
comment on column analytics.lead_changes.field is 'Column of leads, or attributes.NAME';
comment on column analytics.lead_changes.from_value is 'The value before; null: none';
comment on column analytics.lead_changes.to_value is 'The value after; null: cleared';
comment on column analytics.lead_changes.from_source is 'Source of the value before';
comment on column analytics.lead_changes.to_source is 'Source of the value after';
comment on column analytics.lead_changes.from_occurred_at is 'Event time of the value before';
comment on column analytics.lead_changes.to_occurred_at is 'Event time of the value after';
comment on column analytics.lead_changes.recorded is 'True: written when it happened. False: a value the lead began with, as far as the history goes back';

create view analytics.lead_timeline as
select
    l.lead_id, l.email, d.received_at as at, 'delivery'::text as event, d.source as who, null::bigint as version, d.delivery_id,
    d.outcome || case when d.copies > 1 then format(', %s copies until %s', d.copies, leadsync.utc_text(d.last_received_at)) else '' end
        || case when cardinality(d.lead_ids) > 1 then format(', one of %s leads in it', cardinality(d.lead_ids)) else '' end as summary,
    null::text as detail
from leadsync.leads as l
cross join lateral (
    select a.delivery_id, a.received_at, a.last_received_at, a.source, a.outcome, a.copies, a.lead_ids
    from leadsync.deliveries as a
    where a.lead_ids[1] = l.lead_id
    union all
    select a.delivery_id, a.received_at, a.last_received_at, a.source, a.outcome, a.copies, a.lead_ids
    from leadsync.deliveries as a
    where cardinality(a.lead_ids) > 1 and a.lead_ids @> array[l.lead_id] and a.lead_ids[1] <> l.lead_id
) as d
union all
select l.lead_id, l.email, l.created_at, 'created', l.first_source, 1, null, 'the lead was made', null
from leadsync.leads as l
union all
select
    l.lead_id, l.email, c.changed_at, 'change', null, c.version, null,
    (select string_agg(case when k.field like 'attributes.%' then 'attributes' else k.field end, ', ' order by k.field) from jsonb_object_keys(c.changes) as k (field)),
    (select string_agg(format('%s: %s -> %s', k.field, coalesce(k.change ->> 0, '(none)'), coalesce(k.change ->> 1, '(cleared)')), '; ' order by k.field) from jsonb_each(c.changes) as k (field, change))
from leadsync.leads as l
join leadsync.lead_changes as c on c.lead_id = l.lead_id
union all
select
    l.lead_id, l.email, e.at, e.event, s.destination, e.version, null, e.summary, e.detail
from leadsync.leads as l
join leadsync.lead_sync as s on s.lead_id = l.lead_id
cross join lateral (values
    (s.sent_at, 'push', null::bigint, 'sent to the CRM', 'id there: ' || s.remote_id),
    (s.synced_at, 'synced', s.confirmed_version, 'the CRM confirmed version ' || s.confirmed_version, null),
    (
        s.last_error_at, 'error', s.wanted_version,
        concat_ws(' ', s.last_error_kind, s.last_error_code) || case when s.state = 'parked' then ', parked' else format(', %s failed attempts', s.attempts) end,
        s.last_error_message
    ),
    (
        case when s.state = 'due' then greatest(s.next_attempt_at, coalesce(s.lease_until, s.next_attempt_at)) end, 'next', s.wanted_version,
        case when s.lease_until > statement_timestamp() then 'being sent now; the lease ends then' else 'due: version ' || s.wanted_version end, null
    )
) as e (at, event, version, summary, detail)
where e.at is not null;

comment on view analytics.lead_timeline is 'Everything that happened to a lead, in the order of at; ask for one lead, by lead_id or email';
comment on column analytics.lead_timeline.lead_id is 'Id of the lead';
comment on column analytics.lead_timeline.email is 'Normalised address';
comment on column analytics.lead_timeline.at is 'When; of event next a time to come';
comment on column analytics.lead_timeline.event is 'delivery, created, change, push (the last one), synced (the last time), error (the last one) or next';
comment on column analytics.lead_timeline.who is 'The source of a delivery; the destination of a push, an error and what is next';
comment on column analytics.lead_timeline.version is 'Version of the lead that it is about';
comment on column analytics.lead_timeline.delivery_id is 'The delivery';
comment on column analytics.lead_timeline.summary is 'What happened, without personal data';
comment on column analytics.lead_timeline.detail is 'Values and words: may hold personal data';

create view analytics.sync_state as
select
    s.lead_id, l.email, s.destination, s.state, s.wanted_version, s.confirmed_version, s.attempts, null::timestamptz as next_attempt_at,
    s.last_error_kind, s.last_error_code, s.last_error_message, s.last_error_at, s.remote_id, s.sent_at, s.synced_at,
    case when s.confirmed_version is distinct from l.version and s.state <> 'skipped' then statement_timestamp() - l.updated_at end as lag
from leadsync.lead_sync as s
left join leadsync.leads as l on l.lead_id = s.lead_id
where s.state <> 'due'
union all
select
    s.lead_id, l.email, s.destination, case when s.lease_until > statement_timestamp() then 'leased' else 'due' end, s.wanted_version,
    s.confirmed_version, s.attempts, s.next_attempt_at, s.last_error_kind, s.last_error_code, s.last_error_message, s.last_error_at,
    s.remote_id, s.sent_at, s.synced_at,
    case when s.confirmed_version is distinct from l.version then statement_timestamp() - l.updated_at end
from leadsync.lead_sync as s
left join leadsync.leads as l on l.lead_id = s.lead_id
where s.state = 'due';

comment on view analytics.sync_state is 'One row per lead and destination: what the CRM has, and what is next';
comment on column analytics.sync_state.lead_id is 'Id of the lead';
comment on column analytics.sync_state.email is 'Normalised address';
comment on column analytics.sync_state.destination is 'The CRM account';
comment on column analytics.sync_state.state is 'due, leased (somebody is sending it now), synced, parked (refused until the lead changes or somebody requeues it) or skipped (nothing to send)';
comment on column analytics.sync_state.wanted_version is 'Version that the CRM should have';
comment on column analytics.sync_state.confirmed_version is 'Version that it last confirmed';
comment on column analytics.sync_state.attempts is 'Failed attempts since the last success';
comment on column analytics.sync_state.next_attempt_at is 'When it is tried next; null where nothing is due';
comment on column analytics.sync_state.last_error_kind is 'record, slow_down, unavailable, unknown, credentials or misconfigured';
comment on column analytics.sync_state.last_error_code is 'The CRM''s code';
comment on column analytics.sync_state.last_error_message is 'The CRM''s words';
comment on column analytics.sync_state.last_error_at is 'When';
comment on column analytics.sync_state.remote_id is 'Id of the contact there';
comment on column analytics.sync_state.sent_at is 'When it was last sent';
comment on column analytics.sync_state.synced_at is 'When it was last in sync';
comment on column analytics.sync_state.lag is 'How long the change that the CRM does not have yet has been waiting; null where it has all';

create view analytics.sync_backlog as
select
    d.name as destination, d.active, q.due, q.leased, q.waiting, p.parked, q.oldest_change_at, q.next_attempt_at,
    case when d.paused_until > statement_timestamp() then d.paused_until end as paused_until,
    d.pause_kind, d.pause_code, d.pause_message, d.failures
from leadsync.destinations as d
cross join lateral (
    select
        count(*) as due,
        count(*) filter (where s.lease_until > statement_timestamp()) as leased,
        count(*) filter (where s.next_attempt_at > statement_timestamp()) as waiting,
        min(l.updated_at) as oldest_change_at,
        min(s.next_attempt_at) as next_attempt_at
    from leadsync.lead_sync as s
    left join leadsync.leads as l on l.lead_id = s.lead_id
    where s.destination = d.name and s.state = 'due'
) as q
cross join lateral (
    select count(*) as parked from leadsync.lead_sync as s where s.destination = d.name and s.state = 'parked'
) as p;

comment on view analytics.sync_backlog is 'One row per destination: what waits, and why';
comment on column analytics.sync_backlog.destination is 'The CRM account';
comment on column analytics.sync_backlog.active is 'Whether it is in the configuration';
comment on column analytics.sync_backlog.due is 'Leads to push, those being pushed included';
comment on column analytics.sync_backlog.leased is 'Leads being pushed now';
comment on column analytics.sync_backlog.waiting is 'Leads due that wait after a failed attempt or to be confirmed once more';
comment on column analytics.sync_backlog.parked is 'Leads that the CRM refused';
comment on column analytics.sync_backlog.oldest_change_at is 'Time of the change that has waited longest';
comment on column analytics.sync_backlog.next_attempt_at is 'When the next lead is tried';
comment on column analytics.sync_backlog.paused_until is 'Until when no calls are made; null: not paused';
comment on column analytics.sync_backlog.pause_kind is 'Why: credentials, misconfigured, slow_down or unavailable';
comment on column analytics.sync_backlog.pause_code is 'The CRM''s code for it';
comment on column analytics.sync_backlog.pause_message is 'The CRM''s words for it';
comment on column analytics.sync_backlog.failures is 'Failed calls in a row';

create view analytics.sync_failures as
select
    f.destination, f.state, f.kind, f.code, f.leads, f.max_attempts, f.first_at, f.last_at,
    f.newest ->> 1 as message, (f.newest ->> 0)::uuid as example_lead_id,
    (select l.email from leadsync.leads as l where l.lead_id = (f.newest ->> 0)::uuid) as example_email
from (
    select
        s.destination, s.state, s.last_error_kind as kind, s.last_error_code as code, count(*) as leads,
        max(s.attempts) as max_attempts, min(s.last_error_at) as first_at, max(s.last_error_at) as last_at,
        (array_agg(jsonb_build_array(s.lead_id, s.last_error_message) order by s.last_error_at desc))[1] as newest
    from leadsync.lead_sync as s
    where s.last_error_at is not null
    group by s.destination, s.state, s.last_error_kind, s.last_error_code
) as f;

comment on view analytics.sync_failures is 'What goes wrong at the CRMs, by cause; leads whose last push succeeded are not in it';
comment on column analytics.sync_failures.destination is 'The CRM account';
comment on column analytics.sync_failures.state is 'due (tried again) or parked (refused until the lead changes or somebody requeues it)';
comment on column analytics.sync_failures.kind is 'record, slow_down, unavailable, unknown, credentials or misconfigured';
comment on column analytics.sync_failures.code is 'The CRM''s code';
comment on column analytics.sync_failures.leads is 'How many leads';
comment on column analytics.sync_failures.max_attempts is 'Most failed attempts of one of them';
comment on column analytics.sync_failures.first_at is 'Oldest of their last errors';
comment on column analytics.sync_failures.last_at is 'Newest';
comment on column analytics.sync_failures.message is 'The CRM''s words, of the newest';
comment on column analytics.sync_failures.example_lead_id is 'The lead of the newest';
comment on column analytics.sync_failures.example_email is 'Its address';

create view analytics.sync_lag as
select
    g.hour, g.destination, g.leads, g.lags[1] as p50_seconds, g.lags[2] as p90_seconds, g.lags[3] as p99_seconds, g.lags[4] as max_seconds
from (
    select
        date_trunc('hour', s.synced_at at time zone 'utc') at time zone 'utc' as hour, s.destination, count(*) as leads,
        percentile_disc('{0.5,0.9,0.99,1}'::float8[]) within group (order by extract(epoch from s.synced_at - l.updated_at)::float8) as lags
    from leadsync.lead_sync as s
    join leadsync.leads as l on l.lead_id = s.lead_id
    where date_trunc('hour', s.synced_at at time zone 'utc') at time zone 'utc' >= statement_timestamp() - interval '7 days'
        and s.confirmed_version = l.version and s.synced_at >= l.updated_at
    group by 1, 2
) as g;

comment on view analytics.sync_lag is 'From the change to the CRM''s confirmation, per hour of the last seven days: of leads whose newest version came in sync in that hour';
comment on column analytics.sync_lag.hour is 'Hour (UTC) of the confirmation; filter by it, it is indexed';
comment on column analytics.sync_lag.destination is 'The CRM account';
comment on column analytics.sync_lag.leads is 'How many leads';
comment on column analytics.sync_lag.p50_seconds is 'Half of them took no longer';
comment on column analytics.sync_lag.p90_seconds is '90 of 100 took no longer';
comment on column analytics.sync_lag.p99_seconds is '99 of 100 took no longer';
comment on column analytics.sync_lag.max_seconds is 'The longest';

create view analytics.deliveries as
select
    d.delivery_id, d.received_at, d.last_received_at, d.copies, d.source, d.outcome, d.reason,
    jsonb_path_query_first(d.items, '$[*].detail') #>> '{}' as detail,
    (
        select string_agg(distinct e.field || ': ' || e.problem, '; ')
        from jsonb_path_query(d.items, '$[*].field_errors') as f (errors)
        cross join lateral jsonb_each_text(f.errors) as e (field, problem)
    ) as problems,
    d.lead_ids[1] as lead_id, d.lead_ids, d.idempotency_key, d.body_bytes
from leadsync.deliveries as d;

comment on view analytics.deliveries is 'What arrived, once per distinct body and source; never the body itself';
comment on column analytics.deliveries.delivery_id is 'The same delivery again has the same id';
comment on column analytics.deliveries.received_at is 'When the first copy was received; indexed';
comment on column analytics.deliveries.last_received_at is 'When the latest copy was received';
comment on column analytics.deliveries.copies is 'How often it was received';
comment on column analytics.deliveries.source is 'Source it was sent to';
comment on column analytics.deliveries.outcome is 'created, updated, unchanged, rejected or ignored; of several leads in it the first in that order';
comment on column analytics.deliveries.reason is 'Stable word saying why it was rejected or ignored';
comment on column analytics.deliveries.detail is 'The same in words; may quote what was sent';
comment on column analytics.deliveries.problems is 'Values that could not be used: field and problem; null: none';
comment on column analytics.deliveries.lead_id is 'The lead it speaks about, the first of several';
comment on column analytics.deliveries.lead_ids is 'All leads it speaks about';
comment on column analytics.deliveries.idempotency_key is 'Idempotency-Key of the request';
comment on column analytics.deliveries.body_bytes is 'Size of the body';

create view analytics.sources_daily as
select
    c.day, c.source,
    coalesce(sum(c.deliveries) filter (where c.what <> 'repeat'), 0)::bigint as deliveries,
    coalesce(sum(c.deliveries) filter (where c.what = 'created'), 0)::bigint as created,
    coalesce(sum(c.deliveries) filter (where c.what = 'updated'), 0)::bigint as updated,
    coalesce(sum(c.deliveries) filter (where c.what = 'unchanged'), 0)::bigint as unchanged,
    coalesce(sum(c.deliveries) filter (where c.what = 'rejected'), 0)::bigint as rejected,
    coalesce(sum(c.deliveries) filter (where c.what = 'ignored'), 0)::bigint as ignored,
    coalesce(sum(c.deliveries) filter (where c.what = 'repeat'), 0)::bigint as repeats,
    sum(c.bytes)::bigint as bytes
from (
    select c.day, c.source, c.what, c.deliveries, c.bytes
    from leadsync.daily_counts as c
    union all
    select (d.received_at at time zone 'utc')::date, d.source, d.outcome, count(*), sum(d.body_bytes)
    from leadsync.deliveries as d
    where d.week >= (select date_trunc('week', u.until at time zone 'utc')::date from leadsync.daily_counts_until as u)
        and d.received_at >= (select u.until from leadsync.daily_counts_until as u)
    group by 1, 2, 3
) as c
group by c.day, c.source;

comment on view analytics.sources_daily is 'Deliveries per source and day, by outcome; goes back further than the deliveries are kept';
comment on column analytics.sources_daily.day is 'Day (UTC) of the receipt';
comment on column analytics.sources_daily.source is 'Source they were sent to';
comment on column analytics.sources_daily.deliveries is 'Distinct deliveries';
comment on column analytics.sources_daily.created is 'Of these: made a lead';
comment on column analytics.sources_daily.updated is 'Of these: changed a lead';
comment on column analytics.sources_daily.unchanged is 'Of these: said nothing new';
comment on column analytics.sources_daily.rejected is 'Of these: could not become a lead';
comment on column analytics.sources_daily.ignored is 'Of these: not about a lead';
comment on column analytics.sources_daily.repeats is 'Further copies received on that day, of deliveries of any day';
comment on column analytics.sources_daily.bytes is 'Size of their bodies, without repeats';

create view analytics.duplicate_deliveries as
select
    s.day, s.source, s.deliveries, s.repeats,
    round(s.repeats::numeric / nullif(s.deliveries + s.repeats, 0), 4) as share
from analytics.sources_daily as s
where s.repeats > 0;

comment on view analytics.duplicate_deliveries is 'Repeats that were absorbed, per source and day: each would have been a double or an overwrite elsewhere';
comment on column analytics.duplicate_deliveries.day is 'Day (UTC) of the repeats';
comment on column analytics.duplicate_deliveries.source is 'Source they were sent to';
comment on column analytics.duplicate_deliveries.deliveries is 'Distinct deliveries of that day';
comment on column analytics.duplicate_deliveries.repeats is 'Further copies received on that day, of deliveries of any day';
comment on column analytics.duplicate_deliveries.share is 'Repeats in all that arrived on that day, 0 to 1';

create view analytics.rejected_deliveries as
select
    r.day, r.source, r.reason, r.deliveries, r.copies, r.last_received_at,
    (r.newest ->> 0)::uuid as example_delivery_id,
    jsonb_path_query_first(r.newest -> 1, '$[*].detail') #>> '{}' as example_detail
from (
    select
        (d.received_at at time zone 'utc')::date as day, d.source,
        case
            when d.outcome = 'rejected' then d.reason
            else jsonb_path_query_first(d.items, '$[*] ? (@.outcome == "rejected").reason') #>> '{}'
        end as reason,
        count(*) as deliveries, sum(d.copies)::bigint as copies, max(d.last_received_at) as last_received_at,
        (array_agg(jsonb_build_array(d.delivery_id, d.items) order by d.received_at desc))[1] as newest
    from leadsync.deliveries as d
    where d.outcome = 'rejected' or d.items @> '[{"outcome": "rejected"}]'
    group by 1, 2, 3
) as r;

comment on view analytics.rejected_deliveries is 'Deliveries that could not become leads, or of several leads some could not, by day and cause';
comment on column analytics.rejected_deliveries.day is 'Day (UTC) of the receipt';
comment on column analytics.rejected_deliveries.source is 'Source they were sent to';
comment on column analytics.rejected_deliveries.reason is 'Stable word saying why';
comment on column analytics.rejected_deliveries.deliveries is 'Distinct deliveries';
comment on column analytics.rejected_deliveries.copies is 'How often they were received in all';
comment on column analytics.rejected_deliveries.last_received_at is 'When the latest copy was received';
comment on column analytics.rejected_deliveries.example_delivery_id is 'The newest one';
comment on column analytics.rejected_deliveries.example_detail is 'Its cause in words; may quote what was sent';

create view analytics.invalid_values as
select
    (d.received_at at time zone 'utc')::date as day, d.source, e.field, e.problem, count(*) as deliveries,
    max(d.received_at) as last_received_at, (array_agg(d.delivery_id order by d.received_at desc))[1] as example_delivery_id
from leadsync.deliveries as d
cross join lateral jsonb_path_query(d.items, '$[*].field_errors') as f (errors)
cross join lateral jsonb_each_text(f.errors) as e (field, problem)
where jsonb_path_exists(d.items, '$[*].field_errors')
group by 1, 2, 3, 4;

comment on view analytics.invalid_values is 'Values that could not be used and were left out, by day, source, field and problem';
comment on column analytics.invalid_values.day is 'Day (UTC) of the receipt; filter by it, it is indexed';
comment on column analytics.invalid_values.source is 'Source they were sent to';
comment on column analytics.invalid_values.field is 'Column of leads, or attributes.NAME';
comment on column analytics.invalid_values.problem is 'What was wrong with the value';
comment on column analytics.invalid_values.deliveries is 'Distinct deliveries';
comment on column analytics.invalid_values.last_received_at is 'When the newest of them was received first';
comment on column analytics.invalid_values.example_delivery_id is 'The newest one';

create view analytics.attribution as
select
    (l.created_at at time zone 'utc')::date as day, l.first_source, l.utm_source, l.utm_medium, l.utm_campaign, l.last_source,
    count(*) as leads,
    count(*) filter (where l.marketing_consent) as consented,
    count(*) filter (where leadsync.stage_rank(l.lifecycle_stage) >= 3) as qualified,
    count(*) filter (where leadsync.stage_rank(l.lifecycle_stage) >= 6) as customers
from leadsync.leads as l
group by 1, 2, 3, 4, 5, 6;

comment on view analytics.attribution is 'Leads by day, first and last touch, and what became of them; filter by day, it is indexed';
comment on column analytics.attribution.day is 'Day (UTC) on which the lead was created';
comment on column analytics.attribution.first_source is 'Source of the first touch';
comment on column analytics.attribution.utm_source is 'utm_source of the first touch';
comment on column analytics.attribution.utm_medium is 'utm_medium of the first touch';
comment on column analytics.attribution.utm_campaign is 'utm_campaign of the first touch';
comment on column analytics.attribution.last_source is 'Source of the last touch';
comment on column analytics.attribution.leads is 'How many leads';
comment on column analytics.attribution.consented is 'Of these: opted in to marketing';
comment on column analytics.attribution.qualified is 'Of these: at least marketing_qualified_lead';
comment on column analytics.attribution.customers is 'Of these: at least customer';

create view analytics.funnel as
select
    f.day, f.first_source, f.stage, f.stage_rank, f.leads,
    sum(f.leads) over (partition by f.day, f.first_source order by f.stage_rank desc)::bigint as reached
from (
    select
        (l.created_at at time zone 'utc')::date as day, l.first_source, l.lifecycle_stage as stage,
        coalesce(leadsync.stage_rank(l.lifecycle_stage), 0) as stage_rank, count(*) as leads
    from leadsync.leads as l
    group by 1, 2, 3, 4
) as f;

comment on view analytics.funnel is 'Leads by day, first source and stage; filter by day, it is indexed';
comment on column analytics.funnel.day is 'Day (UTC) on which the lead was created';
comment on column analytics.funnel.first_source is 'Source of the first touch';
comment on column analytics.funnel.stage is 'Stage the leads are in now; null: unknown';
comment on column analytics.funnel.stage_rank is 'Its place, from 1; 0: unknown';
comment on column analytics.funnel.leads is 'Leads in exactly that stage';
comment on column analytics.funnel.reached is 'Leads in that stage or further';

create view analytics.data_quality as
select q.day, q.source, p.problem, p.found, q.checked
from (
    select
        (l.created_at at time zone 'utc')::date as day, l.first_source as source, count(*) as checked,
        count(*) filter (where l.phone is null) as missing_phone,
        count(*) filter (where l.full_name is null and l.first_name is null and l.last_name is null) as missing_name,
        count(*) filter (where l.company is null) as missing_company,
        count(*) filter (where l.country is null) as missing_country,
        count(*) filter (where l.marketing_consent is null) as unknown_consent,
        count(*) filter (where a.kind = 'role') as role_address,
        count(*) filter (where a.kind = 'disposable') as disposable_address
    from leadsync.leads as l
    -- Once per lead.
    cross join lateral (select leadsync.address_kind(l.email) as kind offset 0) as a
    group by 1, 2
) as q
cross join lateral (values
    ('missing_phone', q.missing_phone), ('missing_name', q.missing_name), ('missing_company', q.missing_company),
    ('missing_country', q.missing_country), ('unknown_consent', q.unknown_consent), ('role_address', q.role_address),
    ('disposable_address', q.disposable_address)
) as p (problem, found)
where p.found > 0
union all
select q.day, q.source, 'shared_phone', q.found, q.checked
from (
    select
        (l.created_at at time zone 'utc')::date as day, l.first_source as source, count(*) as checked, count(s.phone) as found
    from leadsync.leads as l
    left join (
        select o.phone from leadsync.leads as o where o.phone is not null group by o.phone having count(*) > 1
    ) as s on s.phone = l.phone
    group by 1, 2
) as q
where q.found > 0
union all
select (d.received_at at time zone 'utc')::date, d.source, 'invalid_value', count(*), null
from leadsync.deliveries as d
where jsonb_path_exists(d.items, '$[*].field_errors')
group by 1, 2;

comment on view analytics.data_quality is 'What is missing or doubtful in leads, by day, first source and check; filter by day, it is indexed';
comment on column analytics.data_quality.day is 'Day (UTC) on which the lead was created; of invalid_value the day of the receipt';
comment on column analytics.data_quality.source is 'Source of the first touch; of invalid_value the source of the delivery';
comment on column analytics.data_quality.problem is 'missing_phone, missing_name, missing_company, missing_country, unknown_consent, role_address, disposable_address, shared_phone (another lead has it), or invalid_value (a delivery with a value that could not be used)';
comment on column analytics.data_quality.found is 'How many leads; of invalid_value how many deliveries';
comment on column analytics.data_quality.checked is 'Of how many leads; null for invalid_value';

create view analytics.possible_duplicates as
select 'phone'::text as reason, l.phone as key, count(*) as leads, array_agg(l.lead_id order by l.lead_id) as lead_ids,
    array_agg(l.email order by l.lead_id) as emails, max(l.created_at) as newest_at
from leadsync.leads as l
where l.phone is not null
group by l.phone
having count(*) > 1
union all
select 'name_company', n.name || ', ' || n.company, count(*), array_agg(n.lead_id order by n.lead_id), array_agg(n.email order by n.lead_id), max(n.created_at)
from (
    select
        l.lead_id, l.email, l.created_at, lower(l.company) as company,
        lower(coalesce(l.full_name, nullif(concat_ws(' ', l.first_name, l.last_name), ''))) as name
    from leadsync.leads as l
    where l.company is not null
) as n
where n.name is not null
group by n.name, n.company
having count(*) > 1;

comment on view analytics.possible_duplicates is 'Leads that may be one person under different addresses: shown, never merged';
comment on column analytics.possible_duplicates.reason is 'phone (the same phone) or name_company (the same name and company, letter case aside)';
comment on column analytics.possible_duplicates.key is 'What they share';
comment on column analytics.possible_duplicates.leads is 'How many leads';
comment on column analytics.possible_duplicates.lead_ids is 'Which';
comment on column analytics.possible_duplicates.emails is 'Their addresses';
comment on column analytics.possible_duplicates.newest_at is 'When the newest of them was created';
