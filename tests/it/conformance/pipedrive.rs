//! Pipedrive: one lead per call, no key, a search that is behind.

use std::time::Duration;

use leadsync::fake_crm::Crm;
use reqwest::Method;
use serde_json::json;

use super::{GRACE, Kind, request};

/// The stand-in's custom field "Company", which takes the city here.
const CITY: &str = "436f6d70616e79436f6d70616e79436f6d70616e";

pub const KIND: Kind = Kind {
    name: "pipedrive",
    crm: Crm::Pipedrive,
    config: |url| {
        format!(
            "[[destination]]\nkind = \"pipedrive\"\ntoken = \"any\"\nkey_property = \"Lead key\"\n\
             rate = \"10000/1s\"\ndaily = 1000000000\ncreate_grace = \"{}ms\"\nbase_url = \"{url}\"\n\
             [destination.fields]\nfirst_name = \"name\"\ncity = \"Company\"\nattributes.tier = \"Tier\"\n",
            GRACE.as_millis()
        )
    },
    instead: None,
    options: |options| options.pipedrive.search_lag = Duration::ZERO,
    search_lag: Some(|options, lag| options.pipedrive.search_lag = lag),
    city: CITY,
    cleared: None,
    writes: "POST|PATCH /api/v2/persons",
    poison: Some((
        || json!({"attributes": {"tier": "wood"}}),
        || json!({"attributes": {"tier": "gold"}}),
    )),
    auth: ("x-api-token", "any"),
    make: Some(|email, city| {
        let body = json!({
            "name": "Ana", "emails": [{"value": email, "primary": true}], "custom_fields": {CITY: city},
        });
        request(Method::POST, "/api/v2/persons", body)
    }),
    delete: Some(|id| request(Method::DELETE, format!("/api/v2/persons/{id}"), json!({}))),
    merge: Some(|stays, goes| {
        let stays: u64 = stays.parse().expect("a number");
        request(Method::PUT, format!("/v1/persons/{goes}/merge"), json!({"merge_with_id": stays}))
    }),
    lacks: &[
        ("results_in_another_order", "one lead per call"),
        ("an_answer_that_forgets_one", "one lead per call"),
        ("somebody_was_faster", "the CRM does not notice"),
    ],
};
