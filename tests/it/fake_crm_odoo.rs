//! The stand-in Odoo: the cases that a real one is held to as well, and what only a stand-in can do.

use leadsync::fake_crm::odoo::User;
use leadsync::fake_crm::{Crm, FakeCrm, Fault, Options};
use serde_json::{Value, json};

use crate::odoo_cases::{self as cases, Odoo};

/// A stand-in with one user.
async fn stand_in() -> (FakeCrm, Odoo) {
    let mut options = Options::default();
    options.odoo.users = vec![User::good("leadsync", "key"), weak()];
    let fake = FakeCrm::on_free_port(options).await.unwrap();
    let odoo = Odoo {
        url: fake.url(),
        database: "crm".to_owned(),
        login: "leadsync".to_owned(),
        uid: 6,
        key: "key".to_owned(),
        admin: None,
        mark: "t".to_owned(),
        http: cases::http(),
    };
    (fake, odoo)
}

fn weak() -> User {
    User { uid: 7, read_only: true, ..User::good("weak", "weak-key") }
}

macro_rules! held_to {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            let (_fake, odoo) = stand_in().await;
            cases::$case(&odoo).await;
        }
    )*};
}

held_to!(
    a_column_is_kept_cleared_or_written,
    a_merge_of_leads_drops_it,
    a_merge_of_partners_moves_the_external_id,
    a_new_lead_has_the_caller_as_salesperson,
    a_record_that_is_gone,
    a_warning_is_written,
    addresses_are_normalized,
    an_archived_record,
    an_external_id_makes_load_repeatable,
    an_unknown_column_is_an_exception,
    fields_and_rights_can_be_asked_for,
    nothing_keeps_an_email_unique,
    searches_are_paged,
    what_is_no_call_is_a_page,
    what_is_not_there,
    what_is_wrong_comes_as_messages_and_undoes_all,
    who_may_not,
);

#[tokio::test]
async fn a_user_without_the_right_is_told_so_in_messages() {
    let (_fake, mut odoo) = stand_in().await;
    (odoo.uid, odoo.key) = (7, "weak-key".to_owned());
    let result = odoo.load("res.partner", &["id", "name"], json!([["leadsync.x", "X"]])).await;
    let message = result["messages"][0]["message"].as_str().unwrap();
    let class = "Unknown error during import: <class 'odoo.exceptions.AccessError'>: ";
    assert!(message.starts_with(class), "{message}");
    assert!(message.contains("not allowed to create 'Contact' (res.partner) records"), "{message}");
    for (right, may) in [("read", true), ("write", false), ("create", false)] {
        let asked = json!([right, false]);
        let answer = odoo.call("crm.lead", "check_access_rights", asked, json!({})).await;
        assert_eq!(answer, may, "{right}");
    }
}

#[tokio::test]
async fn who_loses_a_race_is_told_in_a_message() {
    let (fake, odoo) = stand_in().await;
    fake.script(Fault::Conflict);
    let row = json!([["leadsync.race", "R", "race@example.com"]]);
    let result = odoo.load("res.partner", &["id", "name", "email"], row.clone()).await;
    assert_eq!(result["ids"], false);
    let text = "could not serialize access due to concurrent update\n";
    assert_eq!(result["messages"][0]["message"], text);
    let again = odoo.load("res.partner", &["id", "name", "email"], row).await;
    assert_eq!(cases::ids(&again), [1], "somebody else had made it");
    assert_eq!(fake.creates_per_email(Crm::Odoo)["race@example.com"], 1);
}

#[tokio::test]
async fn one_external_id_of_two_models_is_pointed_elsewhere() {
    let (_fake, odoo) = stand_in().await;
    let row = json!([["leadsync.same", "Same"]]);
    odoo.load("res.partner", &["id", "name"], row.clone()).await;
    odoo.load("crm.lead", &["id", "name"], row).await;
    let domain = json!([[["name", "=", "same"]], ["model"]]);
    let found = odoo.call("ir.model.data", "search_read", domain, json!({})).await;
    assert_eq!(found[0]["model"], "crm.lead");
}

#[tokio::test]
async fn json2_has_named_arguments_and_statuses() {
    let (fake, odoo) = stand_in().await;
    let post = async |path: &str, key: &str, body: Value| {
        let request = odoo.http.post(format!("{}/json/2/{path}", odoo.url));
        let request = request.header("authorization", format!("bearer {key}"));
        let answer = request.header("x-odoo-database", "crm").json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let load = json!({"fields": ["id", "name", "email"], "data": [["leadsync.a", "A", "A@x.com"]]});
    assert_eq!(post("res.partner/load", "key", load.clone()).await.1["ids"], json!([1]));
    let read = json!({"domain": [["email_normalized", "=", "a@x.com"]], "fields": ["name"]});
    let read = post("res.partner/search_read", "key", read).await;
    assert_eq!(read, (200, json!([{"id": 1, "name": "A"}])));
    let write = json!({"ids": [1], "vals": {"phone": "5"}});
    assert_eq!(post("res.partner/write", "key", write).await, (200, json!(true)));
    for (path, key, status, name) in [
        ("res.partner/load", "wrong", 401, "werkzeug.exceptions.Unauthorized"),
        ("res.partner/nosuch", "key", 500, "builtins.AttributeError"),
        ("no.model/load", "key", 422, "odoo.exceptions.UserError"),
        ("res.partner/write", "weak-key", 403, "odoo.exceptions.AccessError"),
        ("res.partner", "key", 404, "werkzeug.exceptions.NotFound"),
    ] {
        let (got, body) = post(path, key, load.clone()).await;
        assert_eq!((got, &body["name"]), (status, &json!(name)), "{path}");
    }
    let mut options = fake.options();
    options.odoo.json2 = false;
    fake.set_options(options);
    let url = format!("{}/json/2/res.partner/load", odoo.url);
    assert_eq!(odoo.http.post(url).json(&load).send().await.unwrap().status().as_u16(), 404);
}

#[tokio::test]
async fn contacts_are_shown_and_people_act() {
    let (fake, odoo) = stand_in().await;
    let act = async |action: &str, body: Value| {
        let url = format!("{}/_fake/odoo/{action}", odoo.url);
        let answer = odoo.http.post(url).json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let made = act("create", json!({"values": {"name": "Ana", "email": "Ana@x.com"}})).await;
    assert_eq!(made, (200, json!({"id": 1})));
    act("create", json!({"values": {"name": "Ana too", "email": "ana@x.com"}})).await;
    assert_eq!(fake.doubles(Crm::Odoo), 1);
    act("edit", json!({"id": "1", "values": {"city": "Rio"}})).await;
    act("archive", json!({"id": 2})).await;
    let lead = json!({"model": "crm.lead", "values": {"name": "L", "email_from": "l@x.com"}});
    act("create", lead).await;
    let contacts = fake.contacts(Crm::Odoo);
    let shown: Vec<_> = contacts.iter().map(|c| (c.id.as_str(), c.archived)).collect();
    assert_eq!(shown, [("1", false), ("2", true), ("crm.lead,1", false)]);
    assert_eq!(
        (contacts[0].email.as_str(), &*contacts[0].properties["city"]),
        ("ana@x.com", "Rio")
    );
    act("delete", json!({"id": 1})).await;
    act("delete", json!({"model": "crm.lead", "id": "crm.lead,1"})).await;
    assert_eq!(fake.contacts(Crm::Odoo).len(), 1);
    assert_eq!(act("delete", json!({"id": 1})).await.0, 404);
    assert_eq!(act("nosuch", json!({"id": 2})).await.0, 404);
}
