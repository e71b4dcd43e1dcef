//! The stand-in's Zoho CRM against what is known of the real one.

use std::collections::BTreeMap;
use std::time::Duration;

use leadsync::fake_crm::zoho::{Act, ItemError, Module, Options};
use leadsync::fake_crm::{self, Apply, Body, Crm, FakeCrm, Fault, Order};
use serde_json::{Value, json};

const UPSERT: &str = "/crm/v8/Leads/upsert";
const LEADS: &str = "/crm/v8/Leads";
const GRANT: &str = "grant_type=refresh_token&client_id=app&client_secret=s&refresh_token=r";

/// The stand-in and a client that is logged in.
struct Account {
    fake: FakeCrm,
    http: reqwest::Client,
    token: String,
}

struct Reply {
    status: u16,
    body: Value,
    credits: Option<String>,
}

impl Reply {
    /// The code of each item.
    fn codes(&self) -> Vec<&str> {
        let items = self.body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|i| i["code"].as_str().unwrap_or_default()).collect()
    }

    fn id(&self, at: usize) -> String {
        self.body["data"][at]["details"]["id"].as_str().unwrap_or_default().to_owned()
    }

    fn actions(&self) -> Vec<&str> {
        let items = self.body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|i| i["action"].as_str().unwrap_or_default()).collect()
    }
}

impl Account {
    async fn start(change: impl FnOnce(&mut Options)) -> Account {
        let mut options = fake_crm::Options::default();
        options.zoho.search_lag = Duration::ZERO;
        change(&mut options.zoho);
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        // reqwest wants one even for plain HTTP; another test may have set it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        let mut account = Account { fake, http, token: String::new() };
        let (status, body) = account.grant(GRANT).await;
        assert_eq!((status, &body["expires_in"]), (200, &json!(3600)));
        assert_eq!(body["api_domain"], account.fake.url());
        account.token = body["access_token"].as_str().unwrap().to_owned();
        account
    }

    async fn grant(&self, form: &'static str) -> (u16, Value) {
        let call = self.http.post(format!("{}/oauth/v2/token", self.fake.url())).body(form);
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let call = self.http.request(method, format!("{}{path}", self.fake.url()));
        let call = call.header("authorization", format!("Zoho-oauthtoken {}", self.token));
        let answer = call.body(body.to_string()).send().await.unwrap();
        let credits = answer.headers().get("x-api-credits-remaining");
        let credits = credits.map(|v| v.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let body = serde_json::from_str(&answer.text().await.unwrap()).unwrap_or_default();
        Reply { status, body, credits }
    }

    async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &Value::Null).await
    }

    async fn upsert(&self, records: &[Value]) -> Reply {
        let body = json!({"data": records, "duplicate_check_fields": ["Email"], "trigger": []});
        self.send("POST", UPSERT, &body).await
    }

    async fn coql(&self, query: &str) -> Reply {
        self.send("POST", "/crm/v8/coql", &json!({"select_query": query})).await
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options.zoho);
        self.fake.set_options(options);
    }

    fn emails(&self) -> Vec<String> {
        let there = self.fake.contacts(Crm::Zoho).into_iter().filter(|c| !c.archived);
        there.map(|c| c.email).collect()
    }
}

fn lead(email: &str, more: Value) -> Value {
    let mut record = json!({"Email": email, "Last_Name": "Silva"});
    for (name, value) in more.as_object().unwrap() {
        record[name] = value.clone();
    }
    record
}

fn leads(emails: &[&str]) -> Vec<Value> {
    emails.iter().map(|e| lead(e, json!({}))).collect()
}

const THREE: [&str; 3] = ["ana@example.com", "bo@example.com", "cy@example.com"];

#[tokio::test]
async fn create_update_repeat() {
    let account = Account::start(|_| {}).await;
    let first = account.upsert(&leads(&THREE)).await;
    assert_eq!((first.status, first.actions()), (201, vec!["insert"; 3]));
    assert_eq!(first.body["data"][0]["duplicate_field"], Value::Null);
    assert_eq!(first.id(0).len(), 19);
    let again = account.upsert(&leads(&THREE)).await;
    assert_eq!((again.status, again.actions()), (200, vec!["update"; 3]));
    assert_eq!(again.body["data"][0]["duplicate_field"], "Email");
    let mixed = account.upsert(&leads(&["BO@example.com", "dee@example.com"])).await;
    assert_eq!((mixed.status, mixed.actions()), (200, vec!["update", "insert"]));
    assert_eq!(mixed.id(0), first.id(1), "letter case is ignored");
    let fields = json!({"data": [{"id": first.id(0), "First_Name": "Ana", "Phone": "1"}]});
    assert_eq!(account.send("PUT", LEADS, &fields).await.codes(), ["SUCCESS"]);
    let path = format!("{LEADS}/{}", first.id(0));
    let cleared = json!({"data": [{"Phone": null}]});
    assert_eq!(account.send("PUT", &path, &cleared).await.status, 200);
    let ana = &account.fake.contacts(Crm::Zoho)[0];
    assert_eq!(ana.properties.get("First_Name").map(String::as_str), Some("Ana"));
    assert!(!ana.properties.contains_key("Phone"));
    assert!(account.fake.creates_per_email(Crm::Zoho).values().all(|n| *n == 1));
    assert_eq!(account.fake.doubles(Crm::Zoho), 0);
}

#[tokio::test]
async fn each_record_stands_alone() {
    let account = Account::start(|_| {}).await;
    let mut batch = leads(&THREE);
    batch[1] = lead("nope", json!({}));
    let partial = account.upsert(&batch).await;
    assert_eq!(
        (partial.status, partial.codes()),
        (207, vec!["SUCCESS", "INVALID_DATA", "SUCCESS"])
    );
    let details = &partial.body["data"][1]["details"];
    assert_eq!(
        (&details["api_name"], &details["expected_data_type"]),
        (&json!("Email"), &json!("email"))
    );
    for (field, value, expected) in [
        ("Email_Opt_Out", json!("true"), "boolean"),
        ("Budget", json!("10"), "double"),
        ("Employees", json!(10.5), "integer"),
        ("Tags", json!("a;b"), "jsonarray"),
        ("First_Seen", json!("2026-11-30T00:00:00Z"), "date"),
        ("Last_Seen", json!("2026-11-30T00:00:00.123Z"), "datetime"),
        ("Phone", json!(5), "text"),
    ] {
        let odd = account.upsert(&[lead("ana@example.com", json!({field: value}))]).await;
        assert_eq!((odd.status, odd.codes()), (400, vec!["INVALID_DATA"]), "{field}");
        assert_eq!(odd.body["data"][0]["details"]["expected_data_type"], expected, "{field}");
    }
    let long =
        account.upsert(&[lead("ana@example.com", json!({"Last_Name": "x".repeat(81)}))]).await;
    assert_eq!(long.body["data"][0]["details"]["maximum_length"], 80);
    let nameless = account.upsert(&[json!({"Email": "new@example.com"})]).await;
    assert_eq!((nameless.status, nameless.codes()), (400, vec!["MANDATORY_NOT_FOUND"]));
    assert_eq!(account.upsert(&[json!({"Email": "ana@example.com"})]).await.codes(), ["SUCCESS"]);
    let unknown = account.upsert(&[lead("ana@example.com", json!({"Nope": "x"}))]).await;
    assert_eq!(unknown.codes(), ["SUCCESS"], "an unknown field is ignored");
    let lock = ItemError {
        code: "RECORD_LOCKED".into(),
        message: "record is locked".into(),
        details: BTreeMap::new(),
    };
    account.option(|o| drop(o.refusals.insert("cy@example.com".into(), lock)));
    assert_eq!(
        account.upsert(&leads(&["ana@example.com", "cy@example.com"])).await.codes(),
        ["SUCCESS", "RECORD_LOCKED"]
    );
}

#[tokio::test]
async fn what_refuses_the_call() {
    let account = Account::start(|_| {}).await;
    let many: Vec<Value> =
        (0..101).map(|n| lead(&format!("n{n}@example.com"), json!({}))).collect();
    let refused = account.upsert(&many).await;
    assert_eq!((refused.status, &refused.body["code"]), (400, &json!("LIMIT_EXCEEDED")));
    let empty = account.upsert(&[]).await;
    assert_eq!((empty.status, &empty.body["code"]), (400, &json!("MANDATORY_NOT_FOUND")));
    let body = json!({"data": leads(&THREE), "duplicate_check_fields": ["Phone"]});
    let refused = account.send("POST", UPSERT, &body).await;
    assert_eq!(refused.body["details"]["api_name"], "duplicate_check_fields");
    let other = account.send("POST", "/crm/v8/Nope/upsert", &body).await;
    assert_eq!((other.status, &other.body["code"]), (400, &json!("INVALID_MODULE")));
    assert_eq!(account.get("/crm/v8/coql").await.status, 404);
    account.option(|o| o.may_write = false);
    let refused = account.upsert(&leads(&THREE)).await;
    assert_eq!((refused.status, &refused.body["code"]), (403, &json!("NO_PERMISSION")));
    account.option(|o| {
        o.scopes.remove("ZohoCRM.modules.leads.ALL");
    });
    let refused = account.upsert(&leads(&THREE)).await;
    assert_eq!((refused.status, &refused.body["code"]), (401, &json!("OAUTH_SCOPE_MISMATCH")));
    account.fake.zoho(&Act::EndTokens).unwrap();
    let refused = account.upsert(&leads(&THREE)).await;
    assert_eq!((refused.status, &refused.body["code"]), (401, &json!("INVALID_TOKEN")));
    assert!(account.emails().is_empty());
}

#[tokio::test]
async fn unique_fields_match_and_collide() {
    let account = Account::start(|_| {}).await;
    account.upsert(&[lead("ana@example.com", json!({"Lead_Key": "k1"}))]).await;
    let by_key = account.upsert(&[lead("new@example.com", json!({"Lead_Key": "K1"}))]).await;
    assert_eq!(
        by_key.body["data"][0]["duplicate_field"], "Lead_Key",
        "every unique field is looked at"
    );
    let other = account.upsert(&leads(&["bo@example.com"])).await;
    let body = json!({"data": [{"id": other.id(0), "Email": "new@example.com"}]});
    let taken = account.send("PUT", LEADS, &body).await;
    assert_eq!(taken.codes(), ["DUPLICATE_DATA"]);
    let details = &taken.body["data"][0]["details"];
    assert_eq!(
        (&details["api_name"], &details["duplicate_record"]["id"]),
        (&json!("Email"), &json!(by_key.id(0)))
    );
    account.fake.script(Fault::Conflict);
    let race = account.upsert(&leads(&["dee@example.com", "eve@example.com"])).await;
    assert_eq!(race.codes(), ["DUPLICATE_DATA", "SUCCESS"]);
    assert_eq!(account.fake.doubles(Crm::Zoho), 0);
    account.option(|o| o.field_mut(Module::Leads, "Email").unwrap().unique = false);
    account.fake.script(Fault::Conflict);
    assert_eq!(account.upsert(&leads(&["fay@example.com"])).await.actions(), ["insert"]);
    assert_eq!(account.fake.doubles(Crm::Zoho), 1, "without a unique field the race makes two");
}

#[tokio::test]
async fn converted_merged_deleted() {
    let account = Account::start(|_| {}).await;
    let first = account.upsert(&leads(&THREE)).await;
    let convert = Act::Convert { lead: first.id(0), contact: None };
    let contact = account.fake.zoho(&convert).unwrap();
    account.fake.zoho(&Act::Merge { winner: first.id(1), loser: first.id(2) }).unwrap();
    let put = async |id: String| {
        account.send("PUT", LEADS, &json!({"data": [{"id": id, "Phone": "1"}]})).await
    };
    for gone in [first.id(0), first.id(2), "1".into(), "x".into()] {
        let refused = put(gone).await;
        assert_eq!((refused.status, refused.codes()), (400, vec!["INVALID_DATA"]));
        assert_eq!(refused.body["data"][0]["details"]["api_name"], "id");
    }
    let path = |converted: &str| {
        format!(
            "{LEADS}?ids={},{}&fields=Converted__s,Converted_Contact{converted}",
            first.id(0),
            first.id(1)
        )
    };
    let listed = account.get(&path("")).await;
    assert_eq!(listed.body["data"].as_array().unwrap().len(), 1);
    let listed = account.get(&path("&converted=both")).await;
    assert_eq!(listed.body["data"][0]["Converted_Contact"]["id"], json!(contact));
    assert_eq!(account.get(&format!("{LEADS}/{}", first.id(0))).await.status, 204);
    account.option(|o| o.converted_has_a_code = true);
    assert_eq!(put(first.id(0)).await.codes(), ["CONVERTED_RECORD"]);
    let anew = account.upsert(&leads(&THREE[..1])).await;
    assert_eq!(anew.actions(), ["insert"], "a converted lead is not found by its e-mail");
    let deleted =
        account.send("DELETE", &format!("{LEADS}?ids={}", anew.id(0)), &Value::Null).await;
    assert_eq!(deleted.codes(), ["SUCCESS"]);
    account.fake.zoho(&Act::Restore { id: anew.id(0) }).unwrap();
    assert_eq!(account.upsert(&leads(&THREE[..1])).await.id(0), anew.id(0));
}

#[tokio::test]
async fn reads() {
    let account = Account::start(|_| {}).await;
    assert_eq!(account.get(&format!("{LEADS}?fields=Email")).await.status, 204);
    let many: Vec<Value> = (0..5).map(|n| lead(&format!("n{n}@example.com"), json!({}))).collect();
    account.upsert(&many).await;
    assert_eq!(account.get(LEADS).await.body["code"], "REQUIRED_PARAM_MISSING");
    let mut seen = Vec::new();
    let mut path = format!("{LEADS}?fields=Email&per_page=2");
    loop {
        let page = account.get(&path).await;
        seen.extend(page.body["data"].as_array().unwrap().iter().map(|r| r["Email"].clone()));
        let Some(next) = page.body["info"]["next_page_token"].as_str() else { break };
        path = format!("{LEADS}?fields=Email&per_page=2&page_token={next}");
    }
    let emails: Vec<Value> = many.iter().map(|r| r["Email"].clone()).collect();
    assert_eq!(seen, emails);
    let found = account.get(&format!("{LEADS}/search?email=N3%40example.com")).await;
    assert_eq!(found.body["data"][0]["Email"], "n3@example.com");
    account.option(|o| o.search_lag = Duration::from_secs(60));
    assert_eq!(account.get(&format!("{LEADS}/search?email=n3%40example.com")).await.status, 204);
    let query =
        "select id, Email from Leads where Email in ('n1@example.com', 'N2@example.com') limit 200";
    let found = account.coql(query).await;
    assert_eq!((found.status, &found.body["info"]["count"]), (200, &json!(2)));
    assert_eq!(account.coql("select id from Leads where Email = 'x'").await.status, 204);
    for (query, code) in [
        ("select id from Leads", "SYNTAX_ERROR"),
        ("select Nope from Leads where id is not null", "INVALID_QUERY"),
        ("select id from Nope where id is not null", "INVALID_MODULE"),
    ] {
        assert_eq!(account.coql(query).await.body["code"], code, "{query}");
    }
    let fields = account.get("/crm/v8/settings/fields?module=Leads").await;
    let fields = fields.body["fields"].as_array().unwrap();
    let of = |name: &str| fields.iter().find(|f| f["api_name"] == name).unwrap();
    assert!(!of("Email")["unique"].as_object().unwrap().is_empty());
    assert!(of("Phone")["unique"].as_object().unwrap().is_empty());
    assert_eq!(of("Created_Time")["operation_type"]["api_update"], false);
    assert_eq!(
        (&of("Last_Name")["system_mandatory"], &of("Tags")["data_type"]),
        (&json!(true), &json!("multiselectpicklist"))
    );
}

#[tokio::test]
async fn credits_and_faults() {
    let account = Account::start(|o| o.credits = 12).await;
    let many: Vec<Value> = (0..25).map(|n| lead(&format!("n{n}@example.com"), json!({}))).collect();
    assert_eq!(account.upsert(&many).await.credits, None, "3 of 12 used");
    assert_eq!(account.upsert(&many).await.credits.as_deref(), Some("6"));
    assert_eq!(account.upsert(&many).await.status, 200);
    assert_eq!(account.upsert(&many).await.status, 200);
    let over = account.upsert(&leads(&THREE)).await;
    assert_eq!((over.status, &over.body["code"]), (429, &json!("TOO_MANY_REQUESTS")));
    assert_eq!(over.credits.as_deref(), Some("0"));
    account.option(|o| o.credits = 1_000);
    account.fake.script(Fault::RateLimited { retry_after: None, daily: false });
    let busy = account.upsert(&leads(&THREE)).await;
    assert_eq!((busy.status, busy.credits), (429, None));
    for (status, apply, there) in
        [(500, Apply::None, 25), (502, Apply::Half, 27), (503, Apply::All, 28)]
    {
        account.fake.script(Fault::Status { status, body: Body::Json, apply, retry_after: None });
        let failed = account.upsert(&leads(&THREE)).await;
        assert_eq!((failed.status, &failed.body["code"]), (status, &json!("INTERNAL_ERROR")));
        assert_eq!(account.emails().len(), there);
    }
    account.fake.script(Fault::Reorder { order: Order::Reversed });
    let reversed = account.upsert(&leads(&THREE)).await;
    assert_eq!(reversed.id(0), account.upsert(&leads(&THREE)).await.id(2));
    account.fake.script(Fault::EmptyResults);
    assert_eq!(account.upsert(&leads(&["new@example.com"])).await.body, json!({"data": []}));
}

#[tokio::test]
async fn grants() {
    let account = Account::start(|o| {
        o.client_id = Some("app".into());
        o.client_secret = Some("s".into());
        o.refresh_token = Some("r".into());
    })
    .await;
    for (form, error) in [
        ("grant_type=refresh_token&client_id=no&client_secret=s&refresh_token=r", "invalid_client"),
        (
            "grant_type=refresh_token&client_id=app&client_secret=no&refresh_token=r",
            "invalid_client_secret",
        ),
        ("grant_type=refresh_token&client_id=app&client_secret=s&refresh_token=no", "invalid_code"),
        ("grant_type=password", "invalid_request"),
    ] {
        let (status, body) = account.grant(form).await;
        assert_eq!((status, &body["error"]), (200, &json!(error)), "{form}");
    }
    for _ in 0..9 {
        assert!(account.grant(GRANT).await.1["access_token"].is_string());
    }
    let (status, body) = account.grant(GRANT).await;
    assert_eq!((status, &body["error"]), (400, &json!("Access Denied")));
    account.option(|o| o.token = Duration::ZERO);
    assert_eq!(account.upsert(&leads(&THREE)).await.status, 401);
    let act = json!({"act": "create", "module": "Leads", "fields": {"Last_Name": "Luz"}});
    assert_eq!(account.send("POST", "/_fake/zoho", &act).await.status, 200);
    assert_eq!(
        account.send("POST", "/_fake/zoho", &json!({"act": "delete", "id": "1"})).await.status,
        400
    );
}
