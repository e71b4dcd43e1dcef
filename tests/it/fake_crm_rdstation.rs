//! The stand-in RD Station, against what its reference and its own client say.

use std::time::Duration;

use leadsync::fake_crm::rdstation::App;
use leadsync::fake_crm::{Crm, FakeCrm, Options};
use serde_json::{Value, json};

use crate::odoo_cases::http;

struct Rd {
    fake: FakeCrm,
    http: reqwest::Client,
    token: String,
}

type Answer = (u16, Value);

impl Rd {
    async fn start(change: impl FnOnce(&mut Options)) -> Rd {
        let mut options = Options::default();
        change(&mut options);
        let fake = FakeCrm::on_free_port(options).await.unwrap();
        Rd { fake, http: http(), token: "t".to_owned() }
    }

    async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> reqwest::Response {
        let method = method.parse().unwrap();
        let request = self.http.request(method, format!("{}{path}", self.fake.url()));
        let request = request.bearer_auth(&self.token);
        match body {
            Some(body) => request.json(body).send().await.unwrap(),
            None => request.send().await.unwrap(),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let answer = self.send(method, path, body).await;
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    async fn patch(&self, identifier: &str, body: &Value) -> Answer {
        self.call("PATCH", &format!("/platform/contacts/{identifier}"), Some(body)).await
    }

    async fn get(&self, identifier: &str) -> Answer {
        self.call("GET", &format!("/platform/contacts/{identifier}"), None).await
    }

    async fn act(&self, action: &str, body: &Value) -> Answer {
        self.call("POST", &format!("/_fake/rdstation/{action}"), Some(body)).await
    }

    fn option(&self, change: impl FnOnce(&mut Options)) {
        let mut options = self.fake.options();
        change(&mut options);
        self.fake.set_options(options);
    }
}

fn error((status, body): &Answer) -> (u16, &str) {
    (*status, body["errors"]["error_type"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_patch_by_email_creates_and_updates() {
    let rd = Rd::start(|_| {}).await;
    let (status, made) =
        rd.patch("email:Ana@Example.com", &json!({"name": "Ana", "city": "Rio"})).await;
    assert_eq!(
        (status, &made["email"], &made["name"]),
        (200, &json!("ana@example.com"), &json!("Ana"))
    );
    let uuid = made["uuid"].as_str().unwrap().to_owned();
    let (_, again) = rd.patch("email:ana@example.com", &json!({"name": "Ana B"})).await;
    assert_eq!((&again["uuid"], &again["city"]), (&json!(uuid), &json!("Rio")), "the rest is kept");
    for nothing in [Value::Null, json!("")] {
        rd.patch(&format!("uuid:{uuid}"), &json!({"city": "Rio"})).await;
        let (_, cleared) = rd.patch(&format!("uuid:{uuid}"), &json!({"city": nothing})).await;
        assert!(cleared.get("city").is_none(), "what is empty is left out: {cleared}");
    }
    assert_eq!(again["tags"], json!([]), "lists are not");
    assert_eq!(rd.get(&uuid).await.1["name"], "Ana B");
    assert_eq!(rd.get("email:ana%40example.com").await.0, 200, "encoded or not");
    assert_eq!(rd.fake.creates_per_email(Crm::Rdstation)["ana@example.com"], 1);
    rd.patch("email:o%27neil+tag@example.com", &json!({})).await;
    assert_eq!(rd.get("email:o'neil%2Btag@example.com").await.0, 200);
    rd.patch(&uuid, &json!({"mobile_phone": "+5511"})).await;
    assert_eq!(rd.get("phone:+5511").await.1["uuid"], uuid);
}

#[tokio::test]
async fn tags_replace_those_that_were_there() {
    let rd = Rd::start(|_| {}).await;
    rd.patch("email:a@x.com", &json!({"tags": ["one", "two"]})).await;
    let (_, contact) = rd.patch("email:a@x.com", &json!({"tags": ["three"]})).await;
    assert_eq!(contact["tags"], json!(["three"]));
}

#[tokio::test]
async fn errors_have_three_shapes() {
    let rd = Rd::start(|_| {}).await;
    let conflicting = rd.patch("email:a@x.com", &json!({"email": "a@x.com"})).await;
    assert_eq!(error(&conflicting), (400, "CONFLICTING_FIELD"));
    for (member, value, kind) in [
        ("name", json!(5), "MUST_BE_STRING"),
        ("tags", json!("one"), "MUST_BE_STRING_ARRAY"),
        ("cf_opt_in", json!("yes"), "MUST_BE_BOOLEAN"),
        ("cf_tier", json!("bronze"), "MUST_BE_VALID_OPTION"),
        ("cf_nosuch", json!("x"), "INVALID"),
        ("legal_bases", json!([{"category": "communications"}]), "INVALID"),
    ] {
        let (status, body) = rd.patch("email:a@x.com", &json!({member: value})).await;
        let said = &body["errors"][member][0]["error_type"];
        assert_eq!((status, said), (400, &json!(kind)), "{member}");
    }
    assert!(rd.fake.contacts(Crm::Rdstation).is_empty(), "nothing was written");
    rd.option(|o| o.rdstation.refuse_unknown = false);
    assert_eq!(rd.patch("email:a@x.com", &json!({"cf_nosuch": "x"})).await.0, 200);
    rd.option(|o| o.rdstation.refuse_null = true);
    let (_, body) = rd.patch("email:a@x.com", &json!({"name": null})).await;
    assert_eq!(body["errors"]["name"][0]["error_type"], "CANNOT_BE_NULL");
    let nobody = uuid::Uuid::nil();
    assert_eq!(
        error(&rd.patch(&format!("uuid:{nobody}"), &json!({})).await),
        (404, "RESOURCE_NOT_FOUND")
    );
    assert_eq!(error(&rd.get("email:nobody@x.com").await), (404, "RESOURCE_NOT_FOUND"));
    let url = format!("{}/platform/contacts/email:a@x.com", rd.fake.url());
    let text = rd.http.patch(&url).bearer_auth("t").body("{}").send().await.unwrap();
    assert_eq!(text.status().as_u16(), 415);
    let broken = rd.http.patch(&url).bearer_auth("t").header("content-type", "application/json");
    assert_eq!(broken.body("{").send().await.unwrap().status().as_u16(), 400);
}

#[tokio::test]
async fn an_email_belongs_to_one_contact() {
    let rd = Rd::start(|_| {}).await;
    let post = async |email: &str| {
        rd.call("POST", "/platform/contacts", Some(&json!({"email": email, "name": "A"}))).await
    };
    let (_, made) = post("a@x.com").await;
    assert_eq!(error(&post("A@x.com").await), (400, "EMAIL_ALREADY_IN_USE"));
    post("b@x.com").await;
    let uuid = made["uuid"].as_str().unwrap();
    let taken = rd.patch(&format!("uuid:{uuid}"), &json!({"email": "b@x.com"})).await;
    assert_eq!(error(&taken), (400, "EMAIL_ALREADY_IN_USE"));
    rd.patch(&format!("uuid:{uuid}"), &json!({"email": "c@x.com"})).await;
    assert_eq!(rd.get("email:a@x.com").await.0, 404);
    assert_eq!(rd.get("email:c@x.com").await.1["uuid"], uuid);
    assert_eq!(rd.fake.doubles(Crm::Rdstation), 0);
}

#[tokio::test]
async fn limits_of_the_contact_and_of_the_account() {
    let rd = Rd::start(|o| o.rdstation.contact_limit = 2).await;
    for _ in 0..3 {
        assert_eq!(rd.patch("email:a@x.com", &json!({"name": "A"})).await.0, 200, "made, then two");
    }
    assert_eq!(error(&rd.patch("email:a@x.com", &json!({})).await), (429, "TOO_MANY_REQUESTS"));
    assert_eq!(rd.patch("email:b@x.com", &json!({})).await.0, 200, "others go on");
    assert_eq!(rd.get("email:a@x.com").await.0, 200, "reading does not count");
    rd.option(|o| {
        o.rdstation.account_limit = 1;
        o.rdstation.account_window = Duration::from_secs(300);
        o.rdstation.send_retry_after = true;
    });
    let refused = rd.send("GET", "/platform/contacts/fields", None).await;
    assert_eq!(refused.status().as_u16(), 429);
    let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((200..=300).contains(&wait), "{wait}");
}

#[tokio::test]
async fn tokens_live_a_day_and_are_renewed() {
    let mut rd = Rd::start(|o| o.rdstation.apps = vec![App::good("id", "secret", "refresh")]).await;
    let token = async |rd: &Rd, change: &dyn Fn(&mut Value)| {
        let mut body =
            json!({"client_id": "id", "client_secret": "secret", "refresh_token": "refresh"});
        change(&mut body);
        rd.call("POST", "/auth/token", Some(&body)).await
    };
    assert_eq!(error(&rd.get("email:a@x.com").await), (401, "UNAUTHORIZED"));
    let (status, given) = token(&rd, &|_| {}).await;
    assert_eq!(
        (status, &given["expires_in"], &given["refresh_token"]),
        (200, &json!(86_400), &json!("refresh"))
    );
    rd.token = given["access_token"].as_str().unwrap().to_owned();
    assert_eq!(rd.patch("email:a@x.com", &json!({})).await.0, 200);
    rd.act("expire", &json!({})).await;
    let refused = rd.send("GET", "/platform/contacts/email:a@x.com", None).await;
    assert_eq!(refused.status().as_u16(), 401);
    let says = refused.headers()["www-authenticate"].to_str().unwrap().to_owned();
    assert!(says.contains("error=\"expired_token\""), "{says}");
    assert_eq!(
        error(&token(&rd, &|b| b["client_secret"] = json!("x")).await),
        (401, "ACCESS_DENIED")
    );
    let stale = token(&rd, &|b| b["refresh_token"] = json!("x")).await;
    assert_eq!(error(&stale), (401, "INVALID_REFRESH_TOKEN"));
    let (status, body) = token(&rd, &|b| b["client_id"] = Value::Null).await;
    assert_eq!((status, &body["errors"][0]["path"]), (400, &json!("body.client_id")));
    let form = rd.http.post(format!("{}/auth/token", rd.fake.url())).body("client_id=id");
    assert_eq!(form.send().await.unwrap().status().as_u16(), 415);
    let (_, given) = token(&rd, &|_| {}).await;
    rd.token = given["access_token"].as_str().unwrap().to_owned();
    rd.option(|o| o.rdstation.apps[0].forbidden = true);
    assert_eq!(error(&rd.patch("email:a@x.com", &json!({})).await), (403, "FORBIDDEN"));
    rd.option(|o| o.rdstation.apps[0].revoked = true);
    assert_eq!(error(&rd.get("email:a@x.com").await), (401, "UNAUTHORIZED"));
}

#[tokio::test]
async fn fields_and_the_list_of_everybody() {
    let rd = Rd::start(|_| {}).await;
    let (_, fields) = rd.call("GET", "/platform/contacts/fields", None).await;
    let fields = fields["fields"].as_array().unwrap();
    let tier = fields.iter().find(|f| f["api_identifier"] == "cf_tier").unwrap();
    assert_eq!((&tier["custom_field"], &tier["data_type"]), (&json!(true), &json!("STRING")));
    assert_eq!(tier["validation_rules"]["valid_options"][0]["value"], "gold");
    for n in 0..130 {
        rd.patch(&format!("email:n{n}@x.com"), &json!({"name": n.to_string()})).await;
    }
    let (_, segments) = rd.call("GET", "/platform/segmentations", None).await;
    let all = segments["segmentations"].as_array().unwrap();
    let all = all.iter().find(|s| s["standard"] == true).unwrap()["id"].as_u64().unwrap();
    let page = async |page: usize| {
        let path = format!("/platform/segmentations/{all}/contacts?page={page}&page_size=200");
        let answer = rd.send("GET", &path, None).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        let totals = (header("pagination-total-rows"), header("pagination-total-pages"));
        (totals, answer.json::<Value>().await.unwrap()["contacts"].as_array().unwrap().clone())
    };
    let (totals, first) = page(1).await;
    assert_eq!((totals, first.len()), (("130".to_owned(), "2".to_owned()), 125), "125 at most");
    assert_eq!(page(2).await.1[0]["email"], "n125@x.com");
    assert_eq!(page(3).await.1.len(), 0);
    assert_eq!(rd.call("GET", "/platform/segmentations/99/contacts", None).await.0, 404);
}

#[tokio::test]
async fn people_merge_and_delete() {
    let rd = Rd::start(|_| {}).await;
    let uuid = async |email: &str| {
        let (_, made) = rd.patch(&format!("email:{email}"), &json!({"name": email})).await;
        made["uuid"].as_str().unwrap().to_owned()
    };
    let (keep, lose) = (uuid("keep@x.com").await, uuid("lose@x.com").await);
    rd.act("merge", &json!({"keep": keep, "lose": lose})).await;
    assert_eq!(rd.get(&lose).await.0, 404);
    let (_, found) = rd.get("email:lose@x.com").await;
    assert_eq!((&found["uuid"], &found["extra_emails"]), (&json!(keep), &json!(["lose@x.com"])));
    rd.option(|o| o.rdstation.find_extra_emails = false);
    assert_eq!(rd.get("email:lose@x.com").await.0, 404);
    let edit = json!({"id": keep, "values": {"email": "new@x.com", "city": "Rio"}});
    rd.act("edit", &edit).await;
    assert_eq!(rd.get(&keep).await.1["email"], "new@x.com");
    rd.act("delete", &json!({"id": keep})).await;
    assert!(rd.fake.contacts(Crm::Rdstation).is_empty());
    assert_eq!(rd.act("delete", &json!({"id": keep})).await.0, 404);
    rd.act("create", &json!({"values": {"email": "hand@x.com", "name": "H"}})).await;
    assert_eq!(rd.call("DELETE", "/platform/contacts/email:hand@x.com", None).await.0, 204);
    assert!(rd.fake.contacts(Crm::Rdstation).is_empty());
}
