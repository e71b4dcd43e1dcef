//! HubSpot's CRM API: up to 100 contacts per call, as they are now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::client::{Answer, Client, unavailable};
use super::{Api, Built, CallError, Kind, Page, Reading};
use crate::config::{self, FieldRule, Rate};
use crate::lead::Micros;

/// Half of what the smallest plan allows an app: a destination may have the other.
pub(super) const KIND: Kind =
    Kind { source: "hubspot-app", rate: Rate { calls: 50, per: Duration::from_secs(10) }, build };

const BASE_URL: &str = "https://api.hubapi.com";
const READ: &str = "/crm/v3/objects/contacts/batch/read";
const SEARCH: &str = "/crm/v3/objects/contacts/search";
const CONTACTS: &str = "/crm/v3/objects/contacts";
/// HubSpot's limit for both.
const BATCH: usize = 100;
/// A search gives 10,000 results at most; further ones need another search.
const SEARCH_END: u64 = 9_900;

/// What the kind's mapping reads.
const PROPERTIES: [&str; 20] = [
    "email",
    "firstname",
    "lastname",
    "mobilephone",
    "phone",
    "company",
    "jobtitle",
    "website",
    "city",
    "state",
    "country",
    "hs_language",
    "message",
    "lifecyclestage",
    "lastmodifieddate",
    "createdate",
    "hs_analytics_first_url",
    "hs_email_optout",
    "hs_object_id",
    "recent_conversion_date",
];

struct Hubspot {
    client: Client,
    properties: Vec<String>,
}

fn build(source: &config::Source, timeout: Duration) -> Built {
    let mut properties: Vec<String> = PROPERTIES.map(str::to_owned).to_vec();
    properties.extend(source.properties.iter().cloned());
    properties.extend(source.fields.values().flat_map(paths).filter_map(|path| property_of(path)));
    properties.sort_unstable();
    properties.dedup();
    let client = Client::new(source, BASE_URL, None, timeout)?;
    Ok(Arc::new(Hubspot { client, properties }))
}

fn paths(rule: &FieldRule) -> &[String] {
    match rule {
        FieldRule::One(path) => std::slice::from_ref(path),
        FieldRule::Many(paths) => paths,
        FieldRule::Full(full) => full.from.as_slice(),
    }
}

/// The property that a path of the configuration reads: `$.properties.budget`, `$.properties['budget']`.
fn property_of(path: &str) -> Option<String> {
    let rest =
        path.strip_prefix("$.properties").or_else(|| path.strip_prefix("$['properties']"))?;
    let name = match rest.strip_prefix('.') {
        Some(name) => name,
        None => rest.strip_prefix("['").or_else(|| rest.strip_prefix("[\""))?,
    };
    let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(name.len());
    name.get(..end).filter(|name| !name.is_empty()).map(str::to_owned)
}

#[async_trait]
impl Api for Hubspot {
    fn object(&self) -> &'static str {
        "contact"
    }

    fn batch_size(&self) -> usize {
        BATCH
    }

    /// 207 where some are not there.
    async fn read(&self, ids: &[&str]) -> Result<Vec<Reading>, CallError> {
        let inputs: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
        let body = json!({ "inputs": inputs, "properties": self.properties });
        let answer = self.client.post(READ, &body).await?;
        if !matches!(answer.status, 200 | 207) {
            return Err(refusal(&answer));
        }
        let body = answer.json()?;
        let results = body["results"].as_array().ok_or_else(|| unavailable("no results"))?;
        let contacts: HashMap<&str, &Value> =
            results.iter().filter_map(|contact| Some((contact["id"].as_str()?, contact))).collect();
        // The ids that an error is about stand in its context; HubSpot numbers nothing.
        let missing = |id: &str| {
            let errors = body["errors"].as_array().into_iter().flatten();
            errors.clone().find(|error| names(&error["context"], id)).or_else(|| {
                let all_gone = errors.clone().all(is_not_found);
                errors.clone().next().filter(|_| all_gone)
            })
        };
        let reading = |id: &&str| match (contacts.get(id), missing(id)) {
            (Some(contact), _) => Reading::Document {
                body: Bytes::from(contact.to_string()),
                changed_at: changed_at(contact),
            },
            (None, Some(error)) => Reading::Missing {
                code: code_of(error, &answer),
                message: answer.words(error["message"].as_str()),
            },
            // It leaves out what it does not have where it says nothing of errors.
            (None, None) if answer.status == 200 => Reading::Missing {
                code: "OBJECT_NOT_FOUND".to_owned(),
                message: "HubSpot does not have this contact".to_owned(),
            },
            (None, None) => Reading::Unsaid,
        };
        Ok(ids.iter().map(reading).collect())
    }

    /// `next` says since when, and where in that search to go on.
    async fn list(&self, since: Micros, next: Option<Value>) -> Result<Page, CallError> {
        let next = next.unwrap_or_default();
        let since = next["since"].as_i64().unwrap_or(since.div_euclid(1_000));
        let mut search = json!({
            "filterGroups": [{ "filters": [{
                "propertyName": "lastmodifieddate", "operator": "GTE", "value": since.to_string()
            }]}],
            "sorts": [{ "propertyName": "lastmodifieddate", "direction": "ASCENDING" }],
            "properties": ["lastmodifieddate"],
            "limit": BATCH,
        });
        if let Some(after) = next["after"].as_str() {
            search["after"] = json!(after);
        }
        let answer = self.client.post(SEARCH, &search).await?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        let body = answer.json()?;
        let results = body["results"].as_array().ok_or_else(|| unavailable("no results"))?;
        let found: Vec<(String, Option<Micros>)> = results
            .iter()
            .filter_map(|contact| Some((contact["id"].as_str()?.to_owned(), changed_at(contact))))
            .collect();
        let newest = found.iter().filter_map(|(_, at)| *at).max().map(|at| at.div_euclid(1_000));
        let after = body["paging"]["next"]["after"].as_str();
        let next = after.and_then(|after| go_on(since, after, newest));
        Ok(Page { found, next })
    }

    async fn check(&self) -> Result<Vec<String>, CallError> {
        let answer = self.client.get(CONTACTS, "limit=1&properties=email").await?;
        match answer.status {
            200 => Ok(vec!["the token is valid, contacts can be read".to_owned()]),
            _ => Err(refusal(&answer)),
        }
    }
}

/// Where a listing goes on after a page whose newest change is that one; milliseconds.
fn go_on(since: i64, after: &str, newest: Option<i64>) -> Option<Value> {
    if !after.parse::<u64>().is_ok_and(|after| after >= SEARCH_END) {
        return Some(json!({ "since": since, "after": after }));
    }
    // So many that changed in one millisecond, and no search reaches those behind them.
    let newest = newest.filter(|newest| *newest > since)?;
    Some(json!({ "since": newest }))
}

fn changed_at(contact: &Value) -> Option<Micros> {
    let times = [&contact["properties"]["lastmodifieddate"], &contact["updatedAt"]];
    let time = |value: &Value| {
        let text = value.as_str()?;
        let at = crate::mapping::time::rfc3339(text);
        at.or_else(|| crate::mapping::time::epoch(text, 1_000))
    };
    times.into_iter().find_map(time)
}

fn is_not_found(error: &Value) -> bool {
    error["category"] == "OBJECT_NOT_FOUND" || error["subCategory"] == "crm.batch.objectsNotFound"
}

/// Whether the id stands anywhere in the context of an error.
fn names(context: &Value, id: &str) -> bool {
    match context {
        Value::String(text) => text == id,
        Value::Number(number) => number.to_string() == id,
        Value::Array(list) => list.iter().any(|value| names(value, id)),
        Value::Object(members) => members.values().any(|value| names(value, id)),
        _ => false,
    }
}

fn code_of(error: &Value, answer: &Answer) -> String {
    answer.code(error["category"].as_str())
}

/// A call that gave nothing. Ids are numbers, so no single one can be at fault.
fn refusal(answer: &Answer) -> CallError {
    let body = answer.json().unwrap_or_default();
    let said = body["message"].as_str();
    let code = code_of(&body, answer);
    let message = answer.words(said);
    match answer.status {
        403 => CallError::Credentials { code, message },
        477 => CallError::SlowDown { after: answer.retry_after(), message },
        _ => match answer.trouble(&code, said) {
            Some(trouble) => trouble,
            None if answer.status < 400 => unavailable(message),
            None => CallError::Misconfigured { code, message },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_is_at_its_end_goes_on_as_another() {
        assert_eq!(go_on(5, "100", Some(7)), Some(json!({"since": 5, "after": "100"})));
        assert_eq!(go_on(5, "odd", Some(7)), Some(json!({"since": 5, "after": "odd"})));
        assert_eq!(go_on(5, "9900", Some(7)), Some(json!({"since": 7})));
        assert_eq!(go_on(5, "10000", Some(5)), None);
        assert_eq!(go_on(5, "10000", None), None);
    }

    #[test]
    fn ids_are_found_wherever_an_error_names_them() {
        let context = json!({"ids": ["1", 2], "more": {"id": "3"}});
        for (id, named) in [("1", true), ("2", true), ("3", true), ("4", false)] {
            assert_eq!(names(&context, id), named, "{id}");
        }
    }

    #[test]
    fn properties_that_the_configuration_reads_are_asked_for() {
        for (path, property) in [
            ("$.properties.budget", Some("budget")),
            ("$.properties['team_size']", Some("team_size")),
            ("$['properties'][\"x1\"].value", Some("x1")),
            ("$.properties", None),
            ("$.id", None),
        ] {
            assert_eq!(property_of(path).as_deref(), property, "{path}");
        }
    }
}
