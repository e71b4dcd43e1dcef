//! The Graph API: one lead per call, leads of a form in pages. The token goes into a header, so that no address
//! carries it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::client::{Answer, Client, unavailable};
use super::{Api, Built, CallError, Kind, Page, Reading};
use crate::config::{self, Rate};
use crate::lead::Micros;
use crate::sources::SourceErrorKind;

/// Meta allows 4800 calls a day for each lead of the last 90 days; no page is that slow.
pub(super) const KIND: Kind =
    Kind { source: "meta", rate: Rate { calls: 10, per: Duration::from_secs(1) }, build };

const BASE_URL: &str = "https://graph.facebook.com";
/// Versions live for two years.
const VERSION: &str = "v24.0";
/// What of a lead is read.
const FIELDS: &str = "created_time,id,ad_id,ad_name,adset_id,adset_name,campaign_id,campaign_name,form_id,\
                      is_organic,platform,field_data,custom_disclaimer_responses";
const PAGE: usize = 100;
/// Header with how much of the budget of a business is used, as JSON.
const USAGE: &str = "x-business-use-case-usage";

struct Meta {
    client: Client,
    version: String,
    forms: Vec<String>,
}

fn build(source: &config::Source, timeout: Duration) -> Built {
    let version = source.api_version.as_deref().unwrap_or(VERSION);
    let digits = version.strip_prefix('v').and_then(|v| v.split_once('.'));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if !digits.is_some_and(|(major, minor)| number(major) && number(minor)) {
        let why = format!("must be written like \"{VERSION}\"").into();
        return Err(SourceErrorKind::Invalid { key: "api_version", why });
    }
    if !source.forms.iter().all(|form| number(form)) {
        let why = "must be ids of forms, which are numbers in quotes".into();
        return Err(SourceErrorKind::Invalid { key: "forms", why });
    }
    let client = Client::new(source, BASE_URL, None, timeout)?;
    Ok(Arc::new(Meta { client, version: version.to_owned(), forms: source.forms.clone() }))
}

#[async_trait]
impl Api for Meta {
    fn object(&self) -> &'static str {
        "lead"
    }

    async fn read(&self, ids: &[&str]) -> Result<Vec<Reading>, CallError> {
        let mut readings = Vec::new();
        for id in ids {
            let answer = self.get(id, &format!("fields={FIELDS}")).await?;
            readings.push(match answer.status {
                // An address that answers anything is not Graph.
                200 if answer.json()?["id"] == **id => {
                    Reading::Document { body: answer.body, changed_at: None }
                }
                200 => return Err(unavailable("the answer is no lead")),
                _ => refusal(&answer)?,
            });
        }
        Ok(readings)
    }

    /// `next` says which forms are left, and where in the first of them to go on.
    async fn list(&self, since: Micros, next: Option<Value>) -> Result<Page, CallError> {
        let (mut forms, after) = match next {
            Some(next) => (texts(&next["forms"]), next["after"].as_str().map(str::to_owned)),
            None if !self.forms.is_empty() => (self.forms.clone(), None),
            None => {
                // The token is of a page, and that page is `me`.
                let forms = self.forms_after(None).await?;
                return Ok(Page { found: Vec::new(), next: forms });
            }
        };
        if let Some(more) = next_forms(&forms) {
            let forms = self.forms_after(Some(more)).await?;
            return Ok(Page { found: Vec::new(), next: forms });
        }
        let Some(form) = forms.first().cloned() else { return Ok(Page::default()) };
        let filter = json!([{
            "field": "time_created", "operator": "GREATER_THAN", "value": since.div_euclid(1_000_000)
        }]);
        let after = after.map(|after| format!("&after={}", escaped(&after))).unwrap_or_default();
        let filter = escaped(&filter.to_string());
        let query = format!("fields=id,created_time&limit={PAGE}&filtering={filter}{after}");
        let answer = self.get(&format!("{form}/leads"), &query).await?;
        if answer.status != 200 {
            return Err(listing_refused(&answer));
        }
        let body = answer.json()?;
        let ids = body["data"].as_array().into_iter().flatten();
        let found = ids.filter_map(|lead| Some((lead["id"].as_str()?.to_owned(), None))).collect();
        let after = after_of(&body);
        if after.is_none() {
            forms.remove(0);
        }
        let next = (!forms.is_empty()).then(|| json!({ "forms": forms, "after": after }));
        Ok(Page { found, next })
    }

    async fn check(&self) -> Result<Vec<String>, CallError> {
        let answer = self.get("me", "fields=id,name").await?;
        if answer.status != 200 {
            return Err(listing_refused(&answer));
        }
        let page = answer.json()?["id"].as_str().unwrap_or("(no id)").to_owned();
        let mut found = vec![format!("the token is valid, for page {page}")];
        let answer = self.get("me/leadgen_forms", "fields=id&limit=1").await?;
        if answer.status != 200 {
            return Err(listing_refused(&answer));
        }
        found.push("the page's lead forms can be read".to_owned());
        Ok(found)
    }
}

/// Stands first in the list of forms while there are pages of them left.
const MORE_FORMS: &str = "after:";

fn next_forms(forms: &[String]) -> Option<(&str, &[String])> {
    let (first, rest) = forms.split_first()?;
    Some((first.strip_prefix(MORE_FORMS)?, rest))
}

impl Meta {
    async fn get(&self, path: &str, query: &str) -> Result<Answer, CallError> {
        self.client.get(&format!("/{}/{path}", self.version), query).await
    }

    /// A page of the page's forms: the state to go on with, the forms of this page behind those there are.
    async fn forms_after(
        &self,
        more: Option<(&str, &[String])>,
    ) -> Result<Option<Value>, CallError> {
        let after = more.map(|(after, _)| format!("&after={}", escaped(after)));
        let query = format!("fields=id&limit={PAGE}{}", after.unwrap_or_default());
        let answer = self.get("me/leadgen_forms", &query).await?;
        if answer.status != 200 {
            return Err(listing_refused(&answer));
        }
        let body = answer.json()?;
        let mut forms: Vec<String> =
            after_of(&body).map(|a| format!("{MORE_FORMS}{a}")).into_iter().collect();
        forms.extend(more.map(|(_, rest)| rest.to_vec()).unwrap_or_default());
        let ids = body["data"].as_array().into_iter().flatten();
        let digits = |id: &&str| !id.is_empty() && id.bytes().all(|c| c.is_ascii_digit());
        forms.extend(ids.filter_map(|form| form["id"].as_str()).filter(digits).map(str::to_owned));
        Ok((!forms.is_empty()).then(|| json!({ "forms": forms })))
    }
}

/// Where the next page begins; a page without a `next` is the last, though it has cursors.
fn after_of(body: &Value) -> Option<String> {
    body["paging"]["next"].as_str()?;
    body["paging"]["cursors"]["after"].as_str().map(str::to_owned)
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn escaped(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// What an answer that is none means for the lead, or for all.
fn refusal(answer: &Answer) -> Result<Reading, CallError> {
    let body = answer.json().unwrap_or_default();
    let error = &body["error"];
    let number = error["code"].as_i64();
    let code = number.map_or_else(|| answer.status.to_string(), |code| code.to_string());
    let words = answer.words(error["message"].as_str());
    match number {
        // The session, or the token, is over.
        Some(102 | 190 | 463 | 467) => Err(CallError::Credentials { code, message: words }),
        // Per app, per user, per page, per business.
        Some(4 | 17 | 32 | 613 | 80_000..=80_014) => {
            let after = answer.retry_after().or_else(|| regain_access(answer));
            Err(CallError::SlowDown { after, message: words })
        }
        Some(1 | 2) => Err(CallError::Unavailable { after: None, message: words }),
        // "Does not exist, cannot be loaded due to missing permissions, or does not support this operation".
        Some(100) => Ok(Reading::Missing { code, message: words }),
        _ => match answer.trouble(&code, error["message"].as_str()) {
            Some(trouble) => Err(trouble),
            None if answer.status == 404 => Ok(Reading::Missing { code, message: words }),
            // Permissions (10, 200 to 299) among them: of this page, perhaps not of others.
            None => Ok(Reading::Refused { code, message: words }),
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

/// The longest "estimated time to regain access", which is in minutes.
fn regain_access(answer: &Answer) -> Option<Duration> {
    let usage: Value = serde_json::from_slice(answer.headers.get(USAGE)?.as_bytes()).ok()?;
    let of_businesses = usage.as_object()?.values();
    let minutes = of_businesses
        .flat_map(|list| list.as_array().into_iter().flatten())
        .filter_map(|one| one["estimated_time_to_regain_access"].as_u64())
        .max()
        .filter(|minutes| *minutes > 0)?;
    Some(Duration::from_secs(minutes.min(24 * 60) * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, headers: &[(&'static str, &str)], code: Option<i64>) -> Answer {
        let headers = headers
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap()));
        let body = code.map(|code| json!({"error": {"message": "m", "code": code}}).to_string());
        Answer {
            status,
            headers: headers.collect(),
            body: body.unwrap_or_else(|| "<html>".to_owned()).into(),
        }
    }

    #[test]
    fn what_an_error_is_about() {
        for (status, code, about) in [
            (400, Some(190), "credentials: 190"),
            (401, Some(102), "credentials: 102"),
            (401, None, "credentials: 401"),
            (400, Some(4), "asked to slow down"),
            (400, Some(80_005), "asked to slow down"),
            (429, None, "asked to slow down"),
            (400, Some(1), "unavailable"),
            (500, Some(999), "unavailable"),
            (502, None, "unavailable"),
            (302, None, "misconfigured: 302"),
            (400, Some(100), "missing 100"),
            (404, None, "missing 404"),
            (400, Some(10), "refused 10"),
            (403, Some(200), "refused 200"),
            (400, None, "refused 400"),
        ] {
            let said = match refusal(&answer(status, &[], code)) {
                Err(error) => error.to_string(),
                Ok(Reading::Missing { code, .. }) => format!("missing {code}"),
                Ok(Reading::Refused { code, .. }) => format!("refused {code}"),
                Ok(other) => panic!("{other:?}"),
            };
            assert!(said.starts_with(about), "{status} {code:?}: {said}");
        }
    }

    #[test]
    fn how_long_to_slow_down() {
        let usage = r#"{"1":[{"estimated_time_to_regain_access":3},{"estimated_time_to_regain_access":7}],"2":[],"3":4}"#;
        let after = |headers: &[(&'static str, &str)]| match refusal(&answer(400, headers, Some(4)))
        {
            Err(CallError::SlowDown { after, .. }) => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after(&[(USAGE, usage)]), Some(Duration::from_secs(420)));
        assert_eq!(after(&[(USAGE, usage), ("retry-after", "5")]), Some(Duration::from_secs(5)));
        let none = r#"{"1":[{"estimated_time_to_regain_access":0}]}"#;
        for usage in [none, "", "[]", "{", r#"{"1":[{"estimated_time_to_regain_access":-1}]}"#] {
            assert_eq!(after(&[(USAGE, usage)]), None, "{usage}");
        }
        let long = r#"{"1":[{"estimated_time_to_regain_access":18446744073709551615}]}"#;
        assert_eq!(after(&[(USAGE, long)]), Some(Duration::from_secs(86_400)));
    }

    #[test]
    fn forms_come_in_pages() {
        let forms = ["after:x".to_owned(), "1".to_owned()];
        assert_eq!(next_forms(&forms), Some(("x", &forms[1..])));
        assert_eq!(next_forms(&forms[1..]), None);
        let body = json!({"paging": {"cursors": {"after": "a"}}});
        assert_eq!(after_of(&body), None, "the last page has cursors, too");
    }
}
