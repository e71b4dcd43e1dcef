-- Lease up to $2 leads that are due for destination $1 to instance $3 for $4 seconds: those of a backfill if
-- $6, else those that changed.
-- A lease that ran out without being settled was stolen: its late holder may still write to the CRM, so
-- the lead cannot be in sync before a push made $5 seconds from now.
-- Result: the lead as it is now, with the token and the time of the claim that settling needs.
with due as (
    select s.lead_id
    from leadsync.lead_sync as s
    where s.destination = $1
        and s.state = 'due'
        and s.backfill = $6
        and s.next_attempt_at <= statement_timestamp()
        and (s.lease_until is null or s.lease_until < statement_timestamp())
    order by s.next_attempt_at
    limit $2
    for update skip locked
),
leased as (
    update leadsync.lead_sync as s set
        lease_token = s.lease_token + 1,
        lease_until = clock_timestamp() + make_interval(secs => $4),
        lease_holder = $3,
        confirm_after = case
            when s.lease_holder is not null then clock_timestamp() + make_interval(secs => $5)
            else s.confirm_after
        end
    from due as d
    where s.lead_id = d.lead_id and s.destination = $1
    returning s.lead_id, s.lease_token, s.confirm_after is not null as confirm_owed, s.attempts,
        s.remote_id, s.sent_hash, s.backfill, s.dropped_fields,
        extract(epoch from clock_timestamp() - s.creating_since)::float8 as creating_for
)
select
    s.lead_id, s.lease_token, s.confirm_owed, s.attempts, s.remote_id, s.sent_hash, s.backfill, s.dropped_fields,
    s.creating_for,
    statement_timestamp() as claimed_at, l.email, l.version,
    l.first_name, l.last_name, l.full_name, l.phone, l.company, l.job_title, l.website, l.city,
    l.region, l.country, l.language, l.message, l.lifecycle_stage,
    l.first_name_stamp is not null as first_name_set,
    l.last_name_stamp is not null as last_name_set, l.full_name_stamp is not null as full_name_set,
    l.phone_stamp is not null as phone_set, l.company_stamp is not null as company_set,
    l.job_title_stamp is not null as job_title_set, l.website_stamp is not null as website_set,
    l.city_stamp is not null as city_set, l.region_stamp is not null as region_set,
    l.country_stamp is not null as country_set, l.language_stamp is not null as language_set,
    l.message_stamp is not null as message_set,
    l.lifecycle_stage_stamp is not null as lifecycle_stage_set, l.marketing_consent, l.tags,
    l.attributes, l.first_source, l.first_seen_at, l.utm_source, l.utm_medium, l.utm_campaign,
    l.utm_term, l.utm_content, l.landing_page
from leased as s
join leadsync.leads as l on l.lead_id = s.lead_id
order by s.lead_id;
