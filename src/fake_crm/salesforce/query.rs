//! `…/query` and `…/queryAll`: SOQL on one object, in pages.

use serde_json::{Value, json};

use super::super::exchange::{Answer, Request};
use super::super::select::{self, Dialect, Select};
use super::errors::refused;
use super::{Account, Object, Options};

/// The first page. `all`: also what is deleted or merged away.
pub(super) fn begin(
    account: &mut Account,
    options: &Options,
    request: &Request,
    version: u32,
    all: bool,
) -> Answer {
    let text = request.param("q").unwrap_or_default();
    let mut select = match select::parse(&text, Dialect::Soql) {
        Ok(select) => select,
        Err(why) => return refused(400, "MALFORMED_QUERY", &why),
    };
    let Some(object) = Object::parse(&select.from) else {
        let message = format!("sObject type '{}' is not supported.", select.from);
        return refused(400, "INVALID_TYPE", &message);
    };
    let condition = select.condition.as_ref();
    let named = condition.map(|c| c.columns()).unwrap_or_default();
    let columns = select.columns.iter().map(String::as_str).chain(named);
    if let Some(unknown) = columns.into_iter().find(|c| options.field(object, c).is_none()) {
        let message = format!("No such column '{unknown}' on entity '{}'.", object.name());
        return refused(400, "INVALID_FIELD", &message);
    }
    if let Some(condition) = &mut select.condition {
        condition.each_value(&mut |value| {
            // An id is the same with 15 characters as with 18.
            if let Some(full) = value.as_str().and_then(|id| account.full_id(id)) {
                *value = json!(full);
            }
        });
    }
    let rows = rows(account, options, object, &select, version, all);
    let asked = request.header("sforce-query-options").and_then(|v| v.strip_prefix("batchSize="));
    let asked = asked.and_then(|n| n.parse::<usize>().ok()).map(|n| n.clamp(200, 2_000));
    let size = asked.unwrap_or(usize::MAX).min(options.query_page).max(1);
    page(account, version, size, rows.len(), rows)
}

/// A page after the first.
pub(super) fn more(account: &mut Account, version: u32, locator: &str) -> Answer {
    // "01g000000000001-2000-5000": what it is, rows of a page, rows of all.
    let mut parts = locator.split('-').skip(1).map(|n| n.parse::<usize>().ok());
    let (Some(Some(size)), Some(Some(total))) = (parts.next(), parts.next()) else {
        return refused(400, "INVALID_QUERY_LOCATOR", "invalid query locator");
    };
    match account.cursors.remove(locator) {
        Some(rows) => page(account, version, size.max(1), total, rows),
        None => refused(400, "INVALID_QUERY_LOCATOR", "invalid query locator"),
    }
}

fn rows(
    account: &Account,
    options: &Options,
    object: Object,
    select: &Select,
    version: u32,
    all: bool,
) -> Vec<Value> {
    let records = account.records.iter();
    let wanted = records.filter(|(_, r)| r.object == object && (all || !r.deleted));
    let fits = wanted.filter(|(id, r)| {
        let read = |column: &str| r.read(id, options, column);
        select.condition.as_ref().is_none_or(|c| c.holds(&read))
    });
    let row = |(id, record): (&String, &super::Stored)| {
        let url = format!("/services/data/v{version}.0/sobjects/{}/{id}", object.name());
        let mut row = json!({"attributes": {"type": object.name(), "url": url}});
        for column in &select.columns {
            let name = options.field(object, column).map_or(column, |f| &f.name);
            row[name] = record.read(id, options, column);
        }
        row
    };
    fits.map(row).skip(select.offset).take(select.limit.unwrap_or(usize::MAX)).collect()
}

fn page(
    account: &mut Account,
    version: u32,
    size: usize,
    total: usize,
    mut rows: Vec<Value>,
) -> Answer {
    let rest = if rows.len() > size { rows.split_off(size) } else { Vec::new() };
    let mut answer = json!({"totalSize": total, "done": rest.is_empty(), "records": rows});
    if !rest.is_empty() {
        let locator = format!("01g{:012}-{size}-{total}", account.used);
        answer["nextRecordsUrl"] = json!(format!("/services/data/v{version}.0/query/{locator}"));
        account.cursors.insert(locator, rest);
    }
    Answer::json(200, &answer)
}
