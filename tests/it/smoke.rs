//! The shortest way through: one delivery, one row, one contact.

use leadsync::fake_crm::Crm;
use serde_json::json;

use crate::support::app::TestApp;

#[tokio::test]
async fn one_delivery_becomes_one_contact_and_a_repeat_nothing() {
    let app = TestApp::receiving().await;
    let lead = json!({
        "email": " Ana@Example.com ", "occurred_at": "2026-03-05T14:22:10Z", "first_name": "Ana",
        "phone": "+5511912345678", "tags": ["vip"], "attributes": {"budget": "10k"},
        "utm_source": "newsletter", "marketing_consent": true
    });
    let (status, created) = app.deliver(&lead).await;
    assert_eq!((status, created["outcome"].as_str()), (200, Some("created")), "{created}");
    let (status, repeat) = app.deliver(&lead).await;
    assert_eq!((status, repeat["outcome"].as_str()), (200, Some("unchanged")), "{repeat}");
    assert_eq!(created["lead_id"], repeat["lead_id"]);

    let done = app.drain().await;
    assert_eq!((done.pushed, done.calls), (1, 1));
    let contacts = app.crm.contacts(Crm::Hubspot);
    assert_eq!(contacts.len(), 1);
    assert_eq!(contacts[0].email, "ana@example.com");
    assert_eq!(contacts[0].properties["firstname"], "Ana");

    let (status, view) = app.get("/v1/leads/ANA@example.com").await;
    assert_eq!(status, 200, "{view}");
    assert_eq!(view["version"], 1);
    assert_eq!(view["lead"]["attributes"]["budget"], "10k");
    assert_eq!(view["origin"]["phone"]["occurred_at"], "2026-03-05T14:22:10Z");
    assert_eq!(view["origin"]["phone"]["source"], "site");
    assert_eq!(view["destinations"][0]["state"], "synced");
    assert_eq!(view["destinations"][0]["confirmed_version"], 1);
    assert_eq!(view["destinations"][0]["remote_id"], contacts[0].id);

    let again = app.drain().await;
    assert_eq!(again.calls, 0);
    let (crm, _) = app.stop().await;
    assert_eq!(crm.creates_per_email(Crm::Hubspot)["ana@example.com"], 1);
}
