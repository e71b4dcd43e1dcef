//! The plain stand-in through the destination of `support/keyless.rs`: a CRM that keeps no key.

use std::sync::Arc;

use leadsync::destinations::Mapped;
use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::json;

use super::{GRACE, Kind, request};
use crate::support::keyless::Keyless;

pub const KIND: Kind = Kind {
    name: "keyless",
    crm: Crm::Plain,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"hubspot\"\ntoken = \"any\"\nrate = \"10000/1s\"\nbase_url = \"{url}\"\n\
             create_grace = \"{}ms\"\n",
            GRACE.as_millis()
        )
    },
    instead: Some(|url, deadline| {
        let fields = vec![Mapped::new("first_name", "first"), Mapped::new("city", "town")];
        (Arc::new(Keyless::new(url, deadline)), fields)
    }),
    options: |_| {},
    search_lag: Some(|options, lag| options.plain.search_lag = lag),
    city: "town",
    cleared: Some(""),
    writes: "/plain/contacts",
    poison: None,
    auth: ("x-unused", ""),
    make: Some(|email, city| {
        request(Method::POST, "/plain/contacts", json!({"email": email, "town": city}))
    }),
    delete: Some(|id| request(Method::DELETE, format!("/plain/contacts/{id}"), json!({}))),
    merge: None,
    lacks: &[
        ("the_bad_one_alone", "the stand-in takes every value"),
        ("credentials", "it knows no credentials"),
        ("results_in_another_order", "one lead per call"),
        ("an_answer_that_forgets_one", "one lead per call"),
        ("merged", "the stand-in cannot merge"),
        ("somebody_was_faster", "the CRM does not notice"),
    ],
};
