//! Webflow forms: `payload.data`, keyed by the labels that the designer typed; older hooks send the inner
//! object flat. Hooks made in the dashboard are not signed: `url_token` then.

use serde_json::Value;

use crate::config::TimestampUnit;
use crate::mapping::{Document, Target, rule};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "webflow",
    title: "Webflow forms",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-webflow-signature",
        time_header: Some("x-webflow-timestamp"),
        unit: TimestampUnit::Ms,
        signed: "{time}:{body}",
        ..Signing::BODY
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::OccurredAt, &["$.payload.submittedAt", "$.d"]),
            rule(Target::EventId, &["$.payload.id", "$._id"]),
            rule(Target::EventType, &["$.triggerType"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("triggerType").and_then(Value::as_str);
    event.filter(|event| *event != "form_submission").map(|_| "event_type")
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    found.put_members(&part["payload"]["data"]);
    found.put_members(&part["data"]);
    found.leave_in(part);
}
