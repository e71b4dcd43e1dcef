-- Merge a group of events into their leads, and mark what changed as due for every active destination.
-- One event per e-mail, already folded. Sorted bytewise by e-mail here and by the caller, and locks on
-- lead_sync taken in key order after those on leads, so that no deadlock can form.
-- Parameters: one array per column of `event`, in that order, all of one length.
-- Result: one row per event: email; lead_id (null only where another transaction made the lead after this
-- statement's snapshot and had already said all this event says); created; moved (a value changed).
-- The registers repeat one pattern per field on purpose: a test holds them to the fields of the program.
with event as (
    select *
    from unnest(
        $1::text[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::bigint[],
        $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[],
        $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $16::bigint[],
        $17::bigint[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[],
        $22::smallint[], $23::smallint[], $24::smallint[], $25::smallint[], $26::smallint[],
        $27::smallint[], $28::smallint[], $29::smallint[], $30::smallint[], $31::smallint[],
        $32::smallint[], $33::smallint[], $34::smallint[], $35::smallint[], $36::smallint[],
        $37::smallint[], $38::boolean[], $39::boolean[], $40::text[], $41::text[], $42::text[],
        $43::text[], $44::text[], $45::text[], $46::text[], $47::text[], $48::text[],
        $49::text[], $50::text[], $51::text[], $52::text[], $53::text[], $54::text[],
        $55::text[], $56::text[], $57::text[], $58::text[], $59::text[], $60::text[],
        $61::text[], $62::jsonb[], $63::jsonb[]
    ) as e (
        email, lead_id, first_seen_at, last_seen_at, email_as_typed_stamp, first_name_stamp,
        last_name_stamp, full_name_stamp, phone_stamp, company_stamp, job_title_stamp,
        website_stamp, city_stamp, region_stamp, country_stamp, language_stamp, message_stamp,
        lifecycle_stage_stamp, consent_out_stamp, consent_in_stamp, consent_proven_stamp,
        first_name_source, last_name_source, full_name_source, phone_source, company_source,
        job_title_source, website_source, city_source, region_source, country_source,
        language_source, message_source, lifecycle_stage_source, consent_out_source,
        consent_in_source, consent_proven_source, first_seen_reliable, last_seen_reliable,
        email_as_typed, first_name, last_name, full_name, phone, company, job_title, website,
        city, region, country, language, message, lifecycle_stage, first_source, utm_source,
        utm_medium, utm_campaign, utm_term, utm_content, landing_page, last_source, tags,
        attributes
    )
),
-- Repeats leave here: no lock, no WAL, no fsync. The snapshot may be stale because the state only
-- grows: what is dominated once stays dominated.
-- `offset 0` keeps the look-up one by key. A join may be planned as a scan while the table is small, and
-- that plan stays in use while it grows (measured: 50 times slower at 200,000 leads, until an analyze).
news as (
    select e.*
    from event as e
    left join lateral (select * from leadsync.leads as f where f.email = e.email offset 0) as l on true
    where l.email is null
        or leadsync.register_wins(e.first_name_stamp, e.first_name, e.first_name_source, l.first_name_stamp, l.first_name, l.first_name_source)
        or leadsync.register_wins(e.last_name_stamp, e.last_name, e.last_name_source, l.last_name_stamp, l.last_name, l.last_name_source)
        or leadsync.register_wins(e.full_name_stamp, e.full_name, e.full_name_source, l.full_name_stamp, l.full_name, l.full_name_source)
        or leadsync.register_wins(e.phone_stamp, e.phone, e.phone_source, l.phone_stamp, l.phone, l.phone_source)
        or leadsync.register_wins(e.company_stamp, e.company, e.company_source, l.company_stamp, l.company, l.company_source)
        or leadsync.register_wins(e.job_title_stamp, e.job_title, e.job_title_source, l.job_title_stamp, l.job_title, l.job_title_source)
        or leadsync.register_wins(e.website_stamp, e.website, e.website_source, l.website_stamp, l.website, l.website_source)
        or leadsync.register_wins(e.city_stamp, e.city, e.city_source, l.city_stamp, l.city, l.city_source)
        or leadsync.register_wins(e.region_stamp, e.region, e.region_source, l.region_stamp, l.region, l.region_source)
        or leadsync.register_wins(e.country_stamp, e.country, e.country_source, l.country_stamp, l.country, l.country_source)
        or leadsync.register_wins(e.language_stamp, e.language, e.language_source, l.language_stamp, l.language, l.language_source)
        or leadsync.register_wins(e.message_stamp, e.message, e.message_source, l.message_stamp, l.message, l.message_source)
        or leadsync.register_wins(e.lifecycle_stage_stamp, e.lifecycle_stage, e.lifecycle_stage_source, l.lifecycle_stage_stamp, l.lifecycle_stage, l.lifecycle_stage_source)
        or leadsync.register_wins(e.consent_out_stamp, null, e.consent_out_source, l.consent_out_stamp, null, l.consent_out_source)
        or leadsync.register_wins(e.consent_in_stamp, null, e.consent_in_source, l.consent_in_stamp, null, l.consent_in_source)
        or leadsync.register_wins(e.consent_proven_stamp, null, e.consent_proven_source, l.consent_proven_stamp, null, l.consent_proven_source)
        or leadsync.register_wins(e.email_as_typed_stamp, e.email_as_typed, 0::smallint, l.email_as_typed_stamp, l.email_as_typed, 0::smallint)
        or (e.last_seen_reliable, coalesce(e.last_seen_at, '-infinity'), e.last_source collate "C") > (l.last_seen_reliable, coalesce(l.last_seen_at, '-infinity'), l.last_source collate "C")
        or (not e.first_seen_reliable, coalesce(e.first_seen_at, '-infinity'), e.first_source collate "C",
            coalesce(e.utm_source, '') collate "C", coalesce(e.utm_medium, '') collate "C", coalesce(e.utm_campaign, '') collate "C",
            coalesce(e.utm_term, '') collate "C", coalesce(e.utm_content, '') collate "C", coalesce(e.landing_page, '') collate "C") < (not l.first_seen_reliable, coalesce(l.first_seen_at, '-infinity'), l.first_source collate "C",
            coalesce(l.utm_source, '') collate "C", coalesce(l.utm_medium, '') collate "C", coalesce(l.utm_campaign, '') collate "C",
            coalesce(l.utm_term, '') collate "C", coalesce(l.utm_content, '') collate "C", coalesce(l.landing_page, '') collate "C")
        or not coalesce(l.tags @> e.tags, e.tags is null)
        or (e.attributes is not null and leadsync.attributes_win(e.attributes, l.attributes))
),
merged as (
    insert into leadsync.leads as l (
        version, created_at, updated_at, moved,
        email, lead_id, first_seen_at, last_seen_at, email_as_typed_stamp, first_name_stamp,
        last_name_stamp, full_name_stamp, phone_stamp, company_stamp, job_title_stamp,
        website_stamp, city_stamp, region_stamp, country_stamp, language_stamp, message_stamp,
        lifecycle_stage_stamp, consent_out_stamp, consent_in_stamp, consent_proven_stamp,
        first_name_source, last_name_source, full_name_source, phone_source, company_source,
        job_title_source, website_source, city_source, region_source, country_source,
        language_source, message_source, lifecycle_stage_source, consent_out_source,
        consent_in_source, consent_proven_source, first_seen_reliable, last_seen_reliable,
        email_as_typed, first_name, last_name, full_name, phone, company, job_title, website,
        city, region, country, language, message, lifecycle_stage, first_source, utm_source,
        utm_medium, utm_campaign, utm_term, utm_content, landing_page, last_source, tags,
        attributes
    )
    select
        1, clock_timestamp(), clock_timestamp(), true,
        n.email, n.lead_id, n.first_seen_at, n.last_seen_at, n.email_as_typed_stamp,
        n.first_name_stamp, n.last_name_stamp, n.full_name_stamp, n.phone_stamp,
        n.company_stamp, n.job_title_stamp, n.website_stamp, n.city_stamp, n.region_stamp,
        n.country_stamp, n.language_stamp, n.message_stamp, n.lifecycle_stage_stamp,
        n.consent_out_stamp, n.consent_in_stamp, n.consent_proven_stamp, n.first_name_source,
        n.last_name_source, n.full_name_source, n.phone_source, n.company_source,
        n.job_title_source, n.website_source, n.city_source, n.region_source, n.country_source,
        n.language_source, n.message_source, n.lifecycle_stage_source, n.consent_out_source,
        n.consent_in_source, n.consent_proven_source, n.first_seen_reliable,
        n.last_seen_reliable, n.email_as_typed, n.first_name, n.last_name, n.full_name, n.phone,
        n.company, n.job_title, n.website, n.city, n.region, n.country, n.language, n.message,
        n.lifecycle_stage, n.first_source, n.utm_source, n.utm_medium, n.utm_campaign,
        n.utm_term, n.utm_content, n.landing_page, n.last_source, n.tags, n.attributes
    from news as n
    order by n.email collate "C"
    on conflict (email) do update set
        first_name = case when leadsync.register_wins(excluded.first_name_stamp, excluded.first_name, excluded.first_name_source, l.first_name_stamp, l.first_name, l.first_name_source) then excluded.first_name else l.first_name end,
        first_name_source = case when leadsync.register_wins(excluded.first_name_stamp, excluded.first_name, excluded.first_name_source, l.first_name_stamp, l.first_name, l.first_name_source) then excluded.first_name_source else l.first_name_source end,
        first_name_stamp = greatest(l.first_name_stamp, excluded.first_name_stamp),
        last_name = case when leadsync.register_wins(excluded.last_name_stamp, excluded.last_name, excluded.last_name_source, l.last_name_stamp, l.last_name, l.last_name_source) then excluded.last_name else l.last_name end,
        last_name_source = case when leadsync.register_wins(excluded.last_name_stamp, excluded.last_name, excluded.last_name_source, l.last_name_stamp, l.last_name, l.last_name_source) then excluded.last_name_source else l.last_name_source end,
        last_name_stamp = greatest(l.last_name_stamp, excluded.last_name_stamp),
        full_name = case when leadsync.register_wins(excluded.full_name_stamp, excluded.full_name, excluded.full_name_source, l.full_name_stamp, l.full_name, l.full_name_source) then excluded.full_name else l.full_name end,
        full_name_source = case when leadsync.register_wins(excluded.full_name_stamp, excluded.full_name, excluded.full_name_source, l.full_name_stamp, l.full_name, l.full_name_source) then excluded.full_name_source else l.full_name_source end,
        full_name_stamp = greatest(l.full_name_stamp, excluded.full_name_stamp),
        phone = case when leadsync.register_wins(excluded.phone_stamp, excluded.phone, excluded.phone_source, l.phone_stamp, l.phone, l.phone_source) then excluded.phone else l.phone end,
        phone_source = case when leadsync.register_wins(excluded.phone_stamp, excluded.phone, excluded.phone_source, l.phone_stamp, l.phone, l.phone_source) then excluded.phone_source else l.phone_source end,
        phone_stamp = greatest(l.phone_stamp, excluded.phone_stamp),
        company = case when leadsync.register_wins(excluded.company_stamp, excluded.company, excluded.company_source, l.company_stamp, l.company, l.company_source) then excluded.company else l.company end,
        company_source = case when leadsync.register_wins(excluded.company_stamp, excluded.company, excluded.company_source, l.company_stamp, l.company, l.company_source) then excluded.company_source else l.company_source end,
        company_stamp = greatest(l.company_stamp, excluded.company_stamp),
        job_title = case when leadsync.register_wins(excluded.job_title_stamp, excluded.job_title, excluded.job_title_source, l.job_title_stamp, l.job_title, l.job_title_source) then excluded.job_title else l.job_title end,
        job_title_source = case when leadsync.register_wins(excluded.job_title_stamp, excluded.job_title, excluded.job_title_source, l.job_title_stamp, l.job_title, l.job_title_source) then excluded.job_title_source else l.job_title_source end,
        job_title_stamp = greatest(l.job_title_stamp, excluded.job_title_stamp),
        website = case when leadsync.register_wins(excluded.website_stamp, excluded.website, excluded.website_source, l.website_stamp, l.website, l.website_source) then excluded.website else l.website end,
        website_source = case when leadsync.register_wins(excluded.website_stamp, excluded.website, excluded.website_source, l.website_stamp, l.website, l.website_source) then excluded.website_source else l.website_source end,
        website_stamp = greatest(l.website_stamp, excluded.website_stamp),
        city = case when leadsync.register_wins(excluded.city_stamp, excluded.city, excluded.city_source, l.city_stamp, l.city, l.city_source) then excluded.city else l.city end,
        city_source = case when leadsync.register_wins(excluded.city_stamp, excluded.city, excluded.city_source, l.city_stamp, l.city, l.city_source) then excluded.city_source else l.city_source end,
        city_stamp = greatest(l.city_stamp, excluded.city_stamp),
        region = case when leadsync.register_wins(excluded.region_stamp, excluded.region, excluded.region_source, l.region_stamp, l.region, l.region_source) then excluded.region else l.region end,
        region_source = case when leadsync.register_wins(excluded.region_stamp, excluded.region, excluded.region_source, l.region_stamp, l.region, l.region_source) then excluded.region_source else l.region_source end,
        region_stamp = greatest(l.region_stamp, excluded.region_stamp),
        country = case when leadsync.register_wins(excluded.country_stamp, excluded.country, excluded.country_source, l.country_stamp, l.country, l.country_source) then excluded.country else l.country end,
        country_source = case when leadsync.register_wins(excluded.country_stamp, excluded.country, excluded.country_source, l.country_stamp, l.country, l.country_source) then excluded.country_source else l.country_source end,
        country_stamp = greatest(l.country_stamp, excluded.country_stamp),
        language = case when leadsync.register_wins(excluded.language_stamp, excluded.language, excluded.language_source, l.language_stamp, l.language, l.language_source) then excluded.language else l.language end,
        language_source = case when leadsync.register_wins(excluded.language_stamp, excluded.language, excluded.language_source, l.language_stamp, l.language, l.language_source) then excluded.language_source else l.language_source end,
        language_stamp = greatest(l.language_stamp, excluded.language_stamp),
        message = case when leadsync.register_wins(excluded.message_stamp, excluded.message, excluded.message_source, l.message_stamp, l.message, l.message_source) then excluded.message else l.message end,
        message_source = case when leadsync.register_wins(excluded.message_stamp, excluded.message, excluded.message_source, l.message_stamp, l.message, l.message_source) then excluded.message_source else l.message_source end,
        message_stamp = greatest(l.message_stamp, excluded.message_stamp),
        lifecycle_stage = case when leadsync.register_wins(excluded.lifecycle_stage_stamp, excluded.lifecycle_stage, excluded.lifecycle_stage_source, l.lifecycle_stage_stamp, l.lifecycle_stage, l.lifecycle_stage_source) then excluded.lifecycle_stage else l.lifecycle_stage end,
        lifecycle_stage_source = case when leadsync.register_wins(excluded.lifecycle_stage_stamp, excluded.lifecycle_stage, excluded.lifecycle_stage_source, l.lifecycle_stage_stamp, l.lifecycle_stage, l.lifecycle_stage_source) then excluded.lifecycle_stage_source else l.lifecycle_stage_source end,
        lifecycle_stage_stamp = greatest(l.lifecycle_stage_stamp, excluded.lifecycle_stage_stamp),
        consent_out_source = case when leadsync.register_wins(excluded.consent_out_stamp, null, excluded.consent_out_source, l.consent_out_stamp, null, l.consent_out_source) then excluded.consent_out_source else l.consent_out_source end,
        consent_out_stamp = greatest(l.consent_out_stamp, excluded.consent_out_stamp),
        consent_in_source = case when leadsync.register_wins(excluded.consent_in_stamp, null, excluded.consent_in_source, l.consent_in_stamp, null, l.consent_in_source) then excluded.consent_in_source else l.consent_in_source end,
        consent_in_stamp = greatest(l.consent_in_stamp, excluded.consent_in_stamp),
        consent_proven_source = case when leadsync.register_wins(excluded.consent_proven_stamp, null, excluded.consent_proven_source, l.consent_proven_stamp, null, l.consent_proven_source) then excluded.consent_proven_source else l.consent_proven_source end,
        consent_proven_stamp = greatest(l.consent_proven_stamp, excluded.consent_proven_stamp),
        email_as_typed = case when leadsync.register_wins(excluded.email_as_typed_stamp, excluded.email_as_typed, 0::smallint, l.email_as_typed_stamp, l.email_as_typed, 0::smallint) then excluded.email_as_typed else l.email_as_typed end,
        email_as_typed_stamp = greatest(l.email_as_typed_stamp, excluded.email_as_typed_stamp),
        -- Last touch: the greatest (reliable, time, source), as one tuple.
        (last_seen_reliable, last_seen_at, last_source) = (
            select t.* from (values
                (l.last_seen_reliable, l.last_seen_at, l.last_source),
                (excluded.last_seen_reliable, excluded.last_seen_at, excluded.last_source)
            ) as t (last_seen_reliable, last_seen_at, last_source)
            order by t.last_seen_reliable desc, coalesce(t.last_seen_at, '-infinity') desc, t.last_source collate "C" desc
            limit 1
        ),
        -- First touch: the least, as one tuple: columns of two events are never mixed.
        (first_seen_reliable, first_seen_at, first_source, utm_source, utm_medium, utm_campaign, utm_term, utm_content, landing_page) = (
            select t.* from (values
                (l.first_seen_reliable, l.first_seen_at, l.first_source, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term, l.utm_content, l.landing_page),
                (excluded.first_seen_reliable, excluded.first_seen_at, excluded.first_source, excluded.utm_source, excluded.utm_medium, excluded.utm_campaign, excluded.utm_term, excluded.utm_content, excluded.landing_page)
            ) as t (first_seen_reliable, first_seen_at, first_source, utm_source, utm_medium, utm_campaign, utm_term, utm_content, landing_page)
            order by t.first_seen_reliable desc, coalesce(t.first_seen_at, '-infinity'), t.first_source collate "C",
                coalesce(t.utm_source, '') collate "C", coalesce(t.utm_medium, '') collate "C", coalesce(t.utm_campaign, '') collate "C",
                coalesce(t.utm_term, '') collate "C", coalesce(t.utm_content, '') collate "C", coalesce(t.landing_page, '') collate "C"
            limit 1
        ),
        tags = case when excluded.tags is null then l.tags else coalesce(l.tags, '{}') || excluded.tags end,
        attributes = case
            when excluded.attributes is null then l.attributes
            else leadsync.attributes_join(l.attributes, excluded.attributes)
        end,
        -- A newer event with the same values raises stamps but is no change: nothing to sync. The first clear
        -- of a field is one: before it the field is left alone in a CRM, after it it is cleared there.
        (version, updated_at, moved) = (
            select
                l.version + c.changed::int,
                case when c.changed then clock_timestamp() else l.updated_at end,
                c.changed
            from (select coalesce(
                ((excluded.first_name is distinct from l.first_name or l.first_name_stamp is null) and leadsync.register_wins(excluded.first_name_stamp, excluded.first_name, excluded.first_name_source, l.first_name_stamp, l.first_name, l.first_name_source))
                or ((excluded.last_name is distinct from l.last_name or l.last_name_stamp is null) and leadsync.register_wins(excluded.last_name_stamp, excluded.last_name, excluded.last_name_source, l.last_name_stamp, l.last_name, l.last_name_source))
                or ((excluded.full_name is distinct from l.full_name or l.full_name_stamp is null) and leadsync.register_wins(excluded.full_name_stamp, excluded.full_name, excluded.full_name_source, l.full_name_stamp, l.full_name, l.full_name_source))
                or ((excluded.phone is distinct from l.phone or l.phone_stamp is null) and leadsync.register_wins(excluded.phone_stamp, excluded.phone, excluded.phone_source, l.phone_stamp, l.phone, l.phone_source))
                or ((excluded.company is distinct from l.company or l.company_stamp is null) and leadsync.register_wins(excluded.company_stamp, excluded.company, excluded.company_source, l.company_stamp, l.company, l.company_source))
                or ((excluded.job_title is distinct from l.job_title or l.job_title_stamp is null) and leadsync.register_wins(excluded.job_title_stamp, excluded.job_title, excluded.job_title_source, l.job_title_stamp, l.job_title, l.job_title_source))
                or ((excluded.website is distinct from l.website or l.website_stamp is null) and leadsync.register_wins(excluded.website_stamp, excluded.website, excluded.website_source, l.website_stamp, l.website, l.website_source))
                or ((excluded.city is distinct from l.city or l.city_stamp is null) and leadsync.register_wins(excluded.city_stamp, excluded.city, excluded.city_source, l.city_stamp, l.city, l.city_source))
                or ((excluded.region is distinct from l.region or l.region_stamp is null) and leadsync.register_wins(excluded.region_stamp, excluded.region, excluded.region_source, l.region_stamp, l.region, l.region_source))
                or ((excluded.country is distinct from l.country or l.country_stamp is null) and leadsync.register_wins(excluded.country_stamp, excluded.country, excluded.country_source, l.country_stamp, l.country, l.country_source))
                or ((excluded.language is distinct from l.language or l.language_stamp is null) and leadsync.register_wins(excluded.language_stamp, excluded.language, excluded.language_source, l.language_stamp, l.language, l.language_source))
                or ((excluded.message is distinct from l.message or l.message_stamp is null) and leadsync.register_wins(excluded.message_stamp, excluded.message, excluded.message_source, l.message_stamp, l.message, l.message_source))
                or ((excluded.lifecycle_stage is distinct from l.lifecycle_stage or l.lifecycle_stage_stamp is null) and leadsync.register_wins(excluded.lifecycle_stage_stamp, excluded.lifecycle_stage, excluded.lifecycle_stage_source, l.lifecycle_stage_stamp, l.lifecycle_stage, l.lifecycle_stage_source))
                or case
                    when greatest(l.consent_proven_stamp, excluded.consent_proven_stamp)
                        > coalesce(greatest(l.consent_out_stamp, excluded.consent_out_stamp), 0) then true
                    when greatest(l.consent_out_stamp, excluded.consent_out_stamp) is not null then false
                    when greatest(l.consent_in_stamp, excluded.consent_in_stamp) is not null then true
                end is distinct from l.marketing_consent
                or (not excluded.first_seen_reliable, coalesce(excluded.first_seen_at, '-infinity'), excluded.first_source collate "C",
                    coalesce(excluded.utm_source, '') collate "C", coalesce(excluded.utm_medium, '') collate "C", coalesce(excluded.utm_campaign, '') collate "C",
                    coalesce(excluded.utm_term, '') collate "C", coalesce(excluded.utm_content, '') collate "C", coalesce(excluded.landing_page, '') collate "C")
                    < (not l.first_seen_reliable, coalesce(l.first_seen_at, '-infinity'), l.first_source collate "C",
                    coalesce(l.utm_source, '') collate "C", coalesce(l.utm_medium, '') collate "C", coalesce(l.utm_campaign, '') collate "C",
                    coalesce(l.utm_term, '') collate "C", coalesce(l.utm_content, '') collate "C", coalesce(l.landing_page, '') collate "C")
                or not coalesce(l.tags @> excluded.tags, excluded.tags is null)
                or (excluded.attributes is not null and leadsync.attributes_changed(l.attributes, excluded.attributes)),
                false
            ) as changed) as c
        )
    -- The same test as for `news`, on the locked and newest version of the row.
    where leadsync.register_wins(excluded.first_name_stamp, excluded.first_name, excluded.first_name_source, l.first_name_stamp, l.first_name, l.first_name_source)
        or leadsync.register_wins(excluded.last_name_stamp, excluded.last_name, excluded.last_name_source, l.last_name_stamp, l.last_name, l.last_name_source)
        or leadsync.register_wins(excluded.full_name_stamp, excluded.full_name, excluded.full_name_source, l.full_name_stamp, l.full_name, l.full_name_source)
        or leadsync.register_wins(excluded.phone_stamp, excluded.phone, excluded.phone_source, l.phone_stamp, l.phone, l.phone_source)
        or leadsync.register_wins(excluded.company_stamp, excluded.company, excluded.company_source, l.company_stamp, l.company, l.company_source)
        or leadsync.register_wins(excluded.job_title_stamp, excluded.job_title, excluded.job_title_source, l.job_title_stamp, l.job_title, l.job_title_source)
        or leadsync.register_wins(excluded.website_stamp, excluded.website, excluded.website_source, l.website_stamp, l.website, l.website_source)
        or leadsync.register_wins(excluded.city_stamp, excluded.city, excluded.city_source, l.city_stamp, l.city, l.city_source)
        or leadsync.register_wins(excluded.region_stamp, excluded.region, excluded.region_source, l.region_stamp, l.region, l.region_source)
        or leadsync.register_wins(excluded.country_stamp, excluded.country, excluded.country_source, l.country_stamp, l.country, l.country_source)
        or leadsync.register_wins(excluded.language_stamp, excluded.language, excluded.language_source, l.language_stamp, l.language, l.language_source)
        or leadsync.register_wins(excluded.message_stamp, excluded.message, excluded.message_source, l.message_stamp, l.message, l.message_source)
        or leadsync.register_wins(excluded.lifecycle_stage_stamp, excluded.lifecycle_stage, excluded.lifecycle_stage_source, l.lifecycle_stage_stamp, l.lifecycle_stage, l.lifecycle_stage_source)
        or leadsync.register_wins(excluded.consent_out_stamp, null, excluded.consent_out_source, l.consent_out_stamp, null, l.consent_out_source)
        or leadsync.register_wins(excluded.consent_in_stamp, null, excluded.consent_in_source, l.consent_in_stamp, null, l.consent_in_source)
        or leadsync.register_wins(excluded.consent_proven_stamp, null, excluded.consent_proven_source, l.consent_proven_stamp, null, l.consent_proven_source)
        or leadsync.register_wins(excluded.email_as_typed_stamp, excluded.email_as_typed, 0::smallint, l.email_as_typed_stamp, l.email_as_typed, 0::smallint)
        or (excluded.last_seen_reliable, coalesce(excluded.last_seen_at, '-infinity'), excluded.last_source collate "C") > (l.last_seen_reliable, coalesce(l.last_seen_at, '-infinity'), l.last_source collate "C")
        or (not excluded.first_seen_reliable, coalesce(excluded.first_seen_at, '-infinity'), excluded.first_source collate "C",
            coalesce(excluded.utm_source, '') collate "C", coalesce(excluded.utm_medium, '') collate "C", coalesce(excluded.utm_campaign, '') collate "C",
            coalesce(excluded.utm_term, '') collate "C", coalesce(excluded.utm_content, '') collate "C", coalesce(excluded.landing_page, '') collate "C") < (not l.first_seen_reliable, coalesce(l.first_seen_at, '-infinity'), l.first_source collate "C",
            coalesce(l.utm_source, '') collate "C", coalesce(l.utm_medium, '') collate "C", coalesce(l.utm_campaign, '') collate "C",
            coalesce(l.utm_term, '') collate "C", coalesce(l.utm_content, '') collate "C", coalesce(l.landing_page, '') collate "C")
        or not coalesce(l.tags @> excluded.tags, excluded.tags is null)
        or (excluded.attributes is not null and leadsync.attributes_win(excluded.attributes, l.attributes))
    returning l.email, l.lead_id, l.version, l.moved
),
marked as (
    insert into leadsync.lead_sync as s (lead_id, destination, state, wanted_version, next_attempt_at)
    select m.lead_id, d.name, 'due', m.version, clock_timestamp()
    from merged as m
    cross join leadsync.destinations as d
    where m.moved and d.active
    order by m.lead_id, d.name
    on conflict (lead_id, destination) do update set
        state = 'due',
        wanted_version = greatest(s.wanted_version, excluded.wanted_version),
        -- A lead that waits after a failure keeps waiting: its place in the queue is its backoff. One that only
        -- waits to be confirmed once more has news now.
        next_attempt_at = case
            when s.state <> 'due' then excluded.next_attempt_at
            when s.attempts > 0 then s.next_attempt_at
            else least(s.next_attempt_at, excluded.next_attempt_at)
        end,
        backfill = false
)
select
    e.email,
    coalesce(m.lead_id, l.lead_id) as lead_id,
    coalesce(m.version = 1 and m.moved, false) as created,
    coalesce(m.moved, false) as moved
from event as e
left join merged as m on m.email = e.email
left join lateral (select f.lead_id from leadsync.leads as f where f.email = e.email offset 0) as l on true;
