//! Who may call, and what for.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::exchange::{Answer, Request};
use super::{Options, errors};

/// A token of the account.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// The text after `Bearer `.
    pub token: String,
    /// Its state.
    #[serde(default)]
    pub state: TokenState,
    /// `crm.objects.contacts.write` and the like.
    #[serde(default = "Token::all_scopes")]
    pub scopes: BTreeSet<String>,
}

impl Token {
    /// A good token with all scopes.
    pub fn good(token: &str) -> Token {
        let token = token.to_owned();
        Token { token, state: TokenState::Good, scopes: Token::all_scopes() }
    }

    fn all_scopes() -> BTreeSet<String> {
        [READ_SCOPE, WRITE_SCOPE, SCHEMA_SCOPE].map(str::to_owned).into()
    }
}

const READ_SCOPE: &str = "crm.objects.contacts.read";
const WRITE_SCOPE: &str = "crm.objects.contacts.write";
const SCHEMA_SCOPE: &str = "crm.schemas.contacts.read";

/// Whether a token still works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenState {
    /// It does.
    #[default]
    Good,
    /// 401, category EXPIRED_AUTHENTICATION.
    Expired,
    /// 401, category INVALID_AUTHENTICATION.
    Revoked,
}

/// Token and scope.
pub(super) fn gate(options: &Options, request: &Request) -> Option<Answer> {
    let bearer = request.header("authorization").and_then(|v| v.strip_prefix("Bearer "));
    let Some(bearer) = bearer.filter(|t| !t.is_empty()) else {
        return Some(errors::unauthorized("INVALID_AUTHENTICATION"));
    };
    if options.tokens.is_empty() {
        return None;
    }
    let Some(token) = options.tokens.iter().find(|t| t.token == bearer) else {
        return Some(errors::unauthorized("INVALID_AUTHENTICATION"));
    };
    match token.state {
        TokenState::Good => {}
        TokenState::Expired => return Some(errors::unauthorized("EXPIRED_AUTHENTICATION")),
        TokenState::Revoked => return Some(errors::unauthorized("INVALID_AUTHENTICATION")),
    }
    let reads = request.method == "GET"
        || request.path.ends_with("/search")
        || request.path.ends_with("/batch/read");
    let needed = match request.path.contains("/properties/") {
        true => SCHEMA_SCOPE,
        false if reads => READ_SCOPE,
        false => WRITE_SCOPE,
    };
    (!token.scopes.contains(needed)).then(|| errors::missing_scope(needed))
}
