//! Tokens: an access token lives a day, the refresh token for ever.

use std::collections::HashMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::exchange::{Answer, Request};
use super::{Options, errors};

/// An app that an account authorized.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct App {
    /// Its id.
    pub client_id: String,
    /// Its secret.
    pub client_secret: String,
    /// What the account gave it.
    pub refresh_token: String,
    /// The account took it back.
    #[serde(default)]
    pub revoked: bool,
    /// May not write contacts.
    #[serde(default)]
    pub forbidden: bool,
}

impl App {
    /// One that may do everything.
    pub fn good(client_id: &str, client_secret: &str, refresh_token: &str) -> App {
        App {
            client_id: client_id.to_owned(),
            client_secret: client_secret.to_owned(),
            refresh_token: refresh_token.to_owned(),
            revoked: false,
            forbidden: false,
        }
    }
}

/// The access tokens that were given out.
#[derive(Default)]
pub(super) struct Tokens {
    /// When it was given, and for which refresh token.
    given: HashMap<String, (Instant, String)>,
}

impl Tokens {
    /// Makes every access token expire now.
    pub fn expire(&mut self) {
        self.given.clear();
    }
}

/// `POST /auth/token`
pub(super) fn token(tokens: &mut Tokens, options: &Options, request: &Request) -> Answer {
    let json = request.header("content-type").is_some_and(|kind| kind.contains("application/json"));
    if !json {
        let message =
            "The payload is in a format not supported by this method on the target resource.";
        return errors::single(415, "UNSUPPORTED_MEDIA_TYPE", message);
    }
    let Ok(body) = serde_json::from_slice::<Value>(&request.body) else {
        return errors::single(400, "BAD_REQUEST", "Could not parse the body of the request.");
    };
    for name in ["client_id", "client_secret", "refresh_token"] {
        if !body[name].is_string() {
            let path = format!("body.{name}");
            return errors::list(400, "CANNOT_BE_NULL", "Cannot be null.", &path);
        }
    }
    let known = |app: &&App| {
        body["client_id"] == app.client_id && body["client_secret"] == app.client_secret
    };
    let refresh = body["refresh_token"].as_str().unwrap_or_default().to_owned();
    match options.apps.iter().find(known) {
        None if !options.apps.is_empty() => {
            errors::single(401, "ACCESS_DENIED", "Wrong credentials provided.")
        }
        Some(app) if app.revoked || app.refresh_token != refresh => errors::single(
            401,
            "INVALID_REFRESH_TOKEN",
            "The provided refresh token is invalid or was revoked.",
        ),
        _ => {
            let access = format!("access-{}", Uuid::new_v4().simple());
            tokens.given.insert(access.clone(), (Instant::now(), refresh.clone()));
            let seconds = options.token_life.as_secs();
            Answer::json(
                200,
                &json!({"access_token": access, "expires_in": seconds, "refresh_token": refresh}),
            )
        }
    }
}

/// The bearer token.
pub(super) fn gate(tokens: &Tokens, options: &Options, request: &Request) -> Option<Answer> {
    let bearer = request.header("authorization").and_then(|v| v.strip_prefix("Bearer "));
    let Some(bearer) = bearer.filter(|token| !token.is_empty()) else {
        return Some(errors::unauthorized(false));
    };
    if options.apps.is_empty() {
        return None;
    }
    let Some((at, refresh)) = tokens.given.get(bearer) else {
        // One that was given out and has expired looks like this too.
        return Some(errors::unauthorized(bearer.starts_with("access-")));
    };
    if at.elapsed() >= options.token_life {
        return Some(errors::unauthorized(true));
    }
    let app = options.apps.iter().find(|app| app.refresh_token == *refresh)?;
    if app.revoked {
        return Some(errors::unauthorized(false));
    }
    let writes = request.method != "GET";
    (app.forbidden && writes).then(|| errors::single(403, "FORBIDDEN", "Forbidden request"))
}
