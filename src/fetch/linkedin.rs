//! LinkedIn's Lead Sync API: one response per call, with its form, whose questions say what the answers are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};

use super::client::{Answer, Client, unavailable};
use super::{Api, Built, CallError, Kind, Page, Reading};
use crate::config::{self, Rate};
use crate::lead::Micros;
use crate::sources::SourceErrorKind;

pub(super) const KIND: Kind =
    Kind { source: "linkedin", rate: Rate { calls: 5, per: Duration::from_secs(1) }, build };

const BASE_URL: &str = "https://api.linkedin.com";
/// Versions are months, and live for a year.
const VERSION: &str = "202606";
const RESPONSES: &str = "/rest/leadFormResponses";
const FORMS: &str = "/rest/leadForms";
/// What of a response is read: all that it has by itself, and its form.
const FIELDS: &str = "ownerInfo,associatedEntityInfo,leadMetadataInfo,owner,leadType,leadMetadata,\
                      versionedLeadGenFormUrn,id,submittedAt,testLead,formResponse,\
                      form:(hiddenFields,creationLocale,name,id,content)";
const PAGE: usize = 100;
/// Forms remembered; a version of a form never changes.
const MOST_FORMS: usize = 1_000;
/// Kinds of leads that a company's own pages collect; an ad account has only the first.
const LEAD_TYPES: [&str; 4] = ["SPONSORED", "COMPANY", "EVENT", "ORGANIZATION_PRODUCT"];

struct LinkedIn {
    client: Client,
    /// As a query has them, escaped; and how many of the lead types they have.
    owners: Vec<(String, usize)>,
    /// By versioned URN: for answers that came without their form.
    forms: Mutex<HashMap<String, Value>>,
}

fn build(source: &config::Source, timeout: Duration) -> Built {
    let version = source.api_version.as_deref().unwrap_or(VERSION);
    if version.len() != 6 || !version.bytes().all(|c| c.is_ascii_digit()) {
        let why = format!("must be a year and a month, like \"{VERSION}\"").into();
        return Err(SourceErrorKind::Invalid { key: "api_version", why });
    }
    let owners =
        source.owners.iter().map(|urn| owner(urn)).collect::<Option<_>>().ok_or_else(|| {
            let why =
                "must be like \"urn:li:sponsoredAccount:1\" or \"urn:li:organization:1\"".into();
            SourceErrorKind::Invalid { key: "owners", why }
        })?;
    let client = Client::new(source, BASE_URL, Some(("linkedin-version", version)), timeout)?;
    Ok(Arc::new(LinkedIn { client, owners, forms: Mutex::default() }))
}

/// An owner as a query has it.
fn owner(urn: &str) -> Option<(String, usize)> {
    let (kind, number) = urn.strip_prefix("urn:li:")?.split_once(':')?;
    let lead_types = match kind {
        "sponsoredAccount" => 1,
        "organization" => LEAD_TYPES.len(),
        _ => return None,
    };
    let digits = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    digits.then(|| (format!("({kind}:urn%3Ali%3A{kind}%3A{number})"), lead_types))
}

#[async_trait]
impl Api for LinkedIn {
    fn object(&self) -> &'static str {
        "lead"
    }

    async fn read(&self, ids: &[&str]) -> Result<Vec<Reading>, CallError> {
        let mut readings = Vec::new();
        for id in ids {
            let answer =
                self.client.get(&format!("{RESPONSES}/{id}"), &format!("fields={FIELDS}")).await?;
            readings.push(match answer.status {
                200 => self.document(&answer).await?,
                _ => refusal(&answer)?,
            });
        }
        Ok(readings)
    }

    fn lists(&self) -> Result<(), &'static str> {
        match self.owners.is_empty() {
            true => {
                Err("needs `owners`, whose leads are looked for: \"urn:li:sponsoredAccount:1\"")
            }
            false => Ok(()),
        }
    }

    /// `next` says which owner, which of its lead types, and where to go on.
    async fn list(&self, since: Micros, next: Option<Value>) -> Result<Page, CallError> {
        let next = next.unwrap_or_default();
        let at =
            |name: &str| next[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let (which, lead_type, start) = (at("owner"), at("lead_type"), at("start"));
        let Some((owner, lead_types)) = self.owners.get(which) else { return Ok(Page::default()) };
        let name = LEAD_TYPES.get(lead_type).copied().unwrap_or("SPONSORED");
        let query = format!(
            "q=owner&owner={owner}&leadType=(leadType:{name})&limitedToTestLeads=false\
             &submittedAtTimeRange=(start:{},end:{})&fields=id,submittedAt&count={PAGE}&start={start}",
            since.div_euclid(1_000),
            jiff::Timestamp::now().as_millisecond(),
        );
        let answer = self.client.get(RESPONSES, &query).await?;
        if answer.status != 200 {
            return Err(listing_refused(&answer));
        }
        let body = answer.json()?;
        let elements = body["elements"].as_array().ok_or_else(|| unavailable("no elements"))?;
        let id = |element: &Value| element["id"].as_str().map(|id| (id.to_owned(), None));
        let found = elements.iter().filter_map(id).collect();
        let next = if elements.len() >= PAGE {
            Some(json!({ "owner": which, "lead_type": lead_type, "start": start + PAGE }))
        } else if lead_type + 1 < *lead_types {
            Some(json!({ "owner": which, "lead_type": lead_type + 1 }))
        } else {
            (which + 1 < self.owners.len()).then(|| json!({ "owner": which + 1 }))
        };
        Ok(Page { found, next })
    }

    async fn check(&self) -> Result<Vec<String>, CallError> {
        let Some((owner, _)) = self.owners.first() else {
            let words =
                "the token is not checked; set `owners` to have it checked, and for the poll";
            return Ok(vec![words.to_owned()]);
        };
        let answer =
            self.client.get(FORMS, &format!("q=owner&owner={owner}&count=1&start=0")).await?;
        match answer.status {
            200 => Ok(vec!["the token is valid, forms of the first owner can be read".to_owned()]),
            _ => Err(listing_refused(&answer)),
        }
    }
}

impl LinkedIn {
    /// The response with the questions of its form.
    async fn document(&self, answer: &Answer) -> Result<Reading, CallError> {
        let mut response = answer.json()?;
        if !response["formResponse"].is_object() {
            return Err(unavailable("the answer is no response to a form"));
        }
        if !response["form"]["content"]["questions"].is_array() {
            match self.form(response["versionedLeadGenFormUrn"].as_str()).await? {
                Ok(form) => response["form"] = form,
                Err(reading) => return Ok(reading),
            }
        }
        Ok(Reading::Document { body: Bytes::from(response.to_string()), changed_at: None })
    }

    /// The form of a versioned URN, asked for once; or what is to be said of the lead without it.
    async fn form(&self, urn: Option<&str>) -> Result<Result<Value, Reading>, CallError> {
        let id = urn.and_then(form_id);
        let (Some(urn), Some(id)) = (urn, id) else {
            return Ok(Err(Reading::Refused {
                code: "NO_FORM".to_owned(),
                message: "the response names no form, so nobody knows what was asked".to_owned(),
            }));
        };
        if let Some(form) = self.known_forms().get(urn) {
            return Ok(Ok(form.clone()));
        }
        let answer = self.client.get(&format!("{FORMS}/{id}"), "").await?;
        if answer.status != 200 {
            return refusal(&answer).map(Err);
        }
        let form = answer.json()?;
        if !form["content"]["questions"].is_array() {
            return Err(unavailable("the answer is no form"));
        }
        let mut known = self.known_forms();
        if known.len() >= MOST_FORMS {
            known.clear();
        }
        known.insert(urn.to_owned(), form.clone());
        Ok(Ok(form))
    }

    fn known_forms(&self) -> std::sync::MutexGuard<'_, HashMap<String, Value>> {
        self.forms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The id of `urn:li:versionedLeadGenForm:(urn:li:leadGenForm:7788990,1)`.
fn form_id(urn: &str) -> Option<&str> {
    let (_, rest) = urn.split_once("urn:li:leadGenForm:")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end).filter(|id| !id.is_empty())
}

/// What an answer that is none means for the lead, or for all.
fn refusal(answer: &Answer) -> Result<Reading, CallError> {
    let body = answer.json().unwrap_or_default();
    let said = body["message"].as_str();
    let code = answer.code(body["code"].as_str());
    let message = answer.words(said);
    match answer.status {
        404 => Ok(Reading::Missing { code, message }),
        // The version of the API is not alive any more.
        426 => Err(CallError::Misconfigured { code, message }),
        _ => match answer.trouble(&code, said) {
            Some(trouble) => Err(trouble),
            // Of this account perhaps, and not of others.
            None => Ok(Reading::Refused { code, message }),
        },
    }
}

/// In a listing nothing is about one lead.
fn listing_refused(answer: &Answer) -> CallError {
    match refusal(answer) {
        Err(error) => error,
        Ok(Reading::Missing { code, message } | Reading::Refused { code, message }) => {
            CallError::Refused { code, message }
        }
        Ok(_) => unavailable(answer.words(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urns_of_owners_and_forms() {
        let account = owner("urn:li:sponsoredAccount:522529623").unwrap();
        assert_eq!(account.0, "(sponsoredAccount:urn%3Ali%3AsponsoredAccount%3A522529623)");
        assert_eq!(owner("urn:li:organization:1").unwrap().1, LEAD_TYPES.len());
        for odd in ["522529623", "urn:li:person:1", "urn:li:organization:", "urn:li:organization:a"]
        {
            assert_eq!(owner(odd), None, "{odd}");
        }
        let urn = "urn:li:versionedLeadGenForm:(urn:li:leadGenForm:7788990,1)";
        assert_eq!(form_id(urn), Some("7788990"));
        assert_eq!(form_id("urn:li:leadGenForm:x"), None);
    }
}
