//! When a property is written, in which words, and what becomes of one that the CRM refuses.

use std::collections::BTreeMap;

use leadsync::config::{OnFieldError, Write};
use leadsync::destinations::Mapped;
use leadsync::fake_crm::{Contact, Crm, Fault};
use serde_json::{Value, json};

use super::{Rig, email, lead, leads, with};

async fn rig(fields: &[(&str, &str, Write)]) -> Rig {
    let mut rig = Rig::new().await;
    rig.destination.fields = fields
        .iter()
        .map(|(value, property, write)| Mapped { write: *write, ..Mapped::new(*value, *property) })
        .collect();
    rig.destination.fields.sort_by(|a, b| a.property.cmp(&b.property));
    rig
}

/// Somebody makes a contact at HubSpot.
async fn made(rig: &Rig, properties: Value) {
    let url = format!("{}/crm/v3/objects/contacts", rig.app.crm.url());
    let body = json!({"properties": properties});
    let answer = rig.app.http.post(url).bearer_auth("t").json(&body).send().await.unwrap();
    assert_eq!(answer.status(), 201);
}

fn contact(rig: &Rig, n: usize) -> Contact {
    let contacts = rig.app.crm.contacts(Crm::Hubspot);
    contacts.into_iter().find(|c| c.email == email(n)).expect("it is there")
}

#[tokio::test]
async fn on_create_is_written_with_new_contacts_only() {
    let rig =
        rig(&[("city", "city", Write::Always), ("first_name", "firstname", Write::OnCreate)]).await;
    made(&rig, json!({"email": email(0), "firstname": "Theirs"})).await;
    rig.deliver(&leads(2, 1)).await;
    let done = rig.drain().await;
    assert_eq!((done.pushed, done.failed), (2, 0));
    assert_eq!(contact(&rig, 0).properties["firstname"], "Theirs");
    assert_eq!(contact(&rig, 0).properties["city"], "City1");
    assert_eq!(contact(&rig, 1).properties["firstname"], "Name1");
    // Known by its id: nothing is looked up, and a change of that value alone is no call.
    let renamed = |n, version| with(lead(n, version), json!({"first_name": "Other"}));
    rig.deliver(&[with(renamed(1, 2), json!({"city": "City1"}))]).await;
    assert_eq!(rig.drain().await.calls, 0);
    rig.deliver(&[renamed(1, 3)]).await;
    assert_eq!(rig.drain().await.calls, 1);
    assert_eq!(contact(&rig, 1).properties["firstname"], "Name1");
    assert_eq!(contact(&rig, 1).properties["city"], "City3");
}

#[tokio::test]
async fn if_blank_fills_and_never_overwrites() {
    let rig =
        rig(&[("city", "city", Write::IfBlank), ("first_name", "firstname", Write::Always)]).await;
    made(&rig, json!({"email": email(0), "city": "Theirs"})).await;
    made(&rig, json!({"email": email(1)})).await;
    rig.deliver(&leads(3, 1)).await;
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["city"], "Theirs");
    assert_eq!(contact(&rig, 0).properties["firstname"], "Name0");
    assert_eq!(contact(&rig, 1).properties["city"], "City1");
    assert_eq!(contact(&rig, 2).properties["city"], "City1");
    rig.deliver(&leads(3, 2)).await;
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["city"], "Theirs");
    assert_eq!(contact(&rig, 2).properties["city"], "City1", "not blank any more");
    // A clear fills nothing, and needs no look.
    let skip = rig.app.crm.calls().len();
    rig.deliver(&[
        json!({"email": email(2), "occurred_at": "2020-02-01T00:00:00Z", "clear": ["city"]}),
    ])
    .await;
    rig.drain().await;
    assert_eq!(contact(&rig, 2).properties["city"], "City1");
    let paths: Vec<String> = rig.app.crm.calls().into_iter().skip(skip).map(|c| c.path).collect();
    assert_eq!(paths, ["/crm/v3/objects/contacts/batch/update"]);
}

#[tokio::test]
async fn a_look_up_that_fails_writes_nothing_and_counts_as_no_write() {
    let rig = rig(&[("city", "city", Write::IfBlank)]).await;
    rig.deliver(&leads(2, 1)).await;
    for fault in [Fault::ResetAfter, Fault::Truncated] {
        rig.app.crm.script(fault);
        rig.step().await;
        assert!(rig.app.crm.contacts(Crm::Hubspot).is_empty());
        let owed = rig.column("s.confirm_after").await;
        assert!(owed.values().all(String::is_empty), "nothing can have been written: {owed:?}");
        rig.lift_pause().await;
    }
    rig.drain().await;
    assert_eq!(contact(&rig, 1).properties["city"], "City1");
}

#[tokio::test]
async fn words_are_those_of_the_crm() {
    let mut rig = rig(&[("marketing_consent", "tier", Write::Always)]).await;
    rig.destination.fields[0].values =
        BTreeMap::from([("true".into(), "gold".into()), ("false".into(), "silver".into())]);
    let consent = json!({"marketing_consent": true});
    rig.deliver(&[with(lead(0, 1), consent)]).await;
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["tier"], "gold");
}

#[tokio::test]
async fn a_value_that_the_crm_refuses_is_left_out_and_reported() {
    let mut rig = rig(&[
        ("attributes.tier", "tier", Write::Always),
        ("attributes.size", "annualrevenue", Write::Always),
        ("city", "city", Write::Always),
    ])
    .await;
    rig.destination.on_field_error = OnFieldError::Drop;
    let poor = |n, version| {
        with(lead(n, version), json!({"attributes": {"tier": "wood", "size": "a lot"}}))
    };
    rig.deliver(&[poor(0, 1), lead(1, 1)]).await;
    let done = rig.drain().await;
    assert_eq!((done.pushed, done.parked, done.failed), (2, 0, 0));
    assert_eq!(contact(&rig, 0).properties, [("city".to_owned(), "City1".to_owned())].into());
    assert_eq!(rig.states().await, [("synced".to_owned(), 2)].into());

    let (_, shown) = rig.app.get(&format!("/v1/leads/{}", email(0))).await;
    let mut dropped: Vec<&str> = shown["destinations"][0]["dropped_fields"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|d| d["property"].as_str().expect("a property"))
        .collect();
    dropped.sort_unstable();
    assert_eq!(dropped, ["annualrevenue", "tier"], "{shown}");
    assert!(!shown["destinations"][0]["dropped_fields"][0]["code"].is_null(), "{shown}");
    let (_, other) = rig.app.get(&format!("/v1/leads/{}", email(1))).await;
    assert!(other["destinations"][0].get("dropped_fields").is_none(), "{other}");
    let status = rig.app.store.status().await.unwrap();
    assert_eq!((status.dropped.len(), status.dropped[0].leads), (2, 1));

    // The same again is no call, and good values end the report.
    assert_eq!(rig.drain().await.calls, 0);
    let good = json!({"attributes": {"tier": "gold", "size": "5"}});
    rig.deliver(&[with(lead(0, 2), good)]).await;
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["tier"], "gold");
    assert!(rig.app.store.status().await.unwrap().dropped.is_empty());
}

#[tokio::test]
async fn the_key_itself_is_never_left_out() {
    let mut rig = rig(&[("city", "city", Write::Always)]).await;
    rig.destination.on_field_error = OnFieldError::Drop;
    // HubSpot takes no address of a machine without a domain.
    rig.deliver(&[with(lead(0, 1), json!({"email": "root@localhost.invalidtld1"}))]).await;
    let done = rig.drain().await;
    assert_eq!((done.pushed, done.parked), (0, 1));
}

#[tokio::test]
async fn a_new_mapping_sends_again_what_differs_and_only_that() {
    let mut rig = rig(&[("city", "city", Write::Always)]).await;
    let tier = |n, tier: &str| with(lead(n, 1), json!({"attributes": {"tier": tier}}));
    rig.deliver(&[tier(0, "gold"), tier(1, "silver"), lead(2, 1), lead(3, 1)]).await;
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 0, "the first one is only kept");
    rig.drain().await;
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 0);
    rig.destination.fields.push(Mapped::new("attributes.tier", "tier"));
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 2, "those that have one");
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 0);
    let behind = rig.column("s.backfill").await;
    assert_eq!(behind.values().filter(|b| *b == "true").count(), 2, "behind those that change");
    rig.deliver(&[lead(3, 2)]).await;
    let done = rig.drain().await;
    assert_eq!((done.pushed, done.calls), (3, 1));
    assert_eq!(contact(&rig, 0).properties["tier"], "gold");
    assert_eq!(rig.column("s.backfill").await.values().filter(|b| *b == "true").count(), 0);
    // A property that is not mapped any more is left as it is, and not sent.
    rig.destination.fields.pop();
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 2);
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["tier"], "gold");
}

#[tokio::test]
async fn what_was_refused_is_tried_with_a_new_mapping() {
    let mut rig = rig(&[("attributes.tier", "tier", Write::Always)]).await;
    rig.syncer.remap(&rig.destination).await.unwrap();
    rig.deliver(&[with(lead(0, 1), json!({"attributes": {"tier": "wood"}}))]).await;
    assert_eq!(rig.drain().await.parked, 1);
    rig.destination.fields[0].values.insert("wood".into(), "silver".into());
    assert_eq!(rig.syncer.remap(&rig.destination).await.unwrap(), 1);
    rig.drain().await;
    assert_eq!(contact(&rig, 0).properties["tier"], "silver");
}
