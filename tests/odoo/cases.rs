//! What Odoo is known to answer, case by case. The stand-in is held to them in every test run, and a real Odoo in
//! `make test-odoo`: so neither can drift from the other unseen.

use std::time::Duration;

use serde_json::{Map, Value, json};

/// A server under test.
pub struct Odoo {
    pub url: String,
    pub database: String,
    pub login: String,
    pub uid: i64,
    pub key: String,
    /// Somebody who may do everything: id and password. Absent at the stand-in, which has routes for it.
    pub admin: Option<(i64, String)>,
    /// Part of every name that a case makes, so that it can run on a database that is not empty.
    pub mark: String,
    pub http: reqwest::Client,
}

/// An exception of the server.
#[derive(Debug, PartialEq, Eq)]
pub struct Raised {
    pub name: String,
    pub message: String,
}

pub type Result = std::result::Result<Value, Raised>;

pub fn http() -> reqwest::Client {
    // reqwest wants one even for plain HTTP; another test may have set it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().timeout(Duration::from_secs(60)).build().expect("a client")
}

impl Odoo {
    pub async fn service(&self, service: &str, method: &str, args: Value) -> Result {
        let params = json!({"service": service, "method": method, "args": args});
        let body = json!({"jsonrpc": "2.0", "method": "call", "id": 7, "params": params});
        let answer = self.http.post(format!("{}/jsonrpc", self.url)).json(&body).send().await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "errors come inside 200 too");
        let mut body: Value = answer.json().await.expect("JSON");
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(7)));
        if body["error"].is_null() {
            return Ok(body["result"].take());
        }
        let error = &body["error"];
        assert_eq!((&error["code"], &error["message"]), (&json!(200), &json!("Odoo Server Error")));
        let data = &error["data"];
        for member in ["arguments", "context", "debug"] {
            assert!(data.get(member).is_some(), "{member}: {data}");
        }
        let text = |member: &str| data[member].as_str().unwrap().to_owned();
        Err(Raised { name: text("name"), message: text("message") })
    }

    async fn as_user(
        &self,
        (uid, key): (i64, &str),
        call: (&str, &str),
        args: Value,
        named: Value,
    ) -> Result {
        let args = json!([self.database, uid, key, call.0, call.1, args, named]);
        self.service("object", "execute_kw", args).await
    }

    pub async fn try_call(&self, model: &str, method: &str, args: Value, named: Value) -> Result {
        self.as_user((self.uid, &self.key), (model, method), args, named).await
    }

    pub async fn call(&self, model: &str, method: &str, args: Value, named: Value) -> Value {
        let result = self.try_call(model, method, args, named).await;
        result.unwrap_or_else(|raised| panic!("{model}.{method}: {raised:?}"))
    }

    pub async fn load(&self, model: &str, columns: &[&str], rows: Value) -> Value {
        self.call(model, "load", json!([columns, rows]), json!({})).await
    }

    /// Partners by external id, name and e-mail; their ids.
    pub async fn partners(&self, rows: &[(&str, &str, &str)]) -> Vec<i64> {
        let cells =
            |(id, name, email): &(&str, &str, &str)| json!([self.external(id), name, email]);
        let rows: Vec<Value> = rows.iter().map(cells).collect();
        ids(&self.load("res.partner", &["id", "name", "email"], json!(rows)).await)
    }

    pub fn external(&self, name: &str) -> String {
        format!("leadsync.{}_{name}", self.mark)
    }

    /// An address nobody else uses.
    pub fn email(&self, local: &str) -> String {
        format!("{local}.{}@example.com", self.mark)
    }

    pub async fn read(&self, model: &str, id: i64, field: &str) -> Value {
        let all_too = json!({"context": {"active_test": false}});
        let mut rows = self.call(model, "read", json!([[id], [field]]), all_too).await;
        rows[0][field].take()
    }

    pub async fn search(&self, model: &str, domain: Value) -> Value {
        self.call(model, "search", json!([domain]), json!({})).await
    }

    pub async fn with_email(&self, email: &str) -> Vec<i64> {
        let found = self.search("res.partner", json!([["email_normalized", "=", email]])).await;
        found.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
    }

    /// Merges two records as people do it in Odoo's own screens.
    pub async fn merge(&self, model: &str, keep: i64, lose: i64) {
        let Some((uid, password)) = &self.admin else {
            let body = json!({"model": model, "keep": keep, "lose": lose});
            let to = format!("{}/_fake/odoo/merge", self.url);
            let answer = self.http.post(to).json(&body).send().await.expect("an answer");
            assert_eq!(answer.status().as_u16(), 200);
            return;
        };
        let (wizard, values) = match model {
            "res.partner" => (
                "base.partner.merge.automatic.wizard",
                json!({"state": "selection", "partner_ids": [[6, 0, [keep, lose]]], "dst_partner_id": keep}),
            ),
            _ => ("crm.merge.opportunity", json!({"opportunity_ids": [[6, 0, [keep, lose]]]})),
        };
        let admin = (*uid, password.as_str());
        let made = self.as_user(admin, (wizard, "create"), json!([values]), json!({})).await;
        let merge = json!([[made.expect("a wizard")]]);
        self.as_user(admin, (wizard, "action_merge"), merge, json!({})).await.expect("merged");
    }

    /// Shuts the user out, or lets it in again.
    #[allow(dead_code)] // Only a real one has somebody who may.
    pub async fn shut_out(&self, out: bool) {
        let (uid, password) = self.admin.as_ref().expect("an admin");
        let args = json!([[self.uid], {"active": !out}]);
        let call = ("res.users", "write");
        self.as_user((*uid, password), call, args, json!({})).await.expect("written");
    }

    /// Model and id that an external id points at.
    pub async fn points_at(&self, name: &str) -> Value {
        let external = self.external(name);
        let (module, name) = external.split_once('.').unwrap();
        let domain = json!([["module", "=", module], ["name", "=", name]]);
        let rows = self
            .call("ir.model.data", "search_read", json!([domain, ["model", "res_id"]]), json!({}))
            .await;
        match rows.as_array().unwrap().as_slice() {
            [row] => json!([row["model"], row["res_id"]]),
            _ => Value::Null,
        }
    }
}

pub fn ids(result: &Value) -> Vec<i64> {
    assert!(result["ids"].is_array(), "{result}");
    result["ids"].as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

/// Record, field and text of each message of a load that wrote nothing.
fn refused(result: &Value) -> Vec<(Value, Value, String)> {
    assert_eq!(result["ids"], false, "{result}");
    let messages = result["messages"].as_array().unwrap().iter();
    messages
        .filter(|m| m["type"] == "error")
        .map(|m| {
            (m["record"].clone(), m["field"].clone(), m["message"].as_str().unwrap().to_owned())
        })
        .collect()
}

const PARTNER: &str = "res.partner";
const LEAD: &str = "crm.lead";

pub async fn nothing_keeps_an_email_unique(odoo: &Odoo) {
    let email = odoo.email("twice");
    let values = json!({"name": "Twice", "email": email});
    for _ in 0..2 {
        odoo.call(PARTNER, "create", json!([values]), json!({})).await;
    }
    assert_eq!(odoo.with_email(&email).await.len(), 2);
    let good = json!({"name": "Good", "email": odoo.email("good")});
    let bad = json!({"name": "Bad", "type": "nosuch"});
    let raised = odoo.try_call(PARTNER, "create", json!([[good, bad]]), json!({})).await;
    assert_eq!(raised.unwrap_err().name, "builtins.ValueError");
    assert_eq!(odoo.with_email(&odoo.email("good")).await, [0; 0], "one call is one transaction");
}

pub async fn an_external_id_makes_load_repeatable(odoo: &Odoo) {
    let (ana, bo) = (odoo.email("ana"), odoo.email("bo"));
    let first = odoo.partners(&[("a", "Ana", &ana), ("b", "Bo", &bo)]).await;
    let again = odoo.partners(&[("b", "Bo B", &bo), ("a", "Ana A", &ana)]).await;
    assert_eq!(again, [first[1], first[0]], "known ids are updated, in the order of the rows");
    assert_eq!(odoo.read(PARTNER, first[0], "name").await, "Ana A");
    let same =
        odoo.partners(&[("c", "First", &odoo.email("c")), ("c", "Last", &odoo.email("c"))]).await;
    assert_eq!(same[0], same[1]);
    assert_eq!(odoo.read(PARTNER, same[0], "name").await, "Last");
    assert_eq!(odoo.points_at("a").await, json!([PARTNER, first[0]]));
    let nothing = odoo.load(PARTNER, &["id", "name"], json!([])).await;
    assert_eq!(nothing["ids"], json!([]));
}

pub async fn a_column_is_kept_cleared_or_written(odoo: &Odoo) {
    let id = odoo.partners(&[("p", "P", &odoo.email("p"))]).await[0];
    let by_id = async |columns: &[&str], row: Value| {
        let mut all = vec![".id"];
        all.extend(columns);
        let mut cells = vec![json!(id.to_string())];
        cells.extend(row.as_array().unwrap().clone());
        ids(&odoo.load(PARTNER, &all, json!([cells])).await)
    };
    assert_eq!(by_id(&["phone", "city"], json!(["+55 11 4002-8922", "Rio"])).await, [id]);
    by_id(&["city"], json!(["Porto"])).await;
    assert_eq!(odoo.read(PARTNER, id, "phone").await, "+55 11 4002-8922", "not named, kept");
    for nothing in [json!(""), json!(false), Value::Null] {
        by_id(&["phone"], json!(["1"])).await;
        by_id(&["phone"], json!([nothing])).await;
        assert_eq!(odoo.read(PARTNER, id, "phone").await, false, "{nothing} clears");
    }
    for (cell, country) in [("Brazil", "Brazil"), ("PT", "Portugal")] {
        by_id(&["country_id"], json!([cell])).await;
        assert_eq!(odoo.read(PARTNER, id, "country_id").await[1], country);
    }
    by_id(&["country_id/id"], json!(["base.br"])).await;
    assert_eq!(odoo.read(PARTNER, id, "country_id").await[1], "Brazil");
    for (cell, is) in [("true", true), ("0", false), ("Yes", true), ("no", false)] {
        by_id(&["is_company"], json!([cell])).await;
        assert_eq!(odoo.read(PARTNER, id, "is_company").await, is, "{cell}");
    }
    by_id(&["type", "date"], json!(["Other Address", "2026-11-30"])).await;
    assert_eq!(odoo.read(PARTNER, id, "type").await, "other", "the label does as well");
    assert_eq!(odoo.read(PARTNER, id, "date").await, "2026-11-30");
}

pub async fn what_is_wrong_comes_as_messages_and_undoes_all(odoo: &Odoo) {
    let (good, bad) = (odoo.email("fine"), odoo.email("bad"));
    let row = |n: usize, cell: &str| json!([odoo.external(&format!("w{n}")), "W", cell]);
    for (column, cell, text) in [
        ("type", "nosuch", "Value 'nosuch' not found in selection field 'Address Type'"),
        ("country_id", "Narnia", "No matching record found for name 'Narnia' in field 'Country'"),
        ("color", "abc", "'abc' does not seem to be an integer for field 'Color Index'"),
        ("date", "30/11/2026", "'30/11/2026' does not seem to be a valid date for field 'Date'"),
    ] {
        let rows = json!([row(0, ""), row(1, cell), row(2, "")]);
        let result = odoo.load(PARTNER, &["id", "name", column], rows).await;
        assert_eq!(refused(&result), [(json!(1), json!(column), text.to_owned())]);
    }
    let nameless = json!([[odoo.external("w3"), "", bad], [odoo.external("w4"), "W", good]]);
    let result = odoo.load(PARTNER, &["id", "name", "email"], nameless).await;
    assert_eq!(refused(&result), [(json!(0), Value::Null, "'Contacts require a name'".to_owned())]);
    assert_eq!(odoo.with_email(&good).await, [0; 0], "rolled back");
    let untitled = json!([[odoo.external("w5"), odoo.email("lead")]]);
    let result = odoo.load(LEAD, &["id", "email_from"], untitled).await;
    let text = "Missing required value for the field 'Opportunity' (name)".to_owned();
    assert_eq!(refused(&result), [(json!(0), json!("name"), text)]);
    let nul = json!([[odoo.external("w6"), "a\0b"]]);
    let said = refused(&odoo.load(PARTNER, &["id", "name"], nul).await);
    assert!(said[0].2.starts_with("Unknown error during import: <class 'ValueError'>"), "{said:?}");
    let many: Vec<Value> = (0..30).map(|n| row(n, "nosuch")).collect();
    let result = odoo.load(PARTNER, &["id", "name", "type"], json!(many)).await;
    assert_eq!(refused(&result).len(), 30, "all that cannot be read");
    let many: Vec<Value> = (0..30).map(|n| json!([odoo.external(&format!("w{n}")), ""])).collect();
    let result = odoo.load(PARTNER, &["id", "name"], json!(many)).await;
    assert_eq!(refused(&result).len(), 10, "of what cannot be written, ten");
    let last = result["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["type"], "warning");
    assert!(last["record"].is_null());
}

pub async fn a_warning_is_written(odoo: &Odoo) {
    let rows = json!([[odoo.external("maybe"), "M", "maybe"]]);
    let result = odoo.load(PARTNER, &["id", "name", "is_company"], rows).await;
    let id = ids(&result)[0];
    let message = &result["messages"][0];
    assert_eq!(
        (&message["type"], &message["field"], &message["record"]),
        (&json!("warning"), &json!("is_company"), &json!(0))
    );
    assert_eq!(odoo.read(PARTNER, id, "is_company").await, true, "whatever the word was");
}

pub async fn an_unknown_column_is_an_exception(odoo: &Odoo) {
    let rows = json!([[odoo.external("n"), "N", "x"]]);
    let load = json!([["id", "name", "nosuch"], rows]);
    let raised = odoo.try_call(PARTNER, "load", load, json!({})).await.unwrap_err();
    assert_eq!(
        raised,
        Raised { name: "builtins.KeyError".to_owned(), message: "nosuch".to_owned() }
    );
    let read = json!([[], ["nosuch"]]);
    let raised = odoo.try_call(PARTNER, "search_read", read, json!({})).await.unwrap_err();
    assert_eq!(raised.message, "Invalid field 'nosuch' on model 'res.partner'");
    assert_eq!(raised.name, "builtins.ValueError");
}

pub async fn a_record_that_is_gone(odoo: &Odoo) {
    let emails = [odoo.email("kept"), odoo.email("gone")];
    let made = odoo.partners(&[("kept", "K", &emails[0]), ("gone", "G", &emails[1])]).await;
    odoo.call(PARTNER, "unlink", json!([[made[1]]]), json!({})).await;
    assert_eq!(odoo.points_at("gone").await, Value::Null, "its external id goes with it");
    let rows = json!([[made[0].to_string(), "K2"], [made[1].to_string(), "G2"]]);
    let said = refused(&odoo.load(PARTNER, &[".id", "name"], rows).await);
    let text = format!("Unknown database identifier '{}'", made[1]);
    assert_eq!(said, [(json!(1), json!(".id"), text)]);
    assert_eq!(odoo.read(PARTNER, made[0], "name").await, "K", "rolled back");
    let again = odoo.partners(&[("gone", "G", &emails[1])]).await;
    assert_ne!(again[0], made[1], "the external id makes it anew");
    let write = json!([[made[1]], {"name": "x"}]);
    let raised = odoo.try_call(PARTNER, "write", write, json!({})).await.unwrap_err();
    assert_eq!(raised.name, "odoo.exceptions.MissingError");
}

pub async fn an_archived_record(odoo: &Odoo) {
    let email = odoo.email("archived");
    let id = odoo.partners(&[("old", "Old", &email)]).await[0];
    odoo.call(PARTNER, "write", json!([[id], {"active": false}]), json!({})).await;
    assert_eq!(odoo.with_email(&email).await, [0; 0], "not found as it is");
    let all_too = json!({"context": {"active_test": false}});
    let domain = json!([[["email_normalized", "in", [email]]], ["active"]]);
    let found = odoo.call(PARTNER, "search_read", domain, all_too.clone()).await;
    assert_eq!(found, json!([{"id": id, "active": false}]));
    let load = json!([[".id", "name"], [[id.to_string(), "Older"]]]);
    let said = refused(&odoo.call(PARTNER, "load", load.clone(), json!({})).await);
    assert_eq!(said[0].1, ".id", "unknown, where archived ones do not count");
    assert_eq!(ids(&odoo.call(PARTNER, "load", load, all_too).await), [id]);
    odoo.partners(&[("old", "Oldest", &email)]).await;
    assert_eq!(odoo.read(PARTNER, id, "name").await, "Oldest", "by external id it is found");
    assert_eq!(odoo.read(PARTNER, id, "active").await, false, "and stays archived");
}

pub async fn a_merge_of_partners_moves_the_external_id(odoo: &Odoo) {
    let emails = [odoo.email("win"), odoo.email("lose")];
    let made = odoo.partners(&[("win", "Win", &emails[0]), ("lose", "Lose", &emails[1])]).await;
    odoo.merge(PARTNER, made[0], made[1]).await;
    assert_eq!(odoo.points_at("lose").await, json!([PARTNER, made[0]]));
    let rows = json!([[made[1].to_string(), "L"]]);
    assert_eq!(refused(&odoo.load(PARTNER, &[".id", "name"], rows).await)[0].1, ".id");
    assert_eq!(odoo.partners(&[("lose", "Lose", &emails[1])]).await, [made[0]]);
}

pub async fn a_merge_of_leads_drops_it(odoo: &Odoo) {
    let row = |name: &str| json!([odoo.external(name), "Lead", odoo.email(name)]);
    let rows = json!([row("first"), row("second")]);
    let made = ids(&odoo.load(LEAD, &["id", "name", "email_from"], rows).await);
    odoo.merge(LEAD, made[0], made[1]).await;
    assert_eq!(odoo.points_at("first").await, json!([LEAD, made[0]]));
    assert_eq!(odoo.points_at("second").await, Value::Null);
}

pub async fn a_new_lead_has_the_caller_as_salesperson(odoo: &Odoo) {
    let make = async |name: &str, context: Value| {
        let rows = json!([[odoo.external(name), "Lead", odoo.email(name)]]);
        let load = json!([["id", "name", "email_from"], rows]);
        ids(&odoo.call(LEAD, "load", load, json!({"context": context})).await)[0]
    };
    let mine = make("mine", json!({})).await;
    assert_eq!(odoo.read(LEAD, mine, "user_id").await[0], odoo.uid);
    let nobodys = make("nobodys", json!({"default_user_id": false})).await;
    assert_eq!(
        odoo.read(LEAD, nobodys, "user_id").await,
        false,
        "unless the context says otherwise"
    );
    make("mine", json!({"default_user_id": false})).await;
    assert_eq!(odoo.read(LEAD, mine, "user_id").await[0], odoo.uid, "defaults are for new ones");
}

pub async fn addresses_are_normalized(odoo: &Odoo) {
    let mark = &odoo.mark;
    for (typed, normalized) in [
        (format!("Ana.{mark}@Example.COM"), json!(format!("ana.{mark}@example.com"))),
        (format!("Ana <n.{mark}@example.com>"), json!(format!("n.{mark}@example.com"))),
        (format!(" sp.{mark}@example.com "), json!(format!("sp.{mark}@example.com"))),
        (format!("o'neil+tag.{mark}@x.com"), json!(format!("o'neil+tag.{mark}@x.com"))),
        (format!("a.{mark}@x.com, b.{mark}@x.com"), json!(false)),
        ("junk".to_owned(), json!(false)),
    ] {
        let id = odoo.partners(&[("typed", "T", &typed)]).await[0];
        assert_eq!(odoo.read(PARTNER, id, "email_normalized").await, normalized, "{typed}");
        let exact = odoo.search(PARTNER, json!([["email", "=", typed.to_uppercase()]])).await;
        assert_eq!(exact, json!([]), "= knows upper from lower case");
    }
}

pub async fn who_may_not(odoo: &Odoo) {
    let one = json!([]);
    let denied = Raised {
        name: "odoo.exceptions.AccessDenied".to_owned(),
        message: "Access Denied".to_owned(),
    };
    let call = (PARTNER, "search");
    let wrong = odoo.as_user((odoo.uid, "wrong"), call, json!([one]), json!({})).await;
    assert_eq!(wrong.unwrap_err(), denied);
    let other = odoo.as_user((2, &odoo.key), call, json!([one]), json!({})).await;
    assert_eq!(other.unwrap_err(), denied, "a key is good for its own user");
    let nobody = odoo.as_user((odoo.uid + 1000, &odoo.key), call, json!([one]), json!({})).await;
    let raised = nobody.unwrap_err();
    assert_eq!(raised.name, "odoo.exceptions.MissingError");
    assert!(raised.message.contains("(Record: res.users("), "{raised:?}");
    let login = json!([odoo.database, odoo.login, odoo.key, {}]);
    let uid = odoo.service("common", "authenticate", login).await;
    assert_eq!(uid, Ok(json!(odoo.uid)));
    let login = json!([odoo.database, odoo.login, "wrong", {}]);
    assert_eq!(odoo.service("common", "authenticate", login).await, Ok(json!(false)));
    let elsewhere = json!(["nosuchdb", odoo.login, odoo.key, {}]);
    let raised = odoo.service("common", "authenticate", elsewhere).await.unwrap_err();
    assert_eq!(raised.name, "psycopg2.OperationalError");
    assert!(raised.message.contains("database \"nosuchdb\" does not exist"), "{raised:?}");
    let version = odoo.service("common", "version", json!([])).await.unwrap();
    assert!(version["server_version_info"][0].is_number());
}

pub async fn what_is_not_there(odoo: &Odoo) {
    let raised = odoo.try_call("no.model", "search", json!([[]]), json!({})).await.unwrap_err();
    let message = "Object no.model doesn't exist".to_owned();
    assert_eq!(raised, Raised { name: "odoo.exceptions.UserError".to_owned(), message });
    let raised = odoo.try_call(PARTNER, "nosuch", json!([]), json!({})).await.unwrap_err();
    assert_eq!(raised.name, "builtins.AttributeError");
    let raised = odoo.try_call(PARTNER, "create", json!([{"name": "x", "nosuch": "y"}]), json!({}));
    assert_eq!(raised.await.unwrap_err().message, "Invalid field 'nosuch' on model 'res.partner'");
}

pub async fn fields_and_rights_can_be_asked_for(odoo: &Odoo) {
    let wanted = ["name", "email_normalized", "country_id", "type", "is_company", "nosuch"];
    let attributes =
        json!({"attributes": ["type", "readonly", "required", "relation", "selection"]});
    let fields = odoo.call(PARTNER, "fields_get", json!([wanted]), attributes).await;
    let fields: &Map<String, Value> = fields.as_object().unwrap();
    assert_eq!(fields.len(), 5, "an unknown one is left out");
    assert_eq!(fields["email_normalized"]["readonly"], true);
    assert_eq!(
        fields["country_id"],
        json!({
            "type": "many2one", "readonly": false, "required": false, "relation": "res.country",
        })
    );
    assert_eq!(fields["is_company"]["type"], "boolean");
    assert_eq!(fields["type"]["selection"][0], json!(["contact", "Contact"]));
    for model in [PARTNER, LEAD] {
        for right in ["read", "write", "create"] {
            let asked = json!([right, false]);
            assert_eq!(odoo.call(model, "check_access_rights", asked, json!({})).await, true);
        }
    }
}

pub async fn searches_are_paged(odoo: &Odoo) {
    let emails: Vec<String> = (0..5).map(|n| odoo.email(&format!("page{n}"))).collect();
    let names: Vec<String> = (0..5).map(|n| format!("page{n}")).collect();
    let rows: Vec<(&str, &str, &str)> = names
        .iter()
        .zip(&emails)
        .map(|(name, email)| (name.as_str(), "Page", email.as_str()))
        .collect();
    let made = odoo.partners(&rows).await;
    let domain = json!([["id", ">", made[0]], ["email_normalized", "in", emails]]);
    let page = json!({"fields": ["email_normalized"], "limit": 2, "order": "id"});
    let found = odoo.call(PARTNER, "search_read", json!([domain]), page).await;
    let expected = |n: usize| json!({"id": made[n], "email_normalized": emails[n]});
    assert_eq!(found, json!([expected(1), expected(2)]));
    let either = json!(["|", ["id", "in", [made[0]]], ["email_normalized", "in", [emails[4]]]]);
    let by_id = json!({"order": "id"});
    let found = odoo.call(PARTNER, "search", json!([either]), by_id).await;
    assert_eq!(found, json!([made[0], made[4]]), "of itself the order is any");
}

pub async fn what_is_no_call_is_a_page(odoo: &Odoo) {
    let post = async |kind: &str, body: &str| {
        let request = odoo.http.post(format!("{}/jsonrpc", odoo.url)).header("content-type", kind);
        let answer = request.body(body.to_owned()).send().await.unwrap();
        let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
        (answer.status().as_u16(), kind, answer.text().await.unwrap())
    };
    for (kind, body, status, says) in [
        ("application/json", "{", 400, "Invalid JSON data"),
        ("text/plain", "{}", 400, "CSRF"),
        ("application/json", "[]", 500, "Internal Server Error"),
    ] {
        let (got, kind, text) = post(kind, body).await;
        assert_eq!((got, kind.as_str()), (status, "text/html; charset=utf-8"), "{body}");
        assert!(text.contains(says), "{text}");
    }
    let (status, _, text) = post("application/json", "{\"jsonrpc\":\"2.0\",\"id\":5}").await;
    assert!(status == 200 && text.contains("builtins.TypeError"), "{text}");
}
