//! Who may call, and what for: API tokens, and an app's access tokens.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::exchange::{Answer, Request};
use super::{Options, errors};

/// An API token of a user.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The value of `x-api-token`.
    pub token: String,
    /// `contacts:full` and the like.
    #[serde(default = "all_scopes")]
    pub scopes: BTreeSet<String>,
}

impl Token {
    /// A good token with all scopes.
    pub fn good(token: &str) -> Token {
        Token { token: token.to_owned(), scopes: all_scopes() }
    }
}

fn all_scopes() -> BTreeSet<String> {
    [READ, FULL, SEARCH].map(str::to_owned).into()
}

const READ: &str = "contacts:read";
const FULL: &str = "contacts:full";
const SEARCH: &str = "search:read";

/// An app that a user of the account has let in.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthApp {
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub client_secret: String,
    /// The refresh token; it stays the same.
    pub refresh_token: String,
    /// How long an access token lives, in seconds.
    #[serde(default = "OauthApp::hour")]
    pub access_seconds: u64,
    /// The user took the permission back: every grant is refused.
    #[serde(default)]
    pub revoked: bool,
    /// Scopes of the app.
    #[serde(default = "all_scopes")]
    pub scopes: BTreeSet<String>,
}

impl OauthApp {
    fn hour() -> u64 {
        3600
    }

    /// An app that works.
    pub fn good(client_id: &str, client_secret: &str, refresh_token: &str) -> OauthApp {
        OauthApp {
            client_id: client_id.to_owned(),
            client_secret: client_secret.to_owned(),
            refresh_token: refresh_token.to_owned(),
            access_seconds: OauthApp::hour(),
            revoked: false,
            scopes: all_scopes(),
        }
    }
}

/// Access tokens given so far.
#[derive(Default)]
pub(super) struct Grants {
    given: u64,
    valid: Vec<(String, Instant)>,
}

impl Grants {
    pub fn expire(&mut self) {
        self.valid.clear();
    }
}

/// `POST /oauth/token`: form fields, the client by HTTP Basic.
pub(super) fn grant(grants: &mut Grants, options: &Options, request: &Request) -> Answer {
    let refused = |status, error: &str| {
        Answer::json(status, &json!({"success": false, "error": error, "message": error}))
    };
    let Some(app) = options.oauth.as_ref().filter(|_| request.method == "POST") else {
        return refused(404, "not_found");
    };
    let basic = STANDARD.encode(format!("{}:{}", app.client_id, app.client_secret));
    if request.header("authorization") != Some(&format!("Basic {basic}")) {
        return refused(401, "invalid_client");
    }
    let field = |name: &str| {
        form_urlencoded::parse(&request.body).find(|(n, _)| n == name).map(|(_, v)| v.into_owned())
    };
    if field("grant_type").as_deref() != Some("refresh_token") {
        return refused(400, "unsupported_grant_type");
    }
    if app.revoked || field("refresh_token").as_deref() != Some(app.refresh_token.as_str()) {
        return refused(400, "invalid_grant");
    }
    grants.given += 1;
    let token = format!("access-{}", grants.given);
    grants.valid.push((token.clone(), Instant::now() + Duration::from_secs(app.access_seconds)));
    let host = request.header("host").unwrap_or("127.0.0.1");
    let scope: Vec<&str> = app.scopes.iter().map(String::as_str).collect();
    Answer::json(
        200,
        &json!({
            "access_token": token, "token_type": "Bearer", "expires_in": app.access_seconds,
            "refresh_token": app.refresh_token, "scope": scope.join(","),
            "api_domain": format!("http://{host}"),
        }),
    )
}

/// Token and scope.
pub(super) fn gate(grants: &Grants, options: &Options, request: &Request) -> Option<Answer> {
    let Some(scopes) = scopes(grants, options, request) else {
        return Some(errors::unauthorized());
    };
    let reads = scopes.contains(READ) || scopes.contains(FULL);
    let may = match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v2/persons/search") => reads || scopes.contains(SEARCH),
        ("GET", _) => reads,
        _ => scopes.contains(FULL),
    };
    (!may).then(errors::scope)
}

/// What the token of the request may do; `None`: there is no such token.
fn scopes(grants: &Grants, options: &Options, request: &Request) -> Option<BTreeSet<String>> {
    let api_token = request.header("x-api-token");
    let bearer = request.header("authorization").and_then(|v| v.strip_prefix("Bearer "));
    let given = api_token.or(bearer).filter(|token| !token.is_empty())?;
    if options.tokens.is_empty() && options.oauth.is_none() {
        return Some(all_scopes());
    }
    if api_token.is_some() {
        return options.tokens.iter().find(|t| t.token == given).map(|t| t.scopes.clone());
    }
    let now = Instant::now();
    let valid = grants.valid.iter().any(|(token, until)| token == given && *until > now);
    options.oauth.as_ref().filter(|_| valid).map(|app| app.scopes.clone())
}
