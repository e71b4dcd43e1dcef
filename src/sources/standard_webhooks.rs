//! Any sender that follows the Standard Webhooks specification (also Svix): `{type, timestamp, data}`.

use serde_json::Value;

use crate::mapping::{Target, rule};

use super::labels::{self, Found};
use super::{Auth, Scheme, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "standard-webhooks",
    title: "Standard Webhooks",
    auth: Auth::Signed(Scheme::StandardWebhooks),
    split: Split::Whole,
    rules: &[
        &[
            rule(Target::OccurredAt, &["$.timestamp", "$.data.created_at", "$.data.createdAt"]),
            rule(Target::EventId, &["$['@headers']['webhook-id']", "$['@headers']['svix-id']"]),
            rule(Target::EventType, &["$.type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

/// The lead is the first of the usual places that has an address.
fn prepare(part: &mut Value) {
    let place = |name: &str| if name.is_empty() { &part["data"] } else { &part["data"][name] };
    for name in ["", "lead", "contact", "customer", "user", "object"] {
        let mut found = Found::default();
        found.put_members(place(name));
        if found.has_email() {
            return found.leave_in(part);
        }
    }
}
