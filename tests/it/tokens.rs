//! Refresh tokens that a CRM replaces at each use: neither a restart, nor another instance, nor `leadsync check` locks
//! anybody out.

use std::sync::Arc;

use leadsync::app::{self, Roles};
use leadsync::config::Config;
use leadsync::destinations::CallError;
use leadsync::fake_crm::salesforce::Act;
use leadsync::fake_crm::{FakeCrm, Options};
use leadsync::sync::Configured;

use crate::support::app::TestApp;
use crate::support::db::TestDb;
use crate::sync::{Rig, leads, settings};

/// A service with one Salesforce account whose refresh tokens are good once.
async fn rotating() -> Rig {
    let mut options = Options::default();
    options.salesforce.refresh_token = Some("r0".to_owned());
    options.salesforce.rotate_refresh_tokens = true;
    options.salesforce.client_credentials = false;
    let crm = Arc::new(FakeCrm::on_free_port(options).await.expect("stand-in"));
    let config = format!(
        "[[destination]]\nname = \"crm\"\nkind = \"salesforce\"\nclient_id = \"app\"\nclient_secret = \"s\"\n\
         refresh_token = \"r0\"\nrate = \"10000/1s\"\nbase_url = \"{}\"\n",
        crm.url()
    );
    let roles = Roles { receive: true, sync: false };
    let app = TestApp::start_on(Arc::new(TestDb::new().await), crm, &config, roles).await;
    Rig::on(app, "crm", settings()).await
}

/// What a process that starts now works with.
fn started(rig: &Rig, config: &Config) -> Configured {
    let built = app::destinations_on(config, &rig.app.store).expect("destinations");
    built.into_iter().find(|d| d.name == "crm").expect("its name")
}

async fn checks(destination: &Configured) -> Result<Vec<String>, CallError> {
    destination.destination.check(&destination.fields).await
}

/// Every session ends, so that the next call needs the refresh token.
fn log_out(rig: &Rig) {
    rig.app.crm.salesforce(&Act::EndSessions).expect("sessions end");
}

#[tokio::test]
async fn a_restart_goes_on_with_the_newest() {
    let rig = rotating().await;
    let config = rig.app.config.clone();
    for _ in 0..3 {
        let process = started(&rig, &config);
        assert!(checks(&process).await.is_ok());
        log_out(&rig);
        assert!(checks(&process).await.is_ok(), "the same process");
        log_out(&rig);
    }
    let forgetful = app::destinations(&config).expect("destinations");
    let forgetful = forgetful.into_iter().find(|d| d.name == "crm").expect("its name");
    let refused = checks(&forgetful).await;
    assert!(matches!(refused, Err(CallError::Credentials { .. })), "the control: {refused:?}");

    // Whoever reads the database cannot use it.
    let kept =
        "select encode(sealed_token, 'escape') from leadsync.destinations where name = 'crm'";
    let kept = rig.app.value::<String>(kept).await;
    assert!(kept.len() > 20 && !kept.contains("5Aep"), "{kept}");

    // New credentials in the configuration win over what was kept with the old ones.
    let mut options = rig.app.crm.options();
    options.salesforce.rotate_refresh_tokens = false;
    options.salesforce.refresh_token = Some("r0".to_owned());
    rig.app.crm.set_options(options);
    let mut other = config.clone();
    let crm = other.destinations.iter_mut().find(|d| d.name == "crm").expect("its name");
    crm.refresh_token = Some(leadsync::secret::Secret::new("new"));
    assert!(matches!(checks(&started(&rig, &other)).await, Err(CallError::Credentials { .. })));
}

#[tokio::test]
async fn instances_take_the_newest_of_each_other() {
    let rig = rotating().await;
    let config = rig.app.config.clone();
    let (one, two) = (started(&rig, &config), started(&rig, &config));
    for _ in 0..2 {
        assert!(checks(&one).await.is_ok());
        log_out(&rig);
        assert!(checks(&two).await.is_ok());
        log_out(&rig);
    }
}

#[tokio::test]
async fn a_check_beside_the_service_keeps_what_it_was_given() {
    let mut rig = rotating().await;
    rig.destination = started(&rig, &rig.app.config);
    let findings = app::check(&rig.app.config).await;
    let wrong: Vec<_> =
        findings.iter().filter(|f| f.about == "destination crm" && !f.right).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    log_out(&rig);
    rig.deliver(&leads(2, 1)).await;
    assert_eq!(rig.drain().await.pushed, 2, "the service goes on with it");

    // Where nothing can be kept, nothing is asked for.
    let mut nowhere = rig.app.config.clone();
    nowhere.database.url = None;
    nowhere.data_dir = std::env::temp_dir().join("leadsync-no-such-folder");
    let asked = rig.app.crm.summary().calls;
    let findings = app::check(&nowhere).await;
    let crm = findings.iter().find(|f| f.about == "destination crm").expect("a finding");
    assert!(!crm.right && crm.sentence.contains("leadsync migrate"), "{crm:?}");
    let others = 2;
    assert!(rig.app.crm.summary().calls <= asked + others, "the other destination's check at most");
}

#[tokio::test]
async fn what_could_not_be_kept_is_kept_with_the_next_one() {
    let rig = rotating().await;
    let config = rig.app.config.clone();
    let process = started(&rig, &config);
    assert!(checks(&process).await.is_ok());
    let lock =
        "alter table leadsync.destinations add constraint locked check (name <> 'crm') not valid";
    rig.sql.batch_execute(lock).await.expect("nothing can be written");
    for _ in 0..2 {
        log_out(&rig);
        assert!(checks(&process).await.is_ok(), "it lives in memory");
    }
    let unlock = "alter table leadsync.destinations drop constraint locked";
    rig.sql.batch_execute(unlock).await.expect("it can be written again");
    log_out(&rig);
    assert!(checks(&process).await.is_ok());
    log_out(&rig);
    assert!(checks(&started(&rig, &config)).await.is_ok(), "and after a restart");
}
