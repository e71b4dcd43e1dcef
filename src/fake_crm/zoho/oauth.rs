//! `POST /oauth/v2/token`, access tokens, and what they are good for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;

use super::super::exchange::{Answer, Request};
use super::{Account, Module, Options, errors};

/// What leadsync's documentation asks for.
pub(super) fn all_scopes() -> BTreeSet<String> {
    [
        "ZohoCRM.modules.leads.ALL",
        "ZohoCRM.modules.contacts.ALL",
        "ZohoCRM.settings.fields.READ",
        "ZohoCRM.coql.READ",
    ]
    .map(str::to_owned)
    .into()
}

pub(super) fn token(account: &mut Account, options: &Options, request: &Request) -> Answer {
    // Zoho's own pages show them in the query, their clients send a form.
    let form: BTreeMap<String, String> = [request.query.as_bytes(), &request.body]
        .into_iter()
        .flat_map(|sent| form_urlencoded::parse(sent).into_owned())
        .collect();
    let status = if options.refuses_grants_with_200 { 200 } else { 400 };
    let refused = |error: &str| Answer::json(status, &json!({ "error": error }));
    let is = |name: &str, expected: &Option<String>| match form.get(name) {
        Some(given) => !given.is_empty() && expected.as_ref().is_none_or(|e| e == given),
        None => false,
    };
    if request.method != "POST" || form.get("grant_type").is_none_or(|g| g != "refresh_token") {
        return refused("invalid_request");
    }
    if !is("client_id", &options.client_id) {
        return refused("invalid_client");
    }
    if !is("client_secret", &options.client_secret) {
        return refused("invalid_client_secret");
    }
    if !is("refresh_token", &options.refresh_token) {
        return refused("invalid_code");
    }
    let recent = account.tokens.values().filter(|since| since.elapsed() < Duration::from_secs(600));
    if recent.count() >= options.tokens_in_ten_minutes {
        let body = json!({
            "error": "Access Denied", "status": "failure",
            "error_description":
                "You have made too many requests continuously. Please try again after some time.",
        });
        return Answer::json(400, &body);
    }
    let token = format!("1000.{}", uuid::Uuid::new_v4().simple());
    account.tokens.insert(token.clone(), Instant::now());
    let scopes: Vec<&str> = options.scopes.iter().map(String::as_str).collect();
    let here = format!("http://{}", request.header("host").unwrap_or("localhost"));
    Answer::json(
        200,
        &json!({
            "access_token": token, "scope": scopes.join(" "), "api_domain": here,
            "token_type": "Bearer", "expires_in": options.token.as_secs(),
        }),
    )
}

/// Token and scope.
pub(super) fn gate(account: &Account, options: &Options, request: &Request) -> Option<Answer> {
    let token = request.header("authorization").and_then(|v| v.strip_prefix("Zoho-oauthtoken "));
    let since = token.and_then(|token| account.tokens.get(token));
    if since.is_none_or(|since| since.elapsed() >= options.token) {
        return Some(errors::token());
    }
    let path = request.path.strip_prefix("/crm/v8/").unwrap_or_default();
    let has = |scope: &str| options.scopes.contains(scope);
    let allowed = match path.split('/').next() {
        Some("coql") => has("ZohoCRM.coql.READ"),
        Some("settings") => has("ZohoCRM.settings.fields.READ") || has("ZohoCRM.settings.ALL"),
        // No scope is missing for what is not there.
        Some(module) if Module::parse(module).is_none() => true,
        Some(module) => {
            let module = module.to_lowercase();
            let operations: &[&str] = match request.method.as_str() {
                "GET" => &["ALL", "READ"],
                "PUT" => &["ALL", "WRITE", "UPDATE"],
                "DELETE" => &["ALL", "DELETE"],
                _ => &["ALL", "WRITE", "CREATE"],
            };
            has("ZohoCRM.modules.ALL")
                || operations.iter().any(|o| has(&format!("ZohoCRM.modules.{module}.{o}")))
        }
        None => true,
    };
    (!allowed).then(errors::scope)
}
