//! The poll: leads whose webhook never came.

use serde_json::{Value, json};

use super::{Rig, contact, contact_event, graph_lead, leadgen, sample};
use crate::support::app::until;
use crate::support::sender_api::Fault;

/// All three, looking around all the time.
async fn polling(every: &str) -> Rig {
    Rig::with(|sources| {
        for source in sources.iter_mut() {
            source["poll"] = json!(every);
        }
        sources[1]["owners"] =
            json!(["urn:li:sponsoredAccount:522529623", "urn:li:organization:42"]);
    })
    .await
}

fn seconds_ago(seconds: i64) -> jiff::Timestamp {
    jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds)
}

/// As Graph writes a time.
fn graph_time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+0000").to_string()
}

/// Waits for two listings that begin after now: what is there now is in them.
async fn listed(rig: &Rig, source: &str) {
    let now: String = rig.app.value("select clock_timestamp()::text").await;
    let sql =
        format!("select polled_to > '{now}' from leadsync.source_apis where name = '{source}'");
    for _ in 0..2 {
        until(&format!("{source} is listed"), async || {
            rig.app.value::<Option<bool>>(&sql).await == Some(true)
        })
        .await;
    }
}

#[tokio::test]
async fn leads_whose_webhook_never_came_are_found() {
    let rig = polling("100ms").await;
    // More than a page of each, and some that are too old.
    for n in 1..=5 {
        let mut lead = graph_lead(&n.to_string(), &format!("meta{n}@example.com"));
        lead["created_time"] = json!(graph_time(seconds_ago(600 - n)));
        lead["form_id"] = json!(if n % 2 == 0 { "11" } else { "22" });
        rig.api.put(lead);
    }
    let mut old = graph_lead("99", "old@example.com");
    old["created_time"] = json!(graph_time(seconds_ago(3 * 86_400)));
    rig.api.put(old);
    until("all new leads of the page's forms are read", async || rig.leads().await == 5).await;
    let found = "select count(*) from leadsync.fetches where found_by = 'poll' and state = 'done'";
    until("they are settled", async || rig.app.value::<i64>(found).await == 5).await;
    assert_eq!(rig.fetch("99", "state").await, "");

    // Once more costs a listing and nothing else, also where a webhook comes after all.
    let reads = |rig: &Rig| rig.api.calls().iter().filter(|c| c.path == "/v24.0/3").count();
    listed(&rig, "meta").await;
    rig.deliver("meta", &leadgen(&["3"])).await;
    listed(&rig, "meta").await;
    assert_eq!(reads(&rig), 1);
    assert_eq!(rig.fetch("3", "wanted").await, "1");
}

#[tokio::test]
async fn linkedin_leads_of_all_owners_and_types_are_found() {
    let rig = polling("100ms").await;
    for (n, lead_type) in
        ["SPONSORED", "COMPANY", "EVENT", "ORGANIZATION_PRODUCT"].iter().enumerate()
    {
        let mut response = sample("linkedin/linkedin-response-1.json");
        response["id"] = json!(format!("r-{n}"));
        response["leadType"] = json!(lead_type);
        response["submittedAt"] = json!(seconds_ago(60).as_millisecond());
        let answer = &mut response["formResponse"]["answers"][2]["answerDetails"];
        answer["textQuestionAnswer"]["answer"] = json!(format!("n{n}@example.com"));
        rig.api.put(response);
    }
    until("all are read", async || rig.leads().await == 4).await;
    let queries: Vec<String> = rig.api.calls().into_iter().map(|call| call.query).collect();
    let account = "owner=(sponsoredAccount:urn%3Ali%3AsponsoredAccount%3A522529623)";
    assert!(queries.iter().any(|query| query.contains(account)), "{queries:?}");
    assert_eq!(queries.iter().filter(|q| q.contains(account) && q.contains("EVENT")).count(), 0);
}

#[tokio::test]
async fn contacts_that_changed_are_found_and_known_ones_are_not_read_again() {
    let rig = polling("100ms").await;
    let now = seconds_ago(30).as_millisecond() - 1_772_720_530_000;
    for id in 1..=5 {
        rig.api.put(contact(id, &format!("n{id}@example.com"), "One", now + id as i64));
    }
    until("all are read", async || rig.leads().await == 5).await;
    let done = "select count(*) from leadsync.fetches where state = 'done'";
    until("they are settled", async || rig.app.value::<i64>(done).await == 5).await;
    // Their webhooks come late, and say nothing new.
    rig.deliver("hubspot-app", &json!([contact_event("contact.creation", 3, now)])).await;
    listed(&rig, "hubspot-app").await;
    let reads: Vec<Value> =
        rig.api.calls().into_iter().filter(|c| c.path.ends_with("read")).map(|c| c.body).collect();
    let ids = reads.iter().flat_map(|body| body["inputs"].as_array().unwrap().clone());
    assert_eq!(ids.filter(|input| input["id"] == "3").count(), 1);
    // One changes and no webhook comes.
    rig.api.put(contact(3, "n3@example.com", "Two", now + 10_000));
    until("it is read again", async || {
        rig.lead("n3@example.com").await["lead"]["company"] == "Two"
    })
    .await;
}

#[tokio::test]
async fn one_instance_at_a_time_lists_and_a_failed_listing_is_made_again() {
    let rig = polling("400ms").await;
    let second = rig.app.another(&rig.text).await;
    let third = rig.app.another(&rig.text).await;
    let listings =
        || rig.api.calls().iter().filter(|c| c.path.ends_with("me/leadgen_forms")).count();
    let began = std::time::Instant::now();
    until("some listings", async || listings() >= 4).await;
    // Three instances would have made twelve.
    let most = began.elapsed().as_millis() / 400 + 2;
    assert!(listings() as u128 <= most.max(5), "{} in {:?}", listings(), began.elapsed());
    second.stop().await;
    third.stop().await;

    // What a failed listing did not see, the next one sees: it begins where the last complete one ended.
    let polled = "select polled_to::text from leadsync.source_apis where name = 'meta'";
    rig.api.fault("leadgen_forms", Fault::Status(500, Vec::new(), json!({})));
    let failures = "select failures from leadsync.source_apis where name = 'meta'";
    until("it fails", async || rig.app.value::<i32>(failures).await > 0).await;
    let before: Option<String> = rig.app.value(polled).await;
    let mut lead = graph_lead("1", "ana@example.com");
    lead["created_time"] = json!(graph_time(seconds_ago(5)));
    rig.api.put(lead);
    rig.state("1", "done").await;
    until("it is listed", async || rig.app.value::<Option<String>>(polled).await != before).await;
    assert_eq!(rig.app.value::<i32>(failures).await, 0);
}

#[tokio::test]
async fn a_token_that_may_not_list_may_still_read() {
    let rig = Rig::with(|sources| sources[0]["poll"] = json!("300ms")).await;
    let refused = json!({"error": {"message": "(#200) Requires pages_manage_ads", "code": 200}});
    for _ in 0..100 {
        rig.api.fault("leadgen_forms", Fault::Status(403, Vec::new(), refused.clone()));
    }
    let error = "select coalesce(poll_error, '') from leadsync.source_apis where name = 'meta'";
    until("it is told", async || {
        rig.app.value::<String>(error).await == "refused: 200: 403 (#200) Requires pages_manage_ads"
    })
    .await;
    rig.api.put(graph_lead("1", "ana@example.com"));
    rig.deliver("meta", &leadgen(&["1"])).await;
    rig.state("1", "done").await;
    let status = rig.app.store.status().await.expect("status");
    let fetches = status.fetches.iter().find(|f| f.source == "meta").expect("its row");
    assert!(fetches.poll_error.is_some() && fetches.paused.is_none());
}

#[tokio::test]
async fn forms_can_be_named_and_a_poll_switched_off() {
    let rig = Rig::with(|sources| {
        sources[0]["poll"] = json!("100ms");
        sources[0]["forms"] = json!(["22"]);
    })
    .await;
    for (id, form) in [("1", "11"), ("2", "22")] {
        let mut lead = graph_lead(id, &format!("n{id}@example.com"));
        lead["created_time"] = json!(graph_time(seconds_ago(60)));
        lead["form_id"] = json!(form);
        rig.api.put(lead);
    }
    rig.state("2", "done").await;
    listed(&rig, "meta").await;
    assert_eq!(rig.fetch("1", "state").await, "");
    assert_eq!(rig.api.count("leadgen_forms"), 0);
    // The other two have none.
    assert!(rig.api.calls().iter().all(|call| call.path.starts_with("/v24.0/")));
}
