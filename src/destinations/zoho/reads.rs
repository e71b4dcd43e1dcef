//! What is asked of Zoho: fields, records by key and id, where a record went, all of them page by page.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::client::Call;
use super::super::typed;
use super::super::{CallError, Page, Record, Remote, Reply};
use super::fields::Fields;
use super::said;
use super::{API, KEEP, Module, STALE, Zoho};

/// Most values of a list in a query.
const MAX_LIST: usize = 50;
/// Most ids that are asked for at once.
const MAX_IDS: usize = 100;
/// Most rows of a query.
const MAX_ROWS: usize = 2_000;
/// Rows of a page when everything is listed.
const PAGE: &str = "200";

/// Where a record is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There, maybe as another record; as it is remembered.
    At(String),
    Gone,
    /// Converted, and not to be followed.
    Converted,
}

/// A record of the account.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub id: String,
    /// In lower case.
    email: String,
    /// In lower case.
    key: String,
    converted: bool,
    contact: Option<String>,
    columns: Value,
}

impl Row {
    fn read(row: &Value, key: &str) -> Option<Row> {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_lowercase();
        let contact = &row["Converted_Contact"];
        Some(Row {
            id: said::id(&row["id"])?,
            email: text("Email"),
            key: text(key),
            converted: row["Converted__s"] == true,
            contact: said::id(&contact["id"]).or_else(|| said::id(contact)),
            columns: row.clone(),
        })
    }

    /// As the core wants it; `columns`: property that was asked for, and the field that it is here.
    fn remote(&self, remote_id: String, columns: &[(String, String)]) -> Remote {
        let value = |(property, field): &(String, String)| {
            (property.clone(), typed::text(&self.columns[field.as_str()]))
        };
        Remote {
            id: remote_id,
            email: Some(self.email.clone()).filter(|email| !email.is_empty()),
            properties: columns.iter().map(value).collect(),
            archived: self.converted,
        }
    }
}

/// The rows that are about each record, by key or e-mail.
pub(super) fn about<'a>(rows: &'a [Row], records: &[&Record]) -> Vec<Vec<&'a Row>> {
    let mut by_text = HashMap::<&str, Vec<&Row>>::new();
    for row in rows {
        by_text.entry(&row.email).or_default().push(row);
        if row.key != row.email {
            by_text.entry(&row.key).or_default().push(row);
        }
    }
    let of = |record: &&Record| {
        let mut rows =
            by_text.get(record.lead.email.to_lowercase().as_str()).cloned().unwrap_or_default();
        let mut seen = HashSet::new();
        rows.retain(|row| seen.insert(row.id.as_str()));
        rows
    };
    records.iter().map(of).collect()
}

impl Zoho {
    /// The fields of a module, listed anew where one that is mapped seems to be missing.
    pub(super) async fn fields(
        &self,
        module: Module,
        records: &[&Record],
    ) -> Result<Arc<Fields>, CallError> {
        let cached = match module {
            Module::Leads => &self.leads,
            Module::Contacts => &self.contacts,
        };
        let own = module == self.module;
        let properties = || records.iter().filter(|_| own).flat_map(|r| &r.properties);
        let mut most = KEEP;
        loop {
            let fields = cached.get(most, async || self.field_list(module).await).await?;
            let missing = properties().find(|(property, _)| fields.get(property).is_none());
            match missing {
                None => return Ok(fields),
                Some((property, _)) if most == STALE => {
                    return Err(fields.unknown(module, property));
                }
                Some(_) => most = STALE,
            }
        }
    }

    pub(super) async fn field_list(&self, module: Module) -> Result<Fields, CallError> {
        let call = Call::get(format!("{API}/settings/fields")).query("module", module.name());
        let answer = self.call(call).await?;
        let body = answer.json()?;
        match answer.status {
            200 => Ok(Fields::read(&body)),
            _ => Err(said::refusal(&answer, &body, &[])),
        }
    }

    /// Finds out whether queries and writes are allowed, without writing.
    pub(super) async fn check_scopes(&self) -> Result<(), CallError> {
        let module = self.module.name();
        self.rows(coql(&format!("select id from {module} where id is not null limit 1"))).await?;
        // Rights are looked at before the content, and an empty batch writes nothing.
        let call = Call::post(format!("{API}/{module}/upsert")).json(&json!({"data": []}));
        let answer = self.call(call).await?;
        match answer.status {
            401 | 403 => Err(said::refusal(&answer, &answer.json()?, &[])),
            _ => Ok(()),
        }
    }

    /// The rows of an answer, none of 204, and the token of the next page.
    async fn page_of(&self, call: Call) -> Result<Reply<(Vec<Row>, Option<String>)>, CallError> {
        let answer = self.call(call).await?;
        let limits = said::limits(&answer);
        if answer.status == 204 {
            return Ok(Reply { value: (Vec::new(), None), limits });
        }
        let body = answer.json()?;
        if answer.status != 200 {
            return Err(said::refusal(&answer, &body, &[]));
        }
        let list = body["data"].as_array().map(Vec::as_slice).unwrap_or_default();
        let rows = list.iter().filter_map(|row| Row::read(row, &self.key)).collect();
        let next = said::id(&body["info"]["next_page_token"]);
        Ok(Reply { value: (rows, next), limits })
    }

    async fn rows(&self, call: Call) -> Result<Reply<Vec<Row>>, CallError> {
        Ok(self.page_of(call).await?.map(|(rows, _)| rows))
    }

    /// Records with the key or the e-mail of these leads, with more columns. Zoho leaves converted ones out.
    pub(super) async fn matching(
        &self,
        records: &[&Record],
        more: &[(String, String)],
    ) -> Result<Reply<Vec<Row>>, CallError> {
        let mut reply: Reply<Vec<Row>> = Vec::new().into();
        let columns = names(&["id", "Email", self.key.as_str()], more);
        for some in records.chunks(MAX_LIST) {
            let emails: Vec<String> = some.iter().map(|r| quoted(&r.lead.email)).collect();
            let emails = emails.join(",");
            let test = match self.key.as_str() {
                "Email" => format!("Email in ({emails})"),
                key => format!("({key} in ({emails}) or Email in ({emails}))"),
            };
            let module = self.module.name();
            let query = format!("select {columns} from {module} where {test} limit {MAX_ROWS}");
            let page = self.rows(coql(&query)).await?;
            reply.value.extend(page.value);
            reply.limits = page.limits;
        }
        Ok(reply)
    }

    /// Records of a module by Zoho's ids, converted ones too.
    async fn by_ids(
        &self,
        module: Module,
        ids: &[&str],
        more: &[(String, String)],
    ) -> Result<Reply<Vec<Row>>, CallError> {
        let mut reply: Reply<Vec<Row>> = Vec::new().into();
        let own: &[&str] = match module {
            Module::Leads => &["Email", "Converted__s", "Converted_Contact"],
            Module::Contacts => &["Email"],
        };
        let columns = names(own, more);
        // An id of some other CRM would be an error for all of them.
        let ids: Vec<&str> = ids
            .iter()
            .copied()
            .filter(|id| !id.is_empty() && id.len() <= 25 && id.bytes().all(|b| b.is_ascii_digit()))
            .collect();
        for some in ids.chunks(MAX_IDS) {
            let mut call = Call::get(format!("{API}/{}", module.name()))
                .query("ids", some.join(","))
                .query("fields", columns.clone());
            if module == Module::Leads {
                call = call.query("converted", "both");
            }
            let page = self.rows(call).await?;
            reply.value.extend(page.value);
            reply.limits = page.limits;
        }
        Ok(reply)
    }

    /// Where remembered records are now.
    pub(super) async fn places(
        &self,
        remote_ids: &[&str],
    ) -> Result<HashMap<String, Place>, CallError> {
        let mut places = HashMap::new();
        // Contacts last: some leads lead there.
        let mut contacts: Vec<(String, String)> = Vec::new();
        let mut leads: Vec<(&str, &str)> = Vec::new();
        for remote_id in remote_ids {
            match self.place(remote_id) {
                (Module::Leads, id) => leads.push((remote_id, id)),
                (Module::Contacts, id) => contacts.push(((*remote_id).to_owned(), id.to_owned())),
            }
        }
        let ids: Vec<&str> = leads.iter().map(|(_, id)| *id).collect();
        let rows = self.by_ids(Module::Leads, &ids, &[]).await?.value;
        let rows: HashMap<&str, &Row> = rows.iter().map(|row| (row.id.as_str(), row)).collect();
        for (remote_id, id) in leads {
            let place = match rows.get(id) {
                None => Place::Gone,
                Some(row) if !row.converted => Place::At(remote_id.to_owned()),
                Some(Row { contact: Some(contact), .. }) if self.follow => {
                    contacts.push((remote_id.to_owned(), contact.clone()));
                    continue;
                }
                Some(_) => Place::Converted,
            };
            places.insert(remote_id.to_owned(), place);
        }
        let ids: Vec<&str> = contacts.iter().map(|(_, id)| id.as_str()).collect();
        let rows = self.by_ids(Module::Contacts, &ids, &[]).await?.value;
        let there: HashSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        for (remote_id, id) in contacts {
            let place = match there.contains(id.as_str()) {
                true => Place::At(self.remote_id(Module::Contacts, &id)),
                false => Place::Gone,
            };
            places.insert(remote_id, place);
        }
        Ok(places)
    }

    /// Each property that a module has, and the field that it is there.
    async fn columns(
        &self,
        module: Module,
        properties: &[String],
    ) -> Result<Vec<(String, String)>, CallError> {
        let fields = self.fields(module, &[]).await?;
        let field = |property: &String| {
            let field = match module == self.module {
                true => fields.get(property),
                false => fields.moved(property),
            };
            Some((property.clone(), field?.name.clone()))
        };
        Ok(properties.iter().filter_map(field).collect())
    }

    /// What is there of each record.
    pub(super) async fn found(
        &self,
        records: &[&Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        let own = self.columns(self.module, properties).await?;
        let new: Vec<&Record> = records.iter().copied().filter(|r| r.remote_id.is_none()).collect();
        let mut reply = self.matching(&new, &own).await?;
        let matching = std::mem::take(&mut reply.value);
        let known: Vec<&str> = records.iter().filter_map(|r| r.remote_id.as_deref()).collect();
        let places = self.places(&known).await?;
        let mut now = HashMap::<Module, Vec<&str>>::new();
        for place in places.values() {
            if let Place::At(remote_id) = place {
                let (module, id) = self.place(remote_id);
                now.entry(module).or_default().push(id);
            }
        }
        let mut remotes = HashMap::new();
        for (module, ids) in now {
            let columns = self.columns(module, properties).await?;
            let rows = self.by_ids(module, &ids, &columns).await?;
            reply.limits = rows.limits;
            for row in rows.value {
                let remote_id = self.remote_id(module, &row.id);
                remotes.insert(remote_id.clone(), row.remote(remote_id, &columns));
            }
        }
        let of = |(record, rows): (&&Record, Vec<&Row>)| match &record.remote_id {
            Some(id) => match places.get(id) {
                Some(Place::At(now)) => remotes.get(now).cloned().into_iter().collect(),
                _ => Vec::new(),
            },
            None => rows.iter().map(|row| row.remote(row.id.clone(), &own)).collect(),
        };
        let value = records.iter().zip(about(&matching, records)).map(of).collect();
        Ok(Reply { value, limits: reply.limits })
    }

    /// A page of all records of the configured kind.
    pub(super) async fn page(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let columns = self.columns(self.module, properties).await?;
        let mut call = Call::get(format!("{API}/{}", self.module.name()))
            .query("fields", names(&["Email", self.key.as_str()], &columns))
            .query("per_page", PAGE);
        if let Some(token) = cursor {
            call = call.query("page_token", token);
        }
        let reply = self.page_of(call).await?;
        Ok(reply.map(|(rows, next)| {
            let contacts = rows.iter().map(|row| row.remote(row.id.clone(), &columns)).collect();
            Page { contacts, next }
        }))
    }
}

fn coql(query: &str) -> Call {
    Call::post(format!("{API}/coql")).json(&json!({ "select_query": query }))
}

/// The names of columns, each once.
fn names(own: &[&str], more: &[(String, String)]) -> String {
    let mut seen = HashSet::new();
    let all = own.iter().copied().chain(more.iter().map(|(_, field)| field.as_str()));
    all.filter(|name| seen.insert(*name)).collect::<Vec<_>>().join(",")
}

/// A text as COQL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
