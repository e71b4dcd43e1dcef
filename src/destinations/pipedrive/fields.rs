//! The account's fields of persons: what a property is there, and a lead's text as its value.

use serde_json::{Value, json};

use super::super::CallError;

/// Standard fields that can be mapped to, and what they hold. `emails` is the key.
const STANDARD: [(&str, &str); 11] = [
    ("name", "varchar"),
    ("phones", "phone"),
    ("owner_id", "user"),
    ("org_id", "org"),
    ("visible_to", "int"),
    ("label_ids", "ids"),
    ("marketing_status", "varchar"),
    ("job_title", "varchar"),
    ("notes", "text"),
    ("birthday", "date"),
    ("add_time", "varchar"),
];
/// Standard fields that an account only has with Pipedrive's contact sync.
pub(super) const CONTACT_SYNC: [&str; 3] = ["job_title", "notes", "birthday"];

/// The fields of one account.
#[derive(Debug, Default)]
pub(super) struct Fields(Vec<Field>);

/// A field of persons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// How the API calls it: 40 characters, other ones in every account; or a standard name.
    pub code: String,
    /// How people call it.
    pub name: String,
    /// `varchar`, `double`, `enum` …
    pub kind: String,
    /// Made by the account.
    pub custom: bool,
    /// Ids and labels of `enum` and `set`.
    options: Vec<(u64, String)>,
}

impl Fields {
    /// Adds the fields of one page of `GET /api/v2/personFields`.
    pub fn extend(&mut self, page: &[Value]) {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let option = |option: &Value| Some((option["id"].as_u64()?, text(&option["label"])?));
        self.0.extend(page.iter().filter_map(|field| {
            let options = field["options"].as_array().map(Vec::as_slice).unwrap_or_default();
            Some(Field {
                code: text(&field["field_code"])?,
                name: text(&field["field_name"]).unwrap_or_default(),
                kind: text(&field["field_type"]).unwrap_or_default(),
                custom: field["is_custom_field"].as_bool().unwrap_or(false),
                options: options.iter().filter_map(option).collect(),
            })
        }));
    }

    /// What a mapped property is: a standard field, or a custom one by its code or its name (letter case ignored).
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn find(&self, property: &str) -> Result<Field, String> {
        if let Some((code, kind)) = STANDARD.iter().find(|(code, _)| *code == property) {
            return Ok(Field {
                code: (*code).to_owned(),
                name: (*code).to_owned(),
                kind: (*kind).to_owned(),
                custom: false,
                options: Vec::new(),
            });
        }
        let custom = || self.0.iter().filter(|f| f.custom);
        if let Some(field) = custom().find(|f| f.code == property) {
            return Ok(field.clone());
        }
        let lower = property.to_lowercase();
        let named: Vec<&Field> = custom().filter(|f| f.name.to_lowercase() == lower).collect();
        match named.as_slice() {
            [field] => Ok((*field).clone()),
            [] => {
                let names = custom().map(|f| f.name.as_str()).chain(STANDARD.map(|(code, _)| code));
                let like = |name: &&str| strsim::jaro_winkler(&name.to_lowercase(), &lower) > 0.85;
                let hint = names.into_iter().find(like);
                let hint = hint.map(|h| format!("did you mean \"{h}\"? Else ")).unwrap_or_default();
                Err(format!(
                    "Pipedrive has no person field \"{property}\"; {hint}create it there (Company settings, Data \
                     fields), or correct [destination.fields]"
                ))
            }
            several => {
                let codes: Vec<&str> = several.iter().map(|f| f.code.as_str()).collect();
                Err(format!(
                    "Pipedrive has several person fields \"{property}\"; write the one meant by its API key: {}",
                    codes.join(" or ")
                ))
            }
        }
    }

    /// The same for a call.
    pub fn mapped(&self, property: &str) -> Result<Field, CallError> {
        self.find(property).map_err(|message| CallError::Misconfigured {
            code: "PROPERTY_DOESNT_EXIST".to_owned(),
            message,
        })
    }
}

impl Field {
    /// Whether a lead's text can be a value of it at all.
    pub fn fillable(&self) -> bool {
        !matches!(self.kind.as_str(), "daterange" | "timerange" | "picture" | "visible_to")
    }

    /// A text of the lead as a value of the field. Types are strict at Pipedrive: a number as text is refused there.
    ///
    /// # Errors
    ///
    /// What is wrong, without the text.
    pub fn value(&self, text: &str) -> Result<Value, String> {
        let trimmed = text.trim();
        match self.kind.as_str() {
            "varchar" | "varchar_auto" | "phone" => short(text, 255),
            "text" => short(text, 65_000),
            "double" => number(trimmed).ok_or_else(|| "is not a number".to_owned()),
            "int" | "user" | "org" | "people" | "stage" => match trimmed.parse::<i64>() {
                Ok(number) => Ok(json!(number)),
                Err(_) => Err("is not a whole number".to_owned()),
            },
            "monetary" => money(trimmed)
                .ok_or_else(|| "is not an amount with a currency, like \"100 EUR\"".to_owned()),
            "date" => date(trimmed).ok_or_else(|| "is not a date like 2026-11-30".to_owned()),
            "boolean" => match trimmed {
                "true" => Ok(json!(true)),
                "false" => Ok(json!(false)),
                _ => Err("is neither true nor false".to_owned()),
            },
            "enum" => self.option(trimmed).map(|id| json!(id)),
            "set" | "ids" => {
                let words =
                    trimmed.split([';', ',']).map(str::trim).filter(|word| !word.is_empty());
                let ids: Result<Vec<u64>, String> = words.map(|word| self.option(word)).collect();
                match ids? {
                    // An empty list is refused; null is how nothing is chosen.
                    ids if ids.is_empty() => Ok(Value::Null),
                    ids => Ok(json!(ids)),
                }
            }
            "address" => Ok(json!({"value": text})),
            _ if self.fillable() => Ok(json!(text)),
            kind => Err(format!("cannot be sent to a field of type {kind}")),
        }
    }

    /// The id of an option, by its label (letter case ignored) or the id itself.
    fn option(&self, word: &str) -> Result<u64, String> {
        let lower = word.to_lowercase();
        let by_label = self.options.iter().find(|(_, label)| label.trim().to_lowercase() == lower);
        let id = word.parse::<u64>().ok();
        // Labels of a contact are not among the fields; their ids are taken as they are.
        let by_id =
            id.filter(|id| self.kind == "ids" || self.options.iter().any(|(known, _)| known == id));
        by_label.map(|(id, _)| *id).or(by_id).ok_or_else(|| {
            let labels: Vec<&str> = self.options.iter().map(|(_, l)| l.as_str()).take(20).collect();
            match labels.is_empty() {
                true => "is not an id".to_owned(),
                false => format!("is none of the field's options ({})", labels.join(", ")),
            }
        })
    }

    /// A value of the field in the words that a push would use; `None`: blank.
    pub fn text(&self, value: &Value) -> Option<String> {
        let label = |id: &Value| {
            let known = self.options.iter().find(|(known, _)| id.as_u64() == Some(*known));
            known.map_or_else(|| id.to_string(), |(_, label)| label.clone())
        };
        match value {
            Value::Null => None,
            Value::String(text) if text.is_empty() => None,
            Value::String(text) => Some(text.clone()),
            Value::Array(list) if list.is_empty() => None,
            Value::Array(list) => Some(list.iter().map(label).collect::<Vec<_>>().join(";")),
            Value::Number(_) if self.kind == "enum" => Some(label(value)),
            Value::Object(members) => {
                let part = |name: &str| match &members.get(name)? {
                    Value::String(text) => Some(text.clone()),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                };
                match (part("value"), part("currency")) {
                    (Some(amount), Some(currency)) => Some(format!("{amount} {currency}")),
                    (value, _) => value,
                }
            }
            Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        }
    }
}

fn short(text: &str, most: usize) -> Result<Value, String> {
    match text.chars().count() <= most {
        true => Ok(json!(text)),
        false => Err(format!("is longer than the {most} characters that Pipedrive takes")),
    }
}

/// A number as JSON has it: whole ones without a fraction.
fn number(text: &str) -> Option<Value> {
    let whole = text.parse::<i64>().ok().map(|n| json!(n));
    // JSON knows no infinity; `json!` would make it null, which clears.
    whole.or_else(|| text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n)))
}

/// "100 EUR" or "EUR 100".
fn money(text: &str) -> Option<Value> {
    let (a, b) = text.split_once(' ')?;
    let currency = |word: &str| word.len() == 3 && word.bytes().all(|b| b.is_ascii_uppercase());
    let (amount, currency) = match (currency(a), currency(b.trim())) {
        (false, true) => (a, b.trim()),
        (true, false) => (b.trim(), a),
        _ => return None,
    };
    Some(json!({"value": number(amount)?, "currency": currency}))
}

/// The day of a date or a time, where it was written.
fn date(text: &str) -> Option<Value> {
    let day = match text.parse::<jiff::civil::Date>() {
        Ok(day) => day,
        Err(_) => jiff::tz::Offset::UTC.to_datetime(text.parse().ok()?).date(),
    };
    Some(json!(day.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(kind: &str) -> Field {
        Field {
            code: "c".repeat(40),
            name: "Field".to_owned(),
            kind: kind.to_owned(),
            custom: true,
            options: vec![(1, "Gold".to_owned()), (2, "Silver".to_owned())],
        }
    }

    #[test]
    fn texts_become_values_of_the_type() {
        for (kind, text, value) in [
            ("varchar", "Padaria", json!("Padaria")),
            ("text", "a\nb", json!("a\nb")),
            ("double", "10.5", json!(10.5)),
            ("double", " 10 ", json!(10)),
            ("int", "7", json!(7)),
            ("monetary", "100.50 EUR", json!({"value": 100.5, "currency": "EUR"})),
            ("monetary", "BRL 7", json!({"value": 7, "currency": "BRL"})),
            ("date", "2026-11-30", json!("2026-11-30")),
            ("date", "2026-11-30T23:30:00-03:00", json!("2026-11-30")),
            ("date", "2026-11-30T23:30:00Z", json!("2026-11-30")),
            ("boolean", "true", json!(true)),
            ("enum", "gold", json!(1)),
            ("enum", "2", json!(2)),
            ("set", "silver; Gold", json!([2, 1])),
            ("set", " ; ", Value::Null),
            ("ids", "7,8", json!([7, 8])),
            ("address", "Rua A, 1", json!({"value": "Rua A, 1"})),
            ("time", "10:30", json!("10:30")),
        ] {
            assert_eq!(field(kind).value(text), Ok(value), "{kind} {text}");
        }
        for (kind, text) in [
            ("double", "inf"),
            ("double", "10k"),
            ("int", "1.5"),
            ("monetary", "100"),
            ("date", "30.11.2026"),
            ("boolean", "yes"),
            ("enum", "Bronze"),
            ("enum", "3"),
            ("set", "gold;bronze"),
            ("daterange", "x"),
        ] {
            assert!(field(kind).value(text).is_err(), "{kind} {text}");
        }
        assert!(field("varchar").value(&"ü".repeat(256)).is_err());
        assert!(field("varchar").value(&"ü".repeat(255)).is_ok());
        let said = field("enum").value("Bronze").unwrap_err();
        assert_eq!(said, "is none of the field's options (Gold, Silver)");
    }

    #[test]
    fn values_are_read_in_the_words_of_a_push() {
        for (kind, text) in [
            ("varchar", "Padaria"),
            ("double", "10.5"),
            ("int", "7"),
            ("monetary", "100.5 EUR"),
            ("date", "2026-11-30"),
            ("enum", "Gold"),
            ("set", "Silver;Gold"),
            ("address", "Rua A, 1"),
        ] {
            let field = field(kind);
            let value = field.value(text).unwrap();
            assert_eq!(field.text(&value).as_deref(), Some(text), "{kind}");
        }
        for blank in [Value::Null, json!(""), json!([])] {
            assert_eq!(field("varchar").text(&blank), None);
        }
    }

    #[test]
    fn properties_are_found_by_code_or_name() {
        let mut fields = Fields::default();
        let page = json!([
            {"field_code": "a1", "field_name": "Company", "field_type": "varchar", "is_custom_field": true},
            {"field_code": "b2", "field_name": "Tier", "field_type": "enum", "is_custom_field": true},
            {"field_code": "c3", "field_name": "tier", "field_type": "set", "is_custom_field": true},
            {"field_code": "name", "field_name": "Name", "field_type": "varchar", "is_custom_field": false},
            {"field_name": "without a code"}, null, 7,
        ]);
        fields.extend(page.as_array().unwrap());
        assert_eq!(fields.find("a1").unwrap(), fields.find("company").unwrap());
        assert!(!fields.find("name").unwrap().custom);
        assert!(fields.find("Tier").unwrap_err().ends_with("b2 or c3"));
        assert!(fields.find("Compny").unwrap_err().contains("did you mean \"Company\"?"));
        assert!(fields.find("emails").is_err());
    }

    proptest! {
        #[test]
        fn any_text_and_value_is_survived(
            kind in prop::sample::select(vec![
                "varchar", "double", "int", "monetary", "date", "enum", "set", "ids", "address", "boolean", "odd",
            ]),
            text in ".{0,40}",
        ) {
            if let Ok(value) = field(kind).value(&text) {
                let _ = field(kind).text(&value);
            }
        }
    }
}
