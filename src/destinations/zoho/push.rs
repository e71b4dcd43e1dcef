//! Writing: new leads by key, known ones by id.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::super::batch::Batch;
use super::super::cached::before_writing;
use super::super::client::Call;
use super::super::typed::Type;
use super::super::{CallError, Outcome, Record, Reply};
use super::fields::Fields;
use super::reads::{self, Place};
use super::said::{self, Item, Verdict};
use super::{API, FILLED, Module, NOT_PROVIDED, Zoho};

impl Zoho {
    /// Leads that were never pushed.
    pub(super) async fn by_key(
        &self,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(self.module, records).await?;
        fields.check_key(self.module, &self.key)?;
        for (property, _) in records.iter().flat_map(|record| &record.properties) {
            fields.check_unique(self.module, &self.key, property)?;
        }
        let mut bodies: Vec<_> =
            records.iter().map(|record| self.body(record, &fields, self.module)).collect();
        // Those that lack what a new record must have: only what is not there yet is filled.
        let lacks: Vec<bool> =
            bodies.iter().map(|body| body.as_ref().is_ok_and(|body| fields.lacks(body))).collect();
        let asked = records.iter().zip(&lacks).filter(|(_, lacks)| **lacks);
        let asked: Vec<&Record> = asked.map(|(record, _)| *record).collect();
        let rows = self.matching(&asked, &[]).await.map_err(before_writing)?.value;
        let mut found = reads::about(&rows, &asked).into_iter();
        for (body, _) in bodies.iter_mut().zip(lacks).filter(|(_, lacks)| *lacks) {
            let ids = found.next().unwrap_or_default().into_iter().map(|row| row.id.clone());
            let ids: Vec<String> = ids.collect();
            let lacking = std::mem::replace(body, Ok(Map::new()));
            *body = match ids.as_slice() {
                [] => lacking.map(|body| fields.filled(body)),
                [one] => Err(Outcome::Exists { remote_id: one.clone() }),
                _ => Err(Outcome::Ambiguous { remote_ids: ids }),
            };
        }
        let mut batch = Batch::new(records.len());
        for (at, (record, body)) in records.iter().zip(bodies).enumerate() {
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("Email".to_owned(), json!(record.lead.email));
                    body.insert(self.key.clone(), json!(record.lead.email));
                    body
                }),
            );
        }
        let mut order = vec![self.key.as_str(), "Email"];
        order.dedup();
        let rest = json!({ "duplicate_check_fields": order });
        let call = Call::post(format!("{API}/{}/upsert", self.module.name()));
        self.send(self.module, call, rest, records, batch).await
    }

    /// Leads that were pushed before. The e-mail is not sent.
    pub(super) async fn by_id(
        &self,
        module: Module,
        records: &[&Record],
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        let fields = self.fields(module, records).await?;
        let mut batch = Batch::new(records.len());
        let mut seen = HashSet::new();
        for (at, record) in records.iter().enumerate() {
            let (_, id) = self.place(record.remote_id.as_deref().unwrap_or_default());
            let body = match seen.insert(id) {
                true => self.body(record, &fields, module),
                // Two of our leads were merged there, and which of them wins must not be left to chance.
                false => Err(Outcome::Retry {
                    code: "SAME_RECORD".to_owned(),
                    message: "another lead of the same call is the same record there".to_owned(),
                }),
            };
            batch.add(
                at,
                body.map(|mut body| {
                    body.insert("id".to_owned(), json!(id));
                    body
                }),
            );
        }
        let call = Call::new(http::Method::PUT, format!("{API}/{}", module.name()));
        self.send(module, call, json!({}), records, batch).await
    }

    /// Sends what is in the batch and sorts what the answer says.
    async fn send(
        &self,
        module: Module,
        call: Call,
        mut request: Value,
        records: &[&Record],
        mut batch: Batch,
    ) -> Result<Reply<Vec<Outcome>>, CallError> {
        if batch.len() == 0 {
            return Ok(batch.outcomes().into());
        }
        request["data"] = batch.take_bodies().into_iter().map(Value::Object).collect();
        let answer = self.call(call.json(&request)).await?;
        let sent = batch.sent(records);
        let items = said::items(&answer, &sent)?;
        let (mut moved, mut rights) = (Vec::new(), 0);
        for ((at, record), item) in sent.into_iter().zip(items) {
            let outcome = match item {
                Item::Written { id, created } => {
                    let created = created.or(record.remote_id.is_some().then_some(false));
                    let remote_id = id.map(|id| self.remote_id(module, &id));
                    Outcome::Written { remote_id, created }
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
                        // The right to one record may be its own; of a call of several it is that of all of them.
                        if rights == batch.len() && rights > 1 {
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

    /// The fields of a record in the types that they want, without e-mail and key. Where the account does not take a value,
    /// the outcome that says so.
    fn body(
        &self,
        record: &Record,
        fields: &Fields,
        module: Module,
    ) -> Result<Map<String, Value>, Outcome> {
        let mut body = Map::new();
        for (property, value) in &record.properties {
            if property == "Email" || *property == self.key {
                continue;
            }
            let field = match module == self.module {
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
        Ok(body)
    }

    /// Says where the records are now that Zoho does not know by their id.
    async fn moved(
        &self,
        moved: &[(usize, &Record, said::Fault)],
        batch: &mut Batch,
    ) -> Result<(), CallError> {
        let ids: Vec<&str> =
            moved.iter().filter_map(|(_, record, _)| record.remote_id.as_deref()).collect();
        let places = self.places(&ids).await?;
        for (at, record, fault) in moved {
            let at = *at;
            let remote_id = record.remote_id.as_deref().unwrap_or_default();
            let outcome = match places.get(remote_id) {
                None | Some(Place::Gone) => Outcome::Gone,
                Some(Place::Converted) => Outcome::Rejected {
                    code: "CONVERTED".to_owned(),
                    field: None,
                    message: "the lead was converted, and is not to be followed".to_owned(),
                },
                Some(Place::At(now)) if now == remote_id => fault.rejected(record),
                Some(Place::At(now)) => Outcome::Exists { remote_id: now.clone() },
            };
            batch.settle(at, outcome);
        }
        Ok(())
    }
}
