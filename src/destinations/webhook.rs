//! Any receiver of HTTP: one signed POST per lead, after the Standard Webhooks specification.
//!
//! The receiver upserts by `lead_id`. A repeat carries the same `webhook-id` as the first attempt.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use standardwebhooks::Webhook as Signer;

use super::client::{Answer, Call, Client, redacted, sent};
use super::{
    Built, CallError, Destination, DestinationError, Kind, Mapped, Outcome, Record, Reply, Setup,
};
use crate::config;
use crate::lead::{Lead, Micros};

pub(super) const KIND: Kind = Kind {
    name: "webhook",
    summary: "any receiver of signed webhooks, one call per lead",
    keys: &["secret"],
    reads: false,
    build,
};

/// Members of `data` that are always there.
const OWN: [&str; 3] = ["lead_id", "email", "version"];
/// The specification wants 24 to 64 bytes; less than 16 can be guessed.
const LEAST_KEY: usize = 16;

struct Webhook {
    client: Client,
    signer: Signer,
    /// Configuration lists the fields: only those are sent.
    chosen: bool,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let Some(secret) = &config.secret else {
        return Err(DestinationError::Missing {
            name: name(),
            key: "secret",
            why: "the receiver needs it to tell our calls from others; \"whsec_\" and 32 random bytes in base64",
        });
    };
    let invalid =
        |key, why: &str| DestinationError::Invalid { name: name(), key, why: why.to_owned() };
    let key = secret.expose().strip_prefix("whsec_").unwrap_or(secret.expose());
    let key = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, key)
        .map_err(|_| invalid("secret", "is not base64 after \"whsec_\""))?;
    if key.len() < LEAST_KEY {
        return Err(invalid("secret", "is shorter than 16 bytes"));
    }
    let signer = Signer::from_bytes(key).map_err(|_| invalid("secret", "cannot be used"))?;
    let taken =
        config.fields.iter().any(|(value, to)| OWN.contains(&to.to()) && value.as_str() != to.to());
    if taken {
        return Err(invalid("fields", "maps to lead_id, email or version, which are always sent"));
    }
    let client = Client::new(config, None, setup.call_timeout)?;
    Ok(Arc::new(Webhook { client, signer, chosen: !config.fields.is_empty() }))
}

#[async_trait]
impl Destination for Webhook {
    fn batch_size(&self) -> usize {
        1
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("first_name", "first_name"),
            ("last_name", "last_name"),
            ("full_name", "full_name"),
            ("phone", "phone"),
            ("company", "company"),
            ("job_title", "job_title"),
            ("website", "website"),
            ("city", "city"),
            ("region", "region"),
            ("country", "country"),
            ("language", "language"),
            ("message", "message"),
            ("lifecycle_stage", "lifecycle_stage"),
            ("marketing_consent", "marketing_consent"),
            ("tags", "tags"),
            ("first_source", "first_source"),
            ("utm_source", "utm_source"),
            ("utm_medium", "utm_medium"),
            ("utm_campaign", "utm_campaign"),
            ("utm_term", "utm_term"),
            ("utm_content", "utm_content"),
            ("landing_page", "landing_page"),
        ]
    }

    fn sends_whole_lead(&self) -> bool {
        !self.chosen
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        let [record] = records else {
            // The batch size is 1; whoever sends more has not sent anything.
            let message = format!("{} records in a call of at most one", records.len());
            return match records.is_empty() {
                true => Ok(Vec::new().into()),
                false => Err(CallError::Refused { code: "BATCH".into(), field: None, message }),
            };
        };
        let now = Timestamp::now();
        let body = body(record, self.chosen, now).to_string().into_bytes();
        let id = format!("msg_{}_{}", record.lead.lead_id, record.lead.version);
        let headers = self.signed(&id, now.as_second(), &body)?;
        let call = Call::post("").headers(headers).json_bytes(body);
        let answer = self.client.call(call).await?;
        Ok(read(&answer, record)?.into())
    }

    async fn check(&self, _fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        // Any answer will do: many receivers know no method but POST, and a POST would be a delivery.
        self.client.call(Call::new(Method::HEAD, "")).await?;
        Ok(vec![format!(
            "{} can be reached; whether it accepts the signature shows with the first lead",
            self.client.shown()
        )])
    }
}

impl Webhook {
    fn signed(
        &self,
        id: &str,
        seconds: i64,
        body: &[u8],
    ) -> Result<Vec<(HeaderName, HeaderValue)>, CallError> {
        let unsigned = |message: String| CallError::Unreachable { message };
        let signature = self
            .signer
            .sign(id, seconds, body)
            .map_err(|e| unsigned(format!("not signed: {e}")))?;
        let value = |text: &str| {
            HeaderValue::try_from(text).map_err(|e| unsigned(format!("not signed: {e}")))
        };
        Ok(vec![
            (HeaderName::from_static(standardwebhooks::HEADER_WEBHOOK_ID), value(id)?),
            (
                HeaderName::from_static(standardwebhooks::HEADER_WEBHOOK_TIMESTAMP),
                HeaderValue::from(seconds),
            ),
            (
                HeaderName::from_static(standardwebhooks::HEADER_WEBHOOK_SIGNATURE),
                value(&signature)?,
            ),
        ])
    }
}

/// The payload. `null` says cleared on purpose; a value that was never set is absent.
fn body(record: &Record, chosen: bool, now: Timestamp) -> Value {
    let lead = &record.lead;
    let mut data = Map::new();
    data.insert("lead_id".into(), json!(lead.lead_id));
    data.insert("email".into(), json!(lead.email));
    data.insert("version".into(), json!(lead.version));
    match chosen {
        true => {
            for (to, value) in &record.properties {
                data.entry(to.clone()).or_insert_with(|| json!(value));
            }
        }
        false => whole(lead, &mut data),
    }
    json!({"type": "lead.upserted", "timestamp": now.to_string(), "data": data})
}

/// Everything there is to know about the lead, under the names of its columns.
fn whole(lead: &Lead, data: &mut Map<String, Value>) {
    for (field, value) in &lead.fields {
        data.insert(field.name().into(), json!(value));
    }
    data.insert("marketing_consent".into(), json!(lead.marketing_consent));
    data.insert("tags".into(), json!(lead.tags));
    data.insert("attributes".into(), json!(lead.attributes));
    let touch = &lead.first_touch;
    for (name, value) in [
        ("first_source", &touch.source),
        ("utm_source", &touch.utm_source),
        ("utm_medium", &touch.utm_medium),
        ("utm_campaign", &touch.utm_campaign),
        ("utm_term", &touch.utm_term),
        ("utm_content", &touch.utm_content),
        ("landing_page", &touch.landing_page),
    ] {
        if let Some(value) = value {
            data.insert(name.into(), json!(value));
        }
    }
    if let Some(at) = lead.first_seen_at.and_then(time) {
        data.insert("first_seen_at".into(), json!(at));
    }
}

fn time(at: Micros) -> Option<String> {
    Timestamp::from_microsecond(at).ok().map(|at| at.to_string())
}

/// What the receiver's answer means; only the status counts.
fn read(answer: &Answer, record: &Record) -> Result<Vec<Outcome>, CallError> {
    let after = answer.retry_after();
    let code = answer.status.to_string();
    let body = String::from_utf8_lossy(&answer.body);
    let said = redacted(&body, sent(std::slice::from_ref(record)));
    let message = match said.trim() {
        "" => answer.words(),
        said => format!("{}: {said}", answer.words()),
    };
    Err(match answer.status {
        // 2xx is the receiver's promise, whatever the body is.
        200..300 => return Ok(vec![Outcome::Written { remote_id: None, created: None }]),
        300..400 => CallError::Misconfigured {
            code,
            message: format!("{}; `base_url` leads to a redirect", answer.words()),
        },
        401 | 403 | 407 => CallError::Credentials {
            code,
            message: format!("{message}; is `secret` the one the receiver knows?"),
        },
        404 | 405 | 410 => {
            CallError::Misconfigured { code, message: format!("{message}; is `base_url` right?") }
        }
        408 | 425 | 429 => CallError::SlowDown { after, message },
        503 if after.is_some() => CallError::SlowDown { after, message },
        400..500 => CallError::Refused { code, field: None, message },
        _ => CallError::Unknown { after, message },
    })
}
