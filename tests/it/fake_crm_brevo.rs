//! The stand-in's Brevo against what is known of the real one.

use std::time::Duration;

use leadsync::fake_crm::{Act, Apply, Body, Crm, FakeCrm, Fault, Options};
use serde_json::{Value, json};

use super::fake_crm::{Reply, send};

const CONTACTS: &str = "/v3/contacts";
const KEY: &str = "api-key: k\r\n";

async fn start(change: impl FnOnce(&mut Options)) -> FakeCrm {
    let mut options = Options::default();
    change(&mut options);
    FakeCrm::on_free_port(options).await.unwrap()
}

async fn call(crm: &FakeCrm, method: &str, path: &str, body: &Value) -> Reply {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(crm.addr(), method, path, KEY, &body).await.unwrap()
}

async fn upsert(crm: &FakeCrm, email: &str, attributes: Value) -> Reply {
    let body = json!({"email": email, "attributes": attributes, "updateEnabled": true});
    call(crm, "POST", CONTACTS, &body).await
}

#[tokio::test]
async fn a_contact_is_made_once_per_address() {
    let crm = start(|_| {}).await;
    let made = upsert(&crm, "Ana@example.com", json!({"FIRSTNAME": "Ana"})).await;
    assert_eq!((made.status, made.json()), (201, json!({"id": 21})));
    let again = upsert(&crm, "ANA@example.com", json!({"LASTNAME": "Silva"})).await;
    assert_eq!((again.status, again.body.len()), (204, 0), "an update says nothing");
    let create = json!({"email": "ana@example.com"});
    let refused = call(&crm, "POST", CONTACTS, &create).await;
    assert_eq!(refused.status, 400);
    let expected = json!({
        "code": "duplicate_parameter",
        "message": "Unable to update contact, email is already associated with another Contact",
        "metadata": {"duplicate_identifiers": ["email"]},
    });
    assert_eq!(refused.json(), expected, "unless updates are asked for");
    for (identifier, kind) in [
        ("ana%40example.com", ""),
        ("ana%40example.com", "?identifierType=email_id"),
        ("21", ""),
        ("21", "?identifierType=contact_id"),
    ] {
        let read = call(&crm, "GET", &format!("{CONTACTS}/{identifier}{kind}"), &Value::Null).await;
        let contact = read.json();
        assert_eq!((contact["id"].as_u64(), read.status), (Some(21), 200), "{identifier}{kind}");
        assert_eq!(contact["attributes"], json!({"FIRSTNAME": "Ana", "LASTNAME": "Silva"}));
    }
    assert_eq!(call(&crm, "GET", &format!("{CONTACTS}/22"), &Value::Null).await.status, 404);
    assert_eq!(crm.creates_per_email(Crm::Brevo)["ana@example.com"], 1);
    assert_eq!(crm.doubles(Crm::Brevo), 0);
}

#[tokio::test]
async fn unfit_values_are_dropped_without_a_word() {
    let crm = start(|_| {}).await;
    let good = json!({
        "FIRSTNAME": "Ana", "BUDGET": 10.5, "FIRST_SEEN": "2026-11-30", "CONSENT": true, "TIER": 1,
        "LEAD_TAGS": ["vip", "demo"],
    });
    let bad = json!({
        "BUDGET": "much", "FIRST_SEEN": "30.11.2026", "CONSENT": "yes", "TIER": "Gold", "LEAD_TAGS": ["x"],
        "NOSUCH": "x", "SCORE": 9,
    });
    assert_eq!(upsert(&crm, "good@example.com", good.clone()).await.status, 201);
    assert_eq!(upsert(&crm, "bad@example.com", bad).await.status, 201);
    let read = call(&crm, "GET", &format!("{CONTACTS}/21"), &Value::Null).await.json();
    assert_eq!(read["attributes"], good);
    let read = call(&crm, "GET", &format!("{CONTACTS}/22"), &Value::Null).await.json();
    assert_eq!(read["attributes"], json!({}));
    let clear = json!({"FIRSTNAME": "", "LEAD_TAGS": [], "BUDGET": ""});
    assert_eq!(upsert(&crm, "good@example.com", clear).await.status, 204);
    let contact = &crm.contacts(Crm::Brevo)[0];
    let left: Vec<&str> = contact.properties.keys().map(String::as_str).collect();
    assert_eq!(left, ["CONSENT", "FIRST_SEEN", "TIER"]);
    let listed = call(&crm, "GET", "/v3/contacts/attributes", &Value::Null).await.json();
    let tier = listed["attributes"].as_array().unwrap().iter().find(|a| a["name"] == "TIER");
    let expected = json!({
        "name": "TIER", "category": "category",
        "enumeration": [{"value": 1, "label": "Gold"}, {"value": 2, "label": "Silver"}],
    });
    assert_eq!(tier, Some(&expected));
}

#[tokio::test]
async fn keys_are_unique_and_checked() {
    let crm = start(|_| {}).await;
    upsert(&crm, "ana@example.com", json!({"SMS": "+5511912345678"})).await;
    let refused = upsert(&crm, "bo@example.com", json!({"SMS": "+5511912345678"})).await;
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["metadata"]["duplicate_identifiers"], json!(["SMS"]));
    for (email, attributes) in
        [("nope", json!({})), ("cy@example.com", json!({"SMS": "(11) 91234-5678"}))]
    {
        let refused = upsert(&crm, email, attributes).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &json!("invalid_parameter")));
    }
    let refused = call(&crm, "POST", CONTACTS, &json!({"attributes": {}})).await;
    assert_eq!(refused.json()["code"], "missing_parameter");
    let path = format!("{CONTACTS}/21?identifierType=contact_id");
    let moved =
        call(&crm, "PUT", &path, &json!({"attributes": {"EMAIL": "new@example.com"}})).await;
    assert_eq!(moved.status, 204);
    upsert(&crm, "bo@example.com", json!({})).await;
    let taken = call(&crm, "PUT", &path, &json!({"attributes": {"EMAIL": "bo@example.com"}})).await;
    assert_eq!(taken.json()["metadata"]["duplicate_identifiers"], json!(["email"]));
    let mut options = crm.options();
    options.brevo.duplicate_code = "invalid_parameter".to_owned();
    crm.set_options(options);
    let taken = call(&crm, "PUT", &path, &json!({"attributes": {"EMAIL": "bo@example.com"}})).await;
    assert_eq!(taken.json()["code"], "invalid_parameter");
    // The reason why nobody must send it.
    let body = json!({
        "email": "dee@example.com", "attributes": {"SMS": "+5511912345678"}, "updateEnabled": true,
        "forceMerge": true,
    });
    assert_eq!(call(&crm, "POST", CONTACTS, &body).await.status, 201);
    assert!(crm.contacts(Crm::Brevo)[0].archived);
    crm.script(Fault::Conflict);
    let lost = upsert(&crm, "eve@example.com", json!({})).await;
    assert_eq!(lost.status, 400, "somebody else was quicker");
    assert_eq!(upsert(&crm, "eve@example.com", json!({})).await.status, 204);
    assert_eq!(crm.creates_per_email(Crm::Brevo)["eve@example.com"], 1);
}

#[tokio::test]
async fn who_may_and_how_often() {
    let crm = start(|o| o.brevo.keys = vec!["k".to_owned()]).await;
    for header in ["", "api-key: x\r\n", "Authorization: Bearer k\r\n"] {
        let refused = send(crm.addr(), "GET", CONTACTS, header, "").await.unwrap();
        let expected = json!({"code": "unauthorized", "message": "Key not found"});
        assert_eq!((refused.status, refused.json()), (401, expected));
    }
    let mut options = crm.options();
    options.brevo.address_refused = true;
    crm.set_options(options.clone());
    let refused = upsert(&crm, "ana@example.com", json!({})).await;
    assert!(refused.json()["message"].as_str().unwrap().contains("unrecognised IP address"));
    options.brevo.address_refused = false;
    options.brevo.permission_denied = true;
    crm.set_options(options.clone());
    assert_eq!(upsert(&crm, "ana@example.com", json!({})).await.status, 403);
    options.brevo.permission_denied = false;
    options.brevo.per_second = 8;
    options.brevo.second = Duration::from_secs(600);
    crm.set_options(options.clone());
    let last = upsert(&crm, "ana@example.com", json!({})).await;
    assert_eq!(last.status, 201);
    assert_eq!(last.header("x-sib-ratelimit-limit"), Some("8"));
    assert_eq!(last.header("x-sib-ratelimit-remaining"), Some("2"));
    upsert(&crm, "ana@example.com", json!({})).await;
    upsert(&crm, "ana@example.com", json!({})).await;
    let refused = upsert(&crm, "bo@example.com", json!({})).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, None));
    let reset: u64 = refused.header("x-sib-ratelimit-reset").unwrap().parse().unwrap();
    assert!((590..=600).contains(&reset), "{reset}");
    options.brevo.per_second = 1000;
    options.brevo.per_hour = 1;
    crm.set_options(options);
    let refused = upsert(&crm, "bo@example.com", json!({})).await;
    assert_eq!((refused.status, refused.header("x-sib-ratelimit-reset")), (429, Some("1800")));
    assert!(crm.calls().iter().flat_map(|c| &c.headers).all(|(name, _)| name != "api-key"));
    assert_eq!(crm.contacts(Crm::Brevo).len(), 1);
}

#[tokio::test]
async fn faults_speak_brevos_tongue() {
    let crm = start(|_| {}).await;
    for (status, code) in
        [(401, "unauthorized"), (425, "account_in_process"), (429, "too_many_requests")]
    {
        crm.script(Fault::Status {
            status,
            body: Body::Json,
            apply: Apply::None,
            retry_after: None,
        });
        let refused = upsert(&crm, "ana@example.com", json!({})).await;
        assert_eq!((refused.status, &refused.json()["code"]), (status, &json!(code)));
    }
    for (daily, reset) in [(false, "30"), (true, "1800")] {
        crm.script(Fault::RateLimited { retry_after: None, daily });
        let refused = upsert(&crm, "ana@example.com", json!({})).await;
        assert_eq!((refused.status, refused.header("x-sib-ratelimit-reset")), (429, Some(reset)));
    }
    crm.script(Fault::ResetAfter);
    let body = json!({"email": "ana@example.com", "updateEnabled": true}).to_string();
    assert!(send(crm.addr(), "POST", CONTACTS, KEY, &body).await.is_err());
    assert_eq!(upsert(&crm, "ana@example.com", json!({})).await.status, 204);
    assert_eq!(crm.creates_per_email(Crm::Brevo)["ana@example.com"], 1);
}

#[tokio::test]
async fn pages_deletion_and_hands_behind_our_back() {
    let crm = start(|_| {}).await;
    for n in 0..5 {
        upsert(&crm, &format!("n{n}@example.com"), json!({})).await;
    }
    let page = async |query: &str| {
        let read = call(&crm, "GET", &format!("{CONTACTS}?{query}"), &Value::Null).await.json();
        let contacts = read["contacts"].as_array().cloned().unwrap_or_default();
        contacts.iter().map(|c| c["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(page("limit=2&sort=asc").await, [21, 22]);
    assert_eq!(page("limit=2&offset=4&sort=asc").await, [25]);
    assert_eq!(page("limit=1").await, [25], "newest first unless told otherwise");
    let refused = call(&crm, "GET", &format!("{CONTACTS}?limit=1001"), &Value::Null).await;
    assert_eq!(refused.json()["code"], "out_of_range");
    let path = format!("{CONTACTS}/n0%40example.com");
    assert_eq!(call(&crm, "DELETE", &path, &Value::Null).await.status, 204);
    assert_eq!(call(&crm, "DELETE", &path, &Value::Null).await.status, 404);
    let blocked = [("blocked".to_owned(), "true".to_owned())].into();
    crm.behind(Crm::Brevo, Act::Change { id: "22".to_owned(), properties: blocked }).unwrap();
    let read = call(&crm, "GET", &format!("{CONTACTS}/22"), &Value::Null).await.json();
    assert_eq!(read["emailBlacklisted"], true);
    let made = Act::Create {
        email: "Zoe@example.com".to_owned(),
        properties: [("FIRSTNAME".to_owned(), "Zoe".to_owned())].into(),
    };
    assert_eq!(crm.behind(Crm::Brevo, made).as_deref(), Some("26"));
    let merge = Act::Merge { id: "26".to_owned(), into: "25".to_owned() };
    assert_eq!(crm.behind(Crm::Brevo, merge.clone()).as_deref(), Some("25"));
    assert_eq!(crm.behind(Crm::Brevo, merge), None);
    assert_eq!(crm.contacts(Crm::Brevo)[4].properties["FIRSTNAME"], "Zoe");
    assert_eq!(crm.behind(Crm::Brevo, Act::Delete { id: "25".to_owned() }).as_deref(), Some("25"));
    assert_eq!(page("sort=asc").await, [22, 23, 24]);
}
