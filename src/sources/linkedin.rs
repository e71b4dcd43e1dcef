//! LinkedIn Lead Gen Forms: a delivery says the id of a response, which is read at the Lead Sync API together with
//! the form, because the answers have numbers for names.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::mapping::{Document, Rule, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::notice::{epoch_ms, gone, notice};
use super::{Auth, Item, Scheme, Signing, Source, Split, handshake};

/// The kind. The text before the body is signed with it, it stands in no header.
pub const SOURCE: Source = Source {
    kind: "linkedin",
    title: "LinkedIn Lead Gen Forms",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-li-signature",
        signed: "hmacsha256={body}",
        ..Signing::BODY
    })),
    split: Split::Notices(notices),
    rules: &[
        &[
            attribute("form_name", &["$.form.name"]),
            attribute("lead_type", &["$.leadType"]),
            attribute("campaign", &["$.leadMetadata.sponsoredLeadMetadata.campaign"]),
            attribute(
                "campaign_name",
                &["$.leadMetadataInfo.sponsoredLeadMetadataInfo.campaign.name"],
            ),
            rule_via(Target::OccurredAt, &["$.submittedAt"], Via::EpochMs),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$['@found'].event_type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: Some(handshake::linkedin_challenge),
};

const fn attribute(name: &'static str, from: &'static [&'static str]) -> Rule {
    rule(Target::Attribute(Cow::Borrowed(name)), from)
}

/// Questions that LinkedIn fills in itself, by `predefinedField`. What a member lets it know of work comes first.
#[rustfmt::skip]
const PREDEFINED: [(&str, &str); 18] = [
    ("WORK_EMAIL", "email"), ("EMAIL", "email"), ("FIRST_NAME", "first_name"), ("LAST_NAME", "last_name"),
    ("FULL_NAME", "full_name"), ("PHONE_NUMBER", "phone"), ("VERIFIED_MOBILE_PHONE", "phone"),
    ("WORK_PHONE", "phone"), ("WORK_PHONE_NUMBER", "phone"), ("COMPANY_NAME", "company"),
    ("COMPANY", "company"), ("JOB_TITLE", "job_title"), ("TITLE", "job_title"),
    ("COMPANY_WEBSITE", "website"), ("CITY", "city"), ("STATE", "region"), ("PROVINCE", "region"),
    ("COUNTRY", "country"),
];

/// A response never changes, so that it is read once; one that is taken back is never read.
fn notices(body: &Value) -> Vec<Item> {
    let events = match body {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let names = ["type", "leadAction", "leadGenFormResponse"];
    let is_event = |event: &&Value| names.iter().any(|name| !event[*name].is_null());
    let item = |event: &Value| {
        let id = &event["leadGenFormResponse"];
        match (event["type"].as_str(), event["leadAction"].as_str()) {
            (Some(other), _) if other != "LEAD_ACTION" => Item::Ignored("event_type".to_owned()),
            // Newer than any reading, so that a CREATED that comes later changes nothing.
            (_, Some("DELETED")) => gone("lead", id, epoch_ms(&event["occurredAt"]).or(Some(1))),
            (_, None | Some("CREATED")) => notice("lead", id, None),
            _ => Item::Ignored("event_type".to_owned()),
        }
    };
    events.iter().filter(is_event).map(item).collect()
}

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    (doc.part["testLead"] == Value::Bool(true)).then_some("test")
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let questions = part["form"]["content"]["questions"].as_array();
    let questions = questions.map(Vec::as_slice).unwrap_or_default();
    let answers = part["formResponse"]["answers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let question_of = |answer: &Value| {
        questions.iter().find(|question| {
            !question["questionId"].is_null() && question["questionId"] == answer["questionId"]
        })
    };
    let asked: Vec<(&Value, Value)> = answers
        .iter()
        .filter_map(|answer| question_of(answer).map(|question| (question, said(question, answer))))
        .collect();
    for (field, target) in PREDEFINED {
        for (_, answer) in asked.iter().filter(|(q, _)| q["predefinedField"] == field) {
            found.put(target, answer);
        }
    }
    // A question that LinkedIn knows is no other, whatever it is called.
    for (question, answer) in asked.iter().filter(|(q, _)| !q["predefinedField"].is_string()) {
        for label in labels_of(question) {
            found.put_labelled(label, answer);
        }
    }
    for field in part["form"]["hiddenFields"].as_array().into_iter().flatten() {
        if let Some(name) = field["name"].as_str() {
            found.put_labelled(name, &field["value"]);
        }
    }
    if consents(&part["formResponse"]["consentResponses"]) {
        found.put("marketing_consent", &Value::Bool(true));
    }
    found.put("event_type", &json!("LEAD_ACTION"));
    found.leave_in(part);
}

/// What somebody wrote, or the texts of the options that were chosen.
fn said(question: &Value, answer: &Value) -> Value {
    let details = &answer["answerDetails"];
    let options = details["multipleChoiceAnswer"]["options"].as_array();
    let Some(chosen) = options else { return details["textQuestionAnswer"]["answer"].clone() };
    let known = question["questionDetails"]["multipleChoiceQuestionDetails"]["options"].as_array();
    let text = |id: &Value| {
        let option = known.into_iter().flatten().find(|option| option["id"] == *id);
        let text = option.and_then(|option| localized(&option["text"]).next());
        text.map_or_else(|| id.to_string(), str::to_owned)
    };
    Value::String(chosen.iter().map(text).collect::<Vec<_>>().join(", "))
}

/// The names a question goes by: its author's, and its text in each language.
fn labels_of(question: &Value) -> impl Iterator<Item = &str> {
    question["name"].as_str().into_iter().chain(localized(&question["question"]))
}

fn localized(text: &Value) -> impl Iterator<Item = &str> {
    text["localized"].as_object().into_iter().flatten().filter_map(|(_, text)| text.as_str())
}

/// Every consent that the form asks for was given. One left open is no refusal.
fn consents(responses: &Value) -> bool {
    let responses = responses.as_array().map(Vec::as_slice).unwrap_or_default();
    !responses.is_empty() && responses.iter().all(|one| one["accepted"] == Value::Bool(true))
}
