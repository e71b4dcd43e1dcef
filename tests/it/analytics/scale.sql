-- A year of a company's leads, as the service would have stored them: {leads} leads, {deliveries} deliveries (not fewer than
-- leads), two destinations. Everything follows from the numbers 1 to n, so the same call makes the same rows but for the time
-- it counts back from.
insert into leadsync.sources (name)
values ('site'), ('landing'), ('typeform'), ('google-ads'), ('shop'), ('partner'), ('api'), ('events')
on conflict do nothing;
insert into leadsync.destinations (name) values ('hubspot'), ('warehouse') on conflict do nothing;
select leadsync.ensure_delivery_weeks((date_trunc('week', now() at time zone 'utc') - interval '53 weeks')::date, 57);
select leadsync.ensure_change_months((now() - interval '12 months')::date, 14);

-- A number from 0 to n - 1 for the k-th question about i.
create function pg_temp.pick(i bigint, k integer, n integer) returns integer language sql immutable
return abs(hashint8(i * 1000003 + k) % n);
create function pg_temp.stamp(trust integer, at timestamptz) returns bigint language sql immutable
return (trust::bigint << 56) | (1::bigint << 55) | ((((extract(epoch from at) * 1000000)::bigint - 946684800000000) << 1) | 1);
create function pg_temp.lead_id(i bigint, at timestamptz) returns uuid language sql immutable
return (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid;
create function pg_temp.created(i bigint) returns timestamptz language sql stable
return date_trunc('hour', now()) - interval '365 days' + i * (interval '365 days' / {leads});

insert into leadsync.leads (
    lead_id, version, created_at, updated_at, first_seen_at, last_seen_at, email_as_typed_stamp, first_name_stamp, last_name_stamp,
    full_name_stamp, phone_stamp, company_stamp, job_title_stamp, country_stamp, city_stamp, lifecycle_stage_stamp, consent_in_stamp, consent_out_stamp,
    first_name_source, last_name_source, full_name_source, phone_source, company_source, job_title_source, country_source, city_source,
    lifecycle_stage_source, consent_in_source, consent_out_source, first_seen_reliable, last_seen_reliable, moved, email, email_as_typed, first_name,
    last_name, full_name, phone, company, job_title, country, city, lifecycle_stage, first_source, utm_source, utm_medium, utm_campaign,
    landing_page, last_source, tags, attributes
)
select
    pg_temp.lead_id(l.i, l.at), l.version, l.at, l.changed, l.at - interval '3 s', l.changed, l.st, l.st, l.st, l.st,
    case when l.phone is not null then l.st2 end, case when l.company is not null then l.st2 end, case when l.job_title is not null then l.st end, l.st,
    case when l.city is not null then l.st end, (2::bigint << 56) | (l.st2 & ((1::bigint << 56) - 1)), case when l.consent < 5 then l.st & ((1::bigint << 56) - 1) end,
    case when l.consent = 5 then l.st & ((1::bigint << 56) - 1) end, l.src, l.src, l.src,
    case when l.phone is not null then l.src2 end, case when l.company is not null then l.src2 end, case when l.job_title is not null then l.src end, l.src,
    case when l.city is not null then l.src end, l.src2, case when l.consent < 5 then l.src end, case when l.consent = 5 then l.src end, true, true, true,
    l.email, initcap(l.email), l.first_name, l.last_name, l.first_name || ' ' || l.last_name, l.phone, l.company, l.job_title,
    (array['Brazil', 'Brazil', 'Brazil', 'Portugal', 'Germany', 'USA'])[1 + pg_temp.pick(l.i, 9, 6)], l.city,
    (array['lead', 'lead', 'lead', 'subscriber', 'marketing_qualified_lead', 'sales_qualified_lead', 'opportunity', 'customer'])[1 + pg_temp.pick(l.i, 10, 8)],
    (array['site', 'landing', 'typeform', 'google-ads', 'shop', 'partner', 'api', 'events'])[l.src],
    (array['google', 'google', 'facebook', 'newsletter', 'linkedin', null])[1 + pg_temp.pick(l.i, 11, 6)],
    (array['cpc', 'cpc', 'social', 'email', 'social', null])[1 + pg_temp.pick(l.i, 11, 6)],
    case when pg_temp.pick(l.i, 11, 6) < 5 then 'campaign-' || pg_temp.pick(l.i, 12, 40) end,
    'https://example.com/landing/' || pg_temp.pick(l.i, 13, 30),
    (array['site', 'landing', 'typeform', 'google-ads', 'shop', 'partner', 'api', 'events'])[l.src2],
    case when pg_temp.pick(l.i, 14, 3) = 0 then jsonb_build_object('newsletter', true, 'tag-' || pg_temp.pick(l.i, 15, 20), true) end,
    case when pg_temp.pick(l.i, 16, 2) = 0 then jsonb_build_object('budget', jsonb_build_array(l.st, l.src, (1 + pg_temp.pick(l.i, 17, 50)) || 'k')) end
from (
    select
        g.i, g.at, 1 + greatest(0, pg_temp.pick(g.i, 1, 6) - 2) as version,
        case when pg_temp.pick(g.i, 1, 6) > 2 then least(g.at + (now() - g.at) * (0.05 + pg_temp.pick(g.i, 2, 1000) / 1100.0), now()) else g.at end as changed,
        pg_temp.stamp(50, g.at) as st, pg_temp.stamp(50, g.at) + pg_temp.pick(g.i, 1, 6) * 2 as st2,
        (1 + pg_temp.pick(g.i, 3, 8))::smallint as src, (1 + pg_temp.pick(g.i, 4, 8))::smallint as src2,
        case pg_temp.pick(g.i, 5, 200) when 0 then 'info' when 1 then 'vendas' else n.first || '.' || n.last end || g.i || '@'
            || case pg_temp.pick(g.i, 6, 100)
                when 0 then 'mailinator.com' when 1 then 'tempmailbox.net'
                else (array['gmail.com', 'hotmail.com', 'example.com', 'example.org', 'uol.com.br', 'company' || pg_temp.pick(g.i, 7, 20000) || '.com'])[1 + pg_temp.pick(g.i, 6, 6)]
            end as email,
        initcap(n.first) as first_name, initcap(n.last) as last_name,
        -- Every 50th has the phone of the one before.
        case when pg_temp.pick(g.i, 18, 10) < 7 or g.i % 50 < 2 then '+5511' || (900000000 + case when g.i % 50 = 1 then g.i - 1 else g.i end)::text end as phone,
        case when pg_temp.pick(g.i, 19, 10) < 6 then 'Company ' || pg_temp.pick(g.i, 20, 50000) end as company,
        case when pg_temp.pick(g.i, 21, 10) < 4 then (array['CEO', 'Buyer', 'Engineer', 'Assistant'])[1 + pg_temp.pick(g.i, 22, 4)] end as job_title,
        case when pg_temp.pick(g.i, 23, 10) < 5 then (array['São Paulo', 'Lisboa', 'Berlin', 'Recife'])[1 + pg_temp.pick(g.i, 24, 4)] end as city,
        pg_temp.pick(g.i, 25, 8) as consent
    from (select i, pg_temp.created(i) as at from generate_series(1::bigint, {leads}) as i) as g
    cross join lateral (
        select
            (array['ana', 'bruno', 'carla', 'diego', 'elena', 'felix', 'gina', 'hugo', 'ines', 'joao'])[1 + pg_temp.pick(g.i, 26, 10)] as first,
            (array['silva', 'souza', 'lima', 'costa', 'meyer', 'klein', 'smith', 'jones', 'rocha', 'dias'])[1 + pg_temp.pick(g.i, 27, 10)] as last
    ) as n
) as l;

-- History of those that moved: phone, then company, then stage.
insert into leadsync.lead_changes (lead_id, version, changed_at, changes)
select
    l.lead_id, v.version, l.created_at + (l.updated_at - l.created_at) * ((v.version - 1) / (l.version - 1)::float8),
    case v.version
        when 2 then jsonb_build_object('phone', jsonb_build_array(null, l.phone, null, l.phone_source, null, l.phone_stamp))
        when 3 then jsonb_build_object('company', jsonb_build_array('Old company', l.company, l.first_name_source, l.company_source, l.first_name_stamp, l.company_stamp))
        else jsonb_build_object('lifecycle_stage', jsonb_build_array('subscriber', l.lifecycle_stage, l.first_name_source, l.lifecycle_stage_source, l.first_name_stamp, l.lifecycle_stage_stamp))
    end
from leadsync.leads as l
cross join lateral generate_series(2, l.version) as v (version)
order by 3;

insert into leadsync.lead_sync (
    lead_id, wanted_version, confirmed_version, next_attempt_at, lease_token, sent_at, synced_at, last_error_at, attempts, destination, state, remote_id, sent_hash,
    last_error_kind, last_error_code, last_error_message
)
select
    l.lead_id, l.version, case when s.state = 'synced' then l.version when l.version > 1 then l.version - 1 end, l.updated_at, 1, l.updated_at + s.lag,
    case when s.state = 'synced' then l.updated_at + s.lag end, case when s.failed then l.updated_at + s.lag end, case when s.failed then 1 + s.p % 3 else 0 end, d.name, s.state,
    case when s.state = 'synced' then (100000 + s.i)::text end, case when s.state = 'synced' then decode(md5(s.i::text), 'hex') end,
    case when s.failed then case when s.state = 'parked' then 'record' else 'unavailable' end end,
    case when s.failed then case when s.state = 'parked' then (array['INVALID_EMAIL', 'INVALID_PHONE', 'PROPERTY_VALUE'])[1 + s.p % 3] else '503' end end,
    case when s.failed then 'a property has a value that is not one of its options' end
from (select l.*, row_number() over (order by l.lead_id) as i from leadsync.leads as l) as l
cross join (values ('hubspot', 1), ('warehouse', 2)) as d (name, k)
cross join lateral (
    select
        l.i as i, pg_temp.pick(l.i, 100 + d.k, 1000) as p,
        case when pg_temp.pick(l.i, 100 + d.k, 1000) < 8 then 'parked' when pg_temp.pick(l.i, 100 + d.k, 1000) < 20 then 'due' else 'synced' end as state,
        pg_temp.pick(l.i, 100 + d.k, 1000) < 14 as failed,
        (0.3 + pg_temp.pick(l.i, 110 + d.k, 1000) / 100.0) * interval '1 second' as lag
) as s;

insert into leadsync.deliveries (
    delivery_id, week, received_at, last_received_at, copies, source, outcome, reason, lead_ids, items, headers, body, body_bytes
)
select
    md5('delivery ' || d.i)::uuid, date_trunc('week', d.at at time zone 'utc')::date, d.at, d.at + (d.copies - 1) * interval '90 s', d.copies,
    d.source, d.outcome, case d.outcome when 'rejected' then case when d.p % 3 = 0 then 'invalid_email' else 'no_email' end when 'ignored' then 'event_type' end,
    case
        when d.outcome in ('rejected', 'ignored') then null
        when d.p < 5 then array[pg_temp.lead_id(d.lead, pg_temp.created(d.lead)), pg_temp.lead_id(d.lead % {leads} + 1, pg_temp.created(d.lead % {leads} + 1))]
        else array[pg_temp.lead_id(d.lead, pg_temp.created(d.lead))]
    end,
    case
        when d.outcome = 'rejected' then jsonb_build_array(jsonb_build_object('outcome', 'rejected', 'reason', case when d.p % 3 = 0 then 'invalid_email' else 'no_email' end, 'detail', 'no value at any path of the address'))
        when d.p < 5 then jsonb_build_array(jsonb_build_object('outcome', d.outcome), jsonb_build_object('outcome', 'unchanged'))
        when d.p < 25 then jsonb_build_array(jsonb_build_object('outcome', d.outcome, 'field_errors', jsonb_build_object('phone', 'not a valid number')))
    end,
    '{"content-type": "application/json"}',
    convert_to(format('{"email":"lead%s@example.com","name":"Somebody %s","note":"%s"}', d.lead, d.lead, repeat(md5(d.i::text), 6)), 'UTF8'), 260
from (
    select
        g.i, g.lead, g.p, (array['site', 'landing', 'typeform', 'google-ads', 'shop', 'partner', 'api', 'events'])[1 + pg_temp.pick(g.lead, case when g.i <= {leads} then 3 else 4 end, 8)] as source,
        pg_temp.created(g.lead) - interval '50 ms' + case
            when g.i <= {leads} then interval '0'
            else (date_trunc('hour', now()) - pg_temp.created(g.lead)) * (pg_temp.pick(g.i, 31, 100000) / 100000.0)
        end as at,
        case when g.i <= {leads} then 'created' when g.p >= 985 then 'rejected' when g.p >= 970 then 'ignored' when g.p >= 700 then 'updated' else 'unchanged' end as outcome,
        case when pg_temp.pick(g.i, 32, 10) < 8 then 1 else 1 + pg_temp.pick(g.i, 33, 4) end as copies
    from (select i, (i - 1) % {leads} + 1 as lead, pg_temp.pick(i, 30, 1000) as p from generate_series(1::bigint, {deliveries}) as i) as g
) as d
order by d.at;
-- As the service counts repeats when they come.
insert into leadsync.daily_counts (day, source, what, deliveries)
select (a.last_received_at at time zone 'utc')::date, a.source, 'repeat', sum(a.copies - 1)
from leadsync.deliveries as a
where a.copies > 1
group by 1, 2
on conflict (day, source, what) do update set deliveries = excluded.deliveries;
