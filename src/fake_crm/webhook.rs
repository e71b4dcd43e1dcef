//! A receiver of leadsync's own webhooks that keeps one record per lead id, and checks Standard Webhooks signatures
//! where it has a secret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Contact;
use super::exchange::{Answer, Request};
use super::plain::as_text;

/// How the receiver behaves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// `whsec_…`; absent: signatures are not looked at.
    pub secret: Option<String>,
}

/// What came in.
#[derive(Default)]
pub(super) struct Receiver {
    leads: BTreeMap<String, Value>,
    order: Vec<String>,
    pub creates: BTreeMap<String, u64>,
    pub updates: u64,
}

impl Receiver {
    pub fn contacts(&self) -> Vec<Contact> {
        self.order
            .iter()
            .filter_map(|id| self.leads.get(id).map(|data| (id, data)))
            .map(|(id, data)| Contact {
                id: id.clone(),
                email: email(data),
                properties: data
                    .as_object()
                    .into_iter()
                    .flatten()
                    .filter(|(_, value)| !value.is_null())
                    .map(|(name, value)| (name.clone(), as_text(value)))
                    .collect(),
                archived: false,
            })
            .collect()
    }
}

fn email(data: &Value) -> String {
    data["email"].as_str().unwrap_or_default().to_lowercase()
}

pub(super) fn route(receiver: &mut Receiver, options: &Options, request: &Request) -> Answer {
    if request.method != "POST" {
        return Answer::empty(405);
    }
    if let Some(secret) = &options.secret {
        let verified = standardwebhooks::Webhook::new(secret)
            .and_then(|hook| hook.verify(&request.body, &request.headers));
        if let Err(refused) = verified {
            return Answer::json(401, &json!({"error": refused.to_string()}));
        }
    }
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return Answer::json(400, &json!({"error": "not JSON"}));
    };
    let data = body["data"].clone();
    let Some(id) = data["lead_id"].as_str().map(str::to_owned) else {
        return Answer::json(422, &json!({"error": "no data.lead_id"}));
    };
    let email = email(&data);
    if receiver.leads.insert(id.clone(), data).is_none() {
        receiver.order.push(id);
        *receiver.creates.entry(email).or_default() += 1;
    } else {
        receiver.updates += 1;
    }
    Answer::json(200, &json!({"ok": true})).written()
}
