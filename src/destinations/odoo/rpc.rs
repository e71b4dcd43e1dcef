//! The two ways to call a method of Odoo, and what came of it.
//!
//! JSON-RPC (`/jsonrpc`, until Odoo 21) answers everything with HTTP 200 and has errors inside; JSON-2 (`/json/2`, from
//! Odoo 19 on) has statuses. The exception and its name are the same.

use http::{HeaderName, HeaderValue, header};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::super::CallError;
use super::super::client::{Answer, Call, Client};
use crate::secret::Secret;

/// How methods are called.
pub(super) enum Way {
    /// By login and key; the user's id is asked for once.
    JsonRpc { database: String, login: String, key: Secret, uid: Mutex<Option<i64>> },
    /// By key alone.
    Json2 { database: Option<HeaderValue>, authorization: HeaderValue },
}

/// A call that Odoo did not do.
#[derive(Debug)]
pub(super) enum Failure {
    /// Odoo's own exception. The transaction was rolled back: nothing was written.
    Raised(Raised),
    /// Anything else.
    Call(CallError),
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure::Call(error)
    }
}

/// An exception of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raised {
    /// With its module: `odoo.exceptions.AccessError`.
    pub name: String,
    pub message: String,
}

/// A method to call.
pub(super) struct Method<'a> {
    pub model: &'a str,
    pub name: &'a str,
    /// Arguments in the order of the method, by the names that JSON-2 wants.
    pub args: Vec<(&'static str, Value)>,
    /// What the method is told of the circumstances.
    pub context: Value,
}

impl Way {
    /// Calls a method and gives its result.
    pub async fn call(&self, client: &Client, method: Method<'_>) -> Result<Value, Failure> {
        match self {
            Way::JsonRpc { database, login, key, uid } => {
                let user = self.uid(client, database, login, key, uid).await?;
                let positional: Vec<Value> = method.args.into_iter().map(|(_, v)| v).collect();
                let mut named = Map::new();
                if !method.context.is_null() {
                    named.insert("context".to_owned(), method.context);
                }
                let args = json!([
                    database,
                    user,
                    key.expose(),
                    method.model,
                    method.name,
                    positional,
                    named
                ]);
                let result = rpc(client, "object", "execute_kw", args).await;
                if let Err(Failure::Raised(raised)) = &result
                    && raised.is_denied()
                {
                    // The login may have become another user's.
                    *uid.lock().await = None;
                }
                result
            }
            Way::Json2 { database, authorization } => {
                let mut named: Map<String, Value> =
                    method.args.into_iter().map(|(name, v)| (name.to_owned(), v)).collect();
                if !method.context.is_null() {
                    named.insert("context".to_owned(), method.context);
                }
                let mut call = Call::post(format!("/json/2/{}/{}", method.model, method.name))
                    .header(header::AUTHORIZATION, authorization.clone())
                    .json(&Value::Object(named));
                if let Some(database) = database {
                    let name = HeaderName::from_static("x-odoo-database");
                    call = call.header(name, database.clone());
                }
                read_json2(&client.call(call).await?)
            }
        }
    }

    /// Id of the user; callers that come meanwhile wait for the same answer.
    async fn uid(
        &self,
        client: &Client,
        database: &str,
        login: &str,
        key: &Secret,
        known: &Mutex<Option<i64>>,
    ) -> Result<i64, Failure> {
        let mut known = known.lock().await;
        if let Some(uid) = *known {
            return Ok(uid);
        }
        let args = json!([database, login, key.expose(), {}]);
        let result = rpc(client, "common", "authenticate", args).await;
        let uid = match result.map_err(before_writing)?.as_i64() {
            Some(uid) => uid,
            None => {
                return Err(Failure::Call(CallError::Credentials {
                    code: "AccessDenied".to_owned(),
                    message: "Odoo does not know this `user` with this `token`; is it an API key of that user \
                              (in Odoo: My Profile, Account Security), and not revoked?"
                        .to_owned(),
                }));
            }
        };
        *known = Some(uid);
        Ok(uid)
    }
}

/// Of a call that only reads, made before anything was written: an unknown outcome is none.
fn before_writing(failure: Failure) -> Failure {
    match failure {
        Failure::Call(error) => Failure::Call(super::super::cached::before_writing(error)),
        raised => raised,
    }
}

async fn rpc(client: &Client, service: &str, method: &str, args: Value) -> Result<Value, Failure> {
    let params = json!({"service": service, "method": method, "args": args});
    let body = json!({"jsonrpc": "2.0", "method": "call", "id": 1, "params": params});
    read_rpc(&client.call(Call::post("/jsonrpc").json(&body)).await?)
}

/// The result in an answer to JSON-RPC.
pub(super) fn read_rpc(answer: &Answer) -> Result<Value, Failure> {
    let mut body = answer.json()?;
    if let Some(raised) = Raised::read(&body["error"]["data"]) {
        return Err(Failure::Raised(raised));
    }
    match answer.status {
        200..300 if body.get("result").is_some() => Ok(body["result"].take()),
        200..300 => Err(Failure::Call(CallError::Unknown {
            after: None,
            message: format!("{} with neither a result nor an error in it", answer.words()),
        })),
        _ => Err(Failure::Call(refusal(answer))),
    }
}

/// The result in an answer to JSON-2.
pub(super) fn read_json2(answer: &Answer) -> Result<Value, Failure> {
    let body = answer.json()?;
    match answer.status {
        200..300 => Ok(body),
        _ => Err(match Raised::read(&body) {
            Some(raised) => Failure::Raised(raised),
            None => Failure::Call(refusal(answer)),
        }),
    }
}

/// What an answer means in which Odoo itself says nothing: a proxy's, or one about the request as such.
fn refusal(answer: &Answer) -> CallError {
    let (code, message, after) = (answer.status.to_string(), answer.words(), answer.retry_after());
    match answer.status {
        401..=403 => CallError::Credentials { code, message },
        300..400 | 404 | 405 | 410 | 415 => CallError::Misconfigured {
            code,
            message: format!(
                "{message}; is `base_url` Odoo's own address, and does this Odoo have the API? Odoo 19 and \
                 later have JSON-2, which needs no `user`; those before it have JSON-RPC, which does"
            ),
        },
        423 | 425 | 429 => CallError::SlowDown { after, message },
        408 | 421 | 499 => CallError::Unknown { after, message },
        400..500 => CallError::Refused { code, field: None, message },
        _ => CallError::Unknown { after, message },
    }
}

impl Raised {
    /// The exception in an error's data. Its traceback, which has what was sent in it, is not read.
    fn read(data: &Value) -> Option<Raised> {
        let name = data["name"].as_str()?.to_owned();
        let message = data["message"].as_str()?.trim().to_owned();
        Some(Raised { name, message })
    }

    /// The last part of the name.
    pub fn short(&self) -> &str {
        self.name.rsplit('.').next().unwrap_or(&self.name)
    }

    /// Key or user are not good.
    pub fn is_denied(&self) -> bool {
        matches!(self.short(), "AccessDenied" | "Unauthorized" | "SessionExpiredException")
            // A user that was deleted.
            || self.short() == "MissingError" && self.message.contains("res.users(")
    }
}
