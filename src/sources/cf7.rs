//! Contact Form 7 through the plugin "CF7 to Webhook": keys are the names of the form's tags
//! (`your-email`, `tel-123`). No time and no id.

use serde_json::Value;

use super::labels::{self, Found};
use super::{Auth, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "cf7",
    title: "Contact Form 7",
    auth: Auth::Unsigned,
    split: Split::Whole,
    rules: &[labels::RULES],
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
