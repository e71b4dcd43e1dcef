//! Salesforce and Zoho through the running sync: whatever goes wrong, one record per person that equals the table.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leadsync::app::Roles;
use leadsync::fake_crm::{
    self, Apply, Body, Call, Contact, Crm, FakeCrm, Fault, FaultRates, Scripted, salesforce, zoho,
};
use leadsync::sync::Settings;
use serde_json::{Value, json};

use crate::support::app::TestApp;
use crate::support::db::TestDb;
use crate::support::openapi::{Spec, all_right};
use crate::sync::{Rig, email, lead, leads, settings, with};

/// How one of them is set up and acted in.
#[derive(Clone, Copy)]
struct Kind {
    crm: Crm,
    config: &'static str,
    /// Where leads are written.
    write: &'static str,
    /// First name, city, phone and budget there.
    fields: [&'static str; 4],
}

const SALESFORCE: Kind = Kind {
    crm: Crm::Salesforce,
    config: r#"
kind = "salesforce"
[destination.fields]
first_name = "FirstName"
last_name = "LastName"
company = "Company"
city = "City"
phone = "Phone"
"attributes.budget" = "Budget__c"
"#,
    write: "/services/data/v67.0/composite",
    fields: ["FirstName", "City", "Phone", "Budget__c"],
};

const ZOHO: Kind = Kind {
    crm: Crm::Zoho,
    config: r#"
kind = "zoho"
refresh_token = "r"
[destination.fields]
first_name = "First_Name"
last_name = "Last_Name"
company = "Company"
city = "City"
phone = "Phone"
"attributes.budget" = "Budget"
"#,
    write: "/crm/v8/Leads",
    fields: ["First_Name", "City", "Phone", "Budget"],
};

struct World {
    rig: Rig,
    kind: Kind,
}

/// Every request of every test that the API's description knows is what it allows.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let name = match self.kind.crm {
            Crm::Zoho => "zoho-upsert.subset.openapi.json",
            _ => "salesforce-upsert.subset.openapi.json",
        };
        let Some(spec) = Spec::read(name) else { return };
        let calls = self.fake().calls();
        // Forms are not JSON; updates by id and queries of several kinds are not in it.
        let known = |c: &&Call| !c.path.ends_with("/token") && spec.wrong(c).is_some();
        assert!(all_right(&spec, calls.iter().filter(known)) > 0, "no call is known to {name}");
    }
}

/// Short enough to wait for where a time-out is the point.
fn hasty() -> Settings {
    Settings { call_timeout: Duration::from_millis(1500), ..settings() }
}

async fn each(test: impl AsyncFn(World)) {
    for kind in [SALESFORCE, ZOHO] {
        test(World::start(kind, "", |_| {}).await).await;
    }
}

impl World {
    /// `more`: settings of the destination.
    async fn start(kind: Kind, more: &str, change: impl FnOnce(&mut fake_crm::Options)) -> World {
        World::with(hasty(), kind, more, change).await
    }

    async fn with(
        settings: Settings,
        kind: Kind,
        more: &str,
        change: impl FnOnce(&mut fake_crm::Options),
    ) -> World {
        let mut options = fake_crm::Options::default();
        change(&mut options);
        let crm = Arc::new(FakeCrm::on_free_port(options).await.expect("stand-in"));
        let config = format!(
            "[[destination]]\nname = \"crm\"\nclient_id = \"app\"\nclient_secret = \"s\"\nrate = \"10000/1s\"\n\
             base_url = \"{}\"\n{more}{}",
            crm.url(),
            kind.config
        );
        let roles = Roles { receive: true, sync: false };
        let app = TestApp::start_on(Arc::new(TestDb::new().await), crm, &config, roles).await;
        World { rig: Rig::on(app, "crm", settings).await, kind }
    }

    fn fake(&self) -> &FakeCrm {
        &self.rig.app.crm
    }

    fn script(&self, fault: Fault) {
        self.fake().script(Scripted { path: Some(self.kind.write.to_owned()), fault });
    }

    fn there(&self) -> Vec<Contact> {
        self.fake().contacts(self.kind.crm).into_iter().filter(|c| !c.archived).collect()
    }

    fn contact(&self, id: &str) -> Contact {
        self.there().into_iter().find(|c| c.id == id).expect("a record")
    }

    /// Calls that write, newest last.
    fn writes(&self) -> Vec<Call> {
        let calls = self.fake().calls().into_iter();
        calls.filter(|c| c.path.starts_with(self.kind.write) && c.method != "GET").collect()
    }

    fn creates(&self) -> BTreeMap<String, u64> {
        self.fake().creates_per_email(self.kind.crm)
    }

    async fn ids(&self) -> BTreeMap<String, String> {
        self.rig.column("s.remote_id").await
    }

    async fn codes(&self) -> BTreeMap<String, String> {
        self.rig.column("case when s.state = 'parked' then s.last_error_code end").await
    }

    /// So many leads, all in sync, each with one record that was made once, in this city.
    async fn exactly(&self, n: usize, city: &str) {
        let (mut there, field) = (self.there(), self.kind.fields[1]);
        there.sort_by(|a, b| a.email.cmp(&b.email));
        let emails: Vec<&str> = there.iter().map(|c| c.email.as_str()).collect();
        assert_eq!(emails, (0..n).map(email).collect::<Vec<_>>());
        assert!(there.iter().all(|c| c.properties[field] == city), "{there:?}");
        let creates = self.creates();
        assert!(creates.values().all(|n| *n == 1), "{creates:?}");
        assert_eq!(self.fake().doubles(self.kind.crm), 0);
        assert_eq!(self.rig.states().await, [("synced".to_owned(), n)].into());
    }

    /// What somebody does by hand: `create`, `edit`, `delete`, `merge`, `convert` with ids or an e-mail.
    fn by_hand(&self, act: &str, of: &str, with: &str) -> String {
        let act = match act {
            "create" => json!({
                "act": act, "object": "Lead", "module": "Leads",
                "fields": {"Email": of, "LastName": "Luz", "Last_Name": "Luz", "Company": "Theirs"},
            }),
            "edit" => json!({"act": act, "id": of, "fields": {"Email": with}}),
            "merge" => json!({"act": act, "winner": of, "loser": with}),
            "convert" => json!({"act": act, "lead": of}),
            _ => json!({"act": act, "id": of}),
        };
        let without = |drop: [&str; 2]| {
            let mut act = act.clone();
            act.as_object_mut().unwrap().remove(drop[0]);
            if let Some(fields) = act.get_mut("fields").and_then(Value::as_object_mut) {
                fields.remove(drop[1]);
            }
            act
        };
        match self.kind.crm {
            Crm::Zoho => {
                let act: zoho::Act =
                    serde_json::from_value(without(["object", "LastName"])).unwrap();
                self.fake().zoho(&act).unwrap()
            }
            _ => {
                let act: salesforce::Act =
                    serde_json::from_value(without(["module", "Last_Name"])).unwrap();
                self.fake().salesforce(&act).unwrap()
            }
        }
    }

    /// Ends every session or access token.
    fn log_out(&self) {
        match self.kind.crm {
            Crm::Zoho => drop(self.fake().zoho(&zoho::Act::EndTokens)),
            _ => drop(self.fake().salesforce(&salesforce::Act::EndSessions)),
        }
    }

    fn tokens_made(&self) -> usize {
        self.fake().calls().iter().filter(|c| c.path.ends_with("/token")).count()
    }
}

fn named(n: usize, version: usize) -> Value {
    with(lead(n, version), json!({"last_name": "Silva", "company": "Acme"}))
}

#[tokio::test]
async fn create_update_clear_and_repeats_that_cost_nothing() {
    each(async |world| {
        let rig = &world.rig;
        let [first, _, phone, budget] = world.kind.fields;
        let more = json!({"phone": "+5511912345678", "attributes": {"budget": "10.50"}});
        rig.deliver(&[with(named(0, 1), more.clone()), named(1, 1), lead(2, 1)]).await;
        let done = rig.drain().await;
        assert_eq!((done.pushed, done.failed, done.parked), (3, 0, 0));
        world.exactly(3, "City1").await;
        let ids = world.ids().await;
        let ana = world.contact(&ids[&email(0)]);
        assert_eq!(ana.properties[phone], "+5511912345678");
        assert_eq!(ana.properties[budget], "10.5");
        assert_eq!(ana.properties[first], "Name0");

        let calls = world.fake().summary().calls;
        rig.deliver(&[with(named(0, 1), more), lead(2, 1)]).await;
        rig.drain().await;
        assert_eq!(world.fake().summary().calls, calls, "a repeat is no call");

        // Somebody corrects the address there; the next change goes by id and leaves it.
        world.by_hand("edit", &ids[&email(1)], "private@example.com");
        let cleared = with(lead(0, 2), json!({"clear": ["phone"]}));
        rig.deliver(&[cleared, lead(1, 2), lead(2, 2)]).await;
        let done = rig.drain().await;
        assert_eq!((done.pushed, done.calls), (3, 1));
        let body = String::from_utf8(world.writes().last().unwrap().body.to_vec()).unwrap();
        assert!(!body.contains('@'), "{body}");
        let there = world.contact(&ids[&email(1)]);
        assert_eq!(
            (there.email.as_str(), &there.properties[world.kind.fields[1]]),
            ("private@example.com", &"City2".to_owned())
        );
        assert!(!world.contact(&ids[&email(0)]).properties.contains_key(phone));
        assert_eq!(world.ids().await, ids);
        assert!(world.creates().values().all(|n| *n == 1));
    })
    .await;
}

#[tokio::test]
async fn one_bad_record_harms_only_itself() {
    each(async |world| {
        let rig = &world.rig;
        let mut all: Vec<Value> = (0..5).map(|n| named(n, 1)).collect();
        all[1] = with(named(1, 1), json!({"attributes": {"budget": "a lot"}}));
        all[3] = with(named(3, 1), json!({"city": "x".repeat(120)}));
        rig.deliver(&all).await;
        rig.drain().await;
        let codes = world.codes().await;
        let too_long = if world.kind.crm == Crm::Zoho { "INVALID_DATA" } else { "STRING_TOO_LONG" };
        assert_eq!([&codes[&email(1)], &codes[&email(3)]], ["INVALID_VALUE", too_long]);
        assert_eq!(rig.states().await, [("parked".to_owned(), 2), ("synced".to_owned(), 3)].into());
        rig.deliver(&[with(named(1, 2), json!({"attributes": {"budget": "7"}})), named(3, 2)])
            .await;
        rig.deliver(&[named(0, 2), named(2, 2), named(4, 2)]).await;
        rig.drain().await;
        world.exactly(5, "City2").await;
    })
    .await;
    for kind in [SALESFORCE, ZOHO] {
        let world = World::start(kind, "on_field_error = \"drop\"\n", |_| {}).await;
        let odd = json!({"attributes": {"budget": "a lot"}, "phone": "+5511912345678"});
        world.rig.deliver(&[with(named(0, 1), odd)]).await;
        world.rig.drain().await;
        world.exactly(1, "City1").await;
        let dropped = world.rig.column("s.dropped_fields -> 0 ->> 'property'").await;
        assert_eq!(dropped[&email(0)], kind.fields[3]);
        assert_eq!(world.there()[0].properties[kind.fields[2]], "+5511912345678");
    }
}

#[tokio::test]
async fn unknown_outcomes_make_no_second_record() {
    each(async |world| {
        let rig = &world.rig;
        for (at, fault) in [
            Fault::HoldAfter,
            Fault::ResetAfter,
            Fault::ResetBefore,
            Fault::Truncated,
            Fault::CutJson,
            Fault::EmptyBody { status: 200 },
            Fault::Omit { input: 0, written: true },
            Fault::Status { status: 500, body: Body::Json, apply: Apply::All, retry_after: None },
            Fault::Status { status: 503, body: Body::Html, apply: Apply::Half, retry_after: None },
            Fault::Conflict,
        ]
        .into_iter()
        .enumerate()
        {
            // One that is new, one that is known.
            world.script(fault);
            let known = at.saturating_sub(1);
            let changed: Vec<Value> = [named(at, at + 1), named(known, at + 1)].into();
            rig.deliver(&changed).await;
            rig.pass().await;
            world.fake().release();
            rig.drain().await;
        }
        let all: Vec<Value> = (0..10).map(|n| named(n, 20)).collect();
        rig.deliver(&all).await;
        rig.drain().await;
        world.exactly(10, "City20").await;
    })
    .await;
}

#[tokio::test]
async fn many_leads_through_many_faults() {
    for (seed, kind) in [(7, SALESFORCE), (8, ZOHO)] {
        let world = World::start(kind, "", |o| {
            o.seed = seed;
            // Zoho's own limit of ten tokens in ten minutes is not the point here.
            o.zoho.tokens_in_ten_minutes = 1_000;
            o.rates = FaultRates {
                reset_after_apply: 0.08,
                reset_before_apply: 0.05,
                truncated: 0.08,
                error_5xx: 0.1,
                ..FaultRates::default()
            };
        })
        .await;
        for version in 1..=3 {
            let all: Vec<Value> = (0..250).map(|n| named(n, version)).collect();
            world.rig.deliver(&all).await;
            world.rig.pass().await;
        }
        world.rig.drain().await;
        world.exactly(250, "City3").await;
        let statuses = world.fake().summary().calls_by_status;
        assert!(statuses.contains_key("none"), "there were faults: {statuses:?}");
    }
}

#[tokio::test]
async fn a_token_that_ends_is_made_once() {
    each(async |world| {
        world.rig.deliver(&[named(0, 1)]).await;
        world.rig.drain().await;
        world.log_out();
        world.rig.deliver(&[named(0, 2), named(1, 2)]).await;
        let done = world.rig.drain().await;
        assert_eq!((done.failed, done.calls_failed), (0, 0));
        assert_eq!(world.tokens_made(), 2);
        world.exactly(2, "City2").await;
    })
    .await;
}

#[tokio::test]
async fn limits_and_refusals_pause_the_destination_and_lose_nothing() {
    for kind in [SALESFORCE, ZOHO] {
        // No pause is over before it is looked at.
        let settings = Settings { backoff_max: Duration::from_secs(60), ..hasty() };
        let world = World::with(settings, kind, "", |_| {}).await;
        let rig = &world.rig;
        let paused = async |fault: Fault, version: usize| {
            rig.deliver(&[named(0, version)]).await;
            world.script(fault);
            rig.pass().await;
            let paused = rig.paused().await.expect("paused");
            assert_eq!(rig.states().await, [("due".to_owned(), 1)].into());
            assert_eq!(rig.column("s.attempts").await[&email(0)], "0", "not the lead's fault");
            rig.lift_pause().await;
            paused
        };
        let status = |status, retry_after| Fault::Status {
            status,
            body: Body::Json,
            apply: Apply::None,
            retry_after,
        };
        let (kind, length) =
            paused(Fault::RateLimited { retry_after: None, daily: false }, 1).await;
        assert_eq!(kind, "slow_down");
        assert!((1.0..=10.0).contains(&length), "{length}");
        let (kind, length) = paused(Fault::RateLimited { retry_after: None, daily: true }, 2).await;
        assert_eq!(kind, "slow_down");
        assert!(length > 3500.0, "{length}");
        let (kind, length) = paused(status(429, Some(7)), 3).await;
        assert_eq!(kind, "slow_down");
        assert!((1.0..=7.0).contains(&length), "{length}");
        assert_eq!(paused(status(423, None), 4).await.0, "slow_down");
        assert_eq!(paused(status(403, None), 5).await.0, "credentials");
        assert_eq!(paused(status(404, None), 6).await.0, "misconfigured");
        rig.deliver(&[named(0, 7)]).await;
        rig.drain().await;
        world.exactly(1, "City7").await;
    }
}

#[tokio::test]
async fn records_that_people_made_are_taken_and_several_are_not_guessed() {
    each(async |world| {
        let rig = &world.rig;
        let theirs = world.by_hand("create", &email(0), "");
        let twice =
            [world.by_hand("create", &email(1), ""), world.by_hand("create", &email(1), "")];
        // Without the fields that a new record must have: what is there is kept.
        rig.deliver(&leads(3, 1)).await;
        rig.drain().await;
        assert_eq!(world.ids().await[&email(0)], theirs);
        assert_eq!(world.contact(&theirs).properties["Company"], "Theirs");
        assert_eq!(world.contact(&theirs).properties[world.kind.fields[1]], "City1");
        assert_eq!(world.codes().await[&email(1)], "ambiguous");
        let said = rig.column("s.last_error_message").await[&email(1)].clone();
        assert!(twice.iter().all(|id| said.contains(id)), "{said}");
        world.by_hand("merge", &twice[0], &twice[1]);
        rig.deliver(&[lead(1, 2)]).await;
        rig.drain().await;
        assert_eq!(world.ids().await[&email(1)], twice[0]);
        assert_eq!(world.fake().doubles(world.kind.crm), 0);
        assert_eq!(rig.states().await, [("synced".to_owned(), 3)].into());
    })
    .await;
}

#[tokio::test]
async fn deleted_records_are_made_anew_or_left() {
    for kind in [SALESFORCE, ZOHO] {
        for (more, creates) in [("", 2), ("deleted = \"leave\"\n", 1)] {
            let world = World::start(kind, more, |_| {}).await;
            world.rig.deliver(&[named(0, 1)]).await;
            world.rig.drain().await;
            let id = world.ids().await[&email(0)].clone();
            world.by_hand("delete", &id, "");
            world.rig.deliver(&[named(0, 2)]).await;
            world.rig.drain().await;
            assert_eq!(world.creates()[&email(0)], creates, "{more}");
            match creates {
                1 => assert_eq!(world.codes().await[&email(0)], "deleted"),
                _ => {
                    assert_ne!(world.ids().await[&email(0)], id);
                    assert_eq!(world.there()[0].properties[kind.fields[1]], "City2");
                }
            }
        }
    }
}

#[tokio::test]
async fn merged_records_are_one_from_then_on() {
    each(async |world| {
        let rig = &world.rig;
        rig.deliver(&[named(0, 1), named(1, 1)]).await;
        rig.drain().await;
        let ids = world.ids().await;
        let (winner, loser) = (&ids[&email(0)], &ids[&email(1)]);
        world.by_hand("merge", winner, loser);
        rig.deliver(&[named(0, 2), named(1, 3)]).await;
        rig.drain().await;
        let now = world.ids().await;
        assert_eq!(&now[&email(0)], winner);
        if world.kind.crm == Crm::Salesforce {
            assert_eq!(&now[&email(1)], winner, "Salesforce tells which one was kept");
            assert_eq!(world.there().len(), 1);
        } else {
            assert_ne!(&now[&email(1)], loser, "Zoho does not: it is made anew");
            assert_eq!(world.there().len(), 2);
        }
        assert_eq!(world.fake().doubles(world.kind.crm), 0);
        assert_eq!(rig.states().await, [("synced".to_owned(), 2)].into());
    })
    .await;
}

#[tokio::test]
async fn converted_leads_are_followed_or_parked() {
    each(async |world| {
        let rig = &world.rig;
        rig.deliver(&[named(0, 1), named(1, 1)]).await;
        rig.drain().await;
        let contact = world.by_hand("convert", &world.ids().await[&email(0)], "");
        rig.deliver(&[named(0, 2), named(1, 2)]).await;
        rig.drain().await;
        let known = world.ids().await[&email(0)].clone();
        assert!(known == contact || known == format!("Contacts/{contact}"), "{known}");
        let city = if world.kind.crm == Crm::Zoho { "Mailing_City" } else { "MailingCity" };
        assert_eq!(world.contact(&contact).properties[city], "City2");
        rig.deliver(&[named(0, 3)]).await;
        let done = rig.drain().await;
        assert_eq!((done.pushed, done.calls), (1, 1), "by the contact's id at once");
        assert_eq!(world.contact(&contact).properties[city], "City3");
        assert_eq!(world.there().len(), 2);
        assert!(world.creates().values().all(|n| *n == 1));
    })
    .await;
    for kind in [SALESFORCE, ZOHO] {
        let world = World::start(kind, "converted = \"park\"\n", |_| {}).await;
        world.rig.deliver(&[named(0, 1)]).await;
        world.rig.drain().await;
        world.by_hand("convert", &world.ids().await[&email(0)], "");
        world.rig.deliver(&[named(0, 2)]).await;
        world.rig.drain().await;
        assert_eq!(world.codes().await[&email(0)], "CONVERTED");
    }
}

#[tokio::test]
async fn what_people_keep_there_is_kept_by_the_write_policies() {
    for kind in [SALESFORCE, ZOHO] {
        let [first, city, phone, _] = kind.fields;
        let config = kind.config.replace(
            &format!("phone = \"{phone}\""),
            &format!(
                "phone = {{ to = \"{phone}\", write = \"if_blank\" }}\nmessage = {{ to = \"Description\", write = \"on_create\" }}"
            ),
        );
        let world =
            World::start(Kind { config: Box::leak(config.into_boxed_str()), ..kind }, "", |_| {})
                .await;
        let rig = &world.rig;
        let theirs = world.by_hand("create", &email(0), "");
        let more = |phone: &str| json!({"phone": phone, "message": "call me"});
        rig.deliver(&[
            with(named(0, 1), more("+5511912345678")),
            with(named(1, 1), more("+5511912345678")),
        ])
        .await;
        rig.drain().await;
        let ids = world.ids().await;
        assert_eq!(ids[&email(0)], theirs);
        let there = world.contact(&theirs).properties;
        assert_eq!((there[first].as_str(), there[phone].as_str()), ("Name0", "+5511912345678"));
        assert!(!there.contains_key("Description"), "it was there before");
        assert_eq!(world.contact(&ids[&email(1)]).properties["Description"], "call me");
        rig.deliver(&[with(named(0, 2), more("+5511987654321"))]).await;
        rig.drain().await;
        let there = world.contact(&theirs).properties;
        assert_eq!((there[city].as_str(), there[phone].as_str()), ("City2", "+5511912345678"));
    }
}
