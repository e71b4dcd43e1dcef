//! Reading contacts: by id, by external id, by e-mail, page by page.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::super::{CallError, Page, Record, Remote};
use super::{MODULE, Object, Odoo, PAGE, external};

/// A row of `search_read`.
struct Row {
    id: i64,
    active: bool,
    /// An address of a contact (for invoices, for deliveries), which is no contact itself.
    address: bool,
    remote: Remote,
}

fn broken(what: &str) -> CallError {
    CallError::Unknown { after: None, message: format!("the answer {what}") }
}

impl Odoo {
    /// Ids that the external ids of these records point at, by their names.
    pub(super) async fn external_ids(
        &self,
        records: &[&Record],
    ) -> Result<HashMap<String, i64>, CallError> {
        let names: Vec<String> =
            records.iter().map(|record| external(self.object, record)).collect();
        let domain = json!([
            ["module", "=", MODULE],
            ["model", "=", self.object.model()],
            ["name", "in", names]
        ]);
        let found = self.points_at(domain, names.len().max(1)).await?;
        Ok(found.into_iter().map(|(_, name, id)| (name, id)).collect())
    }

    /// Id, name and target of external ids.
    async fn points_at(
        &self,
        domain: Value,
        limit: usize,
    ) -> Result<Vec<(i64, String, i64)>, CallError> {
        let args = search(domain, &["name", "res_id"], limit);
        let found = self.ask("ir.model.data", "search_read", args).await?;
        let rows = found.as_array().ok_or_else(|| broken("is no list of external ids"))?;
        let row = |row: &Value| {
            Some((row["id"].as_i64()?, row["name"].as_str()?.to_owned(), row["res_id"].as_i64()?))
        };
        rows.iter()
            .map(|r| row(r).ok_or_else(|| broken("has an external id without a target")))
            .collect()
    }

    async fn rows(
        &self,
        domain: Value,
        properties: &[String],
        limit: usize,
    ) -> Result<Vec<Row>, CallError> {
        let mut fields: BTreeSet<&str> = ["active", "email_normalized"].into();
        if self.object == Object::Partner {
            fields.insert("type");
        }
        // Of "country_id/id" the field is "country_id".
        fields.extend(properties.iter().map(|property| base(property)));
        let fields: Vec<&str> = fields.into_iter().collect();
        let args = search(domain, &fields, limit);
        let found = self.ask(self.object.model(), "search_read", args).await?;
        let rows = found.as_array().ok_or_else(|| broken("is no list of records"))?;
        let row =
            |row: &Value| read(row, properties).ok_or_else(|| broken("has a record without an id"));
        rows.iter().map(row).collect()
    }

    /// What there is for each record.
    pub(super) async fn find(
        &self,
        records: &[Record],
        properties: &[String],
    ) -> Result<Vec<Vec<Remote>>, CallError> {
        let id_of = |record: &Record| record.remote_id.as_ref()?.parse::<i64>().ok();
        let mut ids: BTreeSet<i64> = records.iter().filter_map(id_of).collect();
        let unknown = records.iter().filter(|record| record.remote_id.is_none());
        // Leads are known by their external id alone, for one person may have several.
        let (by_key, by_email): (Vec<&Record>, Vec<&Record>) = match self.object {
            Object::Lead => (unknown.collect(), Vec::new()),
            Object::Partner => (Vec::new(), unknown.collect()),
        };
        let mut keys = HashMap::new();
        if !by_key.is_empty() {
            keys = self.external_ids(&by_key).await?;
            ids.extend(keys.values());
        }
        let emails: Vec<&str> = by_email.iter().map(|record| record.lead.email.as_str()).collect();
        let mut there = self.any_of(&ids, &emails, properties).await?;
        // One that is gone may have been merged into another.
        let gone = |record: &&Record| {
            record.remote_id.is_some()
                && !id_of(record).is_some_and(|id| there.iter().any(|row| row.id == id))
        };
        let gone: Vec<&Record> = records.iter().filter(gone).collect();
        if !gone.is_empty() {
            let survivors = self.external_ids(&gone).await?;
            let ids: BTreeSet<i64> = survivors.values().copied().collect();
            if !ids.is_empty() {
                there.extend(self.any_of(&ids, &[], properties).await?);
            }
            keys.extend(survivors);
        }
        let of = |record: &Record| {
            let by_id = |id: i64| there.iter().find(|row| row.id == id);
            if let Some(row) = id_of(record).and_then(by_id) {
                return vec![row.remote.clone()];
            }
            if let Some(row) = keys.get(&external(self.object, record)).and_then(|id| by_id(*id)) {
                return vec![row.remote.clone()];
            }
            match record.remote_id.is_none() && self.object == Object::Partner {
                true => with_email(&there, &record.lead.email),
                false => Vec::new(),
            }
        };
        Ok(records.iter().map(of).collect())
    }

    async fn any_of(
        &self,
        ids: &BTreeSet<i64>,
        emails: &[&str],
        properties: &[String],
    ) -> Result<Vec<Row>, CallError> {
        let domain = match (ids.is_empty(), emails.is_empty()) {
            (true, true) => return Ok(Vec::new()),
            (false, true) => json!([["id", "in", ids]]),
            (true, false) => json!([["email_normalized", "in", emails]]),
            (false, false) => json!(["|", ["id", "in", ids], ["email_normalized", "in", emails]]),
        };
        // However often an address is there, it is not there so often.
        self.rows(domain, properties, 10_000).await
    }

    /// The contacts after that id that have an e-mail; of leads those that we made.
    pub(super) async fn page(&self, after: i64, properties: &[String]) -> Result<Page, CallError> {
        let (domain, last) = match self.object {
            Object::Partner => {
                (json!([["id", ">", after], ["email_normalized", "!=", false]]), None)
            }
            Object::Lead => {
                let domain = json!([
                    ["module", "=", MODULE],
                    ["model", "=", self.object.model()],
                    ["id", ">", after]
                ]);
                let ours = self.points_at(domain, PAGE).await?;
                let last = ours.iter().map(|(id, ..)| *id).max().filter(|_| ours.len() == PAGE);
                let ids: Vec<i64> = ours.iter().map(|(_, _, id)| *id).collect();
                if ids.is_empty() {
                    return Ok(Page::default());
                }
                (json!([["id", "in", ids]]), Some(last))
            }
        };
        let rows = self.rows(domain, properties, PAGE).await?;
        let next = match last {
            Some(last) => last,
            None => rows.iter().map(|row| row.id).max().filter(|_| rows.len() == PAGE),
        };
        let contacts = rows.into_iter().filter(|row| !row.address).map(|row| row.remote).collect();
        Ok(Page { contacts, next: next.map(|id| id.to_string()) })
    }
}

/// Arguments of a `search_read`.
fn search(domain: Value, fields: &[&str], limit: usize) -> Vec<(&'static str, Value)> {
    vec![
        ("domain", domain),
        ("fields", json!(fields)),
        ("offset", json!(0)),
        ("limit", json!(limit)),
        ("order", json!("id")),
    ]
}

/// Contacts of that e-mail: archived ones only where no other has it.
fn with_email(there: &[Row], email: &str) -> Vec<Remote> {
    let all = || {
        let same = |row: &&Row| !row.address && row.remote.email.as_deref() == Some(email);
        there.iter().filter(same)
    };
    let mut found: BTreeMap<i64, Remote> =
        all().filter(|row| row.active).map(|row| (row.id, row.remote.clone())).collect();
    if found.is_empty() {
        found = all().map(|row| (row.id, row.remote.clone())).collect();
    }
    found.into_values().collect()
}

fn base(property: &str) -> &str {
    property.split('/').next().unwrap_or(property)
}

fn read(row: &Value, properties: &[String]) -> Option<Row> {
    let id = row["id"].as_i64()?;
    let known =
        |property: &String| Some((property.clone(), text(property, row.get(base(property))?)));
    let kind = row["type"].as_str().unwrap_or("contact");
    Some(Row {
        id,
        active: row["active"] != false,
        address: ["invoice", "delivery", "other", "private"].contains(&kind),
        remote: Remote {
            id: id.to_string(),
            email: row["email_normalized"].as_str().map(str::to_owned),
            properties: properties.iter().filter_map(known).collect(),
            // Odoo's archive can be written.
            archived: false,
        },
    })
}

/// A value in the words that a load would use. What is empty is `false`, also a box that is not ticked.
fn text(property: &str, value: &Value) -> Option<String> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        // "country_id/.id" is the id, "country_id" the name.
        Value::Array(pair) if pair.len() == 2 && pair[1].is_string() => {
            match property.ends_with("/.id") {
                true => Some(pair[0].to_string()),
                false => pair[1].as_str().map(str::to_owned),
            }
        }
        Value::Array(list) if list.is_empty() => None,
        other => Some(other.to_string()),
    }
}
