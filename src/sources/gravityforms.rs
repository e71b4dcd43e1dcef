//! Gravity Forms, Webhooks add-on. All fields: keys are the numbers of fields, which only `[source.fields]`
//! can give a meaning (`email = "$['2']"`); selected fields: keys that the owner chose.

use serde_json::Value;

use crate::mapping::{Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "gravityforms",
    title: "Gravity Forms",
    auth: Auth::Unsigned,
    split: Split::Whole,
    rules: &[
        &[
            rule_via(Target::OccurredAt, &["$.date_created"], Via::UtcDatetime),
            rule(Target::EventId, &["$.id", "$.entry_id"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: None,
    handshake: None,
};

/// Parts of fields have fixed numbers: a name is `N.3` and `N.6` with no `N.1` (an address has that, and
/// so have choices); a consent is `N.1` = 1 beside its text.
fn prepare(part: &mut Value) {
    let mut found = Found::default();
    for (key, value) in part.as_object().into_iter().flatten() {
        let Some((field, sub)) = key.split_once('.') else { continue };
        if field.is_empty() || !field.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let beside = |sub: &str| &part[format!("{field}.{sub}").as_str()];
        match sub {
            "3" if beside("1").is_null() && !beside("6").is_null() => {
                found.put("first_name", value);
                found.put("last_name", beside("6"));
            }
            "1" if *value == "1" => {
                let text = beside("2").as_str().and_then(labels::recognise);
                if text == Some("marketing_consent") {
                    found.put("marketing_consent", value);
                }
            }
            _ => {}
        }
    }
    found.put_members(part);
    found.leave_in(part);
}
