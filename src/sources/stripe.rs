//! Stripe: new and changed customers, and completed checkouts. What the seller asked stands in `metadata`
//! and `custom_fields`.

use serde_json::Value;

use crate::lead::Field;
use crate::mapping::{Document, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// Events about a person who may be a lead.
const EVENTS: [&str; 4] = [
    "customer.created",
    "customer.updated",
    "checkout.session.completed",
    "checkout.session.async_payment_succeeded",
];

/// The kind. Like Stripe's own libraries it refuses old times only. Nobody in test mode is a person, so
/// `livemode: false` is ignored: a test endpoint has a secret of its own anyway.
pub const SOURCE: Source = Source {
    kind: "stripe",
    title: "Stripe",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "stripe-signature",
        limits_future: false,
        ..Signing::PACKED
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(
                Target::Email,
                &[
                    "$.data.object.customer_details.email",
                    "$.data.object.email",
                    "$.data.object.customer_email",
                ],
            ),
            rule(
                Target::Field(Field::FullName),
                &["$.data.object.customer_details.name", "$.data.object.name"],
            ),
            rule(
                Target::Field(Field::Phone),
                &["$.data.object.customer_details.phone", "$.data.object.phone"],
            ),
            rule(
                Target::Field(Field::City),
                &["$.data.object.customer_details.address.city", "$.data.object.address.city"],
            ),
            rule(
                Target::Field(Field::Region),
                &["$.data.object.customer_details.address.state", "$.data.object.address.state"],
            ),
            rule(
                Target::Field(Field::Country),
                &[
                    "$.data.object.customer_details.address.country",
                    "$.data.object.address.country",
                ],
            ),
            rule(Target::Field(Field::Language), &["$.data.object.preferred_locales[0]"]),
            rule(Target::MarketingConsent, &["$.data.object.consent.promotions"]),
            rule_via(Target::OccurredAt, &["$.created"], Via::EpochS),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$.type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("type").and_then(Value::as_str);
    match doc.part.get("livemode") {
        Some(Value::Bool(false)) => Some("test"),
        _ => event.filter(|event| !EVENTS.contains(event)).map(|_| "event_type"),
    }
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let object = &part["data"]["object"];
    for field in object["custom_fields"].as_array().into_iter().flatten() {
        // The value stands under the member named by the field's type.
        let value = field["type"].as_str().map_or(&Value::Null, |kind| &field[kind]["value"]);
        for label in [&field["key"], &field["label"]["custom"]] {
            if let Some(label) = label.as_str() {
                found.put_labelled(label, value);
            }
        }
    }
    found.put_members(&object["metadata"]);
    found.leave_in(part);
}
