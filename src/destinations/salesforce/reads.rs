//! What is asked of Salesforce: descriptions, records by key and id, where a record went, all of them page by page.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::super::client::{Answer, Call};
use super::super::{CallError, Page, Record, Remote, Reply};
use super::fields::Fields;
use super::rows::{self, Row, short};
use super::said;
use super::{API, KEEP, Object, STALE, Salesforce};

/// Most pages of one query: 2,000 rows each, which no batch comes near.
const MAX_PAGES: usize = 20;
/// Longest way from a record to where it is now: merged, merged again, converted, merged …
const MAX_MOVES: usize = 6;
/// Rows of a page when everything is listed.
const PAGE: usize = 2_000;

/// Where a record is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// There, maybe under another id.
    At(String),
    Gone,
    /// Converted, and not to be followed or to nothing that is there.
    Converted,
}

impl Salesforce {
    /// The fields of an object, described anew where one that is mapped seems to be missing.
    pub(super) async fn fields(
        &self,
        object: Object,
        records: &[&Record],
    ) -> Result<Arc<Fields>, CallError> {
        let cached = match object {
            Object::Lead => &self.leads,
            Object::Contact => &self.contacts,
        };
        let own = object == self.object;
        let properties = || records.iter().filter(|_| own).flat_map(|r| &r.properties);
        let mut most = KEEP;
        loop {
            let fields = cached.get(most, async || Ok(self.describe(object).await?.1)).await?;
            let missing = properties().find(|(property, _)| fields.get(property).is_none());
            match missing {
                None => return Ok(fields),
                Some((property, _)) if most == STALE => {
                    return Err(fields.unknown(object.name(), property));
                }
                Some(_) => most = STALE,
            }
        }
    }

    pub(super) async fn describe(&self, object: Object) -> Result<(Answer, Fields), CallError> {
        let path = format!("{API}/sobjects/{}/describe", object.name());
        let answer = self.call(Call::get(path)).await?;
        let body = answer.json()?;
        match answer.status {
            200 => Ok((answer, Fields::read(&body))),
            _ => Err(said::refusal(&answer, &body, &[])),
        }
    }

    /// All rows of some queries. `all`: also what is deleted.
    async fn rows(&self, queries: Vec<String>, all: bool) -> Result<Reply<Vec<Row>>, CallError> {
        let mut reply: Reply<Vec<Row>> = Vec::new().into();
        for query in queries {
            let verb = if all { "queryAll" } else { "query" };
            let mut call = Call::get(format!("{API}/{verb}")).query("q", query);
            for _ in 0..MAX_PAGES {
                let answer = self.call(call).await?;
                let body = answer.json()?;
                if answer.status != 200 {
                    return Err(said::refusal(&answer, &body, &[]));
                }
                let (rows, next) = rows::page(&body, &self.key);
                reply.value.extend(rows);
                reply.limits = said::limits(&answer);
                let Some(next) = next else { break };
                call = Call::get(next);
            }
        }
        Ok(reply)
    }

    /// Records with the key or the e-mail of these leads, with more columns.
    pub(super) async fn matching(
        &self,
        records: &[&Record],
        more: &[(String, String)],
    ) -> Result<Reply<Vec<Row>>, CallError> {
        let mut columns = rows::own_columns(self.object, Some(&self.key));
        columns.extend(more.iter().map(|(_, field)| field.clone()));
        let emails: Vec<&str> = records.iter().map(|r| r.lead.email.as_str()).collect();
        let by = ["Email", self.key.as_str()];
        self.rows(rows::queries(self.object, &columns, &by, &emails), false).await
    }

    /// Where records with these ids are now, by the short form of their ids.
    pub(super) async fn places(&self, ids: &[String]) -> Result<HashMap<String, Place>, CallError> {
        // Where each of them has come to, until it is settled.
        let mut ways: Vec<(String, String)> =
            ids.iter().map(|id| (short(id).to_owned(), id.clone())).collect();
        let mut places = HashMap::new();
        for _ in 0..MAX_MOVES {
            if ways.is_empty() {
                break;
            }
            let now: Vec<&str> = ways.iter().map(|(_, now)| now.as_str()).collect();
            let rows = self.by_ids(&now, &HashMap::new()).await?.value;
            let rows: HashMap<&str, &Row> = rows.iter().map(|row| (short(&row.id), row)).collect();
            let mut next = Vec::new();
            for (id, now) in ways {
                let place = match rows.get(short(&now)) {
                    None => Place::Gone,
                    Some(Row { deleted: true, master: Some(master), .. }) => {
                        next.push((id, master.clone()));
                        continue;
                    }
                    Some(Row { deleted: true, .. }) if Object::of(&id) != Object::of(&now) => {
                        Place::Converted
                    }
                    Some(Row { deleted: true, .. }) => Place::Gone,
                    Some(Row { converted: true, contact: Some(contact), .. }) if self.follow => {
                        next.push((id, contact.clone()));
                        continue;
                    }
                    Some(Row { converted: true, .. }) => Place::Converted,
                    Some(row) => Place::At(row.id.clone()),
                };
                places.insert(id, place);
            }
            ways = next;
        }
        Ok(places)
    }

    /// Records by id, deleted ones too.
    async fn by_ids(
        &self,
        ids: &[&str],
        more: &HashMap<Object, Vec<(String, String)>>,
    ) -> Result<Reply<Vec<Row>>, CallError> {
        let mut queries = Vec::new();
        for object in [Object::Lead, Object::Contact] {
            // An id of some other CRM would be an error for all of them.
            let well_formed = |id: &&&str| {
                matches!(id.len(), 15 | 18) && id.bytes().all(|b| b.is_ascii_alphanumeric())
            };
            let of: Vec<&str> = ids
                .iter()
                .filter(|id| Object::of(id) == Some(object))
                .filter(well_formed)
                .copied()
                .collect();
            let mut columns = rows::own_columns(object, None);
            columns.extend(more.get(&object).into_iter().flatten().map(|(_, field)| field.clone()));
            queries.extend(rows::queries(object, &columns, &["Id"], &of));
        }
        self.rows(queries, true).await
    }

    /// Each property that an object has, and the field that it is there.
    async fn columns(
        &self,
        object: Object,
        properties: &[String],
    ) -> Result<Vec<(String, String)>, CallError> {
        let fields = self.fields(object, &[]).await?;
        let field = |property: &String| {
            let field = match object == self.object {
                true => fields.get(property),
                false => fields.moved(property),
            };
            Some((property.clone(), field?.name.clone()))
        };
        Ok(properties.iter().filter_map(field).collect())
    }

    /// The same for every kind of object among some ids: the user may have no right to contacts where none is followed.
    async fn columns_of(
        &self,
        ids: &[&str],
        own: Vec<(String, String)>,
        properties: &[String],
    ) -> Result<HashMap<Object, Vec<(String, String)>>, CallError> {
        let mut columns = HashMap::from([(self.object, own)]);
        for object in ids.iter().filter_map(|id| Object::of(id)) {
            if let Entry::Vacant(vacant) = columns.entry(object) {
                vacant.insert(self.columns(object, properties).await?);
            }
        }
        Ok(columns)
    }

    /// What is there of each record.
    pub(super) async fn found(
        &self,
        records: &[&Record],
        properties: &[String],
    ) -> Result<Reply<Vec<Vec<Remote>>>, CallError> {
        if records.is_empty() {
            return Ok(Vec::new().into());
        }
        let own = self.columns(self.object, properties).await?;
        let new: Vec<&Record> = records.iter().copied().filter(|r| r.remote_id.is_none()).collect();
        let mut reply = self.matching(&new, &own).await?;
        let matching = std::mem::take(&mut reply.value);
        let about: Vec<Vec<&Row>> = rows::about(&matching, records)
            .into_iter()
            .zip(records)
            .map(|(rows, record)| rows::standing(&record.lead.email, &rows))
            .collect();
        // Ids whose records may be somewhere else now.
        let converted = about.iter().flatten().filter(|row| row.converted && self.follow);
        let known = records.iter().filter_map(|r| r.remote_id.clone());
        let ids: Vec<String> = known.chain(converted.map(|row| row.id.clone())).collect();
        let places = self.places(&ids).await?;
        let now: Vec<&str> = places
            .values()
            .filter_map(|place| match place {
                Place::At(now) => Some(now.as_str()),
                _ => None,
            })
            .collect();
        let columns = self.columns_of(&now, own, properties).await?;
        let elsewhere = self.by_ids(&now, &columns).await?;
        if !elsewhere.limits.is_empty() {
            reply.limits = elsewhere.limits;
        }
        let elsewhere: HashMap<&str, &Row> =
            elsewhere.value.iter().map(|row| (short(&row.id), row)).collect();
        let remote = |row: &Row| {
            let object = Object::of(&row.id).unwrap_or(self.object);
            row.clone().remote(columns.get(&object).map(Vec::as_slice).unwrap_or_default())
        };
        let at = |id: &str| match places.get(short(id)) {
            Some(Place::At(now)) => elsewhere.get(short(now)).map(|row| remote(row)),
            _ => None,
        };
        let of = |(record, rows): (&&Record, Vec<&Row>)| {
            let mut found: Vec<Remote> = match &record.remote_id {
                Some(id) => at(id).into_iter().collect(),
                None => rows
                    .into_iter()
                    .filter_map(|row| match row.converted && self.follow {
                        true => at(&row.id),
                        false => Some(remote(row)),
                    })
                    .collect(),
            };
            found.sort_by(|a, b| a.id.cmp(&b.id));
            found.dedup_by(|a, b| a.id == b.id);
            found
        };
        let value = records.iter().zip(about).map(of).collect();
        Ok(Reply { value, limits: reply.limits })
    }

    /// A page of all records of the configured kind, in the order of their ids: cursors of Salesforce's own end after
    /// some days, an id does not.
    pub(super) async fn listed(
        &self,
        cursor: Option<&str>,
        properties: &[String],
    ) -> Result<Reply<Page>, CallError> {
        let columns = self.columns(self.object, properties).await?;
        let mut names = rows::own_columns(self.object, Some(&self.key));
        names.extend(columns.iter().map(|(_, field)| field.clone()));
        let mut query = rows::select(self.object, &names);
        if let Some(after) = cursor {
            query = format!("{query}WHERE Id > {} ", rows::quoted(after));
        }
        let reply = self.rows(vec![format!("{query}ORDER BY Id LIMIT {PAGE}")], false).await?;
        let full = reply.value.len() >= PAGE;
        Ok(reply.map(|rows| {
            let next = rows.last().filter(|_| full).map(|row| row.id.clone());
            Page { contacts: rows.into_iter().map(|row| row.remote(&columns)).collect(), next }
        }))
    }
}
