//! `/v1/leads`: leads from people's own code, and what is known about one lead.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::{Value, json};
use tracing::info_span;
use warp::reply::Response;

use super::auth::authorize;
use super::body::{Arrived, is_utf8};
use super::hooks::{Answer, answers, detached};
use super::ops::read_only;
use super::{Context, HttpError};
use crate::lead::{Email, LeadPatch, Outcome};
use crate::receive::ItemOutcome;
use crate::sources;

/// Most leads in one request.
const MAX_ITEMS: usize = 10_000;

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
    let mut bad = Vec::new();
    let mut errors = Vec::new();
    for (item, lead) in items.leads.into_iter().enumerate() {
        match lead.and_then(|value| patch(&value, context)) {
            Ok(patch) => patches.push(patch),
            Err(problems) => {
                bad.push((item, problems.first().map_or("invalid", |p| p.code)));
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
    answer(&stored, &bad, &errors, items.single)
}

/// 200 where every item is good, else 422 that also says what became of the good ones.
fn answer(
    stored: &[ItemOutcome],
    bad: &[(usize, &'static str)],
    errors: &[ItemError],
    single: bool,
) -> Result<Response, HttpError> {
    let mut outcomes = answers(stored);
    // By rising position, so each one finds those before it already in their places.
    for (item, reason) in bad {
        let refused = Answer {
            outcome: Outcome::Rejected.name(),
            lead_id: None,
            reason: Some((*reason).to_owned()),
        };
        outcomes.insert((*item).min(outcomes.len()), refused);
    }
    if bad.is_empty() {
        return match outcomes.as_slice() {
            [one] if single => super::json(one),
            several => super::json(&json!({ "outcomes": several })),
        };
    }
    let detail = match (bad.len(), stored.len()) {
        (_, 0) => "nothing was stored; `errors` names each bad field".to_owned(),
        (bad, good) => {
            format!("{bad} items were refused, {good} taken; `errors` names each bad field")
        }
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

#[derive(Debug, Serialize)]
struct Problem {
    field: String,
    code: &'static str,
    message: String,
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

/// How the leads of a body are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One object or an array of them.
    Json,
    /// One object per line.
    Lines,
}

struct Items {
    leads: Vec<Result<Value, Vec<Problem>>>,
    /// One object that was not in an array: answered without one too.
    single: bool,
}

impl Form {
    /// By content type, which must be there: a browser can be made to send a request without one,
    /// or as text or form, to this machine from any page.
    fn of(arrived: &Arrived) -> Result<Form, HttpError> {
        let detail = "send application/json or application/x-ndjson, in UTF-8";
        let refused = || HttpError::unsupported_media_type(detail);
        let (media_type, charset) = arrived.content_type().ok_or_else(refused)?;
        if charset.is_some_and(|charset| !is_utf8(&charset)) {
            return Err(refused());
        }
        match media_type.as_str() {
            "application/json" => Ok(Form::Json),
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Form::Lines),
            other if other.starts_with("application/") && other.ends_with("+json") => {
                Ok(Form::Json)
            }
            _ => Err(refused()),
        }
    }

    fn items(self, body: &Bytes) -> Result<Items, HttpError> {
        let text = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
        if text.trim_ascii().is_empty() {
            return Err(HttpError::bad_request("empty_body", "the body is empty"));
        }
        match self {
            Form::Json => {
                let value =
                    parse(text).map_err(|what| HttpError::bad_request("malformed_json", what))?;
                match value {
                    Value::Array(values) => {
                        Ok(Items { leads: values.into_iter().map(Ok).collect(), single: false })
                    }
                    Value::Object(_) => Ok(Items { leads: vec![Ok(value)], single: true }),
                    _ => Err(HttpError::unprocessable(
                        "not_a_lead",
                        "the body is neither an object nor an array of objects",
                    )),
                }
            }
            // A line that is no JSON harms only itself.
            Form::Lines => {
                let lines =
                    text.split(|byte| *byte == b'\n').filter(|l| !l.trim_ascii().is_empty());
                let lead = |line| parse(line).map_err(|what| vec![malformed(what)]);
                Ok(Items { leads: lines.take(MAX_ITEMS + 1).map(lead).collect(), single: false })
            }
        }
    }
}

fn malformed(message: String) -> Problem {
    Problem { field: String::new(), code: "malformed_json", message }
}

/// Strict JSON: nothing after it, valid UTF-8, at most 127 levels deep. Of a key written twice the
/// last counts. The error says where and what kind, and nothing of the input.
fn parse(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| {
        let what = if error.is_eof() { "ends too early" } else { "is not JSON" };
        format!("the text {what}, see line {} column {}", error.line(), error.column())
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

    fn lines(text: &str) -> Items {
        Form::Lines.items(&Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn json_error(text: &[u8]) -> (u16, String) {
        match Form::Json.items(&Bytes::copy_from_slice(text)) {
            Ok(items) => panic!("{} items", items.leads.len()),
            Err(error) => shown(Err(error)),
        }
    }

    /// Status and body.
    fn shown(answer: Result<Response, HttpError>) -> (u16, String) {
        let response = crate::http::finish(answer, RequestId::new());
        let status = response.status().as_u16();
        let body = futures_util::FutureExt::now_or_never(response.into_body().collect());
        (status, String::from_utf8(body.unwrap().unwrap().to_bytes().to_vec()).unwrap())
    }

    #[test]
    fn bodies_that_are_not_json() {
        for text in [
            &b""[..],
            b" \n ",
            b"\xef\xbb\xbf",
            b"{\"email\":\"a@b.c\"",
            b"{\"email\":\"a@b.c\",}",
            b"{'email':'a@b.c'}",
            b"{\"email\":NaN}",
            b"{} {}",
            b"{}x",
            b"// c\n{}",
            b"{\"email\":\"\xff\"}",
            b"{\"email\":\"\\ud800\"}",
            b"{\"a\":1e400}",
            b"{\"a\":\"\n\"}",
            b"\xff\xfe{\0}\0",
            "[".repeat(1000).as_bytes(),
            ("[".repeat(128) + &"]".repeat(128)).as_bytes(),
        ] {
            let (status, body) = json_error(text);
            assert_eq!(status, 400, "{} {body}", String::from_utf8_lossy(text));
            assert!(!body.contains("a@b.c"), "echoes input: {body}");
        }
    }

    #[test]
    fn json_that_is_no_lead() {
        for text in ["null", "\"x\"", "1", "true"] {
            assert_eq!(json_error(text.as_bytes()).0, 422, "{text}");
        }
    }

    #[test]
    fn one_object_is_single_and_an_array_is_not() {
        let of =
            |text: &'static str| Form::Json.items(&Bytes::from_static(text.as_bytes())).unwrap();
        assert!(of("{}").single);
        assert!(of("\u{feff} {} ").single);
        let array = of("[{}, 1]");
        assert_eq!((array.leads.len(), array.single), (2, false));
        assert_eq!(of("[]").leads.len(), 0);
        let twice = of(r#"{"a":1,"a":2}"#).leads.remove(0).unwrap();
        assert_eq!(twice, json!({"a": 2}), "the last of a repeated key counts");
    }

    #[test]
    fn a_bad_line_harms_only_itself() {
        let items = lines("\u{feff}{\"n\":1}\r\n\n  \n{\"n\":\n{\"n\":3}");
        let good: Vec<bool> = items.leads.iter().map(Result::is_ok).collect();
        assert_eq!(good, [true, false, true]);
        assert!(!items.single);
    }

    #[test]
    fn endless_lines_stop_at_the_limit() {
        assert_eq!(lines(&"1\n".repeat(MAX_ITEMS * 2)).leads.len(), MAX_ITEMS + 1);
    }

    #[test]
    fn outcomes_stand_in_the_order_of_the_request() {
        let stored = |outcome| ItemOutcome { outcome, lead_id: Some(Uuid::nil()), reason: None };
        let stored = [stored(Outcome::Created), stored(Outcome::Updated)];
        let errors = [
            ItemError { item: 0, problem: malformed("m".into()) },
            ItemError { item: 2, problem: malformed("m".into()) },
            ItemError { item: 4, problem: malformed("m".into()) },
        ];
        let bad = [(0, "a"), (2, "b"), (4, "c")];
        let (status, body) = shown(answer(&stored, &bad, &errors, false));
        assert_eq!(status, 422);
        let body: Value = serde_json::from_str(&body).unwrap();
        let words: Vec<&str> = body["outcomes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|o| o["reason"].as_str().unwrap_or(o["outcome"].as_str().unwrap()))
            .collect();
        assert_eq!(words, ["a", "created", "b", "updated", "c"]);
        let error = &body["errors"][1];
        assert_eq!(
            error,
            &json!({"item": 2, "field": "", "code": "malformed_json", "message": "m"})
        );
    }

    #[test]
    fn good_answers() {
        let one = [ItemOutcome { outcome: Outcome::Unchanged, lead_id: None, reason: None }];
        assert_eq!(shown(answer(&one, &[], &[], true)), (200, r#"{"outcome":"unchanged"}"#.into()));
        let in_array = r#"{"outcomes":[{"outcome":"unchanged"}]}"#;
        assert_eq!(shown(answer(&one, &[], &[], false)), (200, in_array.into()));
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
