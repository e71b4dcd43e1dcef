//! What the demo delivers: people with several events from several sources, each event delivered once or
//! more, at once or later, in any order, in any letter case.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{self, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use serde_json::json;
use sha2::Sha256;

use crate::cli::Failure;

pub(super) const SITE_SECRET: &str = "demo-typeform-secret";
pub(super) const SHOP_SECRET: &str = "demo-shopify-secret";
pub(super) const ADS_KEY: &str = "demo-ads-key";

/// Deliveries under way at once.
const AT_ONCE: usize = 64;

/// A sender that gets no proper answer delivers again, this often at most.
const TRIES: u32 = 20;

/// One event of one person, as its source sends it.
pub(super) struct Event {
    pub id: String,
    /// Normalised address, as a careful handler would make it.
    pub email: String,
    pub first_name: String,
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: String,
}

/// Events, and the order in which copies of them are delivered.
pub(super) struct Plan {
    pub events: Vec<Event>,
    /// Indices into `events`.
    pub deliveries: Vec<usize>,
}

const FIRST: [&str; 12] = [
    "Ana", "Bruno", "Chiara", "Dmitri", "Eun-ji", "Fatima", "Günther", "Hiro", "Inês", "João",
    "Kofi", "Łucja",
];
const LAST: [&str; 8] =
    ["Albuquerque", "da Silva", "Müßig", "Boateng", "O'Neill", "Sato", "van Dijk", "Nowak"];

/// The address of a person.
pub(super) fn email(person: u32) -> String {
    format!("person.{person}@example.com")
}

impl Plan {
    /// The same seed gives the same plan.
    pub fn new(people: u32, seed: u64) -> Plan {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut events = Vec::new();
        for person in 0..people {
            for number in 0..rng.random_range(1..=3) {
                events.push(event(&mut rng, person, number));
            }
        }
        let mut deliveries = Vec::new();
        for event in 0..events.len() {
            // A third is delivered once; the rest again: half of that at the same instant.
            let copies = [1, 2, 2, 3, 3, 4][rng.random_range(0..6)];
            deliveries.extend(std::iter::repeat_n((rng.random::<u32>(), event), copies));
            if rng.random_bool(0.5) {
                let at = deliveries.len() - copies;
                let instant = deliveries[at].0;
                deliveries[at..].iter_mut().for_each(|d| d.0 = instant);
            } else {
                let at = deliveries.len() - copies;
                deliveries[at..].iter_mut().for_each(|d| d.0 = rng.random());
            }
        }
        deliveries.shuffle(&mut rng);
        deliveries.sort_by_key(|(at, _)| *at);
        Plan { events, deliveries: deliveries.into_iter().map(|(_, event)| event).collect() }
    }
}

/// The address as people type it.
fn typed(rng: &mut impl Rng, email: &str) -> String {
    match rng.random_range(0..4) {
        0 => email.to_uppercase(),
        1 => format!("  {email} "),
        2 => email.replacen('p', "P", 1),
        _ => email.to_owned(),
    }
}

fn signature(secret: &str, body: &str) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else {
        return String::new();
    };
    mac.update(body.as_bytes());
    STANDARD.encode(mac.finalize().into_bytes())
}

fn event(rng: &mut StdRng, person: u32, number: u32) -> Event {
    let email = email(person);
    let first_name = FIRST[person as usize % FIRST.len()].to_owned();
    let last_name = LAST[person as usize % LAST.len()];
    let typed = typed(rng, &email);
    let id = format!("evt-{person}-{number}");
    // Up to 30 days of seconds after 2026-03-01.
    let at = jiff::Timestamp::from_second(1_772_323_200 + rng.random_range(0..2_592_000))
        .unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    match rng.random_range(0..3) {
        0 => {
            let body = json!({
                "event_id": id, "event_type": "form_response",
                "form_response": {
                    "form_id": "demo", "token": id, "submitted_at": at.to_string(),
                    "hidden": {"utm_source": "newsletter", "utm_campaign": format!("week-{number}")},
                    "definition": {"id": "demo", "title": "Talk to us", "fields": []},
                    "answers": [
                        {"type": "email", "email": typed, "field": {"id": "a", "type": "email", "ref": "email"}},
                        {"type": "text", "text": first_name, "field": {"id": "b", "type": "short_text", "ref": "first_name"}},
                        {"type": "phone_number", "phone_number": format!("+1206555{:04}", person % 10_000),
                         "field": {"id": "c", "type": "phone_number", "ref": "phone"}}
                    ]
                }
            })
            .to_string();
            let signature = format!("sha256={}", signature(SITE_SECRET, &body));
            let headers = vec![("typeform-signature", signature)];
            Event { id, email, first_name, path: "/hooks/site", headers, body }
        }
        1 => {
            let body = json!({
                "id": 706_405_506_930_000_000_u64 + u64::from(person), "email": typed,
                "created_at": at.to_string(), "updated_at": at.to_string(),
                "first_name": first_name, "last_name": last_name, "tags": "newsletter",
                "default_address": {"company": format!("{last_name} & Co {number}"), "city": "Porto"}
            })
            .to_string();
            let headers = vec![
                ("x-shopify-hmac-sha256", signature(SHOP_SECRET, &body)),
                ("x-shopify-topic", "customers/update".to_owned()),
                ("x-shopify-event-id", id.clone()),
            ];
            Event { id, email, first_name, path: "/hooks/shop", headers, body }
        }
        _ => {
            let body = json!({
                "email": typed, "occurred_at": at.to_string(), "first_name": first_name, "job_title": "Owner",
                "attributes": {"budget": format!("{}k", rng.random_range(1..50))}
            })
            .to_string();
            let headers = vec![("x-api-key", ADS_KEY.to_owned())];
            Event { id, email, first_name, path: "/hooks/ads", headers, body }
        }
    }
}

/// Delivers over HTTP as senders do: again, until it is answered 200.
pub(super) struct Sender {
    client: reqwest::Client,
    url: String,
}

impl Sender {
    pub fn new(url: &str) -> Result<Sender, Failure> {
        Ok(Sender { client: client()?, url: url.to_owned() })
    }

    /// Sends every delivery of the plan; returns how many requests that took.
    pub async fn send_all(&self, plan: &Plan, bar: &ProgressBar) -> u64 {
        stream::iter(plan.deliveries.iter().enumerate())
            .map(|(nth, event)| async move {
                // One in fifty hangs up before the answer, and so delivers again.
                let patience =
                    if nth % 50 == 7 { Duration::from_millis(2) } else { Duration::from_secs(10) };
                let requests = self.deliver(&plan.events[*event], patience).await;
                bar.inc(1);
                requests
            })
            .buffer_unordered(AT_ONCE)
            .fold(0, |sum, requests| async move { sum + requests })
            .await
    }

    async fn deliver(&self, event: &Event, mut patience: Duration) -> u64 {
        let mut requests = 0;
        for _ in 0..TRIES {
            requests += 1;
            let mut request = self
                .client
                .post(format!("{}{}", self.url, event.path))
                .header("content-type", "application/json")
                .timeout(patience)
                .body(event.body.clone());
            for (name, value) in &event.headers {
                request = request.header(*name, value);
            }
            if request.send().await.is_ok_and(|answer| answer.status() == 200) {
                break;
            }
            patience = Duration::from_secs(10);
        }
        requests
    }
}

/// An HTTP client for loopback addresses.
pub(super) fn client() -> Result<reqwest::Client, Failure> {
    // reqwest wants a TLS provider even where it only speaks HTTP; it may be set already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .no_proxy()
        .build()
        .map_err(|error| Failure::Words(format!("cannot make an HTTP client: {error}")))
}
