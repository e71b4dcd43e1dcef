//! Typeform: one `form_response` per submission; answers are typed, titles stand apart in the definition.

use std::collections::HashMap;

use serde_json::Value;

use crate::config::SignatureEncoding;
use crate::lead::Field;
use crate::mapping::{Document, Target, rule};

use super::labels::{self, Found};
use super::{Auth, Scheme, Signing, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "typeform",
    title: "Typeform",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "typeform-signature",
        encoding: SignatureEncoding::Base64,
        prefix: "sha256=",
        ..Signing::BODY
    })),
    split: Split::Whole,
    rules: &[
        &[
            rule(
                Target::Email,
                &[
                    "$.form_response.answers[?@.type=='email'].email",
                    "$.form_response.hidden.email",
                ],
            ),
            rule(
                Target::Field(Field::Phone),
                &["$.form_response.answers[?@.type=='phone_number'].phone_number"],
            ),
            rule(Target::Field(Field::Website), &["$.form_response.answers[?@.type=='url'].url"]),
            rule(
                Target::MarketingConsent,
                &["$.form_response.answers[?@.field.type=='legal'].boolean"],
            ),
            rule(Target::UtmSource, &["$.form_response.hidden.utm_source"]),
            rule(Target::UtmMedium, &["$.form_response.hidden.utm_medium"]),
            rule(Target::UtmCampaign, &["$.form_response.hidden.utm_campaign"]),
            rule(Target::UtmTerm, &["$.form_response.hidden.utm_term"]),
            rule(Target::UtmContent, &["$.form_response.hidden.utm_content"]),
            rule(Target::OccurredAt, &["$.form_response.submitted_at"]),
            rule(Target::EventId, &["$.event_id"]),
            rule(Target::EventType, &["$.event_type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("event_type").and_then(Value::as_str);
    event.filter(|event| *event != "form_response").map(|_| "event_type")
}

/// Recognises answers by their ref, where the form's author set one, and by their title.
fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let response = &part["form_response"];
    let titles: HashMap<&str, &str> = response["definition"]["fields"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|field| Some((field["id"].as_str()?, field["title"].as_str()?)))
        .collect();
    for answer in response["answers"].as_array().into_iter().flatten() {
        let field = &answer["field"];
        let title = field["id"].as_str().and_then(|id| titles.get(id));
        let label = field["ref"].as_str().and_then(labels::recognise);
        let Some(target) = label.or_else(|| title.and_then(|title| labels::recognise(title)))
        else {
            continue;
        };
        // The value stands under the member named by its type; choices have their labels deeper.
        let value = answer["type"].as_str().map_or(&Value::Null, |kind| &answer[kind]);
        match value {
            Value::Object(choice) => {
                let label = choice.get("label").or(choice.get("labels")).or(choice.get("other"));
                found.put(target, label.unwrap_or(&Value::Null));
            }
            value => found.put(target, value),
        }
    }
    found.leave_in(part);
}
