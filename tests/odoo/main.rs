//! Against a real Odoo: `make test-odoo`.

use std::collections::BTreeMap;

use cases::Odoo;

mod cases;
// Made for more than is needed here.
#[allow(dead_code)]
mod support;
mod through_sync;

/// Where `tests/odoo/server.sh` keeps the server.
fn folder() -> String {
    std::env::var("LEADSYNC_TEST_ODOO").expect("run `make test-odoo`")
}

/// Has `tests/odoo/server.sh` do something with the server.
async fn server(what: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/odoo/server.sh");
    let done = tokio::process::Command::new(script).arg(what).arg(folder()).status().await;
    assert!(done.expect("bash").success(), "{what}");
}

fn settings() -> BTreeMap<String, String> {
    let folder = folder();
    let text = std::fs::read_to_string(format!("{folder}/settings")).expect("settings");
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn odoo(mark: &str) -> Odoo {
    let settings = settings();
    let now = jiff::Timestamp::now().as_millisecond();
    Odoo {
        url: settings["url"].clone(),
        database: settings["database"].clone(),
        login: settings["login"].clone(),
        uid: settings["uid"].parse().expect("uid"),
        key: settings["key"].clone(),
        admin: Some((2, "admin".to_owned())),
        mark: format!("{mark}{now}"),
        http: cases::http(),
    }
}

macro_rules! held_to {
    ($($case:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $case() {
            cases::$case(&odoo(stringify!($case))).await;
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
