-- The archive of what arrived: audit, quarantine and replay source. Never the reason a repeat is safe.

create table leadsync.deliveries (
    delivery_id uuid not null,
    week date not null,
    received_at timestamptz not null,
    last_received_at timestamptz not null,
    copies bigint not null default 1,
    source text collate "C" not null,
    outcome text not null check (outcome in ('created', 'updated', 'unchanged', 'rejected', 'ignored')),
    reason text,
    lead_ids uuid[],
    items jsonb,
    idempotency_key text collate "C",
    query text,
    headers jsonb,
    body bytea,
    body_bytes integer not null,
    primary key (delivery_id, week)
) partition by range (week);
-- Partitions hold one week each, by the week of the first copy; retention drops whole partitions.

comment on table leadsync.deliveries is 'What arrived, once per distinct body and source';
comment on column leadsync.deliveries.delivery_id is 'Digest of source, media type, kept headers, query and body: the same delivery again has the same id';
comment on column leadsync.deliveries.week is 'Monday of the week (UTC) of the first copy; the partition key';
comment on column leadsync.deliveries.received_at is 'When the first copy was received; the event time of events that have none of their own';
comment on column leadsync.deliveries.last_received_at is 'When the latest copy was received; counted in the background';
comment on column leadsync.deliveries.copies is 'How often it was received; counted in the background';
comment on column leadsync.deliveries.source is 'Source it was sent to';
comment on column leadsync.deliveries.outcome is 'What became of it: created, updated, unchanged, rejected or ignored; of several leads in it the first in that order';
comment on column leadsync.deliveries.reason is 'Stable word saying why it was rejected or ignored';
comment on column leadsync.deliveries.lead_ids is 'Leads it speaks about';
comment on column leadsync.deliveries.items is 'One object per lead in it where there are several or something is wrong with one: outcome, reason, detail, field_errors';
comment on column leadsync.deliveries.idempotency_key is 'Idempotency-Key of the request, where it had one';
comment on column leadsync.deliveries.query is 'Query string without the token';
comment on column leadsync.deliveries.headers is 'Headers that the source''s mapping can use; never credentials';
comment on column leadsync.deliveries.body is 'The exact bytes; null where deliveries.keep = "0" and it became a lead';
comment on column leadsync.deliveries.body_bytes is 'Size of the body';

create index deliveries_rejected on leadsync.deliveries (source, received_at)
    where outcome = 'rejected' or items @> '[{"outcome": "rejected"}]';
create index deliveries_idempotency_key on leadsync.deliveries (idempotency_key) where idempotency_key is not null;

-- Nothing is lost when the maintenance that makes partitions does not run.
create table leadsync.deliveries_default partition of leadsync.deliveries default;
comment on table leadsync.deliveries_default is 'Deliveries of weeks that had no partition yet; normally empty';

-- Partitions are made and dropped by functions of the owner, so that the service role needs no DDL.
create function leadsync.ensure_delivery_weeks(first_monday date, weeks integer) returns integer
language plpgsql security definer set search_path = pg_catalog
as $$
declare
    monday date;
    made integer := 0;
begin
    -- One at a time: two that make or drop partitions at once wait for each other's locks in a circle.
    perform pg_advisory_xact_lock(hashtext('leadsync.deliveries'));
    for monday in select first_monday + 7 * i from generate_series(0, weeks - 1) as i loop
        if to_regclass(format('leadsync.deliveries_%s', to_char(monday, 'YYYYMMDD'))) is null
            -- A week that already has rows in the default partition stays there.
            and not exists (select from leadsync.deliveries_default where week >= monday and week < monday + 7)
        then
            execute format(
                'create table if not exists leadsync.deliveries_%s partition of leadsync.deliveries for values from (%L) to (%L)',
                to_char(monday, 'YYYYMMDD'), monday, monday + 7
            );
            made := made + 1;
        end if;
    end loop;
    return made;
end
$$;
comment on function leadsync.ensure_delivery_weeks(date, integer) is 'Makes the weekly partitions of deliveries from a Monday on; returns how many were missing';

create function leadsync.drop_delivery_weeks(before date) returns integer
language plpgsql security definer set search_path = pg_catalog
as $$
declare
    partition record;
    dropped integer := 0;
begin
    -- One at a time: two that make or drop partitions at once wait for each other's locks in a circle.
    perform pg_advisory_xact_lock(hashtext('leadsync.deliveries'));
    for partition in
        select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
        where i.inhparent = 'leadsync.deliveries'::regclass and c.relname ~ '^deliveries_[0-9]{8}$'
            and to_date(right(c.relname, 8), 'YYYYMMDD') + 7 <= before
    loop
        execute format('drop table if exists leadsync.%I', partition.relname);
        dropped := dropped + 1;
    end loop;
    delete from leadsync.deliveries_default where week + 7 <= before;
    return dropped;
end
$$;
comment on function leadsync.drop_delivery_weeks(date) is 'Drops the partitions of deliveries that end at or before a day; returns how many';
