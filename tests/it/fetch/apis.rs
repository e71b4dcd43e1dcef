//! What each sender sends and its API gives, through the running service.

use serde_json::{Value, json};

use super::{
    NOW, Rig, contact, contact_event, deliver, graph_lead, leadgen, sample, sources, text,
};
use crate::support::app::until;
use crate::support::sender_api::{Fault, SenderApi};

/// A GET of a hook; status, content type and body.
async fn get(rig: &Rig, path: &str) -> (u16, String, String) {
    let answer =
        rig.app.http.get(format!("{}{path}", rig.app.url)).send().await.expect("an answer");
    let content_type = answer.headers()["content-type"].to_str().expect("text").to_owned();
    (answer.status().as_u16(), content_type, answer.text().await.expect("a body"))
}

#[tokio::test]
async fn addresses_are_checked_with_a_handshake() {
    let rig = Rig::new().await;
    let query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token";
    let (status, content_type, body) =
        get(&rig, &format!("/hooks/meta?{query}=meta-verify-example")).await;
    assert_eq!((status, body.as_str()), (200, "1158201444"));
    assert!(content_type.starts_with("text/plain"));
    // The app secret is no verify token.
    for wrong in [format!("{query}=nope"), format!("{query}=meta-secret-example"), String::new()] {
        let (status, _, body) = get(&rig, &format!("/hooks/meta?{wrong}")).await;
        let problem: Value = serde_json::from_str(&body).expect("a problem");
        assert_eq!((status, &problem["code"]), (403, &json!("bad_challenge")), "{wrong}");
    }
    let code = "890e4665-4dfe-4ab1-b689-ed553bceeed0";
    let (status, content_type, body) =
        get(&rig, &format!("/hooks/linkedin?challengeCode={code}&applicationId=1")).await;
    assert_eq!((status, content_type.as_str()), (200, "application/json"));
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["challengeCode"], code);
    assert_eq!(answer["challengeResponse"].as_str().map(str::len), Some(64));
    assert_eq!(get(&rig, "/hooks/linkedin").await.0, 403);
    // HubSpot asks nothing.
    assert_eq!(get(&rig, "/hooks/hubspot-app").await.0, 405);
}

#[tokio::test]
async fn every_change_of_a_meta_batch_has_its_own_verdict() {
    let rig = Rig::new().await;
    rig.api.put(sample("meta/meta-graph-1.json"));
    rig.api.put(sample("meta/meta-graph-2.json"));
    // The third lead is of a page that the token knows nothing of.
    let outcomes = rig.deliver("meta", &sample("meta/meta-2.json")).await;
    let queued = json!({"outcome": "queued"});
    let ignored = json!({"outcome": "ignored", "reason": "event_type"});
    assert_eq!(outcomes, json!({"outcomes": [queued, queued, ignored, queued]}));
    for id in ["600100200300401", "600100200300402"] {
        rig.state(id, "done").await;
    }
    rig.state("600100200300403", "parked").await;
    let zelia = rig.lead("zelia.araujo@example.org").await;
    assert_eq!(zelia["lead"]["first_name"], "Zélia");
    assert_eq!(zelia["lead"]["marketing_consent"], true);
    assert_eq!(rig.fetch("600100200300403", "last_error_code").await, "100");
    // The webhook may be faster than the API, so it was asked for more than once.
    assert_eq!(rig.api.count("/600100200300403"), 5);

    let test = rig.deliver("meta", &sample("meta/meta-test.json")).await;
    assert_eq!(test, json!({"outcome": "ignored", "reason": "test"}));
    rig.api.put(sample("meta/meta-graph-test.json"));
    rig.deliver("meta", &leadgen(&["600100200300499"])).await;
    rig.state("600100200300499", "done").await;
    assert_eq!(rig.fetch("600100200300499", "outcome || ' ' || reason").await, "ignored test");
    assert_eq!(rig.leads().await, 2);
    assert_eq!(rig.api.count("/444444444444"), 0);
}

#[tokio::test]
async fn a_linkedin_response_is_joined_with_the_questions_of_its_form() {
    let rig = Rig::new().await;
    // As the API gives it with its form, and without.
    let whole = sample("linkedin/linkedin-response-1.json");
    let id = whole["id"].as_str().unwrap();
    rig.api.put(whole.clone());
    let queued = rig.deliver("linkedin", &sample("linkedin/linkedin-1.json")).await;
    assert_eq!(queued, json!({"outcome": "queued"}));
    rig.state(id, "done").await;
    let ingrid = rig.lead("ingrid.solheim@example.com").await;
    assert_eq!(ingrid["lead"]["company"], "Fjord Analytics");
    assert_eq!(ingrid["lead"]["job_title"], "Head of Data");
    assert_eq!(ingrid["lead"]["utm_source"], "linkedin");
    assert_eq!(rig.api.calls().len(), 1);
    assert_eq!(rig.api.calls()[0].headers["linkedin-version"], "202606");

    // Two responses to one version of a form: the form is asked for once, and archived with both.
    rig.api.put_form("7788990", whole["form"].clone());
    for (n, email) in [(1, "one@example.com"), (2, "two@example.com")] {
        let mut bare = whole.clone();
        bare.as_object_mut().unwrap().remove("form");
        bare["id"] = json!(format!("bare-{n}"));
        bare["formResponse"]["answers"][2]["answerDetails"]["textQuestionAnswer"]["answer"] =
            json!(email);
        rig.api.put(bare);
        let mut event = sample("linkedin/linkedin-1.json");
        event["leadGenFormResponse"] = json!(format!("urn:li:leadGenFormResponse:bare-{n}"));
        rig.deliver("linkedin", &event).await;
        rig.state(&format!("bare-{n}"), "done").await;
        assert_eq!(rig.lead(email).await["lead"]["first_name"], "Ingrid");
    }
    assert_eq!(rig.api.count("/rest/leadForms/7788990"), 1);
    let sql = "select count(*) from leadsync.deliveries
        where convert_from(body, 'UTF8') like '%predefinedField%' and outcome = 'created'";
    assert_eq!(rig.app.value::<i64>(sql).await, 3);
}

#[tokio::test]
async fn a_linkedin_lead_that_is_taken_back_is_not_read_in_any_order() {
    let rig = Rig::new().await;
    let created = sample("linkedin/linkedin-1.json");
    let deleted = sample("linkedin/linkedin-deleted.json");
    let id = "f1a2b3c4-5d6e-4f70-8a9b-0c1d2e3f4a5b-5";
    let ignored = json!({"outcome": "ignored", "reason": "deleted"});
    assert_eq!(rig.deliver("linkedin", &deleted).await, ignored);
    assert_eq!(rig.deliver("linkedin", &created).await, json!({"outcome": "queued"}));
    assert_eq!(rig.fetch(id, "state").await, "deleted");

    // And in the order in which it happened, while it waits for its turn.
    rig.sql.batch_execute("delete from leadsync.fetches").await.unwrap();
    let pause = "update leadsync.source_apis set paused_until = 'infinity'";
    rig.sql.batch_execute(pause).await.unwrap();
    rig.deliver("linkedin", &created).await;
    assert_eq!(rig.fetch(id, "state").await, "due");
    assert_eq!(rig.deliver("linkedin", &deleted).await, ignored);
    assert_eq!(rig.fetch(id, "state").await, "deleted");
    let go_on = "update leadsync.source_apis set paused_until = '-infinity'";
    rig.sql.batch_execute(go_on).await.unwrap();
    // Something that comes later is read; what is gone never was.
    let mut other = sample("linkedin/linkedin-response-1.json");
    other["id"] = json!("other-1");
    rig.api.put(other);
    let mut event = created;
    event["leadGenFormResponse"] = json!("urn:li:leadGenFormResponse:other-1");
    rig.deliver("linkedin", &event).await;
    rig.state("other-1", "done").await;
    assert_eq!(rig.api.count(id), 0);
}

#[tokio::test]
async fn hubspot_contacts_are_read_in_batches_as_they_are_now() {
    let rig = Rig::new().await;
    rig.api.put(contact(5100, "ole@example.com", "Ole AS", 2_000));
    rig.api.put(contact(5101, "Greta.Holm@example.com", "Holm AB", 2_000));
    let pause = "update leadsync.source_apis set paused_until = 'infinity'";
    rig.sql.batch_execute(pause).await.unwrap();
    let sample = sample("hubspot-app/hubspot-app-1.json");
    assert_eq!(rig.deliver("hubspot-app", &sample).await, json!({"outcome": "queued"}));
    // Three events, two contacts.
    assert_eq!(rig.app.value::<i64>("select count(*) from leadsync.fetches").await, 2);
    rig.sql
        .batch_execute("update leadsync.source_apis set paused_until = '-infinity'")
        .await
        .unwrap();
    rig.state("5101", "done").await;
    rig.state("5100", "done").await;
    assert_eq!(rig.api.calls().len(), 1);
    let greta = rig.lead("greta.holm@example.com").await;
    assert_eq!(greta["lead"]["company"], "Holm AB");
    assert_eq!(greta["lead"]["attributes"]["budget"], "10k");
    assert_eq!(greta["lead"]["last_seen_at"], "2026-03-05T14:22:12Z");
    // Only what the mapping reads is asked for, and kept.
    let kept = "select count(*) from leadsync.deliveries where convert_from(body, 'UTF8') like '%secret_note%'";
    assert_eq!(rig.app.value::<i64>(kept).await, 0);

    // An older event, and one that the contact as it was read includes, cost no call.
    for after_ms in [-5_000, 0, 1_500, 2_000] {
        rig.deliver(
            "hubspot-app",
            &json!([contact_event("contact.propertyChange", 5101, after_ms)]),
        )
        .await;
        assert_eq!(rig.fetch("5101", "state").await, "done");
    }
    // A newer one does.
    rig.api.put(contact(5101, "Greta.Holm@example.com", "Holm Group", 9_000));
    rig.deliver("hubspot-app", &json!([contact_event("contact.propertyChange", 5101, 9_000)]))
        .await;
    until("the change is read", async || {
        rig.lead("greta.holm@example.com").await["lead"]["company"] == "Holm Group"
    })
    .await;
    assert_eq!(rig.api.calls().len(), 2);

    // Of a merge the survivor is read, and the other one is gone.
    let merge = json!([{"subscriptionType": "contact.merge", "objectId": 5101, "primaryObjectId": 5101,
        "mergedObjectIds": [5100], "occurredAt": 1_772_720_545_000_i64}]);
    rig.api.remove("5100");
    rig.api.put(contact(5101, "Greta.Holm@example.com", "Holm & Ole", 15_000));
    let outcomes = rig.deliver("hubspot-app", &merge).await;
    let gone = json!({"outcome": "ignored", "reason": "deleted"});
    assert_eq!(outcomes, json!({"outcomes": [{"outcome": "queued"}, gone]}));
    until("the survivor is read", async || {
        rig.lead("greta.holm@example.com").await["lead"]["company"] == "Holm & Ole"
    })
    .await;
    assert_eq!(rig.fetch("5100", "state").await, "deleted");
    // One that says it will come hides nothing for long.
    let never = contact_event("contact.propertyChange", 5101, 7_000_000_000_000);
    rig.deliver("hubspot-app", &json!([contact_event("contact.creation", 5102, 0), never])).await;
    let known = rig.fetch("5101", "changed_at < clock_timestamp() + interval '61 minutes'").await;
    assert_eq!(known, "true");
    let back =
        "update leadsync.fetches set changed_at = '2026-03-05T14:22:26Z' where remote_id = '5101'";
    rig.sql.batch_execute(back).await.unwrap();
    // A deletion, and a restore that is newer.
    rig.deliver("hubspot-app", &json!([contact_event("contact.deletion", 5101, 20_000)])).await;
    assert_eq!(rig.fetch("5101", "state").await, "deleted");
    rig.deliver("hubspot-app", &json!([contact_event("contact.restore", 5101, 21_000)])).await;
    rig.state("5101", "done").await;
}

#[tokio::test]
async fn a_contact_that_is_not_there_harms_no_other_of_its_batch() {
    let rig = Rig::new().await;
    for id in 1..=130 {
        if id % 13 != 0 {
            rig.api.put(contact(id, &format!("n{id}@example.com"), "Many", 0));
        }
    }
    let events = |range: std::ops::RangeInclusive<u64>| -> Value {
        range.map(|id| contact_event("contact.creation", id, 0)).collect()
    };
    rig.deliver("hubspot-app", &events(1..=65)).await;
    rig.deliver("hubspot-app", &events(66..=130)).await;
    until("all are read or parked", async || {
        let due = "select count(*) from leadsync.fetches where state = 'due'";
        rig.app.value::<i64>(due).await == 0
    })
    .await;
    assert_eq!(rig.leads().await, 120);
    let parked = "select count(*) from leadsync.fetches
        where state = 'parked' and last_error_code = 'OBJECT_NOT_FOUND' and attempts = 5";
    assert_eq!(rig.app.value::<i64>(parked).await, 10);
    assert!(rig.api.calls().len() < 30, "{} calls", rig.api.calls().len());
}

/// What the archive keeps is enough: no API is asked, and nothing changes.
#[tokio::test]
async fn a_replay_needs_no_api() {
    let rig = Rig::new().await;
    rig.api.put(graph_lead("1", "ana@example.com"));
    rig.api.put(sample("linkedin/linkedin-response-1.json"));
    rig.api.put(contact(7, "greta@example.com", "Holm AB", 0));
    rig.deliver("meta", &leadgen(&["1"])).await;
    rig.deliver("linkedin", &sample("linkedin/linkedin-1.json")).await;
    rig.deliver("hubspot-app", &json!([contact_event("contact.creation", 7, 0)])).await;
    until("all are read", async || rig.leads().await == 3).await;
    until("all are settled", async || {
        let done = "select count(*) from leadsync.fetches where state = 'done'";
        rig.app.value::<i64>(done).await == 3
    })
    .await;
    let calls = rig.api.calls().len();
    let versions =
        "select string_agg(email || version || updated_at, ' ' order by email) from leadsync.leads";
    let before: String = rig.app.value(versions).await;
    let replayed = rig.app.receiver.replay(&Default::default(), |_| {}).await.expect("replayed");
    assert_eq!((replayed.failed, replayed.without_source), (0, 0));
    assert_eq!(rig.app.value::<String>(versions).await, before);
    // Lost leads come back from what was read.
    rig.sql.batch_execute("truncate leadsync.leads, leadsync.lead_sync").await.unwrap();
    rig.app.receiver.replay(&Default::default(), |_| {}).await.expect("replayed");
    assert_eq!(rig.leads().await, 3);
    assert_eq!(rig.lead("ingrid.solheim@example.com").await["lead"]["company"], "Fjord Analytics");
    assert_eq!(
        rig.app.value::<i64>("select count(*) from leadsync.fetches where state <> 'done'").await,
        0
    );
    assert_eq!(rig.api.calls().len(), calls);
}

#[tokio::test]
async fn a_check_asks_each_api_whether_the_token_is_good() {
    let api = SenderApi::start(super::TOKEN).await;
    let mut all = sources(&api);
    all[1]["owners"] = json!(["urn:li:sponsoredAccount:522529623"]);
    let config = leadsync::config::Config::parse(&text(&all)).expect("configuration").config;
    let found = async || {
        let found = leadsync::app::check(&config).await;
        let of = |name: &str| -> Vec<(String, bool)> {
            let about = format!("source {name}");
            let findings = found.iter().filter(|f| f.about == about).skip(1);
            findings.map(|f| (f.sentence.clone(), f.right)).collect()
        };
        [of("meta"), of("linkedin"), of("hubspot-app")]
    };
    let [meta, linkedin, hubspot] = found().await;
    assert!(meta.iter().chain(&linkedin).chain(&hubspot).all(|(_, right)| *right), "{meta:?}");
    assert!(meta[0].0.contains("page 153125381133") && meta.len() == 2, "{meta:?}");
    assert_eq!((linkedin.len(), hubspot.len()), (1, 1));
    api.set_token("another");
    for of in found().await {
        let [(sentence, false)] = of.as_slice() else { panic!("{of:?}") };
        assert!(
            sentence.starts_with("credentials: ") && !sentence.contains(super::TOKEN),
            "{sentence}"
        );
    }
    api.fault("me", Fault::Garbage);
    let [meta, ..] = found().await;
    assert!(
        meta.iter().all(|(sentence, right)| !right && sentence.starts_with("unavailable")),
        "{meta:?}"
    );
    assert!(api.calls().iter().all(|call| call.method == "GET"), "it only reads");
}

/// A service whose clock for signatures is another, so that nothing else decides.
#[tokio::test]
async fn the_samples_are_believed_as_they_were_signed() {
    let rig = Rig::with(|sources| {
        sources[0]["secret"] = json!("meta-app-secret-example");
        sources[1]["secret"] = json!("linkedin-client-secret-example");
        sources[2]["secret"] = json!("hubspot-client-secret-example");
        sources[2]["public_url"] = json!("https://leads.example.com/hooks/hubspot");
    })
    .await;
    rig.app.set_now(NOW);
    for (source, kind, name) in [
        ("meta", "meta", "meta-1"),
        ("linkedin", "linkedin", "linkedin-1"),
        ("hubspot-app", "hubspot-app", "hubspot-app-1"),
    ] {
        let folder =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sources");
        let read = |end: &str| std::fs::read(folder.join(format!("{kind}/{name}.{end}"))).unwrap();
        let headers = String::from_utf8(read("headers")).unwrap();
        let headers: Vec<(&str, &str)> =
            headers.lines().filter_map(|l| l.split_once(": ")).collect();
        let path = format!("/hooks/{source}");
        let answer = rig.app.post(&path, &headers, read("json")).await;
        assert_eq!(answer, (200, json!({"outcome": "queued"})), "{name}");
        let (status, refused) =
            rig.app.post(&path, &headers, [read("json"), b" ".to_vec()].concat()).await;
        assert_eq!((status, &refused["code"]), (401, &json!("bad_signature")), "{name}");
    }
    // A delivery of a wrong shape is stored and rejected.
    let odd = deliver(&rig.app, "meta", &json!({"object": "page", "entry": []})).await;
    assert_eq!(odd, json!({"outcome": "rejected", "reason": "no_leads"}));
}
