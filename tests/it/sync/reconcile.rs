//! Reconciling: what is not at the CRM as the table says is found, whatever way it came about, and mended.

use std::sync::Arc;

use leadsync::config::Deleted;
use leadsync::destinations::Mapped;
use leadsync::fake_crm::{Crm, Fault, Scripted};
use leadsync::stop::Stop;
use leadsync::sync::Configured;
use leadsync::sync::reconcile::{Finding, Listener, ReconcileError, Summary};
use reqwest::Method;
use serde_json::{Value, json};

use super::{Rig, email, lead, leads, soon};
use crate::support::app::CONFIG;
use crate::support::keyless::Keyless;

#[derive(Default)]
struct Heard {
    found: Vec<Finding>,
    listed: Vec<u64>,
}

impl Listener for Heard {
    fn listed(&mut self, contacts: u64) {
        self.listed.push(contacts);
    }

    fn found(&mut self, finding: &Finding) -> std::io::Result<()> {
        self.found.push(finding.clone());
        Ok(())
    }
}

async fn reconcile(rig: &Rig, repair: bool) -> (Summary, Heard) {
    let (mut heard, stop) = (Heard::default(), Stop::new());
    let run = rig.syncer.reconcile(&rig.destination, repair, &mut heard, &stop);
    let summary = soon("the comparison", run).await.expect("a summary");
    (summary, heard)
}

/// Somebody does something at HubSpot.
async fn somebody(rig: &Rig, method: Method, path: &str, body: Value) {
    let url = format!("{}/crm/v3/objects/contacts{path}", rig.app.crm.url());
    let request = rig.app.http.request(method, url).bearer_auth("any").json(&body);
    let status = request.send().await.expect("an answer").status();
    assert!(status.is_success(), "{path}: {status}");
}

async fn id(rig: &Rig, n: usize) -> String {
    rig.column("s.remote_id").await[&email(n)].clone()
}

/// 230 leads at HubSpot, of which one contact is gone, one was merged into another one, two have other values and one
/// belongs to nobody here.
async fn disturbed() -> Rig {
    let rig = Rig::new().await;
    rig.deliver(&leads(230, 1)).await;
    rig.drain().await;
    let patch = |city: &str, name: &str| json!({"properties": {"city": city, "firstname": name}});
    somebody(&rig, Method::DELETE, &format!("/{}", id(&rig, 7).await), json!({})).await;
    let (stays, goes) = (id(&rig, 20).await, id(&rig, 21).await);
    let merge = json!({"primaryObjectId": stays, "objectIdToMerge": goes});
    somebody(&rig, Method::POST, "/merge", merge).await;
    somebody(&rig, Method::PATCH, &format!("/{}", id(&rig, 3).await), patch("Theirs", "")).await;
    somebody(&rig, Method::PATCH, &format!("/{}", id(&rig, 229).await), patch("City1", "X")).await;
    somebody(&rig, Method::POST, "", json!({"properties": {"email": "other@example.com"}})).await;
    rig
}

#[tokio::test]
async fn everything_that_differs_is_found_and_mended() {
    let rig = disturbed().await;
    let before = rig.column("to_jsonb(s)").await;
    let (summary, heard) = reconcile(&rig, false).await;
    let expected = Summary {
        contacts: 229,
        compared: 227,
        missing: 0,
        // The one that was merged away is no contact of its own any more; its address is a secondary one.
        deleted: 2,
        moved: 1,
        differing: 2,
        doubled: 0,
        repaired: 0,
    };
    assert_eq!(summary, expected, "{:?}", heard.found);
    assert_eq!(heard.listed, [100, 200, 229]);
    let differs = heard.found.iter().find_map(|finding| match finding {
        Finding::Differs { email: e, properties, .. } if *e == email(3) => Some(properties),
        _ => None,
    });
    let mut properties: Vec<String> = differs
        .expect("its values are told")
        .iter()
        .map(|d| format!("{} {:?} {:?}", d.property, d.here, d.there))
        .collect();
    properties.sort();
    let told = ["city Some(\"City1\") Some(\"Theirs\")", "firstname Some(\"Name3\") None"];
    assert_eq!(properties, told);
    assert!(
        heard
            .found
            .iter()
            .any(|f| matches!(f, Finding::Deleted { email: e, .. } if *e == email(7)))
    );
    assert!(
        heard.found.iter().any(|f| matches!(f, Finding::Moved { email: e, .. } if *e == email(20)))
    );
    assert_eq!(rig.column("to_jsonb(s)").await, before, "looking changes nothing");
    assert_eq!(rig.app.value::<i64>("select count(*) from leadsync.reconciled").await, 0);

    let (summary, _) = reconcile(&rig, true).await;
    assert_eq!(summary.repaired, 5);
    let behind = rig.column("s.backfill").await;
    assert_eq!(behind.values().filter(|b| *b == "true").count(), 5, "behind leads that change");
    rig.drain().await;
    let (summary, heard) = reconcile(&rig, false).await;
    // Two leads are one contact by now, and that can only have the first name of one of them.
    let shared = [email(20), email(21)];
    let [Finding::Differs { email: differs, properties, .. }] = heard.found.as_slice() else {
        panic!("{summary:?} {:?}", heard.found)
    };
    assert!(shared.contains(differs) && properties[0].property == "firstname", "{properties:?}");
    assert_eq!(rig.app.crm.contacts(Crm::Hubspot).iter().filter(|c| !c.archived).count(), 230);
}

#[tokio::test]
async fn what_is_left_deleted_is_told_and_not_mended() {
    let mut rig = Rig::new().await;
    rig.destination.deleted = Deleted::Leave;
    rig.deliver(&leads(2, 1)).await;
    rig.drain().await;
    somebody(&rig, Method::DELETE, &format!("/{}", id(&rig, 1).await), json!({})).await;
    let (summary, _) = reconcile(&rig, true).await;
    assert_eq!((summary.deleted, summary.repaired), (1, 0));
}

#[tokio::test]
async fn leads_on_their_way_are_not_compared() {
    let rig = Rig::new().await;
    rig.deliver(&leads(3, 1)).await;
    rig.drain().await;
    rig.deliver(&[lead(0, 2), lead(9, 1)]).await;
    let (summary, heard) = reconcile(&rig, true).await;
    assert!(summary.is_clean() && summary.compared == 2, "{summary:?} {:?}", heard.found);
}

#[tokio::test]
async fn doubled_contacts_are_told_and_left_to_people() {
    let mut rig = Rig::new().await;
    let url = rig.app.crm.url();
    let destination = Arc::new(Keyless::new(&url, rig.settings.call_timeout));
    let fields = vec![Mapped::new("city", "town")];
    rig.destination = Configured { destination, fields, ..rig.destination.clone() };
    rig.deliver(&leads(60, 1)).await;
    rig.drain().await;
    for made in [email(5), email(5), "stranger@example.com".into(), "stranger@example.com".into()] {
        let body = json!({"email": made, "town": "Theirs"});
        rig.app.http.post(format!("{url}/plain/contacts")).json(&body).send().await.unwrap();
    }
    let ours = id(&rig, 5).await;
    let (summary, heard) = reconcile(&rig, true).await;
    assert_eq!((summary.contacts, summary.doubled, summary.repaired), (64, 1, 0));
    let [Finding::Doubled { email: doubled, remote_ids }] = heard.found.as_slice() else {
        panic!("{:?}", heard.found)
    };
    assert_eq!((doubled, remote_ids.len()), (&email(5), 3));
    assert!(remote_ids.contains(&ours));
    assert!(heard.listed.len() > 1, "page by page");
}

#[tokio::test]
async fn a_listing_survives_what_calls_survive_and_ends_with_what_lasts() {
    let rig = Rig::new().await;
    rig.deliver(&leads(150, 1)).await;
    rig.drain().await;
    let strike = |fault| {
        rig.app.crm.script(Scripted { path: Some("/crm/v3/objects/contacts".into()), fault })
    };
    strike(Fault::Pass);
    strike(Fault::Truncated);
    strike(Fault::ResetAfter);
    let (summary, _) = reconcile(&rig, false).await;
    assert!(summary.is_clean() && summary.contacts == 150, "{summary:?}");
    let state = "select failures from leadsync.destinations where name = 'hubspot'";
    assert_eq!(rig.app.value::<i32>(state).await, 0, "the circuit is closed again");

    strike(refused_with(403));
    let mut heard = Heard::default();
    let ended = rig.syncer.reconcile(&rig.destination, false, &mut heard, &Stop::new()).await;
    assert!(matches!(ended, Err(ReconcileError::Call(_))), "{ended:?}");
    assert_eq!(rig.app.value::<i64>("select count(*) from leadsync.reconciled").await, 0);

    let stop = Stop::new();
    stop.cancel();
    let pause = "update leadsync.destinations set paused_until = 'infinity'";
    rig.sql.execute(pause, &[]).await.unwrap();
    let run = rig.syncer.reconcile(&rig.destination, false, &mut heard, &stop);
    let ended = soon("the stop", run).await;
    assert!(matches!(ended, Err(ReconcileError::Stopped)), "{ended:?}");
}

fn refused_with(status: u16) -> Fault {
    Fault::Status {
        status,
        body: leadsync::fake_crm::Body::Json,
        apply: leadsync::fake_crm::Apply::None,
        retry_after: None,
    }
}

#[tokio::test]
async fn reconcile_as_people_run_it() {
    let rig = Rig::new().await;
    rig.deliver(&leads(3, 1)).await;
    rig.drain().await;
    somebody(&rig, Method::DELETE, &format!("/{}", id(&rig, 1).await), json!({})).await;
    let patch = json!({"properties": {"city": "Theirs\u{1b}[2J"}});
    somebody(&rig, Method::PATCH, &format!("/{}", id(&rig, 2).await), patch).await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("leadsync.toml");
    let text = format!(
        "{CONFIG}\n[database]\nurl = '{}'\n[[destination]]\nname = \"hubspot\"\nkind = \"hubspot\"\ntoken = \"any\"\n\
         base_url = \"{}\"\n[[destination]]\nname = \"hooks\"\nkind = \"webhook\"\nsecret = \"{}\"\nbase_url = \"http://127.0.0.1:9\"\n",
        rig.app.db.url(),
        rig.app.crm.url(),
        super::HOOKS_SECRET,
    );
    std::fs::write(&config, text).unwrap();
    let run = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leadsync"));
        command.arg("--config").arg(&config).arg("reconcile").args(arguments).kill_on_drop(true);
        let output = soon("the command", command.output()).await.unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        (output.status.code(), stdout, String::from_utf8(output.stderr).unwrap())
    };
    let (code, stdout, stderr) = run(&["hubspot"]).await;
    assert_eq!(code, Some(1), "{stdout}{stderr}");
    let deleted = id(&rig, 1).await;
    for line in [
        format!("deleted: n001@example.com was {deleted}"),
        "  city: City1 here, Theirs\\u{1b}[2J there".to_owned(),
        "hubspot: 2 contacts, 2 compared: 0 missing, 1 deleted, 0 moved, 1 different, 0 doubled; nothing was changed".to_owned(),
    ] {
        assert!(stdout.lines().any(|l| l == line), "{line}: {stdout}");
    }
    assert!(!stderr.contains('@'), "no personal data in logs: {stderr}");
    let (code, stdout, _) = run(&["hubspot", "--repair", "--json"]).await;
    assert_eq!(code, Some(0), "{stdout}");
    let lines: Vec<Value> = stdout.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines.iter().any(|l| l["finding"] == "differs" && l["properties"][0]["here"] == "City1")
    );
    assert_eq!(lines[2]["repaired"], 2);
    rig.drain().await;
    let (code, stdout, _) = run(&["hubspot"]).await;
    assert_eq!(code, Some(0), "{stdout}");
    let (code, _, stderr) = run(&["hooks"]).await;
    assert!(code == Some(2) && stderr.contains("cannot be read"), "{stderr}");
    let (code, _, stderr) = run(&["hubspt"]).await;
    assert!(code == Some(2) && stderr.contains("there are: hubspot, hooks"), "{stderr}");
}
