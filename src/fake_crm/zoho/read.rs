//! Field list, records by id and in pages, search, COQL.

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::super::select::{self, Dialect};
use super::errors::refused;
use super::{Account, FieldInfo, Module, Options, Stored};

/// Most ids in a call.
const MAX_IDS: usize = 100;
/// Most records of a page.
const MAX_PAGE: usize = 200;

/// `GET /settings/fields?module=Leads`
pub(super) fn field_list(options: &Options, request: &Request) -> Answer {
    let module = request.param("module").unwrap_or_default();
    match Module::parse(&module) {
        Some(module) => {
            let fields: Vec<Value> =
                options.fields(module).iter().map(FieldInfo::describe).collect();
            Answer::json(200, &json!({ "fields": fields }))
        }
        None => super::errors::no_module(),
    }
}

/// `GET /Leads?ids=…` or a page of all.
pub(super) fn list(
    account: &Account,
    options: &Options,
    request: &Request,
    module: Module,
) -> Answer {
    let fields = match columns(request) {
        Ok(fields) => fields,
        Err(refused) => return refused,
    };
    let ids = request.param("ids").map(|ids| {
        ids.split(',').filter_map(|id| id.trim().parse::<u64>().ok()).collect::<Vec<_>>()
    });
    if ids.as_ref().is_some_and(|ids| ids.len() > MAX_IDS) {
        let details = json!({"limit": MAX_IDS, "param_name": "ids"});
        return refused(400, "LIMIT_EXCEEDED", "more ids than allowed", &details);
    }
    let converted = request.param("converted");
    let wanted = |stored: &Stored| {
        let is = stored.converted.is_some();
        let right = match converted.as_deref() {
            Some("both") => true,
            Some("true") => is,
            _ => !is,
        };
        right && !stored.deleted && stored.module == module
    };
    let token = request.param("page_token").and_then(|t| t.parse::<u64>().ok());
    let size = request.param("per_page").and_then(|n| n.parse::<usize>().ok());
    let size = size.unwrap_or(MAX_PAGE).clamp(1, MAX_PAGE);
    let mut found: Vec<(u64, &Stored)> = account
        .records
        .iter()
        .map(|(id, stored)| (*id, stored))
        .filter(|(id, stored)| {
            wanted(stored)
                && token.is_none_or(|after| *id > after)
                && ids.as_ref().is_none_or(|ids| ids.contains(id))
        })
        .take(size + 1)
        .collect();
    let more = found.len() > size;
    found.truncate(size);
    let next = found.last().filter(|_| more).map(|(id, _)| id.to_string());
    let info = json!({
        "per_page": size, "count": found.len(), "page": 1, "more_records": more,
        "next_page_token": next, "sort_by": "id", "sort_order": "asc",
    });
    rows(options, module, &found, &fields, &info)
}

/// `GET /Leads/{id}`; a converted one only where `converted` says so.
pub(super) fn one(
    account: &Account,
    options: &Options,
    request: &Request,
    module: Module,
    id: &str,
) -> Answer {
    let asked = matches!(request.param("converted").as_deref(), Some("true" | "both"));
    let found = id.parse::<u64>().ok().and_then(|id| Some((id, account.records.get(&id)?)));
    let found =
        found.filter(|(_, r)| r.module == module && !r.deleted && (r.converted.is_none() || asked));
    let all: Vec<String> = options.fields(module).iter().map(|f| f.name.clone()).collect();
    match found {
        Some(found) => rows(options, module, &[found], &all, &json!({})),
        None => Answer::empty(204),
    }
}

/// `GET /Leads/search?email=…`; the index is behind the writes.
pub(super) fn search(
    account: &Account,
    options: &Options,
    request: &Request,
    module: Module,
) -> Answer {
    let by = [("email", "Email"), ("phone", "Phone")];
    let asked = by.into_iter().find_map(|(param, field)| Some((request.param(param)?, field)));
    let Some((value, field)) = asked else {
        let details = json!({"param_name": "email"});
        return refused(
            400,
            "REQUIRED_PARAM_MISSING",
            "One of the expected parameter is missing",
            &details,
        );
    };
    let found: Vec<(u64, &Stored)> = account
        .with(module, field, &value)
        .into_iter()
        .filter_map(|id| Some((id, account.records.get(&id)?)))
        .filter(|(_, stored)| stored.written.elapsed() >= options.search_lag)
        .take(MAX_PAGE)
        .collect();
    let all: Vec<String> = options.fields(module).iter().map(|f| f.name.clone()).collect();
    rows(options, module, &found, &all, &json!({"count": found.len(), "more_records": false}))
}

/// `POST /coql`
pub(super) fn coql(account: &Account, options: &Options, request: &Request) -> Answer {
    let body = serde_json::from_slice::<Value>(&request.body).unwrap_or_default();
    let text = body["select_query"].as_str().unwrap_or_default();
    let wrong = |why: &str| refused(400, "SYNTAX_ERROR", why, &json!({"clause": "select_query"}));
    let select = match select::parse(text, Dialect::Coql) {
        Ok(select) => select,
        Err(why) => return wrong(&why),
    };
    let Some(module) = Module::parse(&select.from) else { return super::errors::no_module() };
    let condition = select.condition.as_ref();
    let named = condition.map(|c| c.columns()).unwrap_or_default();
    let columns = select.columns.iter().map(String::as_str).chain(named);
    if let Some(unknown) = columns.into_iter().find(|c| options.field(module, c).is_none()) {
        let details = json!({"column_name": unknown, "column_index": 0});
        return refused(400, "INVALID_QUERY", "column given seems to be invalid", &details);
    }
    let limit = select.limit.unwrap_or(MAX_PAGE);
    if limit > 2_000 {
        return wrong("the limit is 2000");
    }
    let mut found: Vec<(u64, &Stored)> = account
        .records
        .iter()
        .map(|(id, stored)| (*id, stored))
        .filter(|(_, r)| r.module == module && !r.deleted && r.converted.is_none())
        .filter(|(id, r)| condition.is_none_or(|c| c.holds(&|column| r.read(*id, column))))
        .skip(select.offset)
        .take(limit + 1)
        .collect();
    let more = found.len() > limit;
    found.truncate(limit);
    let info = json!({"count": found.len(), "more_records": more});
    rows(options, module, &found, &select.columns, &info)
}

/// `fields`, without which there is no list.
fn columns(request: &Request) -> Result<Vec<String>, Answer> {
    let fields = request.param("fields").unwrap_or_default();
    let fields: Vec<String> =
        fields.split(',').map(|f| f.trim().to_owned()).filter(|f| !f.is_empty()).collect();
    match fields.len() {
        1..=50 => Ok(fields),
        0 => {
            let message = "One of the expected parameter is missing";
            Err(refused(400, "REQUIRED_PARAM_MISSING", message, &json!({"param_name": "fields"})))
        }
        _ => {
            let details = json!({"limit": 50, "param_name": "fields"});
            Err(refused(400, "LIMIT_EXCEEDED", "more fields than allowed", &details))
        }
    }
}

/// Records, or 204 where there is none.
fn rows(
    options: &Options,
    module: Module,
    found: &[(u64, &Stored)],
    fields: &[String],
    info: &Value,
) -> Answer {
    if found.is_empty() {
        return Answer::empty(204);
    }
    let row = |(id, stored): &(u64, &Stored)| {
        let mut row = json!({"id": id.to_string()});
        for field in fields.iter().filter(|f| options.field(module, f).is_some()) {
            row[field.as_str()] = stored.read(*id, field);
        }
        row
    };
    let data: Vec<Value> = found.iter().map(row).collect();
    Answer::json(200, &json!({"data": data, "info": info}))
}
