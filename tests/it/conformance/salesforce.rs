//! Salesforce: batches that are lined up by position, a key that only our own leads have.

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Kind, Request, request};

pub const KIND: Kind = Kind {
    name: "salesforce",
    crm: Crm::Salesforce,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"salesforce\"\nclient_id = \"app\"\nclient_secret = \"s\"\nrate = \"10000/1s\"\n\
             base_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"FirstName\"\ncity = \"City\"\nattributes.tier = \"Tier__c\"\n"
        )
    },
    instead: None,
    options: |_| {},
    search_lag: None,
    city: "City",
    cleared: None,
    writes: "/services/data/v67.0/composite",
    poison: Some((
        || json!({"attributes": {"tier": "wood"}}),
        || json!({"attributes": {"tier": "gold"}}),
    )),
    auth: ("x-unused", ""),
    make: Some(|email, city| {
        let fields = json!({"Email": email, "City": city, "LastName": "Luz", "Company": "Acme"});
        somebody(json!({"act": "create", "object": "Lead", "fields": fields}))
    }),
    delete: Some(|id| somebody(json!({"act": "delete", "id": id}))),
    merge: Some(|stays, goes| somebody(json!({"act": "merge", "winner": stays, "loser": goes}))),
    lacks: &[
        ("search_lag", "queries read what was written"),
        ("results_in_another_order", "Salesforce promises the order, and its items name no record"),
        (
            "an_answer_that_forgets_one",
            "items name no record: where one is missing all are unknown",
        ),
    ],
};

fn somebody(act: Value) -> Request {
    request(Method::POST, "/_fake/salesforce", act)
}
