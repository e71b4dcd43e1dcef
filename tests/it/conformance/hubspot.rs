//! HubSpot: batches, a key that the CRM enforces, ids that change with a merge.

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::json;

use super::{Kind, request};

pub const KIND: Kind = Kind {
    name: "hubspot",
    crm: Crm::Hubspot,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"hubspot\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"firstname\"\ncity = \"city\"\nattributes.tier = \"tier\"\n"
        )
    },
    instead: None,
    options: |_| {},
    search_lag: None,
    city: "city",
    cleared: None,
    writes: "/crm/v3/objects/contacts/batch",
    poison: Some((
        || json!({"attributes": {"tier": "wood"}}),
        || json!({"attributes": {"tier": "gold"}}),
    )),
    auth: ("authorization", "Bearer any"),
    make: Some(|email, city| {
        let body = json!({"properties": {"email": email, "city": city}});
        request(Method::POST, "/crm/v3/objects/contacts", body)
    }),
    delete: Some(|id| request(Method::DELETE, format!("/crm/v3/objects/contacts/{id}"), json!({}))),
    merge: Some(|stays, goes| {
        let body = json!({"primaryObjectId": stays, "objectIdToMerge": goes});
        request(Method::POST, "/crm/v3/objects/contacts/merge", body)
    }),
    lacks: &[
        ("search_lag", "its upsert goes by the key and searches nothing"),
        ("several_match", "the CRM keeps e-mails unique"),
    ],
};
