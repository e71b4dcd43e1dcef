//! Random events about one person: small pools, so that times tie, values meet and sources agree.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leadsync::lead::email::Folding;
use leadsync::lead::merge::{EventTime, LeadState, Origin};
use leadsync::lead::{Change, Consent, Email, Field, LeadPatch, Micros, Touch};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// 2000-01-01T00:00:00Z, the earliest believable time.
pub const Y2000: Micros = 946_684_800_000_000;
/// 2024-03-01T00:00:00Z, around which events happen.
pub const NOON: Micros = 1_709_251_200_000_000;
/// How far ahead of its receipt a time is believed.
pub const TOLERANCE: Micros = 300_000_000;

/// Somebody who says things.
pub struct Source {
    pub name: &'static str,
    pub number: i16,
    pub trust: u8,
}

/// Three of equal trust, and numbers at both ends of a smallint.
pub const SOURCES: [Source; 6] = [
    Source { name: "site", number: 1, trust: 50 },
    Source { name: "event", number: 2, trust: 50 },
    Source { name: "billing", number: 3, trust: 80 },
    Source { name: "Ärzte", number: i16::MAX, trust: 100 },
    Source { name: "list", number: 4, trust: 0 },
    Source { name: "form", number: 0, trust: 50 },
];

/// Bytewise, by collation and by UTF-16 unit these sort in three different ways.
const VALUES: [&str; 14] = [
    "Ana",
    "ana",
    "ANA",
    "Ána",
    "anb",
    "a b",
    "a-b",
    "Z",
    "é",
    "ß",
    "\u{FFFD}",
    "\u{1F600}",
    "O'Brien \\ \"x\" {1,2}",
    "Ωmega\nline",
];
const STAGES: [&str; 7] = [
    "subscriber",
    "lead",
    "marketing_qualified_lead",
    "sales_qualified_lead",
    "opportunity",
    "customer",
    "evangelist",
];
const TYPED: [&str; 5] =
    ["Ana@Example.com", "ANA@EXAMPLE.COM", "ana@example.com", "ána@x.com", "z@x.com"];
const TAGS: [&str; 6] = ["vip", "VIP", "a\"b", "größe", "\u{1F600}", "null"];
const ATTRIBUTES: [&str; 5] = ["budget", "größe", "a.b", "q\"\\", "__proto__"];

/// What an event says about its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Nothing, of a source that may only fill.
    Unsaid,
    /// Nothing, of a source whose receipts count.
    Received(Micros),
    /// A time in the body, and when that body was received.
    Stated { at: Micros, received: Micros },
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Index in [`SOURCES`].
    pub source: usize,
    pub when: When,
    pub typed: &'static str,
    pub fields: BTreeMap<Field, Change>,
    pub consent: Option<Consent>,
    pub tags: BTreeSet<String>,
    pub attributes: BTreeMap<String, Change>,
    pub touch: Touch,
}

fn maybe(rng: &mut StdRng, share: f64, pool: &[&str]) -> Option<String> {
    rng.random_bool(share).then(|| (*pool.choose(rng).expect("not empty")).to_owned())
}

fn change(rng: &mut StdRng, pool: &[&str]) -> Change {
    match rng.random_bool(0.2) {
        true => Change::Clear,
        false => Change::Set((*pool.choose(rng).expect("not empty")).to_owned()),
    }
}

fn when(rng: &mut StdRng) -> When {
    let received = NOON + 7_200_000_000 + rng.random_range(0..3) * 60_000_000;
    let steps = [0, 1, 2, 1_000_000, 60_000_000, 3_600_000_000];
    let usual = NOON + steps[rng.random_range(0..steps.len())];
    let limit = received + TOLERANCE;
    let odd = [
        limit,
        limit + 1,
        limit + 31_536_000_000_000,
        Y2000,
        Y2000 - 1,
        0,
        -62_135_596_800_000_000,
        253_402_300_799_999_999,
        i64::MIN,
        i64::MAX,
    ];
    match rng.random_range(0..100) {
        0..12 => When::Unsaid,
        12..18 => When::Received(usual),
        18..32 => When::Stated { at: odd[rng.random_range(0..odd.len())], received },
        _ => When::Stated { at: usual, received },
    }
}

impl Event {
    /// Any event.
    pub fn random(rng: &mut StdRng) -> Event {
        let mut fields = BTreeMap::new();
        for field in Field::ALL {
            if rng.random_bool(0.4) {
                let pool: &[&str] = if field == Field::LifecycleStage { &STAGES } else { &VALUES };
                fields.insert(field, change(rng, pool));
            }
        }
        let attributes = (0..rng.random_range(0..4usize).saturating_sub(1))
            .map(|_| {
                let name = *ATTRIBUTES.choose(rng).expect("not empty");
                (name.to_owned(), change(rng, &VALUES))
            })
            .collect();
        let consent = rng
            .random_bool(0.4)
            .then(|| Consent { granted: rng.random_bool(0.5), proven: rng.random_bool(0.3) });
        Event {
            source: rng.random_range(0..SOURCES.len()),
            when: when(rng),
            typed: TYPED.choose(rng).expect("not empty"),
            fields,
            consent,
            tags: (0..rng.random_range(0..3usize)).filter_map(|_| maybe(rng, 0.6, &TAGS)).collect(),
            attributes,
            touch: Touch {
                source: maybe(rng, 0.3, &["Webinar", "webinar", "Ärzte"]),
                utm_source: maybe(rng, 0.4, &VALUES[..4]),
                utm_medium: maybe(rng, 0.3, &VALUES[..4]),
                utm_campaign: maybe(rng, 0.3, &VALUES[6..]),
                utm_term: maybe(rng, 0.2, &VALUES[..3]),
                utm_content: maybe(rng, 0.2, &VALUES[8..]),
                landing_page: maybe(rng, 0.3, &["https://x.com/?a=1&b=2", "https://x.com/é"]),
            },
        }
    }

    /// What the product is told.
    pub fn patch(&self, email: &Email) -> LeadPatch {
        let mut patch = LeadPatch::new(email.clone(), self.typed.to_owned());
        patch.fields = self.fields.clone();
        patch.consent = self.consent;
        patch.tags = self.tags.clone();
        patch.attributes = self.attributes.clone();
        patch.touch = self.touch.clone();
        if let When::Stated { at, .. } = self.when {
            patch.occurred_at = Some(at);
        }
        patch
    }

    /// What the product makes of it.
    pub fn state(&self, email: &Email) -> LeadState {
        let source = &SOURCES[self.source];
        let time = match self.when {
            When::Unsaid => EventTime::UNKNOWN,
            When::Received(at) => EventTime::measured(at),
            When::Stated { at, received } => {
                EventTime::stated(at, received, Duration::from_micros(TOLERANCE.unsigned_abs()))
            }
        };
        let origin =
            Origin { source_name: source.name, source: source.number, trust: source.trust, time };
        LeadState::of_event(self.patch(email), origin)
    }
}

/// Events of one person. Many say something at the time of another, some say the same as another, from
/// another source or at another time.
pub fn set(rng: &mut StdRng, most: usize) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    for _ in 0..rng.random_range(1..=most) {
        let mut event = Event::random(rng);
        if let Some(other) = events.choose(rng) {
            match rng.random_range(0..10) {
                0..3 => (event.when, event.source) = (other.when, other.source),
                3 => event.when = other.when,
                4 => event = Event { source: event.source, ..other.clone() },
                5 => event = Event { when: event.when, ..other.clone() },
                6 => event = Event { when: event.when, source: event.source, ..other.clone() },
                _ => {}
            }
        }
        events.push(event);
    }
    events
}

/// The fold of some events, as a group does it.
pub fn fold<'a>(email: &Email, events: impl IntoIterator<Item = &'a Event>) -> LeadState {
    let mut states = events.into_iter().map(|e| e.state(email));
    let mut fold = states.next().expect("at least one event");
    states.for_each(|state| fold.join(state));
    fold
}

/// The key made of a text.
pub fn email(text: &str) -> Email {
    Email::parse(text, Folding::None).expect("an address")
}

/// Randomness and the seed it comes from: `LEADSYNC_SEED`, else a new one. Say it in every failure.
pub fn seeded() -> (StdRng, u64) {
    let seed = setting("LEADSYNC_SEED", rand::random_range(0..1 << 32));
    println!("LEADSYNC_SEED={seed}");
    (StdRng::seed_from_u64(seed), seed)
}

/// A number from the environment: longer runs than the default.
pub fn setting(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number")),
        Err(_) => default,
    }
}
