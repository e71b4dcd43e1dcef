//! Calendly: invitees and routing forms. Phone and company stand in free questions; the routing form's
//! address does, too.

use serde_json::Value;

use crate::lead::Field;
use crate::mapping::{Document, Target, rule};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "calendly",
    title: "Calendly",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "calendly-webhook-signature",
        tolerance_s: 180,
        ..Signing::PACKED
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::Email, &["$.payload.email"]),
            rule(Target::Field(Field::FirstName), &["$.payload.first_name"]),
            rule(Target::Field(Field::LastName), &["$.payload.last_name"]),
            rule(Target::Field(Field::FullName), &["$.payload.name"]),
            rule(Target::Field(Field::Phone), &["$.payload.text_reminder_number"]),
            rule(Target::UtmSource, &["$.payload.tracking.utm_source"]),
            rule(Target::UtmMedium, &["$.payload.tracking.utm_medium"]),
            rule(Target::UtmCampaign, &["$.payload.tracking.utm_campaign"]),
            rule(Target::UtmTerm, &["$.payload.tracking.utm_term"]),
            rule(Target::UtmContent, &["$.payload.tracking.utm_content"]),
            rule(Target::OccurredAt, &["$.payload.created_at"]),
            rule(Target::EventId, &["$.payload.uri"]),
            rule(Target::EventType, &["$.event"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

/// A cancellation says nothing new about a person; a reschedule comes with an `invitee.created` of its own.
fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("event").and_then(Value::as_str)?;
    let about_a_lead = ["invitee.created", "routing_form_submission.created"].contains(&event);
    (!about_a_lead).then_some("event_type")
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    for pair in part["payload"]["questions_and_answers"].as_array().into_iter().flatten() {
        if let Some(question) = pair["question"].as_str() {
            found.put_labelled(question, &pair["answer"]);
        }
    }
    found.leave_in(part);
}
