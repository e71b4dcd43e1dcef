-- The history of leads, for people: written by triggers in the transaction of the change, so that it can neither
-- be missing nor tell of what was rolled back. Nothing in the service reads it.

create table leadsync.lead_changes (
    lead_id uuid not null,
    version bigint not null,
    changed_at timestamptz not null,
    changes jsonb not null
) partition by range (changed_at);
-- Partitions hold one month each (UTC); retention drops whole partitions.

comment on table leadsync.lead_changes is 'What changed when a lead''s version moved: one row per lead and version from 2 on. The first version is the row itself, before these changes';
comment on column leadsync.lead_changes.lead_id is 'leads.lead_id';
comment on column leadsync.lead_changes.version is 'leads.version after the change';
comment on column leadsync.lead_changes.changed_at is 'leads.updated_at of that version; the partition key';
comment on column leadsync.lead_changes.changes is 'By field (attributes.NAME for custom ones) [from, to, source of from, source of to, stamp of from, stamp of to]. A source is a number of sources, for the first touch its own text; see lead_stamp_time() for stamps';

create index lead_changes_lead on leadsync.lead_changes (lead_id, version);
comment on index leadsync.lead_changes_lead is 'The history of one lead';
-- Rows come in the order of time, so a summary of it is as good as a tree here and costs next to nothing.
create index lead_changes_time on leadsync.lead_changes using brin (changed_at);
comment on index leadsync.lead_changes_time is 'Changes of a span of time';

-- Nothing is lost when the maintenance that makes partitions does not run.
create table leadsync.lead_changes_default partition of leadsync.lead_changes default;
comment on table leadsync.lead_changes_default is 'Changes of months that had no partition yet; normally empty';

create function leadsync.register_change(
    value_was text, value_is text, source_was smallint, source_is smallint, stamp_was bigint, stamp_is bigint
) returns jsonb
language sql stable parallel safe
return case
    when value_was is distinct from value_is or (stamp_was is null and stamp_is is not null)
        then jsonb_build_array(value_was, value_is, source_was, source_is, stamp_was, stamp_is)
end;
comment on function leadsync.register_change(text, text, smallint, smallint, bigint, bigint) is 'An element of lead_changes.changes; null where the value is the same. The first clear of a field is a change';

create function leadsync.touch_change(
    value_was text, value_is text, source_was text, source_is text, at_was timestamptz, at_is timestamptz
) returns jsonb
language sql stable parallel safe
return case
    when value_was is distinct from value_is then jsonb_build_array(
        value_was, value_is, source_was, source_is,
        ((extract(epoch from at_was) * 1000000)::bigint - 946684800000000) << 1 | 1,
        ((extract(epoch from at_is) * 1000000)::bigint - 946684800000000) << 1 | 1
    )
end;
comment on function leadsync.touch_change(text, text, text, text, timestamptz, timestamptz) is 'The same for a part of the first touch, which has one time and one source as a whole';

create function leadsync.attribute_changes(was jsonb, became jsonb) returns jsonb
language sql stable parallel safe
return (
    select jsonb_object_agg(
        'attributes.' || n.name,
        jsonb_build_array(o.register ->> 2, n.register ->> 2, o.register -> 1, n.register -> 1, o.register -> 0, n.register -> 0)
    )
    from jsonb_each(became) as n (name, register)
    left join jsonb_each(was) as o (name, register) using (name)
    where o.register is null or o.register ->> 2 is distinct from n.register ->> 2
);
comment on function leadsync.attribute_changes(jsonb, jsonb) is 'The same for all custom attributes; null where none has another value';

create function leadsync.tags_text(tags jsonb) returns text
language sql immutable parallel safe
return (select string_agg(tag, ';' order by tag collate "C") from jsonb_object_keys(tags) as tag);
comment on function leadsync.tags_text(jsonb) is 'Tags as one text, joined with ; as destinations are sent them';

create function leadsync.keep_lead_changes() returns trigger
-- Planned once and used for one row as for hundreds, so it may not count on few.
language plpgsql set enable_nestloop = off
as $$
begin
    -- A statement that made leads, or changed nothing, ends here.
    perform from became;
    if not found then
        return null;
    end if;
    insert into leadsync.lead_changes (lead_id, version, changed_at, changes)
    select c.* from (select n.lead_id, n.version, n.updated_at, jsonb_strip_nulls(jsonb_build_object(
        'first_name', leadsync.register_change(o.first_name, n.first_name, o.first_name_source, n.first_name_source, o.first_name_stamp, n.first_name_stamp),
        'last_name', leadsync.register_change(o.last_name, n.last_name, o.last_name_source, n.last_name_source, o.last_name_stamp, n.last_name_stamp),
        'full_name', leadsync.register_change(o.full_name, n.full_name, o.full_name_source, n.full_name_source, o.full_name_stamp, n.full_name_stamp),
        'phone', leadsync.register_change(o.phone, n.phone, o.phone_source, n.phone_source, o.phone_stamp, n.phone_stamp),
        'company', leadsync.register_change(o.company, n.company, o.company_source, n.company_source, o.company_stamp, n.company_stamp),
        'job_title', leadsync.register_change(o.job_title, n.job_title, o.job_title_source, n.job_title_source, o.job_title_stamp, n.job_title_stamp),
        'website', leadsync.register_change(o.website, n.website, o.website_source, n.website_source, o.website_stamp, n.website_stamp),
        'city', leadsync.register_change(o.city, n.city, o.city_source, n.city_source, o.city_stamp, n.city_stamp),
        'region', leadsync.register_change(o.region, n.region, o.region_source, n.region_source, o.region_stamp, n.region_stamp),
        'country', leadsync.register_change(o.country, n.country, o.country_source, n.country_source, o.country_stamp, n.country_stamp),
        'language', leadsync.register_change(o.language, n.language, o.language_source, n.language_source, o.language_stamp, n.language_stamp),
        'message', leadsync.register_change(o.message, n.message, o.message_source, n.message_source, o.message_stamp, n.message_stamp),
        'lifecycle_stage', leadsync.register_change(o.lifecycle_stage, n.lifecycle_stage, o.lifecycle_stage_source, n.lifecycle_stage_source, o.lifecycle_stage_stamp, n.lifecycle_stage_stamp),
        'marketing_consent', case when o.marketing_consent is distinct from n.marketing_consent then jsonb_build_array(
            o.marketing_consent::text, n.marketing_consent::text,
            case
                when not o.marketing_consent then o.consent_out_source
                when o.consent_proven_stamp > coalesce(o.consent_out_stamp, 0) then o.consent_proven_source
                else o.consent_in_source
            end,
            case
                when not n.marketing_consent then n.consent_out_source
                when n.consent_proven_stamp > coalesce(n.consent_out_stamp, 0) then n.consent_proven_source
                else n.consent_in_source
            end,
            case
                when not o.marketing_consent then o.consent_out_stamp
                when o.consent_proven_stamp > coalesce(o.consent_out_stamp, 0) then o.consent_proven_stamp
                else o.consent_in_stamp
            end,
            case
                when not n.marketing_consent then n.consent_out_stamp
                when n.consent_proven_stamp > coalesce(n.consent_out_stamp, 0) then n.consent_proven_stamp
                else n.consent_in_stamp
            end
        ) end,
        'tags', case when o.tags is distinct from n.tags
            then jsonb_build_array(leadsync.tags_text(o.tags), leadsync.tags_text(n.tags), null, null, null, null) end
    )) || case
        when (o.first_seen_at, o.first_source, o.utm_source, o.utm_medium, o.utm_campaign, o.utm_term, o.utm_content, o.landing_page)
            is distinct from (n.first_seen_at, n.first_source, n.utm_source, n.utm_medium, n.utm_campaign, n.utm_term, n.utm_content, n.landing_page)
        then jsonb_strip_nulls(jsonb_build_object(
            'first_seen_at', leadsync.touch_change(
                to_char(o.first_seen_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                to_char(n.first_seen_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
                o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'first_source', leadsync.touch_change(o.first_source, n.first_source, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'utm_source', leadsync.touch_change(o.utm_source, n.utm_source, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'utm_medium', leadsync.touch_change(o.utm_medium, n.utm_medium, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'utm_campaign', leadsync.touch_change(o.utm_campaign, n.utm_campaign, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'utm_term', leadsync.touch_change(o.utm_term, n.utm_term, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'utm_content', leadsync.touch_change(o.utm_content, n.utm_content, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at),
            'landing_page', leadsync.touch_change(o.landing_page, n.landing_page, o.first_source, n.first_source, o.first_seen_at, n.first_seen_at)
        ))
        else '{}'
    end || case
        when o.attributes is distinct from n.attributes then coalesce(leadsync.attribute_changes(o.attributes, n.attributes), '{}')
        else '{}'
    end
    from was as o
    join became as n on n.lead_id = o.lead_id
    where n.version > o.version
    ) as c (lead_id, version, changed_at, changes)
    -- The first touch may only become more believable, with all its values as they were.
    where c.changes <> '{}';
    return null;
end
$$;
comment on function leadsync.keep_lead_changes() is 'Writes the rows of lead_changes for a statement that moved leads';

-- Once per statement, with the exact rows before and after it: what the upsert itself could read as the old row is
-- older than the one it locks.
create trigger keep_lead_changes after update on leadsync.leads
    referencing old table as was new table as became
    for each statement
    when (coalesce(current_setting('leadsync.history', true), 'on') <> 'off')
    execute function leadsync.keep_lead_changes();
comment on trigger keep_lead_changes on leadsync.leads is 'History; a session turns it off with: set leadsync.history = off';

create function leadsync.forget_lead_changes() returns trigger
language plpgsql
as $$
begin
    delete from leadsync.lead_changes as c using gone as g where c.lead_id = g.lead_id;
    return null;
end
$$;
comment on function leadsync.forget_lead_changes() is 'Removes the history of leads that were deleted';

create trigger forget_lead_changes after delete on leadsync.leads
    referencing old table as gone
    for each statement
    execute function leadsync.forget_lead_changes();
comment on trigger forget_lead_changes on leadsync.leads is 'Who is erased leaves no history';

-- Partitions are made and dropped by functions of the owner, so that the service role needs no DDL.
create function leadsync.ensure_change_months(first_day date, months integer) returns integer
language plpgsql security definer set search_path = pg_catalog
as $$
declare
    month date;
    name text;
    made integer := 0;
begin
    -- One at a time: two that make or drop partitions at once wait for each other's locks in a circle.
    perform pg_advisory_xact_lock(hashtext('leadsync.lead_changes'));
    for month in select (date_trunc('month', first_day) + make_interval(months => i))::date from generate_series(0, months - 1) as i loop
        name := format('lead_changes_%s', to_char(month, 'YYYYMM'));
        if to_regclass('leadsync.' || name) is null
            -- A month that already has rows in the default partition stays there.
            and not exists (
                select from leadsync.lead_changes_default
                where changed_at >= month::timestamp at time zone 'utc'
                    and changed_at < (month + interval '1 month') at time zone 'utc'
            )
        then
            execute format(
                'create table if not exists leadsync.%I partition of leadsync.lead_changes for values from (%L) to (%L)',
                name, month::text || ' 00:00:00+00', (month + interval '1 month')::date::text || ' 00:00:00+00'
            );
            made := made + 1;
        end if;
    end loop;
    return made;
end
$$;
comment on function leadsync.ensure_change_months(date, integer) is 'Makes the monthly partitions of lead_changes from the month of a day on; returns how many were missing';

create function leadsync.drop_change_months(before date) returns integer
language plpgsql security definer set search_path = pg_catalog
as $$
declare
    partition record;
    dropped integer := 0;
begin
    -- One at a time: two that make or drop partitions at once wait for each other's locks in a circle.
    perform pg_advisory_xact_lock(hashtext('leadsync.lead_changes'));
    for partition in
        select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
        where i.inhparent = 'leadsync.lead_changes'::regclass and c.relname ~ '^lead_changes_[0-9]{6}$'
            and to_date(right(c.relname, 6) || '01', 'YYYYMMDD') + interval '1 month' <= before
    loop
        execute format('drop table if exists leadsync.%I', partition.relname);
        dropped := dropped + 1;
    end loop;
    delete from leadsync.lead_changes_default
    where changed_at < date_trunc('month', before::timestamp) at time zone 'utc';
    return dropped;
end
$$;
comment on function leadsync.drop_change_months(date) is 'Drops the partitions of lead_changes that end at or before a day; returns how many';

revoke execute on function leadsync.ensure_change_months(date, integer) from public;
revoke execute on function leadsync.drop_change_months(date) from public;

select leadsync.grant_roles();
