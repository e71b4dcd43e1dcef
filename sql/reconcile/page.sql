-- Remember contacts of destination $1 that run $2 has seen: $3 remote_id[], $4 email[], $5 archived[].
-- Result: the leads in sync that those belong to which were not seen before, by remembered id, else by e-mail: as claim.sql,
-- without a lease, with the contact's id as contact_id.
with seen as (
    insert into leadsync.reconciled as r (run, remote_id, email, archived)
    select $2, c.remote_id, c.email, c.archived
    from unnest($3::text[], $4::text[], $5::boolean[]) as c (remote_id, email, archived)
    on conflict (run, remote_id) do nothing
    returning r.remote_id, r.email
),
matched as (
    select c.remote_id as contact_id, s.lead_id
    from seen as c
    join leadsync.lead_sync as s on s.destination = $1 and s.remote_id = c.remote_id
    union
    select c.remote_id, l.lead_id
    from seen as c
    join leadsync.leads as l on l.email = c.email
    join leadsync.lead_sync as s on s.destination = $1 and s.lead_id = l.lead_id and s.remote_id is null
)
select
    m.contact_id,
    s.lead_id, s.lease_token, s.confirm_after is not null as confirm_owed, s.attempts, s.remote_id, s.sent_hash,
    s.backfill, s.dropped_fields, extract(epoch from clock_timestamp() - s.creating_since)::float8 as creating_for,
    statement_timestamp() as claimed_at, s.next_attempt_at, l.email, l.version,
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
from matched as m
join leadsync.lead_sync as s on s.destination = $1 and s.lead_id = m.lead_id and s.state = 'synced'
join leadsync.leads as l on l.lead_id = m.lead_id;
