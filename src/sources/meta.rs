//! Meta Lead Ads: a delivery says ids, the lead is read at the Graph API. Questions have slugs of their text in the
//! form's language, so answers are recognised like any form's.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::mapping::{Document, Rule, Target, rule};

use super::labels::{self, Found};
use super::notice::notice;
use super::{Auth, Item, Scheme, Signing, Source, Split, handshake};

/// What the app dashboard's "Test" button sends as an id; Graph does not know it.
const TEST_ID: &str = "444444444444";

/// The kind. Ids may come as numbers or texts.
pub const SOURCE: Source = Source {
    kind: "meta",
    title: "Meta Lead Ads (Facebook and Instagram)",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-hub-signature-256",
        prefix: "sha256=",
        ..Signing::BODY
    })),
    split: Split::Notices(notices),
    rules: &[
        &[
            attribute("campaign_name", &["$.campaign_name"]),
            attribute("campaign_id", &["$.campaign_id"]),
            attribute("adset_name", &["$.adset_name"]),
            attribute("ad_name", &["$.ad_name"]),
            attribute("form_id", &["$.form_id"]),
            attribute("platform", &["$.platform"]),
            rule(Target::OccurredAt, &["$.created_time"]),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$['@found'].event_type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: Some(handshake::hub_challenge),
};

const fn attribute(name: &'static str, from: &'static [&'static str]) -> Rule {
    rule(Target::Attribute(Cow::Borrowed(name)), from)
}

/// One per change; up to 1000 in a delivery, of any pages. Leads never change, so each is read once.
fn notices(body: &Value) -> Vec<Item> {
    let entries = body["entry"].as_array().into_iter().flatten();
    let changes = entries.flat_map(|entry| entry["changes"].as_array().into_iter().flatten());
    let item = |change: &Value| {
        let id = &change["value"]["leadgen_id"];
        if change["field"] != "leadgen" {
            return Item::Ignored("event_type".to_owned());
        }
        match notice("lead", id, None) {
            Item::Notice(notice) if notice.remote_id == TEST_ID => Item::Ignored("test".to_owned()),
            item => item,
        }
    };
    changes.map(item).collect()
}

/// The testing tool makes a real lead of these answers.
fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let answers = doc.part["field_data"].as_array().into_iter().flatten();
    let mut values = answers.flat_map(|answer| answer["values"].as_array().into_iter().flatten());
    values
        .any(|value| labels::is_placeholder(value) || value.as_str() == Some("test@meta.com"))
        .then_some("test")
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    for answer in part["field_data"].as_array().into_iter().flatten() {
        if let Some(question) = answer["name"].as_str() {
            found.put_labelled(question, &joined(&answer["values"]));
        }
    }
    if consents(&part["custom_disclaimer_responses"]) {
        found.put("marketing_consent", &Value::Bool(true));
    }
    found.put("event_type", &json!("leadgen"));
    found.leave_in(part);
}

/// Several answers to one question are one text.
fn joined(values: &Value) -> Value {
    let texts: Option<Vec<&str>> =
        values.as_array().map(|list| list.iter().map(Value::as_str).collect()).unwrap_or_default();
    match texts {
        Some(texts) if texts.len() > 1 => Value::String(texts.join(", ")),
        _ => values.clone(),
    }
}

/// Whether the box about marketing is ticked: the one that says so by its key, or the only one there is. A box left
/// empty is no refusal.
fn consents(boxes: &Value) -> bool {
    let boxes = boxes.as_array().map(Vec::as_slice).unwrap_or_default();
    let about_marketing = |one: &&Value| {
        let key = one["checkbox_key"].as_str().unwrap_or_default().to_lowercase();
        ["marketing", "newsletter", "opt_in", "optin"].iter().any(|word| key.contains(word))
    };
    let one = match boxes {
        [only] => Some(only),
        several => several.iter().find(about_marketing),
    };
    // Meta's own pages do not say which of these it is.
    one.is_some_and(|one| {
        [json!(true), json!(1), json!("1"), json!("true")].contains(&one["is_checked"])
    })
}
