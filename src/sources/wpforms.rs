//! WPForms, Webhooks add-on: keys that the owner chose, as JSON or form. No time unless the owner maps one.

use serde_json::Value;

use crate::mapping::{Target, rule};

use super::labels::{self, Found};
use super::{Auth, Content, Scheme, Signing, Source, Split};

/// The kind. In the form format the signature covers the JSON of the fields before they were
/// form-encoded; it cannot be checked where one of them is an empty list, which a form does not carry.
pub const SOURCE: Source = Source {
    kind: "wpforms",
    title: "WPForms",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-wpforms-webhook-signature",
        tag: Some("v"),
        content: Content::PhpFields,
        ..Signing::PACKED
    })),
    split: Split::Whole,
    rules: &[&[rule(Target::EventId, &["$.entry_id"])], labels::RULES],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

fn prepare(part: &mut Value) {
    let mut found = Found::default();
    found.put_members(part);
    found.leave_in(part);
}
