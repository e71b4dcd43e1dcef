//! Elementor Pro forms. Plain: keys are the visible labels in the site's language. "Advanced Data":
//! `fields[id][...]`. Date and time are display text, so an event has no time of its own.

use serde_json::Value;

use crate::mapping::{Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Source, Split};

const PAGE: &str = "$.meta.page_url.value";

/// The kind.
pub const SOURCE: Source = Source {
    kind: "elementor",
    title: "Elementor Pro forms",
    auth: Auth::Unsigned,
    split: Split::Whole,
    rules: &[
        labels::RULES,
        &[
            rule(Target::LandingPage, &[PAGE]),
            rule_via(Target::UtmSource, &[PAGE], Via::Utm),
            rule_via(Target::UtmMedium, &[PAGE], Via::Utm),
            rule_via(Target::UtmCampaign, &[PAGE], Via::Utm),
            rule_via(Target::UtmTerm, &[PAGE], Via::Utm),
            rule_via(Target::UtmContent, &[PAGE], Via::Utm),
        ],
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let advanced = part.get("fields").and_then(Value::as_object);
    for (id, field) in advanced.into_iter().flatten() {
        let by_type = match field["type"].as_str() {
            Some("email") => Some("email"),
            Some("tel") => Some("phone"),
            Some("url") => Some("website"),
            Some("acceptance") => Some("marketing_consent"),
            _ => None,
        };
        let label = || {
            labels::recognise(id).or_else(|| field["title"].as_str().and_then(labels::recognise))
        };
        if let Some(target) = by_type.or_else(label) {
            found.put(target, &field["value"]);
        }
    }
    if advanced.is_none() {
        found.put_members(part);
    }
    found.leave_in(part);
}
