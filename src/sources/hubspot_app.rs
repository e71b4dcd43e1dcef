//! HubSpot app subscriptions: events about contacts, by id. The contact is read at the CRM API as it is then, so that
//! the order of the events does not matter.

use serde_json::{Value, json};

use crate::lead::Field;
use crate::mapping::{Rule, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::notice::{epoch_ms, gone, notice};
use super::{Auth, Item, Scheme, Source, Split};

/// The kind. `eventId` is not unique and says nothing here.
pub const SOURCE: Source = Source {
    kind: "hubspot-app",
    title: "HubSpot app subscriptions (contact events)",
    auth: Auth::Signed(Scheme::HubSpot),
    split: Split::Notices(notices),
    rules: &[
        &[
            rule(Target::Email, &["$.properties.email"]),
            property(Field::FirstName, &["$.properties.firstname"]),
            property(Field::LastName, &["$.properties.lastname"]),
            property(Field::Phone, &["$.properties.mobilephone"]),
            property(Field::Phone, &["$.properties.phone"]),
            property(Field::Company, &["$.properties.company"]),
            property(Field::JobTitle, &["$.properties.jobtitle"]),
            property(Field::Website, &["$.properties.website"]),
            property(Field::City, &["$.properties.city"]),
            property(Field::Region, &["$.properties.state"]),
            property(Field::Country, &["$.properties.country"]),
            property(Field::Language, &["$.properties.hs_language"]),
            property(Field::Message, &["$.properties.message"]),
            property(Field::LifecycleStage, &["$.properties.lifecyclestage"]),
            // The contact as it is now is what its last change made it.
            rule(Target::OccurredAt, TIMES),
            rule_via(Target::OccurredAt, TIMES, Via::EpochMs),
            rule(Target::EventId, &["$.id"]),
            rule(Target::EventType, &["$['@found'].event_type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

const TIMES: &[&str] =
    &["$.properties.lastmodifieddate", "$.updatedAt", "$.properties.createdate", "$.createdAt"];

const fn property(field: Field, from: &'static [&'static str]) -> Rule {
    rule(Target::Field(field), from)
}

/// Up to 100 in a delivery, in any order.
fn notices(body: &Value) -> Vec<Item> {
    let events = match body {
        Value::Array(several) => several.as_slice(),
        one => std::slice::from_ref(one),
    };
    let is_event = |event: &&Value| !event["subscriptionType"].is_null();
    events.iter().filter(is_event).flat_map(items).collect()
}

/// What one event tells of: a merge of several contacts.
fn items(event: &Value) -> Vec<Item> {
    let ignored = || vec![Item::Ignored("event_type".to_owned())];
    let kind = event["subscriptionType"].as_str().unwrap_or_default();
    // `object.*` is about contacts where the type says so.
    let what = match kind.split_once('.') {
        Some(("contact", what)) => what,
        Some(("object", what)) if event["objectTypeId"] == "0-1" => what,
        _ => return ignored(),
    };
    let (id, at) = (contact_id(&event["objectId"]), epoch_ms(&event["occurredAt"]));
    match what {
        "creation" | "propertyChange" | "restore" => vec![notice("contact", id, at)],
        "deletion" | "privacyDeletion" => vec![gone("contact", id, at)],
        "merge" => merge(event, at),
        _ => ignored(),
    }
}

/// Ids of HubSpot are numbers. It refuses a batch with one that is not as a whole, so such an id is none.
fn contact_id(id: &Value) -> &Value {
    let is_number = match id {
        Value::Number(number) => number.is_u64(),
        Value::String(text) => !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit()),
        _ => false,
    };
    if is_number { id } else { &Value::Null }
}

/// The survivor is read; the others are not there any more.
fn merge(event: &Value, at: Option<i64>) -> Vec<Item> {
    let ids = ["newObjectId", "primaryObjectId", "objectId"];
    let survivor = ids.iter().map(|name| &event[*name]).find(|id| !id.is_null());
    let survivor = survivor.map_or(&Value::Null, contact_id);
    let merged = event["mergedObjectIds"].as_array().into_iter().flatten();
    let merged = merged.chain(Some(&event["primaryObjectId"]).filter(|id| !id.is_null()));
    let merged =
        merged.map(contact_id).filter(|id| *id != survivor).map(|id| gone("contact", id, at));
    std::iter::once(notice("contact", survivor, at)).chain(merged).collect()
}

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let properties = &part["properties"];
    // The page that the contact saw first; the campaign stands in its address.
    found.put("landing_page", &properties["hs_analytics_first_url"]);
    // Everybody who has not unsubscribed has this empty or false: only the opt-out says something.
    if properties["hs_email_optout"] == "true" || properties["hs_email_optout"] == true {
        found.put("marketing_consent", &Value::Bool(false));
    }
    found.put("event_type", &json!("contact"));
    found.leave_in(part);
}
