//! `/v1/leads`: leads from people's own code, and what is known about one lead.

use std::sync::Arc;

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use tracing::info_span;
use warp::reply::Response;

use super::auth::authorize;
use super::body::{Arrived, is_utf8};
use super::hooks::{answers, detached};
use super::ops::read_only;
use super::{Context, HttpError};
use crate::lead::Email;
use crate::receive::{ApiDelivery, ItemOutcome};
use crate::sources::api::{self, Form, Leads};
use crate::sources::folding;
use crate::sources::json::Problem;

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
    let email = Email::parse(&text, folding(context.leads.email_folding)).map_err(|_| invalid())?;
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
    let form = form(arrived)?;
    let body = arrived.read_body(context.max_body).await?;
    let leads = api::read(form, &body, &context.leads)?;
    let delivery =
        ApiDelivery { items: leads.items(), body, form, idempotency_key: key.map(str::to_owned) };
    let outcomes = if delivery.items.is_empty() {
        Vec::new()
    } else {
        let receiver = context.receiver.clone();
        let span = info_span!("delivery", request.id = %arrived.id);
        detached(span, async move { receiver.deliver_api(delivery).await }).await?
    };
    answer(&outcomes, leads)
}

/// By content type, which must be there: a browser can be made to send a request without one, or as
/// text or form, to this machine from any page.
fn form(arrived: &Arrived) -> Result<Form, HttpError> {
    let detail = "send application/json or application/x-ndjson, in UTF-8";
    let refused = || HttpError::unsupported_media_type(detail);
    let (media_type, charset) = arrived.content_type().ok_or_else(refused)?;
    if charset.is_some_and(|charset| !is_utf8(&charset)) {
        return Err(refused());
    }
    Form::of(&media_type).ok_or_else(refused)
}

/// 200 where every item is good, else 422 that also says what became of the good ones.
fn answer(outcomes: &[ItemOutcome], leads: Leads) -> Result<Response, HttpError> {
    let answers = answers(outcomes);
    let single = leads.single;
    let good = leads.leads.iter().filter(|lead| lead.is_ok()).count();
    let errors: Vec<ItemError> = leads
        .leads
        .into_iter()
        .enumerate()
        .filter_map(|(item, lead)| Some((item, lead.err()?)))
        .flat_map(|(item, problems)| {
            problems.into_iter().map(move |problem| ItemError { item, problem })
        })
        .collect();
    if errors.is_empty() {
        return match answers.as_slice() {
            [one] if single => super::json(one),
            several => super::json(&json!({ "outcomes": several })),
        };
    }
    let detail = match (outcomes.len() - good, good) {
        (_, 0) => "no lead was taken; `errors` names each bad field".to_owned(),
        (bad, good) => format!("{bad} refused and {good} taken; `errors` names each bad field"),
    };
    Err(HttpError::unprocessable("invalid_leads", detail)
        .with_member("errors", serde_json::to_value(errors).map_err(HttpError::internal)?)
        .with_member("outcomes", serde_json::to_value(answers).map_err(HttpError::internal)?))
}

/// One thing that is wrong with one item.
#[derive(Debug, Serialize)]
struct ItemError {
    /// Position in the request, from 0; blank lines of NDJSON do not count.
    item: usize,
    #[serde(flatten)]
    problem: Problem,
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
    use serde_json::Value;

    use super::*;
    use crate::http::RequestId;
    use crate::lead::email::Folding;
    use crate::lead::{LeadPatch, Outcome};

    /// Status and body.
    fn shown(answer: Result<Response, HttpError>) -> (u16, String) {
        let response = crate::http::finish(answer, RequestId::new());
        let status = response.status().as_u16();
        let body = futures_util::FutureExt::now_or_never(response.into_body().collect());
        (status, String::from_utf8(body.unwrap().unwrap().to_bytes().to_vec()).unwrap())
    }

    fn patch() -> LeadPatch {
        LeadPatch::new(Email::parse("a@b.example", Folding::None).unwrap(), String::new())
    }

    fn outcome(outcome: Outcome, reason: Option<&str>) -> ItemOutcome {
        ItemOutcome { outcome, lead_id: None, reason: reason.map(str::to_owned) }
    }

    #[test]
    fn bad_items_are_named_and_good_ones_told() {
        let bad = || Err(vec![Problem { field: "f".into(), code: "b", message: "m".into() }]);
        let leads = Leads { leads: vec![bad(), Ok(patch()), bad()], single: false };
        let outcomes = [
            outcome(Outcome::Rejected, Some("b")),
            outcome(Outcome::Created, None),
            outcome(Outcome::Rejected, Some("b")),
        ];
        let (status, body) = shown(answer(&outcomes, leads));
        assert_eq!(status, 422);
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["outcomes"][1]["outcome"], "created");
        assert_eq!(body["outcomes"][2]["reason"], "b");
        assert_eq!(
            body["errors"][1],
            json!({"item": 2, "field": "f", "code": "b", "message": "m"})
        );
        assert_eq!(body["code"], "invalid_leads");
    }

    #[test]
    fn good_answers() {
        let one = [outcome(Outcome::Unchanged, None)];
        let leads = |single| Leads { leads: vec![Ok(patch())], single };
        assert_eq!(shown(answer(&one, leads(true))), (200, r#"{"outcome":"unchanged"}"#.into()));
        let in_array = r#"{"outcomes":[{"outcome":"unchanged"}]}"#;
        assert_eq!(shown(answer(&one, leads(false))), (200, in_array.into()));
        let none = Leads { leads: vec![], single: false };
        assert_eq!(shown(answer(&[], none)), (200, r#"{"outcomes":[]}"#.into()));
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
