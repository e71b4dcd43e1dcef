//! RD Station: one contact per call, e-mails that it keeps unique, access tokens that end.

use leadsync::fake_crm::Crm;
use leadsync::fake_crm::rdstation::App;
use reqwest::Method;
use serde_json::json;

use super::{Kind, request};

pub const KIND: Kind = Kind {
    name: "rdstation",
    crm: Crm::Rdstation,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"rdstation\"\nclient_id = \"id\"\nclient_secret = \"secret\"\n\
             refresh_token = \"refresh\"\nrate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"name\"\ncity = \"city\"\nattributes.tier = \"cf_tier\"\n"
        )
    },
    instead: None,
    options: |options| options.rdstation.apps = vec![App::good("id", "secret", "refresh")],
    search_lag: None,
    city: "city",
    cleared: None,
    writes: "PATCH /platform/contacts/",
    poison: Some((
        || json!({"attributes": {"tier": "wood"}}),
        || json!({"attributes": {"tier": "gold"}}),
    )),
    auth: ("x-unused", ""),
    make: Some(|email, city| {
        let body = json!({"values": {"name": "Theirs", "email": email, "city": city}});
        request(Method::POST, "/_fake/rdstation/create", body)
    }),
    delete: Some(|id| request(Method::POST, "/_fake/rdstation/delete", json!({ "id": id }))),
    merge: Some(|stays, goes| {
        request(Method::POST, "/_fake/rdstation/merge", json!({"keep": stays, "lose": goes}))
    }),
    lacks: &[
        ("slow_down", "a 429 alone may be one contact's limit; its own tests tell them apart"),
        ("search_lag", "its upsert goes by the key and searches nothing"),
        ("results_in_another_order", "one contact per call"),
        ("an_answer_that_forgets_one", "one contact per call"),
        ("several_match", "the CRM keeps e-mails unique"),
        ("somebody_was_faster", "its upsert takes what somebody else made"),
    ],
};
