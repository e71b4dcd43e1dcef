//! RD Station Marketing: `{event_type, contact}`, and 1.x `{leads: [...]}`. `contact_owner_email` and
//! `user` are the salesperson, never the lead.

use std::borrow::Cow;

use serde_json::Value;

use crate::lead::Field;
use crate::mapping::{Document, Target, rule};

use super::{Auth, Source, Split};

/// The kind. `timestamp` and a 1.x lead's `created_at` are not the time of what happened.
pub const SOURCE: Source = Source {
    kind: "rdstation",
    title: "RD Station Marketing",
    auth: Auth::Unsigned,
    split: Split::Member("leads"),
    rules: &[&[
        rule(Target::Email, &["$.contact.email", "$.email"]),
        rule(Target::Field(Field::FullName), &["$.contact.name", "$.name"]),
        rule(Target::Field(Field::Phone), &["$.contact.mobile_phone", "$.mobile_phone"]),
        rule(Target::Field(Field::Phone), &["$.contact.personal_phone", "$.personal_phone"]),
        rule(Target::Field(Field::Company), &["$.contact.company.name", "$.company"]),
        rule(Target::Field(Field::JobTitle), &["$.contact.job_title", "$.job_title"]),
        rule(Target::Field(Field::Website), &["$.contact.website", "$.website"]),
        rule(Target::Field(Field::City), &["$.contact.city", "$.city"]),
        rule(Target::Field(Field::Region), &["$.contact.state", "$.state"]),
        rule(Target::Field(Field::Country), &["$.contact.country", "$.country"]),
        rule(
            Target::MarketingConsent,
            &["$.contact.legal_bases[?@.category=='communications' && @.type=='consent'].status"],
        ),
        rule(Target::Tags, &["$.contact.tags", "$.tags"]),
        rule(Target::UtmSource, &["$.last_conversion.conversion_origin.source"]),
        rule(Target::UtmMedium, &["$.last_conversion.conversion_origin.medium"]),
        rule(Target::UtmCampaign, &["$.last_conversion.conversion_origin.campaign"]),
        rule(Target::Attribute(Cow::Borrowed("origin")), &["$.contact.funnel.origin"]),
        rule(
            Target::Attribute(Cow::Borrowed("conversion")),
            &["$.event_identifier", "$.last_conversion.source"],
        ),
        rule(Target::OccurredAt, &["$.event_timestamp", "$.last_conversion.created_at"]),
        rule(Target::EventType, &["$.event_type"]),
    ]],
    headers: &[],
    prepare: None,
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("event_type").and_then(Value::as_str)?;
    let about_a_lead = ["WEBHOOK.CONVERTED", "WEBHOOK.MARKED_OPPORTUNITY"].contains(&event);
    (!about_a_lead).then_some("event_type")
}
