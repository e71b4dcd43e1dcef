//! Intercom: topics `contact.*`. A visitor of the messenger has no address at first: that is a rejected
//! lead, and the topic that says it was added is another delivery.

use serde_json::Value;

use crate::config::SignatureAlgorithm;
use crate::lead::Field;
use crate::mapping::{Document, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// The kind. `role` is "lead" or "user", not what somebody does.
pub const SOURCE: Source = Source {
    kind: "intercom",
    title: "Intercom",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-hub-signature",
        algorithm: SignatureAlgorithm::HmacSha1,
        prefix: "sha1=",
        ..Signing::BODY
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::Email, &["$.data.item.email"]),
            rule(Target::Field(Field::FullName), &["$.data.item.name"]),
            rule(Target::Field(Field::Phone), &["$.data.item.phone"]),
            rule(Target::Field(Field::Company), &["$.data.item.companies.data[*].name"]),
            rule(Target::Field(Field::City), &["$.data.item.location.city"]),
            rule(Target::Field(Field::Region), &["$.data.item.location.region"]),
            rule(Target::Field(Field::Country), &["$.data.item.location.country"]),
            rule_via(Target::OccurredAt, &["$['@found'].occurred_at", "$.created_at"], Via::EpochS),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$.topic"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

/// A deletion says nothing new about a person, and a tag's item is the tag.
fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let topic = doc.part.get("topic").and_then(Value::as_str)?;
    let past = [".deleted", ".archived"].iter().any(|end| topic.ends_with(end));
    match topic {
        "ping" => Some("ping"),
        _ if !topic.starts_with("contact.") || past || topic.contains(".tag.") => {
            Some("event_type")
        }
        _ => None,
    }
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let item = &part["data"]["item"];
    // Of anything later than its making, the contact has no time of its own that fits.
    if part["topic"].as_str().is_some_and(|topic| topic.ends_with(".created")) {
        found.put("occurred_at", &item["created_at"]);
    }
    // Everybody who has not unsubscribed has this as false: only the opt-out says something.
    if item["unsubscribed_from_emails"] == Value::Bool(true) {
        found.put("marketing_consent", &Value::Bool(false));
    }
    found.put_members(&item["custom_attributes"]);
    found.leave_in(part);
}
