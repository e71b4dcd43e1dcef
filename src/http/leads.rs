//! `/v1/leads`: leads from people's own code, and what is known about one lead.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info_span;
use warp::reply::Response;

use super::auth::authorize;
use super::body::Arrived;
use super::hooks::{Answer, detached};
use super::items::{Form, MAX_ITEMS, Problem};
use super::ops::read_only;
use super::{Context, HttpError};
use crate::lead::{Email, LeadPatch, Outcome};
use crate::receive::ItemOutcome;
use crate::sources;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// `POST /v1/leads`
pub(super) async fn take(context: Arc<Context>, arrived: Arrived) -> Response {
    let id = arrived.id;
    super::finish(handle(&context, arrived).await, id)
}

/// `GET /v1/leads/{email}`
pub(super) async fn show(email: String, context: Arc<Context>, arrived: Arrived) -> Response {
    let id = arrived.id;
    super::finish(look_up(&email, &context, arrived).await, id)
}

async fn look_up(email: &str, context: &Context, arrived: Arrived) -> Result<Response, HttpError> {
    authorize(context, &arrived)?;
    read_only(&arrived.method)?;
    let invalid = || HttpError::unprocessable("invalid_email", "the path names no e-mail address");
    let text = percent_decode_str(email).decode_utf8().map_err(|_| invalid())?;
    let email = Email::parse(&text).map_err(|_| invalid())?;
    let lead = context.store.lead_view(&email).await?;
    super::json(&lead.ok_or_else(HttpError::not_found)?)
}

async fn handle(context: &Context, mut arrived: Arrived) -> Result<Response, HttpError> {
    authorize(context, &arrived)?;
    if arrived.method != Method::POST {
        return Err(HttpError::method_not_allowed("POST"));
    }
    let key = idempotency_key(&arrived.headers)?;
    let answer = store(context, &mut arrived, key.as_deref()).await;
    let Some(key) = key else { return answer };
    let echo = HeaderValue::from_str(&key).map_err(HttpError::internal)?;
    match answer {
        Ok(mut response) => {
            response.headers_mut().insert(IDEMPOTENCY_KEY, echo);
            Ok(response)
        }
        Err(error) => Err(error.with_header(IDEMPOTENCY_KEY, echo)),
    }
}

async fn store(
    context: &Context,
    arrived: &mut Arrived,
    key: Option<&str>,
) -> Result<Response, HttpError> {
    let form = Form::of(arrived)?;
    let body = arrived.read_body(context.max_body).await?;
    let items = form.items(&body)?;
    if items.leads.len() > MAX_ITEMS {
        let detail = format!("one request may carry {MAX_ITEMS} leads; nothing of it was stored");
        return Err(HttpError::unprocessable("too_many_items", detail));
    }
    let mut patches = Vec::with_capacity(items.leads.len());
    let mut refused = Vec::with_capacity(items.leads.len());
    let mut errors = Vec::new();
    for (item, lead) in items.leads.into_iter().enumerate() {
        match lead.and_then(|value| patch(&value, context)) {
            Ok(patch) => {
                patches.push(patch);
                refused.push(None);
            }
            Err(problems) => {
                refused.push(Some(problems.first().map_or("invalid", |problem| problem.code)));
                errors.extend(problems.into_iter().map(|problem| ItemError { item, problem }));
            }
        }
    }
    let stored = if patches.is_empty() {
        Vec::new()
    } else {
        let receiver = context.receiver.clone();
        let key = key.map(str::to_owned);
        let span = info_span!("delivery", request.id = %arrived.id);
        detached(span, async move { receiver.deliver_patches(patches, body, key).await }).await?
    };
    answer(&stored, &refused, &errors, items.single)
}

/// 200 where every item is good, else 422 that also says what became of the good ones. `refused` has
/// the reason of each item that was, in the order of the request; `stored` the outcomes of the others.
fn answer(
    stored: &[ItemOutcome],
    refused: &[Option<&'static str>],
    errors: &[ItemError],
    single: bool,
) -> Result<Response, HttpError> {
    let mut good = stored.iter();
    let outcomes: Vec<Answer> = refused
        .iter()
        .filter_map(|item| match item {
            Some(reason) => Some(Answer {
                outcome: Outcome::Rejected.name(),
                lead_id: None,
                reason: Some((*reason).to_owned()),
            }),
            None => good.next().map(Answer::from),
        })
        .collect();
    let bad = refused.iter().flatten().count();
    if bad == 0 {
        return match outcomes.as_slice() {
            [one] if single => super::json(one),
            several => super::json(&json!({ "outcomes": several })),
        };
    }
    let detail = match stored.len() {
        0 => "nothing was stored; `errors` names each bad field".to_owned(),
        good => format!("{bad} refused and {good} taken; `errors` names each bad field"),
    };
    Err(HttpError::unprocessable("invalid_leads", detail)
        .with_member("errors", serde_json::to_value(errors).map_err(HttpError::internal)?)
        .with_member("outcomes", serde_json::to_value(outcomes).map_err(HttpError::internal)?))
}

/// One thing that is wrong with one item.
#[derive(Debug, Serialize)]
struct ItemError {
    /// Position in the request, from 0; blank lines of NDJSON do not count.
    item: usize,
    #[serde(flatten)]
    problem: Problem,
}

fn patch(value: &Value, context: &Context) -> Result<LeadPatch, Vec<Problem>> {
    sources::json::canonical(value, &context.leads).map_err(|problems| {
        let problem = |p: sources::json::Problem| Problem {
            field: p.field,
            code: p.code,
            message: p.message,
        };
        problems.into_iter().map(problem).collect()
    })
}

/// The key as sent, at most 255 visible ASCII characters.
fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, HttpError> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| {
        (1..=255).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    match (key, values.next()) {
        (Some(key), None) => Ok(Some(key.to_owned())),
        _ => Err(HttpError::unprocessable(
            "invalid_idempotency_key",
            "an Idempotency-Key is one header of 1 to 255 visible ASCII characters",
        )),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use uuid::Uuid;

    use super::*;
    use crate::http::RequestId;

    /// Status and body.
    fn shown(answer: Result<Response, HttpError>) -> (u16, String) {
        let response = crate::http::finish(answer, RequestId::new());
        let status = response.status().as_u16();
        let body = futures_util::FutureExt::now_or_never(response.into_body().collect());
        (status, String::from_utf8(body.unwrap().unwrap().to_bytes().to_vec()).unwrap())
    }

    #[test]
    fn outcomes_stand_in_the_order_of_the_request() {
        let stored = |outcome| ItemOutcome { outcome, lead_id: Some(Uuid::nil()), reason: None };
        let stored = [stored(Outcome::Created), stored(Outcome::Updated)];
        let problem = || Problem { field: "f".into(), code: "b", message: "m".into() };
        let errors = [0, 2, 4].map(|item| ItemError { item, problem: problem() });
        let refused = [Some("a"), None, Some("b"), None, Some("c")];
        let (status, body) = shown(answer(&stored, &refused, &errors, false));
        assert_eq!(status, 422);
        let body: Value = serde_json::from_str(&body).unwrap();
        let words: Vec<&str> = body["outcomes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["reason"].as_str().unwrap_or(o["outcome"].as_str().unwrap()))
            .collect();
        assert_eq!(words, ["a", "created", "b", "updated", "c"]);
        let error = json!({"item": 2, "field": "f", "code": "b", "message": "m"});
        assert_eq!(body["errors"][1], error);
        assert_eq!(body["code"], "invalid_leads");
    }

    #[test]
    fn good_answers() {
        let one = [ItemOutcome { outcome: Outcome::Unchanged, lead_id: None, reason: None }];
        let bare = r#"{"outcome":"unchanged"}"#;
        assert_eq!(shown(answer(&one, &[None], &[], true)), (200, bare.into()));
        let in_array = r#"{"outcomes":[{"outcome":"unchanged"}]}"#;
        assert_eq!(shown(answer(&one, &[None], &[], false)), (200, in_array.into()));
        assert_eq!(shown(answer(&[], &[], &[], false)), (200, r#"{"outcomes":[]}"#.into()));
    }

    #[test]
    fn idempotency_keys() {
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            idempotency_key(&headers).ok()
        };
        assert_eq!(of(&[]), Some(None));
        let longest = "k".repeat(255);
        assert_eq!(of(&[&longest]), Some(Some(longest.clone())));
        for bad in [&[""][..], &["a b"], &["ü"], &["a", "a"], &[&format!("{longest}k")]] {
            assert_eq!(of(bad), None, "{bad:?}");
        }
    }
}
