//! A lead as a person of Pipedrive, and a person as what is asked of it.

use serde_json::{Map, Value, json};

use super::super::client::{Call, segment};
use super::super::{CallError, Mapped, Outcome, Record, Remote, Reply};
use super::fields::{Field, Fields};
use super::{FIELDS_AGE, FIELDS_DOUBTED, NAMED, PERSONS, Pipedrive, said};
use crate::destinations::cached::before_writing;
use crate::lead;

/// Longest name that Pipedrive takes, in characters.
const LONGEST_NAME: usize = 255;

/// The members of a list; an answer may have anything there.
pub(super) fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The custom fields of a read are named where there are few: the answer is smaller.
pub(super) fn naming(call: Call, mapped: &[(String, Field)]) -> Call {
    let codes: Vec<&str> =
        mapped.iter().filter(|(_, f)| f.custom).map(|(_, f)| f.code.as_str()).collect();
    match codes.len() {
        1..=NAMED => call.query("custom_fields", codes.join(",")),
        _ => call,
    }
}

/// A person of an answer; `None` where it is none.
pub(super) fn remote(person: &Value, mapped: &[(String, Field)]) -> Option<Remote> {
    let value = |field: &Field| match field.code.as_str() {
        "phones" => primary(&person["phones"]).map(str::to_owned),
        code if field.custom => field.text(&person["custom_fields"][code]),
        code => field.text(&person[code]),
    };
    Some(Remote {
        id: said::id(&person["id"])?,
        email: primary(&person["emails"]).map(str::to_lowercase),
        properties: mapped
            .iter()
            .map(|(property, field)| (property.clone(), value(field)))
            .collect(),
        archived: person["is_deleted"] == true,
    })
}

/// The primary value of a list, else its first.
fn primary(list: &Value) -> Option<&str> {
    let list = items(list);
    let primary = list.iter().find(|e| e["primary"] == true).or(list.first())?;
    primary["value"].as_str().filter(|value| !value.is_empty())
}

/// Whether a mapped property exists, takes a text, and knows the words it is mapped to.
pub(super) fn fits(fields: &Fields, mapped: &Mapped) -> Result<(), CallError> {
    if mapped.property == "emails" {
        return Ok(());
    }
    let field = fields.mapped(&mapped.property)?;
    let odd = |message: String| CallError::Misconfigured { code: "FIELD_TYPE".to_owned(), message };
    if !field.fillable() {
        return Err(odd(format!(
            "Pipedrive's person field \"{}\" is of type {}, which no text can fill; map {} to another one",
            mapped.property, field.kind, mapped.value
        )));
    }
    let unfit = |word: &&String| field.value(word).is_err();
    match mapped.values.values().find(unfit) {
        None => Ok(()),
        Some(word) => {
            let why = field.value(word).err().unwrap_or_default();
            Err(odd(format!("`values` of {}: \"{word}\" {why}", mapped.value)))
        }
    }
}

/// The field of the own key: custom, text, and found by the search.
pub(super) fn key(fields: &Fields, property: &str) -> Result<Field, CallError> {
    let field = fields.mapped(property)?;
    match field.custom && matches!(field.kind.as_str(), "varchar" | "varchar_auto" | "text") {
        true => Ok(field),
        false => Err(CallError::Misconfigured {
            code: "KEY_FIELD".to_owned(),
            message: format!(
                "`key_property` \"{property}\" is no custom text field of persons; the lead id is kept there and \
                 searched for"
            ),
        }),
    }
}

impl Pipedrive {
    /// Makes or changes one person.
    pub(super) async fn write(&self, record: &Record) -> Result<Reply<Outcome>, CallError> {
        let fields = self.account(FIELDS_AGE).await?;
        let phones = match (&record.remote_id, property(record, "phones")) {
            (_, None) => None,
            (None, Some(phone)) => Some(with_primary(&[], phone)),
            (Some(id), Some(phone)) => match self.phones(id).await? {
                Some(there) => Some(with_primary(items(&there), phone)),
                None => return Ok(Outcome::Gone.into()),
            },
        };
        let body = match self.body(record, &fields, phones)? {
            Ok(body) => body,
            Err(rejected) => return Ok(rejected.into()),
        };
        let call = match &record.remote_id {
            Some(id) => Call::patch(format!("{PERSONS}/{}", segment(id))),
            None => Call::post(PERSONS),
        };
        let answer = self.call(call.json(&body)).await?;
        let outcome = said::written(&answer, record.remote_id.as_deref(), record);
        if matches!(outcome, Err(CallError::Refused { .. })) {
            self.still_there(record).await?;
        }
        Ok(Reply { value: outcome?, limits: said::limits(&answer) })
    }

    /// The person's phone numbers now: a write replaces the whole list, and some of them are not ours. `None`: the
    /// person is gone.
    async fn phones(&self, id: &str) -> Result<Option<Value>, CallError> {
        let call = Call::get(format!("{PERSONS}/{}", segment(id)));
        let answer = self.call(call).await.map_err(before_writing)?;
        let mut body = match answer.status {
            404 | 410 => return Ok(None),
            _ => said::read(&answer).map_err(before_writing)?,
        };
        let gone = body["data"]["is_deleted"] == true;
        Ok((!gone).then(|| body["data"]["phones"].take()))
    }

    /// A refused value may be one for a field that is not there any more: that is nobody's fault but the mapping's.
    async fn still_there(&self, record: &Record) -> Result<(), CallError> {
        let fields = self.account(FIELDS_DOUBTED).await?;
        let mut mapped = record.properties.iter().filter(|(property, _)| property != "emails");
        mapped.try_for_each(|(property, _)| fields.mapped(property).map(drop))
    }

    /// The body of a write, or the outcome where a value of the lead cannot be one of its field.
    fn body(
        &self,
        record: &Record,
        fields: &Fields,
        phones: Option<Value>,
    ) -> Result<Result<Value, Outcome>, CallError> {
        let mut body = Map::new();
        let mut custom = Map::new();
        for (property, text) in &record.properties {
            let field = match property.as_str() {
                "emails" | "phones" => continue,
                property => fields.mapped(property)?,
            };
            let value = match text {
                // A person must have a name: without one of its own it is called what we call it.
                None if field.code == "name" => json!(display_name(record)),
                None => Value::Null,
                Some(text) if field.code == "name" => json!(cut(text)),
                Some(text) => match field.value(text) {
                    Ok(value) => value,
                    Err(why) => return Ok(Err(unfit(property, &why))),
                },
            };
            match field.custom {
                true => custom.insert(field.code, value),
                false => body.insert(field.code, value),
            };
        }
        if record.remote_id.is_none() {
            let name = json!(display_name(record));
            body.entry("name").or_insert(name);
            let email = json!({"value": record.lead.email, "primary": true, "label": "work"});
            body.insert("emails".to_owned(), json!([email]));
            if let Some(property) = &self.key_property {
                let lead_id = json!(record.lead.lead_id.to_string());
                custom.insert(key(fields, property)?.code, lead_id);
            }
        }
        if let Some(phones) = phones {
            body.insert("phones".to_owned(), phones);
        }
        if !custom.is_empty() {
            body.insert("custom_fields".to_owned(), Value::Object(custom));
        }
        Ok(Ok(Value::Object(body)))
    }
}

fn property<'a>(record: &'a Record, name: &str) -> Option<Option<&'a str>> {
    record.properties.iter().find(|(property, _)| property == name).map(|(_, v)| v.as_deref())
}

fn unfit(property: &str, why: &str) -> Outcome {
    Outcome::Rejected {
        code: "INVALID_VALUE".to_owned(),
        field: Some(property.to_owned()),
        message: format!("the lead's value {why}"),
    }
}

/// The lead's number as the primary one; others stay, because people typed them. A cleared one takes the primary away.
fn with_primary(there: &[Value], phone: Option<&str>) -> Value {
    let was = primary(&Value::Array(there.to_vec())).map(str::to_owned);
    let digits = |text: &str| text.chars().filter(char::is_ascii_digit).collect::<String>();
    let same = |entry: &Value, number: &str| {
        entry["value"].as_str().is_some_and(|value| digits(value) == digits(number))
    };
    let ours = phone.and_then(|number| there.iter().find(|e| same(e, number)));
    let label = ours.map_or_else(|| json!("work"), |entry| entry["label"].clone());
    let first = phone.map(|number| {
        let mut entry = json!({"value": number, "primary": true});
        if label.is_string() {
            entry["label"] = label;
        }
        entry
    });
    let others = there.iter().filter(|entry| {
        let replaced = was.as_deref().is_some_and(|was| entry["value"] == was);
        !replaced && !phone.is_some_and(|number| same(entry, number))
    });
    let others = others.cloned().map(|mut entry| {
        if entry.is_object() {
            entry["primary"] = json!(false);
        }
        entry
    });
    first.into_iter().chain(others).collect()
}

/// What a person is called: Pipedrive makes none without a name.
fn display_name(record: &Record) -> String {
    let field = |field| record.lead.fields.get(&field).cloned().flatten();
    let parts = [field(lead::Field::FirstName), field(lead::Field::LastName)];
    let joined = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let local = record.lead.email.split('@').next().unwrap_or_default();
    let full = field(lead::Field::FullName).unwrap_or_default();
    let named = [full.as_str(), joined.as_str(), local, record.lead.email.as_str()];
    let name = named.into_iter().map(str::trim).find(|name| !name.is_empty());
    cut(name.unwrap_or("?"))
}

fn cut(name: &str) -> String {
    name.chars().take(LONGEST_NAME).collect()
}
