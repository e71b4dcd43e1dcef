//! The two ways to call a method: JSON-RPC, which wraps everything into HTTP 200, and JSON-2 with HTTP statuses.

use serde_json::{Map, Value, json};

use super::super::exchange::{Answer, Request};
use super::super::fault::Tweak;
use super::methods::{Args, Caller, missing};
use super::{Account, Options, Raised};

const DENIED: &str = "odoo.exceptions.AccessDenied";

fn page(status: u16, title: &str, why: &str) -> Answer {
    Answer::html(
        status,
        format!("<!DOCTYPE HTML><title>{status} {title}</title>\n<h1>{title}</h1>\n<p>{why}</p>\n"),
    )
}

fn is_json(request: &Request) -> bool {
    request.header("content-type").is_some_and(|kind| kind.starts_with("application/json"))
}

/// `POST /jsonrpc`.
pub(super) fn json_rpc(
    account: &mut Account,
    options: &Options,
    request: &Request,
    tweak: &Tweak,
) -> Answer {
    if !is_json(request) {
        return page(400, "Bad Request", "Session expired (invalid CSRF token)");
    }
    let body = match serde_json::from_slice::<Value>(&request.body) {
        Ok(Value::Object(body)) => body,
        Ok(_) => return page(500, "Internal Server Error", "The server encountered an error."),
        Err(_) => {
            let text = String::from_utf8_lossy(&request.body).into_owned();
            return page(400, "Bad Request", &format!("Invalid JSON data: '{text}'"));
        }
    };
    let id = body.get("id").cloned().unwrap_or(Value::Null);
    let params = body.get("params").unwrap_or(&Value::Null);
    let (answer, wrote) = match called(account, options, params, tweak) {
        Ok((result, wrote)) => (json!({"jsonrpc": "2.0", "id": id, "result": result}), wrote),
        Err(raised) => {
            let data = data(&raised, params);
            let error = json!({"code": 200, "message": "Odoo Server Error", "data": data});
            (json!({"jsonrpc": "2.0", "id": id, "error": error}), false)
        }
    };
    let answer = Answer::json(200, &answer);
    if wrote { answer.written() } else { answer }
}

/// The exception as both ways show it. The traceback has the values that were sent in it.
fn data(raised: &Raised, sent: &Value) -> Value {
    json!({
        "name": raised.name, "message": raised.message, "arguments": [raised.message], "context": {},
        "debug": format!("Traceback (most recent call last):\n  execute {sent}\n{}", raised.message),
    })
}

fn called(
    account: &mut Account,
    options: &Options,
    params: &Value,
    tweak: &Tweak,
) -> Result<(Value, bool), Raised> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let args = params["args"].as_array().map(Vec::as_slice).unwrap_or_default();
    let at = |n: usize| args.get(n).unwrap_or(&Value::Null);
    match (params["service"].as_str(), params["method"].as_str()) {
        (Some("common"), Some("version")) => Ok((
            json!({
                "server_version": "14.0", "server_version_info": [14, 0, 0, "final", 0, ""],
                "server_serie": "14.0", "protocol_version": 1,
            }),
            false,
        )),
        (Some("common"), Some("authenticate" | "login")) => {
            database(options, at(0))?;
            let known = |user: &&super::User| user.login == text(at(1)) && user.key == text(at(2));
            let uid = match options.users.is_empty() {
                true => json!(2),
                false => options.users.iter().find(known).map_or(json!(false), |u| json!(u.uid)),
            };
            Ok((uid, false))
        }
        (Some("object"), Some("execute_kw")) => {
            database(options, at(0))?;
            let uid = at(1).as_i64().unwrap_or_default();
            let is = |user: &super::User| user.uid == uid && user.key == text(at(2));
            let exists = |user: &super::User| user.uid == uid;
            if !options.users.is_empty() && uid != 2 && !options.users.iter().any(exists) {
                return Err(missing("res.users", uid, uid));
            }
            let caller = caller(options, is)?;
            let positional = at(5).as_array().cloned().unwrap_or_default();
            let named = at(6).as_object().cloned().unwrap_or_default();
            let args = Args { positional, named };
            let (model, method) = (text(at(3)), text(at(4)));
            account.call(options, &caller, &model, &method, &args, tweak)
        }
        _ => Err(Raised::new(
            "builtins.TypeError",
            "dispatch_rpc() missing required positional arguments",
        )),
    }
}

fn database(options: &Options, named: &Value) -> Result<(), Raised> {
    if *named == json!(options.database) {
        return Ok(());
    }
    let named = named.as_str().unwrap_or_default();
    let message = format!("FATAL:  database \"{named}\" does not exist\n");
    Err(Raised::new("psycopg2.OperationalError", message))
}

fn caller(options: &Options, is: impl Fn(&super::User) -> bool) -> Result<Caller, Raised> {
    if options.users.is_empty() {
        return Ok(Caller { uid: 2, may_write: true });
    }
    match options.users.iter().find(|user| is(user)) {
        Some(user) => Ok(Caller { uid: user.uid, may_write: !user.read_only }),
        None => Err(Raised::new(DENIED, "Access Denied")),
    }
}

/// `POST /json/2/{model}/{method}` with named arguments and a bearer key.
pub(super) fn json2(
    account: &mut Account,
    options: &Options,
    request: &Request,
    tweak: &Tweak,
) -> Answer {
    let named = match serde_json::from_slice::<Value>(&request.body) {
        Ok(Value::Object(named)) if is_json(request) => named,
        _ => return refused(&Raised::new("werkzeug.exceptions.BadRequest", "Bad Request")),
    };
    let elsewhere = request.header("x-odoo-database").is_some_and(|name| name != options.database);
    let mut path = request.path.strip_prefix("/json/2/").unwrap_or_default().split('/');
    let (Some(model), Some(method), None, false) =
        (path.next(), path.next(), path.next(), elsewhere)
    else {
        return refused(&Raised::new("werkzeug.exceptions.NotFound", "404 Not Found"));
    };
    let bearer = request.header("authorization").and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key)
    });
    let caller = match caller(options, |user| bearer == Some(user.key.as_str())) {
        Ok(caller) if bearer.is_some() => caller,
        _ => return refused(&Raised::new("werkzeug.exceptions.Unauthorized", "Invalid apikey")),
    };
    let args = Args { positional: Vec::new(), named };
    match account.call(options, &caller, model, method, &args, tweak) {
        Ok((result, true)) => Answer::json(200, &result).written(),
        Ok((result, false)) => Answer::json(200, &result),
        Err(raised) => refused(&raised),
    }
}

fn refused(raised: &Raised) -> Answer {
    let status = match raised.name {
        "werkzeug.exceptions.BadRequest" => 400,
        "werkzeug.exceptions.Unauthorized" => 401,
        "odoo.exceptions.AccessError" | DENIED => 403,
        "odoo.exceptions.MissingError" | "werkzeug.exceptions.NotFound" => 404,
        "odoo.exceptions.UserError" | "odoo.exceptions.ValidationError" => 422,
        _ => 500,
    };
    Answer::json(status, &data(raised, &Value::Object(Map::new())))
}
