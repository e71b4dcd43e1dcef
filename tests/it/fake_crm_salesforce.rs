//! The stand-in's Salesforce against the cases of its contract.

use std::collections::BTreeMap;
use std::time::Duration;

use leadsync::fake_crm::salesforce::{Act, DuplicateRule, ItemError, Object, Options};
use leadsync::fake_crm::{self, Apply, Body, Crm, FakeCrm, Fault, Order};
use serde_json::{Value, json};

const LEADS: &str = "/services/data/v67.0/composite/sobjects/Lead/Lead_Email_Key__c";
const BY_ID: &str = "/services/data/v67.0/composite/sobjects";
const ONE: &str = "/services/data/v67.0/sobjects/Lead";

/// The stand-in and a client that is logged in.
struct Org {
    fake: FakeCrm,
    http: reqwest::Client,
    token: String,
}

struct Reply {
    status: u16,
    body: Value,
    usage: String,
}

impl Reply {
    /// The code of a refused call.
    fn code(&self) -> &str {
        self.body[0]["errorCode"].as_str().unwrap_or_default()
    }

    /// The code of each item, "" where it is a success.
    fn codes(&self) -> Vec<&str> {
        let items = self.body.as_array().map(Vec::as_slice).unwrap_or_default();
        items.iter().map(|i| i["errors"][0]["statusCode"].as_str().unwrap_or_default()).collect()
    }

    fn id(&self, at: usize) -> String {
        self.body[at]["id"].as_str().unwrap_or_default().to_owned()
    }
}

impl Org {
    async fn start(change: impl FnOnce(&mut Options)) -> Org {
        let mut options = fake_crm::Options::default();
        change(&mut options.salesforce);
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        // reqwest wants one even for plain HTTP; another test may have set it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        let mut org = Org { fake, http, token: String::new() };
        org.token = org.log_in().await;
        org
    }

    async fn log_in(&self) -> String {
        let form = "grant_type=client_credentials&client_id=app&client_secret=s";
        let (status, body) = self.grant(form).await;
        assert_eq!(status, 200, "{body}");
        assert_eq!(body["instance_url"], self.fake.url());
        assert!(body.get("expires_in").is_none());
        body["access_token"].as_str().unwrap().to_owned()
    }

    async fn grant(&self, form: &'static str) -> (u16, Value) {
        let call = self.http.post(format!("{}/services/oauth2/token", self.fake.url())).body(form);
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.send_with(method, path, body, ("x-none", "")).await
    }

    async fn send_with(&self, method: &str, path: &str, body: &Value, more: (&str, &str)) -> Reply {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let call = self.http.request(method, format!("{}{path}", self.fake.url()));
        let call = call.bearer_auth(&self.token).header(more.0, more.1).body(body.to_string());
        let answer = call.send().await.unwrap();
        let usage =
            answer.headers().get("sforce-limit-info").map(|v| v.to_str().unwrap().to_owned());
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Reply { status, body, usage: usage.unwrap_or_default() }
    }

    async fn upsert(&self, records: &[Value]) -> Reply {
        self.send("PATCH", LEADS, &json!({"allOrNone": false, "records": records})).await
    }

    async fn query(&self, verb: &str, soql: &str) -> Reply {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("q", soql).finish();
        self.send("GET", &format!("/services/data/v67.0/{verb}?{query}"), &Value::Null).await
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options.salesforce);
        self.fake.set_options(options);
    }

    fn emails(&self) -> Vec<String> {
        let there = self.fake.contacts(Crm::Salesforce).into_iter().filter(|c| !c.archived);
        there.map(|c| c.email).collect()
    }
}

fn lead(email: &str, more: Value) -> Value {
    let mut record = json!({
        "attributes": {"type": "Lead"}, "Lead_Email_Key__c": email, "Email": email,
        "LastName": "Silva", "Company": "Acme",
    });
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
async fn cases_1_to_4_create_update_repeat() {
    let org = Org::start(|_| {}).await;
    let first = org.upsert(&leads(&THREE)).await;
    assert_eq!((first.status, first.usage.as_str()), (200, "api-usage=1/1000000000"));
    let items = first.body.as_array().unwrap();
    assert!(items.iter().all(|i| i["success"] == true && i["created"] == true));
    assert!(first.id(0).starts_with("00Q") && first.id(0).len() == 18);
    let again = org.upsert(&leads(&THREE)).await;
    assert!(again.body.as_array().unwrap().iter().all(|i| i["created"] == false));
    let mixed = org.upsert(&leads(&["BO@example.com", "dee@example.com"])).await;
    assert_eq!([&mixed.body[0]["created"], &mixed.body[1]["created"]], [false, true]);
    assert_eq!(mixed.id(0), first.id(1), "the key's letter case is ignored");
    let path = format!("{ONE}/Lead_Email_Key__c/eve%40example.com");
    let fields = json!({"LastName": "Luz", "Company": "Acme", "Email": "eve@example.com"});
    let one = org.send("PATCH", &path, &fields).await;
    assert_eq!((one.status, &one.body["created"]), (201, &json!(true)));
    let one = org.send("PATCH", &path, &json!({"FirstName": "Eve"})).await;
    assert_eq!((one.status, &one.body["created"]), (200, &json!(false)));
    let old = path.replace("v67.0", "v45.0");
    assert_eq!(org.send("PATCH", &old, &json!({"FirstName": "Eve"})).await.status, 204);
    let other = format!("{ONE}/Lead_Email_Key__c/nobody%40example.com?updateOnly=true");
    assert_eq!(org.send("PATCH", &other, &fields).await.status, 404);
    let creates = org.fake.creates_per_email(Crm::Salesforce);
    assert_eq!((creates.len(), org.fake.doubles(Crm::Salesforce)), (5, 0));
    assert!(creates.values().all(|n| *n == 1), "{creates:?}");
}

#[tokio::test]
async fn cases_5_to_8_and_10_each_record_stands_alone() {
    let org = Org::start(|_| {}).await;
    let mut batch = leads(&THREE);
    batch[1] = lead("bo@example.com", json!({"Email": "nope"}));
    let partial = org.upsert(&batch).await;
    assert_eq!((partial.status, partial.codes()), (200, vec!["", "INVALID_EMAIL_ADDRESS", ""]));
    assert_eq!(partial.body[1]["errors"][0]["fields"], json!(["Email"]));
    assert!(partial.body[1].get("id").is_none() && partial.body[1].get("created").is_none());
    assert_eq!(org.emails(), ["ana@example.com", "cy@example.com"]);

    let without = lead("dee@example.com", json!({"Company": null}));
    let failed = org.upsert(std::slice::from_ref(&without)).await;
    assert_eq!((failed.status, failed.codes()), (200, vec!["REQUIRED_FIELD_MISSING"]));
    assert_eq!(failed.body[0]["errors"][0]["fields"], json!(["Company"]));

    let all = json!({"allOrNone": true, "records": [lead("eve@example.com", json!({})), without]});
    let rolled = org.send("PATCH", LEADS, &all).await;
    let expected = ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "REQUIRED_FIELD_MISSING"];
    assert_eq!(rolled.codes(), expected);
    assert_eq!(org.emails().len(), 2, "nothing is written");

    let twice =
        org.upsert(&leads(&["fay@example.com", "FAY@example.com", "gil@example.com"])).await;
    assert_eq!(twice.codes(), ["DUPLICATE_VALUE", "DUPLICATE_VALUE", ""]);
    let message = twice.body[0]["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("Duplicate external id specified"), "{message}");

    for (field, value, code) in [
        ("LastName", json!("x".repeat(81)), "STRING_TOO_LONG"),
        ("Tier__c", json!("Gold"), "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
        ("Tags__c", json!("a;z"), "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"),
        ("First_Seen__c", json!("2026-11-30T00:00:00Z"), "INVALID_TYPE_ON_FIELD_IN_RECORD"),
        ("CreatedDate", json!("2026-11-30T00:00:00Z"), "INVALID_FIELD_FOR_INSERT_UPDATE"),
    ] {
        let odd = org.upsert(&[lead("ana@example.com", json!({field: value}))]).await;
        assert_eq!(odd.codes(), [code], "{field}");
        assert_eq!(odd.body[0]["errors"][0]["fields"], json!([field]));
    }
}

#[tokio::test]
async fn cases_9_11_12_and_32_refuse_the_call() {
    let org = Org::start(|_| {}).await;
    let nope = org.upsert(&[lead("ana@example.com", json!({"Nope__c": "x"}))]).await;
    assert_eq!((nope.status, nope.code()), (400, "INVALID_FIELD"));
    assert_eq!(nope.body[0]["message"], "No such column 'Nope__c' on sobject of type Lead");
    org.option(|o| o.unknown_field_is_an_item_error = true);
    let item = org.upsert(&[lead("ana@example.com", json!({"Nope__c": "x"}))]).await;
    assert_eq!((item.status, item.codes()), (200, vec!["INVALID_FIELD"]));
    for wrong in [json!({"Consent__c": "true"}), json!({"Budget__c": "10"}), json!({"Phone": 5})] {
        let refused = org.upsert(&[lead("ana@example.com", wrong)]).await;
        assert_eq!((refused.status, refused.code()), (400, "JSON_PARSER_ERROR"));
    }
    let many: Vec<Value> =
        (0..201).map(|n| lead(&format!("n{n}@example.com"), json!({}))).collect();
    assert_eq!(org.upsert(&many).await.status, 400);
    assert_eq!(org.upsert(&many[..200]).await.status, 200);
    let empty = org.upsert(&[]).await;
    assert_eq!((empty.status, empty.code()), (400, "REQUIRED_FIELD_MISSING"));
    let no_key = LEADS.replace("Lead_Email_Key__c", "LastName");
    let body = json!({"records": leads(&THREE)});
    assert_eq!(org.send("PATCH", &no_key, &body).await.code(), "NOT_FOUND");
    assert_eq!(org.send("PATCH", &LEADS.replace("v67.0", "v20.0"), &body).await.status, 410);
    assert_eq!(org.send("PATCH", &LEADS.replace("v67.0", "v99.0"), &body).await.status, 404);
    let long = format!("SELECT Id FROM Lead WHERE Email = '{}'", "x".repeat(17_000));
    assert_eq!(org.query("query", &long).await.status, 414);
    assert_eq!(org.emails().len(), 200);
}

#[tokio::test]
async fn cases_13_to_16_sessions_rights_and_limits() {
    let mut org = Org::start(|_| {}).await;
    org.fake.salesforce(&Act::EndSessions).unwrap();
    let expired = org.upsert(&leads(&THREE)).await;
    assert_eq!((expired.status, expired.code()), (401, "INVALID_SESSION_ID"));
    org.token = org.log_in().await;
    let read_only = ItemError {
        code: "INSUFFICIENT_ACCESS_OR_READONLY".into(),
        message: "insufficient access rights on object id".into(),
        fields: Vec::new(),
        matches: Vec::new(),
    };
    org.option(|o| drop(o.refusals.insert("bo@example.com".into(), read_only)));
    assert_eq!(
        org.upsert(&leads(&THREE)).await.codes(),
        ["", "INSUFFICIENT_ACCESS_OR_READONLY", ""]
    );
    org.option(|o| o.api_enabled = false);
    let off = org.upsert(&leads(&THREE)).await;
    assert_eq!((off.status, off.code()), (403, "API_DISABLED_FOR_ORG"));
    org.option(|o| (o.api_enabled, o.daily_limit) = (true, 1));
    let over = org.upsert(&leads(&THREE)).await;
    assert_eq!((over.status, over.code()), (403, "REQUEST_LIMIT_EXCEEDED"));
    assert_eq!(over.body[0]["message"], "TotalRequests Limit exceeded.");
    assert_eq!(over.usage, "api-usage=1/1");
    org.fake.script(Fault::RateLimited { retry_after: None, daily: false });
    let busy = org.upsert(&leads(&THREE)).await;
    assert_eq!((busy.status, busy.code()), (403, "REQUEST_LIMIT_EXCEEDED"));
    assert!(busy.body[0]["message"].as_str().unwrap().starts_with("ConcurrentRequests"));
    org.option(|o| o.daily_limit = 100);
    let limits = org.send("GET", "/services/data/v67.0/limits", &Value::Null).await;
    assert_eq!(limits.body["DailyApiRequests"], json!({"Max": 100, "Remaining": 98}));
}

#[tokio::test]
async fn cases_17_18_and_21_locks_triggers_and_the_race() {
    let org = Org::start(|_| {}).await;
    let first = org.upsert(&leads(&THREE)).await;
    let lock = ItemError {
        code: "UNABLE_TO_LOCK_ROW".into(),
        message: "unable to obtain exclusive access to this record".into(),
        fields: Vec::new(),
        matches: Vec::new(),
    };
    org.option(|o| drop(o.refusals.insert(first.id(1), lock)));
    let locked = org.upsert(&leads(&THREE)).await;
    assert_eq!(locked.codes(), ["", "UNABLE_TO_LOCK_ROW", ""]);
    assert_eq!(locked.body[1]["errors"][0]["fields"], json!([]));
    org.option(|o| o.refusals.clear());
    org.fake.script(Fault::Conflict);
    let race = org.upsert(&leads(&["dee@example.com", "eve@example.com"])).await;
    assert_eq!(race.codes(), ["DUPLICATE_VALUE", ""]);
    let message = race.body[0]["errors"][0]["message"].as_str().unwrap();
    let theirs = message.split("record with id: ").nth(1).unwrap();
    assert_eq!(theirs.len(), 15);
    let again = org.upsert(&leads(&["dee@example.com"])).await;
    assert_eq!(again.body[0]["created"], false);
    assert_eq!(&again.id(0)[..15], theirs);
    assert_eq!(org.fake.doubles(Crm::Salesforce), 0);
}

#[tokio::test]
async fn cases_19_20_and_22_duplicate_rules_and_several_matches() {
    let org = Org::start(|o| o.duplicate_rule = DuplicateRule::Block).await;
    let fields = |email: &str| -> BTreeMap<String, Value> {
        [("LastName".to_owned(), json!("Luz")), ("Email".to_owned(), json!(email))].into()
    };
    let create = |object, email| Act::Create { object, fields: fields(email) };
    let theirs = org.fake.salesforce(&create(Object::Lead, "ana@example.com")).unwrap();
    let blocked = org.upsert(&leads(&THREE)).await;
    assert_eq!(blocked.codes(), ["DUPLICATES_DETECTED", "", ""]);
    let error = &blocked.body[0]["errors"][0];
    let found = &error["duplicateResult"]["matchResults"][0]["matchRecords"][0]["record"]["Id"];
    assert_eq!(found, &json!(theirs));
    org.option(|o| o.misspelt_duplicate_result = true);
    let blocked = org.upsert(&leads(&THREE[..1])).await;
    assert!(blocked.body[0]["errors"][0]["duplicateResut"].is_object());
    let body = json!({"records": leads(&THREE[..1])});
    let save = ("Sforce-Duplicate-Rule-Header", "allowSave=true");
    assert_eq!(org.send_with("PATCH", LEADS, &body, save).await.codes(), ["DUPLICATES_DETECTED"]);
    org.option(|o| o.duplicate_rule = DuplicateRule::Alert);
    assert_eq!(org.upsert(&leads(&THREE[..1])).await.codes(), ["DUPLICATES_DETECTED"]);
    assert_eq!(org.send_with("PATCH", LEADS, &body, save).await.codes(), [""]);
    assert_eq!(org.fake.doubles(Crm::Salesforce), 1);
    org.option(|o| o.duplicate_rule = DuplicateRule::Off);
    let by_email = format!("{ONE}/Email/ana%40example.com");
    let several = org.send("PATCH", &by_email, &json!({"FirstName": "Ana"})).await;
    assert_eq!((several.status, several.body.as_array().unwrap().len()), (300, 2));
    let by_email = LEADS.replace("Lead_Email_Key__c", "Email");
    let several = org.send("PATCH", &by_email, &body).await;
    assert_eq!(several.codes(), ["DUPLICATE_EXTERNAL_ID"]);
}

#[tokio::test]
async fn cases_23_to_25_converted_deleted_merged() {
    let org = Org::start(|_| {}).await;
    let first = org.upsert(&leads(&THREE)).await;
    let contact = Act::Convert { lead: first.id(0), contact: None };
    let contact = org.fake.salesforce(&contact).unwrap();
    assert!(contact.starts_with("003"));
    org.fake.salesforce(&Act::Delete { id: first.id(1) }).unwrap();
    let again = org.upsert(&leads(&THREE)).await;
    assert_eq!(again.codes(), ["CANNOT_UPDATE_CONVERTED_LEAD", "", ""]);
    assert_eq!([&again.body[1]["created"], &again.body[2]["created"]], [true, false]);
    let record = |id: String| json!({"attributes": {"type": "Lead"}, "id": id, "FirstName": "X"});
    let by_id = async |ids: &[String]| {
        let records: Vec<Value> = ids.iter().cloned().map(record).collect();
        org.send("PATCH", BY_ID, &json!({"allOrNone": false, "records": records})).await
    };
    let ids = [first.id(0), first.id(1), first.id(2), "00Q000000009999".into(), contact.clone()];
    let codes = [
        "CANNOT_UPDATE_CONVERTED_LEAD",
        "ENTITY_IS_DELETED",
        "",
        "INVALID_CROSS_REFERENCE_KEY",
        "MALFORMED_ID",
    ];
    assert_eq!(by_id(&ids).await.codes(), codes);
    let short = by_id(&[first.id(2)[..15].to_owned()]).await;
    assert_eq!(short.id(0), first.id(2), "an id of 15 characters is the same");

    let merge = Act::Merge { winner: first.id(2), loser: again.id(1) };
    org.fake.salesforce(&merge).unwrap();
    let soql = format!(
        "SELECT Id, IsDeleted, MasterRecordId, IsConverted, ConvertedContactId FROM Lead WHERE Id IN ('{}', '{}')",
        first.id(0),
        again.id(1)
    );
    let all = org.query("queryAll", &soql).await;
    let row = |n: usize, name: &str| all.body["records"][n][name].clone();
    assert_eq!(
        (row(0, "IsConverted"), row(0, "ConvertedContactId")),
        (json!(true), json!(contact))
    );
    assert_eq!((row(1, "IsDeleted"), row(1, "MasterRecordId")), (json!(true), json!(first.id(2))));
    assert_eq!(org.query("query", &soql).await.body["totalSize"], 1);
    let lost = org.upsert(&leads(&["bo@example.com"])).await;
    assert_eq!(lost.body[0]["created"], true, "the key of a merged lead is lost");

    let file = format!("{ONE}/Lead_Email_Key__c/x%40example.inc");
    assert_eq!(
        org.send("PATCH", &file, &json!({"LastName": "L", "Company": "C"})).await.status,
        404
    );
    let kept = org.upsert(&leads(&["x@example.inc"])).await;
    assert_eq!(kept.codes(), [""]);
    assert_eq!(
        org.send("DELETE", &format!("{ONE}/{}", kept.id(0)), &Value::Null).await.status,
        204
    );
    assert_eq!(org.send("GET", &format!("{ONE}/{}", kept.id(0)), &Value::Null).await.status, 404);
    org.option(|o| o.converted_leads_editable = true);
    assert_eq!(by_id(&[first.id(0)]).await.codes(), [""]);
}

#[tokio::test]
async fn cases_26_to_31_faults_and_clearing() {
    let org = Org::start(|_| {}).await;
    for (status, apply, there) in
        [(500, Apply::None, 0), (503, Apply::Half, 2), (500, Apply::All, 3)]
    {
        org.fake.script(Fault::Status { status, body: Body::Json, apply, retry_after: None });
        let failed = org.upsert(&leads(&THREE)).await;
        assert_eq!(failed.status, status);
        assert_eq!(
            failed.code(),
            if status == 500 { "UNKNOWN_EXCEPTION" } else { "SERVER_UNAVAILABLE" }
        );
        assert_eq!(org.emails().len(), there);
    }
    org.fake.script(Fault::Reorder { order: Order::Reversed });
    let ids = org.upsert(&leads(&THREE)).await;
    let straight = org.upsert(&leads(&THREE)).await;
    assert_eq!([ids.id(0), ids.id(2)], [straight.id(2), straight.id(0)]);
    org.fake.script(Fault::Omit { input: 1, written: true });
    let short = org.upsert(&leads(&["dee@example.com", "eve@example.com"])).await;
    assert_eq!((short.status, short.body.as_array().unwrap().len()), (200, 1));
    assert_eq!(org.emails().len(), 5);
    let fields = json!({"Phone": "1", "Description": "x", "Consent__c": true, "Budget__c": 10.5});
    org.upsert(&[lead("ana@example.com", fields)]).await;
    org.upsert(&[lead("ana@example.com", json!({"Phone": null, "Description": ""}))]).await;
    let ana = &org.fake.contacts(Crm::Salesforce)[0];
    assert!(!ana.properties.contains_key("Phone") && !ana.properties.contains_key("Description"));
    assert_eq!(
        (ana.properties["Consent__c"].as_str(), ana.properties["Budget__c"].as_str()),
        ("true", "10.5")
    );
    let gone = org.http.patch(format!("{}{LEADS}", org.fake.url())).bearer_auth(&org.token);
    org.fake.script(Fault::ResetAfter);
    let body = json!({"records": leads(&["fay@example.com"])}).to_string();
    assert!(gone.body(body).send().await.is_err());
    assert_eq!(org.emails().len(), 6);
}

#[tokio::test]
async fn describe_and_queries() {
    let org = Org::start(|o| o.query_page = 2).await;
    let describe = org.send("GET", &format!("{ONE}/describe"), &Value::Null).await;
    let fields = describe.body["fields"].as_array().unwrap();
    let key = fields.iter().find(|f| f["name"] == "Lead_Email_Key__c").unwrap();
    assert_eq!((&key["externalId"], &key["unique"]), (&json!(true), &json!(true)));
    let email = fields.iter().find(|f| f["name"] == "Email").unwrap();
    assert_eq!(
        (&email["unique"], &email["idLookup"], &email["length"]),
        (&json!(false), &json!(true), &json!(80))
    );
    let company = fields.iter().find(|f| f["name"] == "Company").unwrap();
    assert_eq!((&company["nillable"], &company["createable"]), (&json!(false), &json!(true)));

    let emails: Vec<String> = (0..5).map(|n| format!("n{n}@example.com")).collect();
    org.upsert(&emails.iter().map(|e| lead(e, json!({}))).collect::<Vec<_>>()).await;
    let mut page =
        org.query("query", "SELECT Id, Email FROM Lead WHERE Company = 'ACME' ORDER BY Id").await;
    assert_eq!(page.body["totalSize"], 5);
    let mut seen = Vec::new();
    loop {
        seen.extend(page.body["records"].as_array().unwrap().iter().map(|r| r["Email"].clone()));
        let Some(next) = page.body["nextRecordsUrl"].as_str() else { break };
        assert_eq!(page.body["done"], false);
        page = org.send("GET", next, &Value::Null).await;
    }
    assert_eq!(json!(seen), json!(emails));
    for (soql, code) in [
        ("SELECT Nope FROM Lead", "INVALID_FIELD"),
        ("SELECT Id FROM Nope", "INVALID_TYPE"),
        ("SELECT Id FROM Lead WHERE", "MALFORMED_QUERY"),
    ] {
        let refused = org.query("query", soql).await;
        assert_eq!((refused.status, refused.code()), (400, code), "{soql}");
    }
    assert_eq!(org.send("GET", "/services/data/v67.0/query/01g-x", &Value::Null).await.status, 400);
}

#[tokio::test]
async fn grants() {
    let org = Org::start(|o| {
        o.client_id = Some("app".into());
        o.client_secret = Some("s".into());
        o.refresh_token = Some("r0".into());
        o.rotate_refresh_tokens = true;
    })
    .await;
    for (form, error) in [
        ("grant_type=client_credentials&client_id=other&client_secret=s", "invalid_client_id"),
        ("grant_type=client_credentials&client_id=app&client_secret=no", "invalid_client"),
        (
            "grant_type=refresh_token&client_id=app&client_secret=s&refresh_token=no",
            "invalid_grant",
        ),
        ("grant_type=password&client_id=app&client_secret=s", "unsupported_grant_type"),
    ] {
        let (status, body) = org.grant(form).await;
        assert_eq!((status, &body["error"]), (400, &json!(error)), "{form}");
    }
    let first = "grant_type=refresh_token&client_id=app&client_secret=s&refresh_token=r0";
    let (status, body) = org.grant(first).await;
    assert_eq!(status, 200);
    assert!(body["refresh_token"].as_str().unwrap().starts_with("5Aep"));
    assert_eq!(org.grant(first).await.0, 400, "the old one is dead at once");
    let logged: Vec<_> =
        org.fake.calls().iter().map(|c| String::from_utf8_lossy(&c.body).into_owned()).collect();
    assert!(
        logged.iter().all(|body| !body.contains("r0") && !body.contains("client_secret=s")),
        "{logged:?}"
    );
    org.option(|o| o.session = Duration::ZERO);
    assert_eq!(org.upsert(&leads(&THREE)).await.status, 401);
    org.option(|o| o.client_credentials = false);
    let (_, body) = org.grant("grant_type=client_credentials&client_id=app&client_secret=s").await;
    assert_eq!(body["error"], "invalid_grant");
}

#[tokio::test]
async fn people_act_through_the_control_route() {
    let org = Org::start(|_| {}).await;
    let act = json!({"act": "create", "object": "Lead", "fields": {"LastName": "Luz", "Email": "ana@example.com"}});
    let made = org.send("POST", "/_fake/salesforce", &act).await;
    assert_eq!(made.status, 200);
    let convert = json!({"act": "convert", "lead": made.body["id"]});
    let contact = org.send("POST", "/_fake/salesforce", &convert).await;
    assert!(contact.body["id"].as_str().unwrap().starts_with("003"));
    let shown = org.send("GET", "/_fake/contacts?crm=salesforce", &Value::Null).await;
    assert_eq!(
        (&shown.body[0]["archived"], &shown.body[1]["archived"]),
        (&json!(true), &json!(false))
    );
    for wrong in [json!({"act": "fly"}), json!({"act": "delete", "id": "00Q000000000099AAA"})] {
        assert_eq!(org.send("POST", "/_fake/salesforce", &wrong).await.status, 400);
    }
}
