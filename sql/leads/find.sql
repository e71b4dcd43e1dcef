-- The lead of e-mail $1, with every register, for people.
-- Result: none or one row.
select
    l.lead_id, l.email, l.email_as_typed, l.version, l.created_at, l.updated_at, l.marketing_consent, l.tags, l.attributes,
    l.first_source, l.first_seen_at, l.utm_source, l.utm_medium, l.utm_campaign, l.utm_term, l.utm_content, l.landing_page,
    l.last_source, l.last_seen_at,
    l.consent_out_stamp, l.consent_in_stamp, l.consent_proven_stamp, l.consent_out_source, l.consent_in_source, l.consent_proven_source,
    l.first_name, l.last_name, l.full_name, l.phone, l.company, l.job_title, l.website, l.city,
    l.region, l.country, l.language, l.message, l.lifecycle_stage,
    l.first_name_stamp, l.last_name_stamp, l.full_name_stamp, l.phone_stamp, l.company_stamp,
    l.job_title_stamp, l.website_stamp, l.city_stamp, l.region_stamp, l.country_stamp,
    l.language_stamp, l.message_stamp, l.lifecycle_stage_stamp,
    l.first_name_source, l.last_name_source, l.full_name_source, l.phone_source, l.company_source,
    l.job_title_source, l.website_source, l.city_source, l.region_source, l.country_source,
    l.language_source, l.message_source, l.lifecycle_stage_source
from leadsync.leads as l
where l.email = $1;
