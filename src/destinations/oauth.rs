//! OAuth 2.0 access tokens: made when needed, shared by all calls, renewed once when a call is answered 401.
//!
//! Making one is single-flight: callers that come meanwhile wait for the same answer. It runs in a task of its own, so
//! that a caller whose deadline passes does not throw away a refresh token that the CRM has just replaced.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::client::{Answer, Call, Client, redacted};
use super::tokens::{Seal, TokenStoreError};
use super::{CallError, TokenStore};
use crate::secret::Secret;

/// An access token is renewed so long before it ends, so that none ends on its way.
const MARGIN: Duration = Duration::from_secs(60);

/// What is particular about a CRM's OAuth.
pub(super) struct Settings {
    /// The destination, under whose name replaced tokens are kept.
    pub destination: String,
    /// Where tokens are made; its base URL is the whole address.
    pub token_client: Client,
    pub client_id: String,
    pub client_secret: Secret,
    /// Absent: client credentials.
    pub refresh_token: Option<Secret>,
    /// How the request for a token is written.
    pub encoding: Encoding,
    /// What stands before the access token in the header ("Bearer").
    pub scheme: &'static str,
    /// Member of the token's answer that says where the API is, where calls should go there.
    pub base_member: Option<&'static str>,
    /// Keeps replaced refresh tokens.
    pub tokens: Arc<dyn TokenStore>,
}

/// How a request for a token is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// As RFC 6749 has it.
    Form,
    /// The same, with id and secret of the client by HTTP Basic (RFC 6749, 2.3.1).
    FormBasic,
    Json,
}

/// Access to one account. Cheap to clone.
#[derive(Clone)]
pub(super) struct OAuth(Arc<Inner>);

struct Inner {
    settings: Settings,
    seal: Option<Seal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    access: Option<Access>,
    /// Given by the CRM and not kept yet, so that nobody else knows it.
    unkept: Option<Secret>,
    made: u64,
}

#[derive(Clone)]
struct Access {
    authorization: HeaderValue,
    base: Option<String>,
    /// The client for `base`, once it is made: its connections are used again.
    client: Arc<OnceLock<Client>>,
    ends: Option<Instant>,
    /// Counts up, so that of many callers with the same stale token the first one renews it.
    number: u64,
}

impl OAuth {
    pub fn new(settings: Settings) -> OAuth {
        let refresh_token = settings.refresh_token.as_ref();
        let seal = refresh_token.and_then(|token| Seal::new(&[&settings.client_secret, token]));
        OAuth(Arc::new(Inner { settings, seal, state: Mutex::default() }))
    }

    /// Sends with a valid access token. After a 401 the token is renewed once and the call repeated once; a second 401
    /// is the caller's answer.
    pub async fn call(&self, client: &Client, call: Call) -> Result<Answer, CallError> {
        let access = self.access(None).await?;
        let answer = self.send(client, &call, &access).await?;
        if answer.status != 401 {
            return Ok(answer);
        }
        let access = self.access(Some(access.number)).await?;
        self.send(client, &call, &access).await
    }

    async fn send(
        &self,
        client: &Client,
        call: &Call,
        access: &Access,
    ) -> Result<Answer, CallError> {
        let call = call.clone().header(header::AUTHORIZATION, access.authorization.clone());
        let Some(base) = &access.base else { return client.call(call).await };
        let there = match access.client.get() {
            Some(client) => client.clone(),
            None => {
                let made = client.at(base)?;
                access.client.get_or_init(|| made).clone()
            }
        };
        there.call(call).await
    }

    /// A valid token, and not the one with the number `stale`.
    async fn access(&self, stale: Option<u64>) -> Result<Access, CallError> {
        let inner = self.0.clone();
        let made = tokio::spawn(async move { inner.access(stale).await }).await;
        made.unwrap_or_else(|_| Err(unreachable("making an access token was cut off")))
    }
}

impl Inner {
    async fn access(&self, stale: Option<u64>) -> Result<Access, CallError> {
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let usable = |access: &&Access| {
            Some(access.number) != stale && access.ends.is_none_or(|ends| now < ends)
        };
        if let Some(access) = state.access.as_ref().filter(usable) {
            return Ok(access.clone());
        }
        state.access = None;
        let answer = self.token(&mut state).await?;
        state.made += 1;
        let access = self.read(&answer, state.made, now)?;
        state.access = Some(access.clone());
        Ok(access)
    }

    /// Asks for a token. Another instance may have replaced the refresh token: what is kept is looked at first, and once
    /// more where the CRM refuses ours.
    async fn token(&self, state: &mut State) -> Result<Value, CallError> {
        let Some(configured) = &self.settings.refresh_token else {
            return self.ask(None).await;
        };
        let known = match &state.unkept {
            Some(unkept) => Ok(Some(unkept.clone())),
            None => self.kept().await,
        };
        let mut tried = match known {
            Ok(known) => known.unwrap_or(configured.clone()),
            Err(error) => return Err(unreachable(&format!("refresh token: {error}"))),
        };
        let mut answer = self.ask(Some(&tried)).await;
        if matches!(answer, Err(CallError::Credentials { .. }))
            && let Ok(Some(newer)) = self.kept().await
            && newer != tried
        {
            tried = newer;
            answer = self.ask(Some(&tried)).await;
        }
        let answer = answer?;
        if let Some(replaced) = answer["refresh_token"].as_str().filter(|token| !token.is_empty()) {
            let replaced = Secret::new(replaced);
            if replaced != tried || state.unkept.is_some() {
                let kept = self.keep(&replaced).await;
                state.unkept = (!kept).then_some(replaced);
            }
        }
        Ok(answer)
    }

    async fn kept(&self) -> Result<Option<Secret>, TokenStoreError> {
        let Some(seal) = &self.seal else { return Ok(None) };
        let sealed = self.settings.tokens.newest(&self.settings.destination).await?;
        Ok(sealed.and_then(|sealed| seal.open(&sealed)))
    }

    /// Keeps a replaced token. Failing, it lives in memory until the next one: loud, because a restart would end it.
    async fn keep(&self, token: &Secret) -> bool {
        let name = self.settings.destination.as_str();
        let sealed = self.seal.as_ref().and_then(|seal| seal.close(token));
        let kept = match sealed {
            Some(sealed) => self.settings.tokens.keep(name, &sealed).await,
            None => Err(TokenStoreError("it cannot be sealed".to_owned())),
        };
        if let Err(error) = &kept {
            tracing::error!(
                destination = name,
                "{name} was given a new refresh token that could not be kept, do not restart: {error}"
            );
        }
        kept.is_ok()
    }

    async fn ask(&self, refresh_token: Option<&Secret>) -> Result<Value, CallError> {
        let Settings { client_id, client_secret, token_client, encoding, .. } = &self.settings;
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("client_id", client_id),
            ("client_secret", client_secret.expose()),
        ];
        if *encoding == Encoding::FormBasic {
            fields.truncate(1);
        }
        if let Some(token) = refresh_token {
            fields[0].1 = "refresh_token";
            fields.push(("refresh_token", token.expose()));
        }
        let call = Call::post("");
        let call = match encoding {
            Encoding::Form => call.form(&fields),
            Encoding::FormBasic => {
                call.form(&fields).header(header::AUTHORIZATION, basic(client_id, client_secret)?)
            }
            Encoding::Json => {
                let members = fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value)));
                call.json(&Value::Object(members.collect()))
            }
        };
        let answer = match token_client.call(call).await {
            Ok(answer) => answer,
            // Nothing was written at the CRM: this was only about a token.
            Err(error) => return Err(unreachable(&error.to_string())),
        };
        self.refusal(&answer, refresh_token)
    }

    /// The answer with a token in it, or why there is none.
    fn refusal(&self, answer: &Answer, refresh_token: Option<&Secret>) -> Result<Value, CallError> {
        let body = match answer.json() {
            Ok(body) => body,
            Err(error) => return Err(unreachable(&error.to_string())),
        };
        if (200..300).contains(&answer.status) && body["access_token"].is_string() {
            return Ok(body);
        }
        let errors = [&body, &body["errors"], &body["errors"][0]];
        let said = |names: &[&str]| {
            let texts = errors.iter().flat_map(|e| names.iter().map(|name| e[*name].as_str()));
            texts.flatten().next().map(|text| self.redacted(text, refresh_token))
        };
        let code = said(&["error", "error_type", "code"]).unwrap_or(answer.status.to_string());
        let words = said(&["error_description", "error_message", "message"]);
        let message = words.unwrap_or_else(|| format!("{}: {code}", answer.words()));
        let hasty = message.to_lowercase().contains("too many requests");
        Err(match answer.status {
            429 => CallError::SlowDown { after: answer.retry_after(), message },
            400..500 if hasty => CallError::SlowDown { after: answer.retry_after(), message },
            200..300 | 400 | 401 | 403 => CallError::Credentials {
                code,
                message: format!(
                    "no access token: {message}; are `client_id`, `client_secret` and `refresh_token` those \
                     that the CRM knows?"
                ),
            },
            300..500 => CallError::Misconfigured {
                code,
                message: format!("no access token: {message}; is `token_url` right?"),
            },
            _ => unreachable(&message),
        })
    }

    fn redacted(&self, text: &str, refresh_token: Option<&Secret>) -> String {
        let secrets = refresh_token.into_iter().chain([&self.settings.client_secret]);
        redacted(text, secrets.map(Secret::expose))
    }

    fn read(&self, body: &Value, number: u64, now: Instant) -> Result<Access, CallError> {
        let token = body["access_token"].as_str().unwrap_or_default();
        let mut authorization = HeaderValue::try_from(format!("{} {token}", self.settings.scheme))
            .map_err(|_| unreachable("the access token cannot stand in a header"))?;
        authorization.set_sensitive(true);
        let seconds = match &body["expires_in"] {
            Value::Number(seconds) => seconds.as_u64(),
            Value::String(seconds) => seconds.parse().ok(),
            _ => None,
        };
        let ends = seconds.and_then(|seconds| {
            let length = Duration::from_secs(seconds);
            // Half of a short life, or nothing would ever be usable.
            now.checked_add(length.saturating_sub(MARGIN).max(length / 2))
        });
        let base = self.settings.base_member.and_then(|name| body[name].as_str());
        let base = base.map(str::to_owned);
        Ok(Access { authorization, base, client: Arc::default(), ends, number })
    }
}

/// The header of HTTP Basic.
fn basic(client_id: &str, client_secret: &Secret) -> Result<HeaderValue, CallError> {
    let encoded = STANDARD.encode(format!("{client_id}:{}", client_secret.expose()));
    let mut basic = HeaderValue::try_from(format!("Basic {encoded}"))
        .map_err(|_| unreachable("the client's id cannot stand in a header"))?;
    basic.set_sensitive(true);
    Ok(basic)
}

fn unreachable(message: &str) -> CallError {
    CallError::Unreachable { message: message.to_owned() }
}
