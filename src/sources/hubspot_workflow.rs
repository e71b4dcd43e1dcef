//! HubSpot's workflow action "Send a webhook": all properties of the contact as `{value, versions}`, or
//! flat keys that the user chose. The campaign stands only in the address of the page of a form.

use serde_json::Value;

use crate::lead::Field;
use crate::mapping::{Rule, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Scheme, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "hubspot-workflow",
    title: "HubSpot workflows (Send a webhook)",
    auth: Auth::Signed(Scheme::HubSpot),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::Email, &["$.properties.email.value", "$.email"]),
            property(Field::FirstName, &["$.properties.firstname.value", "$.firstname"]),
            property(Field::LastName, &["$.properties.lastname.value", "$.lastname"]),
            property(Field::Phone, &["$.properties.mobilephone.value", "$.mobilephone"]),
            property(Field::Phone, &["$.properties.phone.value", "$.phone"]),
            property(
                Field::Company,
                &[
                    "$.properties.company.value",
                    "$.company",
                    "$['associated-company'].properties.name.value",
                ],
            ),
            property(Field::JobTitle, &["$.properties.jobtitle.value", "$.jobtitle"]),
            property(Field::Website, &["$.properties.website.value", "$.website"]),
            property(Field::City, &["$.properties.city.value", "$.city"]),
            property(Field::Region, &["$.properties.state.value", "$.state"]),
            property(Field::Country, &["$.properties.country.value", "$.country"]),
            property(Field::Language, &["$.properties.hs_language.value", "$.hs_language"]),
            property(Field::Message, &["$.properties.message.value", "$.message"]),
            property(
                Field::LifecycleStage,
                &["$.properties.lifecyclestage.value", "$.lifecyclestage"],
            ),
            rule_via(Target::OccurredAt, TIMES, Via::EpochMs),
            rule_via(Target::OccurredAt, TIMES, Via::Rfc3339),
            rule(Target::EventId, &["$['@found'].event_id", "$.hs_object_id", "$.vid"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

/// The last form a contact sent, else the last change of the contact.
const TIMES: &[&str] = &[
    "$.properties.recent_conversion_date.value",
    "$.properties.lastmodifieddate.value",
    "$.properties.createdate.value",
    "$.recent_conversion_date",
    "$.submitted_ms",
    "$.lastmodifieddate",
    "$.createdate",
];

const fn property(field: Field, from: &'static [&'static str]) -> Rule {
    rule(Target::Field(field), from)
}

/// The form that was sent last says where the contact came from this time.
fn prepare(part: &mut Value) {
    let mut found = Found::default();
    let forms = part["form-submissions"].as_array().into_iter().flatten();
    if let Some(last) = forms.max_by_key(|form| form["timestamp"].as_i64()) {
        found.put("landing_page", &last["page-url"]);
        found.put("event_id", &last["conversion-id"]);
    }
    found.put_members(part);
    found.leave_in(part);
}
