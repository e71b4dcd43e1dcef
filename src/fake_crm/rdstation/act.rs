//! What people do in RD Station's own screens while nobody looks: `POST /_fake/rdstation/merge`, `delete`, `edit`,
//! `create`, and `expire`, which ends every access token.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Account;

impl Account {
    /// Does one thing; the id that it was done to, or `None` where it cannot be done.
    pub(in super::super) fn act(&mut self, action: &str, body: &Value) -> Option<Value> {
        let id = |name: &str| {
            let uuid = body[name].as_str()?.parse::<Uuid>().ok()?;
            self.contacts.contains_key(&uuid).then_some(uuid)
        };
        let values = body["values"].as_object().cloned().unwrap_or_default();
        let done = match (action, id("id"), id("keep"), id("lose")) {
            ("expire", ..) => {
                self.tokens.expire();
                None
            }
            ("create", ..) => {
                let email = values.get("email").and_then(Value::as_str).unwrap_or_default();
                let uuid = self.make(&email.to_lowercase());
                self.write(uuid, &values);
                Some(uuid)
            }
            ("edit", Some(uuid), ..) => {
                self.write(uuid, &values);
                Some(uuid)
            }
            ("delete", Some(uuid), ..) => {
                self.remove(uuid);
                Some(uuid)
            }
            ("merge", _, Some(keep), Some(lose)) if keep != lose => {
                let lost = self.remove(lose);
                if let (Some(lost), Some(stored)) = (lost, self.contacts.get_mut(&keep)) {
                    stored.extra_emails.insert(lost.email);
                    stored.extra_emails.extend(lost.extra_emails);
                }
                Some(keep)
            }
            _ => return None,
        };
        Some(json!(done))
    }
}
