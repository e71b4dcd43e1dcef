//! Writing: new leads by key, known ones by id.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::super::batch::Batch;
use super::super::client::Call;
use super::super::typed::Type;
use super::super::{CallError, Outcome, Record, Reply};
use super::fields::Fields;
use super::reads::Place;
use super::rows::short;
use super::said::{self, Item, Verdict};
use super::{API, FILLED, NOT_PROVIDED, Object, Salesforce};

impl Salesforce {
    /// Leads of which nothing was found.
    pub(super) async fn by_key(
        &self,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(self.object, records).await?;
        fields.check_key(self.object, &self.key)?;
        let mut batch = Batch::new(records.len());
        for (at, record) in records.iter().enumerate() {
            let body = self.body(record, &fields, self.object, true);
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("Email".to_owned(), json!(record.lead.email));
                    body.insert(self.key.clone(), json!(record.lead.email));
                    body
                }),
            );
        }
        let path = format!("{API}/composite/sobjects/{}/{}", self.object.name(), self.key);
        self.send(self.object, path, records, batch).await
    }

    /// Leads that were pushed before. The e-mail is not sent.
    pub(super) async fn by_id(
        &self,
        object: Object,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(object, records).await?;
        let mut batch = Batch::new(records.len());
        let mut seen = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            let id = record.remote_id.as_deref().unwrap_or_default();
            let body = match seen.insert(short(id).to_owned(), at) {
                // Two of our leads were merged there, and a call may name a record once.
                Some(_) => Err(Outcome::Retry {
                    code: "SAME_RECORD".to_owned(),
                    message: "another lead of the same call is the same record there".to_owned(),
                }),
                None => self.body(record, &fields, object, false),
            };
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("id".to_owned(), json!(id));
                    body
                }),
            );
        }
        self.send(object, format!("{API}/composite/sobjects"), records, batch).await
    }

    /// Sends what is in the batch and sorts what the answer says.
    async fn send(
        &self,
        object: Object,
        path: String,
        records: &[&Record],
        mut batch: Batch,
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        if batch.len() == 0 {
            return Ok(batch.outcomes().into());
        }
        let typed = |body: Map<String, Value>| {
            // First, as in every example of Salesforce's.
            let mut record = json!({"attributes": {"type": object.name()}});
            record.as_object_mut().into_iter().for_each(|record| record.extend(body.clone()));
            record
        };
        let list: Vec<Value> = batch.take_bodies().into_iter().map(typed).collect();
        let call = Call::patch(path).json(&json!({"allOrNone": false, "records": list}));
        let answer = self.call(call).await?;
        let sent = batch.sent(records);
        let items = said::items(&answer, &sent)?;
        let mut moved = Vec::new();
        let mut rights = 0;
        for ((at, record), item) in sent.into_iter().zip(items) {
            let outcome = match item {
                Item::Written { id, created } => {
                    let created = created.or(record.remote_id.is_some().then_some(false));
                    Outcome::Written { remote_id: id, created }
                }
                Item::Silent => Outcome::Unknown { message: "the item says nothing".to_owned() },
                Item::Failed(fault) => match fault.verdict(record, &self.key) {
                    Verdict::Is(outcome) => outcome,
                    Verdict::Stop(error) => return Err(error),
                    Verdict::Moved => {
                        moved.push((at, record, fault));
                        continue;
                    }
                    Verdict::Rights => {
                        rights += 1;
                        // The right to make records is that of all of them; the right to one record may be its own.
                        let is_new = record.remote_id.is_none();
                        if is_new || rights > 1 && rights == batch.len() {
                            return Err(fault.stop(record));
                        }
                        fault.rejected(record)
                    }
                },
            };
            batch.settle(at, outcome);
        }
        if let Err(error) = self.moved(&moved, &mut batch).await {
            // What the answer said of the others stands.
            for (at, _, fault) in moved {
                let message = format!("where it is now cannot be asked: {error}");
                batch.settle(at, Outcome::Retry { code: fault.code, message });
            }
        }
        Ok(Reply { value: batch.outcomes(), limits: said::limits(&answer) })
    }

    /// The fields of a record in the types that they want, without e-mail and key. Where the org does not take a value, the
    /// outcome that says so.
    fn body(
        &self,
        record: &Record,
        fields: &Fields,
        object: Object,
        is_new: bool,
    ) -> Result<Map<String, Value>, Outcome> {
        let mut body = Map::new();
        for (property, value) in &record.properties {
            if property.eq_ignore_ascii_case("Email") || property.eq_ignore_ascii_case(&self.key) {
                continue;
            }
            let field = match object == self.object {
                true => fields.get(property),
                // What a contact has no field for stays at the lead.
                false => fields.moved(property),
            };
            let Some(field) = field else { continue };
            let json = match value {
                None if field.kind == Type::Flag => json!(false),
                None if field.required && FILLED.contains(&field.name.as_str()) => {
                    json!(NOT_PROVIDED)
                }
                None => Value::Null,
                Some(text) => field.kind.json(text).map_err(|wanted| Outcome::Rejected {
                    code: "INVALID_VALUE".to_owned(),
                    field: Some(property.clone()),
                    message: format!("should be {wanted}"),
                })?,
            };
            body.insert(field.name.clone(), json);
        }
        for name in FILLED.iter().filter(|_| is_new) {
            if fields.get(name).is_some_and(|field| field.required) {
                body.entry(*name).or_insert_with(|| json!(NOT_PROVIDED));
            }
        }
        Ok(body)
    }

    /// Says where the records are now that could not be written because they are not what they were.
    async fn moved(
        &self,
        moved: &[(usize, &Record, said::Fault)],
        batch: &mut Batch,
    ) -> Result<(), CallError> {
        if moved.is_empty() {
            return Ok(());
        }
        // By key it can only be a lead that was converted: its key stays with it.
        let new: Vec<&Record> =
            moved.iter().map(|(_, r, _)| *r).filter(|r| r.remote_id.is_none()).collect();
        let rows = self.matching(&new, &[]).await?.value;
        let keyed = |record: &Record| {
            let email = record.lead.email.to_lowercase();
            rows.iter().find(|row| row.key == email).map(|row| row.id.clone())
        };
        let id = |record: &Record| record.remote_id.clone().or_else(|| keyed(record));
        let ids: Vec<String> = moved.iter().filter_map(|(_, record, _)| id(record)).collect();
        let places = self.places(&ids).await?;
        for (at, record, fault) in moved {
            let at = *at;
            let id = id(record).unwrap_or_default();
            let outcome = match (places.get(short(&id)), record.remote_id.is_some()) {
                (Some(Place::At(now)), _) if short(now) != short(&id) => {
                    Outcome::Exists { remote_id: now.clone() }
                }
                (Some(Place::At(_)), true) => fault.rejected(record),
                (Some(Place::Converted), _) => converted(),
                (None | Some(Place::Gone), true) => Outcome::Gone,
                (Some(Place::Gone), false) => converted(),
                // Somebody is at it in this moment.
                (None | Some(Place::At(_)), false) => Outcome::Retry {
                    code: fault.code.clone(),
                    message: "it has just changed".to_owned(),
                },
            };
            batch.settle(at, outcome);
        }
        Ok(())
    }
}

fn converted() -> Outcome {
    Outcome::Rejected {
        code: "CONVERTED".to_owned(),
        field: None,
        message: "the lead was converted, and there is no contact to follow it to, or it is not to be followed".to_owned(),
    }
}
