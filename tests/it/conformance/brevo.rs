//! Brevo: one lead per call, a key that the CRM enforces, an id that only a create tells.

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::json;

use super::{Kind, request};

pub const KIND: Kind = Kind {
    name: "brevo",
    crm: Crm::Brevo,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"brevo\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"FIRSTNAME\"\ncity = \"CITY\"\nattributes.tier = \"TIER\"\n"
        )
    },
    instead: None,
    options: |_| {},
    search_lag: None,
    city: "CITY",
    cleared: None,
    writes: "POST|PUT /v3/contacts",
    poison: Some((
        || json!({"attributes": {"tier": "wood"}}),
        || json!({"attributes": {"tier": "gold"}}),
    )),
    auth: ("api-key", "any"),
    make: Some(|email, city| {
        request(Method::POST, "/v3/contacts", json!({"email": email, "attributes": {"CITY": city}}))
    }),
    delete: Some(|id| request(Method::DELETE, format!("/v3/contacts/{id}"), json!({}))),
    merge: None,
    lacks: &[
        ("results_in_another_order", "one lead per call"),
        ("an_answer_that_forgets_one", "one lead per call"),
        ("search_lag", "its upsert goes by the key and searches nothing"),
        (
            "merged",
            "a contact has one address: that of the merged one is free, and its lead gets a new contact",
        ),
        ("several_match", "the CRM keeps e-mails unique"),
    ],
};
