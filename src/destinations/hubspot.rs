//! HubSpot contacts: batch upsert by e-mail, up to 100 leads in a call.
//!
//! Every input carries a trace id, because without one a single bad record refuses the whole batch. The
//! results come in another order than the inputs and are lined up by trace id, else by e-mail.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderValue, header};
use serde_json::{Value, json};

use super::client::{Answer, Call, Client, redacted};
use super::{
    Built, CallError, Destination, DestinationError, Kind, Limit, Mapped, Outcome, Record, Reply,
    Setup,
};
use crate::config;

mod said;

use said::{Blame, Said};

pub(super) const KIND: Kind = Kind {
    name: "hubspot",
    summary: "HubSpot contacts, keyed by e-mail",
    keys: &["token"],
    reads: true,
    build,
};

const UPSERT: &str = "/crm/v3/objects/contacts/batch/upsert";
const PROPERTIES: &str = "/crm/v3/properties/contacts";
/// HubSpot's limit.
const BATCH: usize = 100;

struct Hubspot {
    client: Client,
    authorization: HeaderValue,
}

fn build(config: &config::Destination, setup: &Setup) -> Built {
    let name = || config.name.clone();
    let Some(token) = &config.token else {
        return Err(DestinationError::Missing {
            name: name(),
            key: "token",
            why: "make a service key or private app in HubSpot (Settings, Integrations) with the scopes \
                  crm.objects.contacts.read, crm.objects.contacts.write and crm.schemas.contacts.read",
        });
    };
    let keyed = |(value, to): (&String, &config::Property)| to.to() == "email" && value != "email";
    if config.fields.iter().any(keyed) {
        let why = "maps something else to the property email, which is the key".to_owned();
        return Err(DestinationError::Invalid { name: name(), key: "fields", why });
    }
    let invalid = |_| DestinationError::Invalid {
        name: name(),
        key: "token",
        why: "has characters that cannot stand in a header".to_owned(),
    };
    let mut authorization =
        HeaderValue::try_from(format!("Bearer {}", token.expose().trim())).map_err(invalid)?;
    authorization.set_sensitive(true);
    let client = Client::new(config, Some("https://api.hubapi.com"), setup.call_timeout)?;
    Ok(Arc::new(Hubspot { client, authorization }))
}

#[async_trait]
impl Destination for Hubspot {
    fn batch_size(&self) -> usize {
        BATCH
    }

    fn default_fields(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("first_name", "firstname"),
            ("last_name", "lastname"),
            ("phone", "phone"),
            ("company", "company"),
            ("job_title", "jobtitle"),
            ("website", "website"),
            ("city", "city"),
            ("country", "country"),
            ("region", "state"),
            ("lifecycle_stage", "lifecyclestage"),
        ]
    }

    fn default_rate(&self) -> Option<config::Rate> {
        // The smallest of HubSpot's plans.
        Some(config::Rate { calls: 100, per: Duration::from_secs(10) })
    }

    fn default_daily(&self) -> Option<u32> {
        Some(250_000)
    }

    async fn push(&self, records: &[Record]) -> Result<Reply<Vec<Outcome>>, CallError> {
        if records.is_empty() {
            return Ok(Vec::new().into());
        }
        let answer = self.call(Call::post(UPSERT).json(&request(records))).await?;
        Ok(Reply { value: read(&answer, records)?, limits: limits(&answer) })
    }

    async fn check(&self, fields: &[Mapped]) -> Result<Vec<String>, CallError> {
        let answer = self.call(Call::get(PROPERTIES)).await?;
        let body = answer.json()?;
        if answer.status != 200 {
            return Err(said::refusal(&answer, &body, &[]));
        }
        let listed: HashMap<&str, &Value> =
            items(&body, "results").iter().filter_map(|p| Some((p["name"].as_str()?, p))).collect();
        for property in fields.iter().map(|f| &f.property) {
            let misconfigured = |code: &str, why: String| {
                Err(CallError::Misconfigured { code: code.into(), message: why })
            };
            match listed.get(property.as_str()) {
                None => {
                    let like = |name: &&&str| strsim::jaro_winkler(name, property) > 0.85;
                    let hint = listed.keys().find(like);
                    let hint =
                        hint.map(|h| format!("did you mean \"{h}\"? Else ")).unwrap_or_default();
                    return misconfigured(
                        "PROPERTY_DOESNT_EXIST",
                        format!(
                            "HubSpot has no contact property \"{property}\"; {hint}create it there \
                             (Settings, Properties), or correct [destination.fields]"
                        ),
                    );
                }
                Some(p) if p["modificationMetadata"]["readOnlyValue"] == true => {
                    return misconfigured(
                        "READ_ONLY_VALUE",
                        format!(
                            "HubSpot's contact property \"{property}\" cannot be written; map to another one \
                             in [destination.fields]"
                        ),
                    );
                }
                Some(_) => {}
            }
        }
        // Scopes are looked at before the content, and an empty batch writes nothing.
        let answer = self.call(Call::post(UPSERT).json(&json!({"inputs": []}))).await?;
        if matches!(answer.status, 401 | 403) {
            return Err(said::refusal(&answer, &answer.json()?, &[]));
        }
        let mut found = vec![
            format!("{} knows the token and lets it write contacts", self.client.shown()),
            "contacts are keyed by e-mail, which HubSpot keeps unique".to_owned(),
        ];
        if !fields.is_empty() {
            found.push(format!("all {} mapped properties exist and can be written", fields.len()));
        }
        Ok(found)
    }
}

impl Hubspot {
    async fn call(&self, call: Call) -> Result<Answer, CallError> {
        let call = call.header(header::AUTHORIZATION, self.authorization.clone());
        self.client.call(call).await
    }
}

/// The rolling window and the day, as the headers tell them.
fn limits(answer: &Answer) -> Vec<Limit> {
    let rolling = || {
        let window = answer.number("x-hubspot-ratelimit-interval-milliseconds")?;
        Some(Limit {
            window: Duration::from_millis(window.into()),
            allowed: answer.number("x-hubspot-ratelimit-max"),
            remaining: answer.number("x-hubspot-ratelimit-remaining")?,
            resets_in: None,
        })
    };
    let day = || {
        Some(Limit {
            window: Duration::from_secs(86_400),
            allowed: answer.number("x-hubspot-ratelimit-daily"),
            remaining: answer.number("x-hubspot-ratelimit-daily-remaining")?,
            resets_in: None,
        })
    };
    rolling().into_iter().chain(day()).collect()
}

/// The body of a batch upsert. "" clears a property, which null does not.
fn request(records: &[Record]) -> Value {
    let input = |record: &Record| {
        let mut properties: serde_json::Map<String, Value> = record
            .properties
            .iter()
            .map(|(to, value)| {
                let value = value.as_deref().unwrap_or_default();
                (to.clone(), json!(if to == "lifecyclestage" { stage(value) } else { value }))
            })
            .collect();
        properties.insert("email".to_owned(), json!(record.lead.email));
        json!({
            "id": record.lead.email, "idProperty": "email",
            "objectWriteTraceId": record.lead.lead_id, "properties": properties,
        })
    };
    json!({"inputs": records.iter().map(input).collect::<Vec<_>>()})
}

/// HubSpot's internal name of a lifecycle stage.
fn stage(ours: &str) -> &str {
    match ours {
        "marketing_qualified_lead" => "marketingqualifiedlead",
        "sales_qualified_lead" => "salesqualifiedlead",
        other => other,
    }
}

fn items<'a>(body: &'a Value, list: &str) -> &'a [Value] {
    body[list].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// One outcome per record, or why there is none.
fn read(answer: &Answer, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
    let body = answer.json()?;
    if answer.status == 409 {
        // Somebody else created one of them in this instant: nothing was written, the next try is an update.
        let said = Said::new(&body, answer);
        let message = said.message(records);
        return Ok(vec![Outcome::Retry { code: said.code, message }; records.len()]);
    }
    if !(200..300).contains(&answer.status) {
        return Err(said::refusal(answer, &body, records));
    }
    if let Some(status) = body["status"].as_str().filter(|s| *s != "COMPLETE") {
        let message = format!("the batch is {}", redacted(status, []));
        return Err(CallError::Unknown { after: None, message });
    }
    line_up(&body, answer, records)
}

/// Gives every record what the answer says about it; never by position.
fn line_up(body: &Value, answer: &Answer, records: &[Record]) -> Result<Vec<Outcome>, CallError> {
    let mut by_trace = HashMap::new();
    let mut by_email = HashMap::new();
    let mut by_remote = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        by_trace.insert(record.lead.lead_id.to_string(), at);
        by_email.insert(record.lead.email.to_lowercase(), at);
        by_remote.extend(record.remote_id.clone().map(|id| (id, at)));
    }
    let (results, errors) = (items(body, "results"), items(body, "errors"));
    let mut outcomes: Vec<Option<Outcome>> = vec![None; records.len()];
    let mut name = |at: Option<usize>, outcome: Outcome| {
        let Some(slot) = at.and_then(|at| outcomes.get_mut(at)) else { return };
        *slot = Some(match slot.take() {
            None => outcome,
            Some(_) => Outcome::Unknown { message: "the answer names the record twice".to_owned() },
        });
    };
    for result in results {
        let trace = texts(&result["objectWriteTraceId"]).find_map(|t| by_trace.get(t));
        let email = result["properties"]["email"].as_str().map(str::to_lowercase);
        let remote_id = match &result["id"] {
            Value::String(id) => Some(id.clone()),
            Value::Number(id) => Some(id.to_string()),
            _ => None,
        };
        // An answer with another e-mail is about a contact that has ours as a secondary one. The id tells which
        // record it is; or there was only one to ask about.
        let at = trace
            .or_else(|| by_email.get(&email?))
            .or_else(|| by_remote.get(remote_id.as_ref()?))
            .copied()
            .or((records.len() == 1 && results.len() == 1 && errors.is_empty()).then_some(0));
        name(at, Outcome::Written { remote_id, created: result["new"].as_bool() });
    }
    let mut unnamed = String::new();
    for error in errors {
        let said = Said::new(error, answer);
        let outcome = match said.blame() {
            Blame::Record => said.rejected(records),
            Blame::Nobody => {
                Outcome::Retry { code: said.code.clone(), message: said.message(records) }
            }
            // The next call would fail in the same way. What was written is only written again.
            Blame::Everybody => return Err(said.stop(records)),
        };
        let context = &error["context"];
        let named: Vec<usize> = texts(&context["objectWriteTraceId"])
            .filter_map(|trace| by_trace.get(trace))
            .chain(texts(&context["ids"]).filter_map(|id| by_email.get(&id.to_lowercase())))
            .copied()
            .collect();
        if named.is_empty() {
            unnamed = format!("; an error names no record: {}", said.message(records));
        }
        let mut named = named;
        named.sort_unstable();
        named.dedup();
        for at in named {
            name(Some(at), outcome.clone());
        }
    }
    let unknown = || Outcome::Unknown { message: format!("the answer does not name it{unnamed}") };
    Ok(outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unknown)).collect())
}

/// A text, or each text of a list.
fn texts(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or(std::slice::from_ref(value));
    list.iter().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::lead::Lead;

    fn records(n: u128) -> Vec<Record> {
        let record = |at| Record {
            lead: Arc::new(Lead {
                lead_id: uuid::Uuid::from_u128(at),
                email: format!("n{at}@example.com"),
                ..Lead::default()
            }),
            remote_id: (at % 2 == 0).then(|| at.to_string()),
            properties: Vec::new(),
        };
        (0..n).map(record).collect()
    }

    fn answer(status: u16, body: &Value) -> Answer {
        let body = Bytes::from(body.to_string());
        Answer { status, headers: http::HeaderMap::new(), body, broken: None }
    }

    /// Values of every shape where the API has one, some of them true.
    fn odd() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..6_u64).prop_map(Value::from),
            (0..6_u128).prop_map(|n| json!(uuid::Uuid::from_u128(n))),
            (0..6_u64).prop_map(|n| json!(format!("N{n}@Example.com"))),
            prop::sample::select(vec![
                "COMPLETE",
                "CONFLICT",
                "INVALID_EMAIL",
                "x: [{\"error\":1}]",
                "[ü"
            ])
            .prop_map(Value::from),
        ];
        let names = prop::sample::select(vec![
            "id",
            "new",
            "properties",
            "email",
            "objectWriteTraceId",
            "context",
            "ids",
            "message",
            "category",
            "errors",
            "code",
            "status",
            "results",
            "propertyName",
        ]);
        leaf.prop_recursive(4, 24, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec((names.clone(), inner), 0..6).prop_map(|members| {
                    Value::Object(members.into_iter().map(|(n, v)| (n.to_owned(), v)).collect())
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_answer_gives_one_outcome_per_record(
            status in prop::sample::select(vec![200_u16, 207, 299, 302, 400, 403, 409, 429, 477, 500, 599]),
            results in prop::collection::vec(odd(), 0..5),
            errors in odd(),
            n in 1..5_u128,
        ) {
            let records = records(n);
            let body = json!({"results": results, "errors": errors, "message": "m"});
            if let Ok(outcomes) = read(&answer(status, &body), &records) {
                prop_assert_eq!(outcomes.len(), records.len());
                let said = body["results"].to_string().to_lowercase();
                for (record, outcome) in records.iter().zip(outcomes).filter(|_| n > 1) {
                    let named = said.contains(&record.lead.email)
                        || said.contains(&record.lead.lead_id.to_string())
                        || record.remote_id.as_ref().is_some_and(|id| said.contains(id.as_str()));
                    let written = matches!(outcome, Outcome::Written { .. });
                    prop_assert!(named || !written);
                }
            }
        }

        #[test]
        fn any_whole_body_is_survived(status in 100..600_u16, body in odd()) {
            let _ = read(&answer(status, &body), &records(3));
        }
    }

    #[test]
    fn a_batch_that_is_not_complete_is_unknown() {
        let body = json!({"status": "PROCESSING", "results": [{"id": "1"}]});
        let read = read(&answer(200, &body), &records(1));
        assert!(matches!(read, Err(CallError::Unknown { .. })));
    }

    #[test]
    fn a_record_in_both_lists_is_unknown() {
        let trace = records(1)[0].lead.lead_id;
        let body = json!({
            "results": [{"id": "1", "objectWriteTraceId": trace}],
            "errors": [{"category": "VALIDATION_ERROR", "context": {"objectWriteTraceId": [trace]}}],
        });
        let outcomes = read(&answer(207, &body), &records(2)).unwrap();
        assert!(outcomes.iter().all(|o| matches!(o, Outcome::Unknown { .. })), "{outcomes:?}");
    }
}
