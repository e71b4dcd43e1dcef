//! Zoho CRM: batches that are lined up by position, e-mails that the account keeps unique.

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Kind, Request, request};

pub const KIND: Kind = Kind {
    name: "zoho",
    crm: Crm::Zoho,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"zoho\"\nclient_id = \"app\"\nclient_secret = \"s\"\nrefresh_token = \"r\"\n\
             rate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"First_Name\"\ncity = \"City\"\nattributes.budget = \"Budget\"\n"
        )
    },
    instead: None,
    options: |_| {},
    search_lag: None,
    city: "City",
    cleared: None,
    writes: "/crm/v8/Leads",
    poison: Some((
        || json!({"attributes": {"budget": "a lot"}}),
        || json!({"attributes": {"budget": "7"}}),
    )),
    auth: ("x-unused", ""),
    make: Some(|email, city| {
        let fields = json!({"Email": email, "City": city, "Last_Name": "Luz"});
        somebody(json!({"act": "create", "module": "Leads", "fields": fields}))
    }),
    delete: Some(|id| somebody(json!({"act": "delete", "id": id}))),
    merge: Some(|stays, goes| somebody(json!({"act": "merge", "winner": stays, "loser": goes}))),
    lacks: &[
        ("search_lag", "the upsert finds what was written"),
        ("results_in_another_order", "Zoho keeps the order, and its items name no record"),
        (
            "an_answer_that_forgets_one",
            "items name no record: where one is missing all are unknown",
        ),
        ("merged", "Zoho does not tell into which record one was merged: it is made anew"),
    ],
};

fn somebody(act: Value) -> Request {
    request(Method::POST, "/_fake/zoho", act)
}
