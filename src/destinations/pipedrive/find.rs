//! Which persons a lead is: by id, by our own key, by e-mail, among those made lately.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::super::client::{Call, segment};
use super::super::{CallError, Limit, Record, Remote, Reply};
use super::fields::Field;
use super::{FIELDS_AGE, PAGE, PERSONS, Pipedrive, SEARCH, person, said};

/// Most hits of a search that are asked for.
const ASKED: &str = "100";
/// Most hits of a search that are read. A lead that matches more persons than these is ambiguous anyway.
const HITS: usize = 10;
/// How far Pipedrive's clock and ours may be apart.
const CLOCKS: Duration = Duration::from_secs(120);
/// Most pages of persons made lately that are read.
const RECENT_PAGES: usize = 40;

impl Pipedrive {
    /// The persons that a lead is. A search hit is read again: the search is behind, and old ones matched parts of
    /// addresses.
    pub(super) async fn found(
        &self,
        record: &Record,
        properties: &[String],
    ) -> Result<Reply<Vec<Remote>>, CallError> {
        let mapped = self.mapped(properties).await?;
        let mut limits = Vec::new();
        if let Some(id) = &record.remote_id
            && let Some((remote, _)) = self.one(id, &mapped, &mut limits).await?
        {
            return Ok(Reply { value: vec![remote], limits });
        }
        // Our own key tells more than an address, which several persons may have.
        if let Some(key) = &self.key_property {
            let key = person::key(&*self.account(FIELDS_AGE).await?, key)?;
            let lead_id = record.lead.lead_id.to_string();
            let ids = self.search(&lead_id, "custom_fields", &mut limits).await?;
            let ours = |person: &Value| person["custom_fields"][&key.code] == lead_id;
            let found = self.read(ids, &mapped, ours, &mut limits).await?;
            if !found.is_empty() {
                return Ok(Reply { value: found, limits });
            }
        }
        let mut ids = match record.creating_for {
            Some(age) => self.recent(record, age, &mut limits).await?,
            None => BTreeSet::new(),
        };
        ids.extend(self.search(&record.lead.email, "email", &mut limits).await?);
        let ours = |person: &Value| has_email(person, &record.lead.email);
        let found = self.read(ids, &mapped, ours, &mut limits).await?;
        Ok(Reply { value: found, limits })
    }

    /// Ids of the persons that the search finds with this value, whole and not as a part of another.
    async fn search(
        &self,
        term: &str,
        within: &str,
        limits: &mut Vec<Limit>,
    ) -> Result<BTreeSet<u64>, CallError> {
        let call = Call::get(SEARCH)
            .query("term", term)
            .query("fields", within)
            .query("exact_match", "true")
            .query("limit", ASKED);
        let answer = self.call(call).await?;
        let body = said::read(&answer)?;
        *limits = said::limits(&answer);
        let listed = if within == "email" { "emails" } else { within };
        let whole = |hit: &&Value| match hit["item"][listed].as_array() {
            Some(values) => values.iter().any(|value| is(value, term)),
            None => true,
        };
        let hits = person::items(&body["data"]["items"]).iter().filter(whole);
        Ok(hits.filter_map(|hit| hit["item"]["id"].as_u64()).take(HITS).collect())
    }

    /// Ids of the persons with the lead's key or address that were made since a create of ours began. The list is not
    /// behind the writes.
    async fn recent(
        &self,
        record: &Record,
        age: Duration,
        limits: &mut Vec<Limit>,
    ) -> Result<BTreeSet<u64>, CallError> {
        let from = Timestamp::now()
            .checked_sub(age.saturating_add(CLOCKS))
            .unwrap_or(Timestamp::UNIX_EPOCH);
        // Fractions of a second are refused.
        let from = from.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut ids = BTreeSet::new();
        let mut cursor: Option<String> = None;
        for _ in 0..RECENT_PAGES {
            let mut call = Call::get(PERSONS)
                .query("updated_since", &from)
                .query("sort_by", "add_time")
                .query("sort_direction", "desc")
                .query("limit", PAGE);
            if let Some(cursor) = cursor {
                call = call.query("cursor", cursor);
            }
            let answer = self.call(call).await?;
            let body = said::read(&answer)?;
            *limits = said::limits(&answer);
            let people = person::items(&body["data"]);
            let ours = people.iter().filter(|person| has_email(person, &record.lead.email));
            ids.extend(ours.filter_map(|person| person["id"].as_u64()));
            // Newest first: what follows was there before, and only changed since.
            let last = people.last().and_then(|person| person["add_time"].as_str());
            let before = last.is_some_and(|added| added < from.as_str());
            cursor = body["additional_data"]["next_cursor"].as_str().map(str::to_owned);
            if before || cursor.is_none() {
                return Ok(ids);
            }
        }
        Err(CallError::SlowDown {
            after: None,
            message: "too many persons were made at Pipedrive lately to look through them"
                .to_owned(),
        })
    }

    /// The persons with these ids that are there and are ours.
    async fn read(
        &self,
        ids: BTreeSet<u64>,
        mapped: &[(String, Field)],
        ours: impl Fn(&Value) -> bool + Send,
        limits: &mut Vec<Limit>,
    ) -> Result<Vec<Remote>, CallError> {
        let mut found = Vec::new();
        for id in ids {
            let one = self.one(&id.to_string(), mapped, limits).await?;
            found.extend(one.filter(|(_, person)| ours(person)).map(|(remote, _)| remote));
        }
        Ok(found)
    }

    /// One person as it is now; `None`: it is gone.
    async fn one(
        &self,
        id: &str,
        mapped: &[(String, Field)],
        limits: &mut Vec<Limit>,
    ) -> Result<Option<(Remote, Value)>, CallError> {
        let answer = self.call(Call::get(format!("{PERSONS}/{}", segment(id)))).await?;
        *limits = said::limits(&answer);
        if matches!(answer.status, 404 | 410) {
            return Ok(None);
        }
        let mut body = said::read(&answer)?;
        let person = body["data"].take();
        let remote = person::remote(&person, mapped).filter(|remote| !remote.archived);
        Ok(remote.map(|remote| (remote, person)))
    }
}

/// Whether a person has this address, as primary one or another.
fn has_email(person: &Value, email: &str) -> bool {
    person::items(&person["emails"]).iter().any(|entry| is(&entry["value"], email))
}

/// Whether a value is this text, letter case ignored.
fn is(value: &Value, text: &str) -> bool {
    value.as_str().is_some_and(|value| value.trim().to_lowercase() == text.to_lowercase())
}
