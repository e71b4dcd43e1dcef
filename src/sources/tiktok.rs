//! TikTok lead generation: `entry[]`, one lead each; the answers are named by the form's questions.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::mapping::{Document, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Source, Split};

const CREATED: &[&str] = &["$.create_time"];

/// The kind. No page of TikTok's own says the unit of `create_time`: read as seconds it is a time in
/// this age or none at all.
pub const SOURCE: Source = Source {
    kind: "tiktok",
    title: "TikTok lead generation",
    auth: Auth::Unsigned,
    split: Split::Member("entry"),
    rules: &[
        &[
            rule(Target::Attribute(Cow::Borrowed("campaign_name")), &["$.campaign_name"]),
            rule(Target::Attribute(Cow::Borrowed("campaign_id")), &["$.campaign_id"]),
            rule_via(Target::OccurredAt, CREATED, Via::EpochS),
            rule_via(Target::OccurredAt, CREATED, Via::EpochMs),
            rule_via(Target::OccurredAt, CREATED, Via::Rfc3339),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$['@found'].event_type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

/// `object` is 1 for leads.
fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let lead = doc.body.get("object").is_none_or(|object| *object == 1 || *object == "1");
    let test = doc.part["changes"].as_array().into_iter().flatten();
    match lead {
        false => Some("event_type"),
        true => test.map(|c| &c["value"]).any(labels::is_placeholder).then_some("test"),
    }
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    for change in part["changes"].as_array().into_iter().flatten() {
        if let Some(question) = change["field"].as_str() {
            found.put_labelled(question, &change["value"]);
        }
    }
    found.put("event_type", &json!("lead"));
    found.leave_in(part);
}
