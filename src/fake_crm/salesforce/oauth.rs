//! `POST /services/oauth2/token` and the sessions it opens.

use std::collections::BTreeMap;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;

use super::super::exchange::{Answer, Request};
use super::{Account, Options};

fn refused(status: u16, error: &str, description: &str) -> Answer {
    Answer::json(status, &json!({"error": error, "error_description": description}))
}

pub(super) fn token(account: &mut Account, options: &Options, request: &Request) -> Answer {
    if request.method != "POST" {
        return refused(400, "invalid_request", "must use HTTP POST");
    }
    let mut form: BTreeMap<String, String> =
        form_urlencoded::parse(&request.body).into_owned().collect();
    if let Some((id, secret)) = basic(request) {
        form.insert("client_id".to_owned(), id);
        form.insert("client_secret".to_owned(), secret);
    }
    let is = |name: &str, expected: &Option<String>| match form.get(name) {
        Some(given) => !given.is_empty() && expected.as_ref().is_none_or(|e| e == given),
        None => false,
    };
    if !is("client_id", &options.client_id) {
        return refused(400, "invalid_client_id", "client identifier invalid");
    }
    if !is("client_secret", &options.client_secret) {
        return refused(400, "invalid_client", "invalid client credentials");
    }
    let mut rotated = None;
    match form.get("grant_type").map(String::as_str) {
        Some("client_credentials") if options.client_credentials => {}
        Some("client_credentials") => {
            return refused(400, "invalid_grant", "no client credentials user enabled");
        }
        Some("refresh_token") => {
            let expected = account.refresh_token.clone().or_else(|| options.refresh_token.clone());
            if !is("refresh_token", &expected) {
                return refused(400, "invalid_grant", "expired access/refresh token");
            }
            if options.rotate_refresh_tokens {
                let next = format!("5Aep{}", uuid::Uuid::new_v4().simple());
                account.refresh_token = Some(next.clone());
                rotated = Some(next);
            }
        }
        _ => return refused(400, "unsupported_grant_type", "grant type not supported"),
    }
    let token = format!("00D000000000001!{}", uuid::Uuid::new_v4().simple());
    account.sessions.insert(token.clone(), Instant::now());
    let here = format!("http://{}", request.header("host").unwrap_or("localhost"));
    let mut answer = json!({
        "access_token": token, "instance_url": here, "token_type": "Bearer", "scope": "api",
        "id": format!("{here}/id/00D000000000001EAA/005000000000001AAA"),
        "issued_at": jiff::Timestamp::now().as_millisecond().to_string(),
        "signature": "c3RhbmQtaW4=",
    });
    if let Some(refresh) = rotated {
        answer["refresh_token"] = json!(refresh);
    }
    Answer::json(200, &answer)
}

fn basic(request: &Request) -> Option<(String, String)> {
    let encoded = request.header("authorization")?.strip_prefix("Basic ")?;
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded).ok()?).ok()?;
    let (id, secret) = text.split_once(':')?;
    Some((id.to_owned(), secret.to_owned()))
}

/// Whether the request carries a session that is still open.
pub(super) fn is_in_session(account: &Account, options: &Options, request: &Request) -> bool {
    request
        .header("authorization")
        .and_then(|v| v.strip_prefix("Bearer "))
        .and_then(|token| account.sessions.get(token))
        .is_some_and(|since| since.elapsed() < options.session)
}
