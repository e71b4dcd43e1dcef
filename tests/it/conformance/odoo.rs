//! Odoo, by JSON-2: one transaction per call, an external id that it keeps unique, contacts of other people found by
//! e-mail.

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::json;

use super::{Kind, request};

pub const KIND: Kind = Kind {
    name: "odoo",
    crm: Crm::Odoo,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"odoo\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"name\"\ncity = \"city\"\nattributes.kind = \"type\"\n"
        )
    },
    instead: None,
    options: |_| {},
    search_lag: None,
    city: "city",
    cleared: None,
    writes: "/json/2/res.partner/load",
    poison: Some((
        || json!({"attributes": {"kind": "nonsense"}}),
        || json!({"attributes": {"kind": "Other Address"}}),
    )),
    auth: ("x-unused", ""),
    make: Some(|email, city| {
        let body = json!({"values": {"name": "Theirs", "email": email, "city": city}});
        request(Method::POST, "/_fake/odoo/create", body)
    }),
    delete: Some(|id| request(Method::POST, "/_fake/odoo/delete", json!({ "id": id }))),
    merge: Some(|stays, goes| {
        request(Method::POST, "/_fake/odoo/merge", json!({"keep": stays, "lose": goes}))
    }),
    lacks: &[
        ("search_lag", "a contact is found in the instant that it is made"),
        ("results_in_another_order", "ids come in the order of the rows"),
        (
            "an_answer_that_forgets_one",
            "an answer with too few ids names nobody; its own tests have it",
        ),
    ],
};
