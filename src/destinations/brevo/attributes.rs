//! The account's attributes: what a property is there, and a lead's text as its value.

use serde_json::{Value, json};

use super::super::{CallError, Mapped};

/// Attributes that every account has and that Brevo need not list.
const BUILT_IN: [&str; 5] = ["EMAIL", "EXT_ID", "LANDLINE_NUMBER", "SMS", "WHATSAPP"];

/// The attributes of one account.
#[derive(Debug, Default)]
pub(super) struct Attributes(Vec<Attribute>);

/// An attribute of contacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    /// In upper case.
    pub name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Float,
    Boolean,
    Date,
    /// One of these, by number.
    Category(Vec<(u64, String)>),
    /// Some of these, by label.
    Choices(Vec<String>),
    /// A formula of Brevo's.
    Formula,
}

impl Attributes {
    /// Those of `GET /v3/contacts/attributes`.
    pub fn new(list: &Value) -> Attributes {
        let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let attribute = |listed: &Value| {
            let name = listed["name"].as_str()?.to_owned();
            Some(Attribute { name, kind: Kind::new(listed) })
        };
        Attributes(list.iter().filter_map(attribute).collect())
    }

    /// What a mapped property is, letter case ignored.
    pub fn mapped(&self, property: &str) -> Result<Attribute, CallError> {
        let listed = self.0.iter().find(|a| a.name.eq_ignore_ascii_case(property));
        if let Some(attribute) = listed {
            return Ok(attribute.clone());
        }
        let upper = property.to_uppercase();
        if BUILT_IN.contains(&upper.as_str()) {
            return Ok(Attribute { name: upper, kind: Kind::Text });
        }
        let names = self.0.iter().map(|a| a.name.as_str()).chain(BUILT_IN);
        let like = |name: &&str| strsim::jaro_winkler(name, &upper) > 0.85;
        let hint = names.into_iter().find(like);
        let hint = hint.map(|h| format!("did you mean \"{h}\"? Else ")).unwrap_or_default();
        Err(CallError::Misconfigured {
            code: "PROPERTY_DOESNT_EXIST".to_owned(),
            message: format!(
                "Brevo has no contact attribute \"{property}\"; {hint}create it there (Contacts, Settings, Contact \
                 attributes), or correct [destination.fields]"
            ),
        })
    }

    /// Whether a mapped property exists, can be written, and knows the words it is mapped to.
    pub fn fits(&self, mapped: &Mapped) -> Result<(), CallError> {
        let attribute = self.mapped(&mapped.property)?;
        let odd = |message: String| {
            Err(CallError::Misconfigured { code: "ATTRIBUTE".to_owned(), message })
        };
        if attribute.kind == Kind::Formula {
            return odd(format!(
                "Brevo's attribute \"{}\" is a formula and cannot be written; map {} to another one",
                mapped.property, mapped.value
            ));
        }
        for word in mapped.values.values() {
            if let Err(why) = attribute.value(Some(word)) {
                return odd(format!("`values` of {}: \"{word}\" {why}", mapped.value));
            }
        }
        Ok(())
    }
}

impl Kind {
    fn new(listed: &Value) -> Kind {
        let list = |name: &str| listed[name].as_array().cloned().unwrap_or_default();
        let kind = listed["type"].as_str().unwrap_or_default();
        match listed["category"].as_str().unwrap_or_default() {
            "calculated" | "global" => Kind::Formula,
            "category" => Kind::Category(
                list("enumeration")
                    .iter()
                    .filter_map(|v| Some((v["value"].as_u64()?, v["label"].as_str()?.to_owned())))
                    .collect(),
            ),
            _ => match kind {
                "float" => Kind::Float,
                "boolean" => Kind::Boolean,
                "date" => Kind::Date,
                "multiple-choice" => Kind::Choices(
                    list("multiCategoryOptions")
                        .iter()
                        .filter_map(|v| v.as_str().map(str::to_owned))
                        .collect(),
                ),
                _ => Kind::Text,
            },
        }
    }
}

impl Attribute {
    /// A text of the lead as a value of the attribute; `None` clears. What does not fit would be dropped by Brevo
    /// without a word.
    ///
    /// # Errors
    ///
    /// What is wrong, without the text.
    pub fn value(&self, text: Option<&str>) -> Result<Value, String> {
        let Some(text) = text else {
            return Ok(match self.kind {
                Kind::Choices(_) => json!([]),
                _ => json!(""),
            });
        };
        let trimmed = text.trim();
        match &self.kind {
            Kind::Text => Ok(json!(text)),
            Kind::Formula => Err("cannot be sent to a formula".to_owned()),
            Kind::Float => number(trimmed).ok_or_else(|| "is not a number".to_owned()),
            Kind::Boolean => match trimmed {
                "true" => Ok(json!(true)),
                "false" => Ok(json!(false)),
                _ => Err("is neither true nor false".to_owned()),
            },
            Kind::Date => date(trimmed).ok_or_else(|| "is not a date like 2026-11-30".to_owned()),
            Kind::Category(values) => {
                let lower = trimmed.to_lowercase();
                let named = values.iter().find(|(_, label)| label.trim().to_lowercase() == lower);
                let number = trimmed.parse::<u64>().ok();
                let known = number.filter(|n| values.iter().any(|(value, _)| value == n));
                let labels = values.iter().map(|(_, label)| label.as_str());
                named
                    .map(|(value, _)| *value)
                    .or(known)
                    .map(|value| json!(value))
                    .ok_or_else(|| none_of(labels))
            }
            Kind::Choices(labels) => {
                let words = trimmed.split(';').map(str::trim).filter(|word| !word.is_empty());
                let label = |word: &str| {
                    let lower = word.to_lowercase();
                    let known = labels.iter().find(|label| label.trim().to_lowercase() == lower);
                    known.cloned().ok_or_else(|| none_of(labels.iter().map(String::as_str)))
                };
                Ok(json!(words.map(label).collect::<Result<Vec<_>, _>>()?))
            }
        }
    }

    /// A value of the attribute in the words that a push would use; `None`: blank.
    pub fn text(&self, value: &Value) -> Option<String> {
        match (value, &self.kind) {
            (Value::Null, _) => None,
            (Value::String(text), _) if text.is_empty() => None,
            (Value::String(text), Kind::Date) => {
                // Brevo answers with a day, some accounts with a time of it.
                Some(text.split('T').next().unwrap_or(text).to_owned())
            }
            (Value::String(text), _) => Some(text.clone()),
            (Value::Array(list), _) if list.is_empty() => None,
            (Value::Array(list), _) => {
                let texts = list.iter().filter_map(Value::as_str);
                Some(texts.collect::<Vec<_>>().join(";"))
            }
            (Value::Number(number), Kind::Category(values)) => {
                let label = values.iter().find(|(value, _)| number.as_u64() == Some(*value));
                Some(label.map_or_else(|| number.to_string(), |(_, label)| label.clone()))
            }
            (other, _) => Some(other.to_string()),
        }
    }
}

fn none_of<'a>(labels: impl Iterator<Item = &'a str>) -> String {
    let labels: Vec<&str> = labels.take(20).collect();
    format!("is none of the attribute's values ({})", labels.join(", "))
}

/// A number as JSON has it: whole ones without a fraction.
fn number(text: &str) -> Option<Value> {
    let whole = text.parse::<i64>().ok().map(|n| json!(n));
    // JSON knows no infinity; `json!` would make it null.
    whole.or_else(|| text.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n)))
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

    fn attributes() -> Attributes {
        Attributes::new(&json!([
            {"name": "FIRSTNAME", "category": "normal", "type": "text"},
            {"name": "BUDGET", "category": "normal", "type": "float"},
            {"name": "CONSENT", "category": "normal", "type": "boolean"},
            {"name": "FIRST_SEEN", "category": "normal", "type": "date"},
            {"name": "TIER", "category": "category", "enumeration": [{"value": 1, "label": "Gold"}]},
            {"name": "TAGS", "category": "normal", "type": "multiple-choice", "multiCategoryOptions": ["VIP", "demo"]},
            {"name": "SCORE", "category": "calculated", "calculatedValue": "COUNT[X]"},
            {"category": "normal"}, null, 7,
        ]))
    }

    #[test]
    fn texts_become_values_of_the_type_and_back() {
        let attributes = attributes();
        for (name, text, value, back) in [
            ("firstname", "Ana", json!("Ana"), "Ana"),
            ("BUDGET", "10.5", json!(10.5), "10.5"),
            ("BUDGET", "10", json!(10), "10"),
            ("CONSENT", "true", json!(true), "true"),
            ("FIRST_SEEN", "2026-11-30T23:30:00-03:00", json!("2026-11-30"), "2026-11-30"),
            ("FIRST_SEEN", "2026-11-30T23:30:00Z", json!("2026-11-30"), "2026-11-30"),
            ("TIER", "gold", json!(1), "Gold"),
            ("TAGS", "vip;demo", json!(["VIP", "demo"]), "VIP;demo"),
            ("sms", "+5511912345678", json!("+5511912345678"), "+5511912345678"),
        ] {
            let attribute = attributes.mapped(name).unwrap();
            assert_eq!(attribute.value(Some(text)), Ok(value.clone()), "{name}");
            assert_eq!(attribute.text(&value).as_deref(), Some(back), "{name}");
        }
        for (name, text) in [
            ("BUDGET", "10k"),
            ("BUDGET", "NaN"),
            ("CONSENT", "yes"),
            ("FIRST_SEEN", "30.11.2026"),
            ("TIER", "Bronze"),
            ("TAGS", "vip;x"),
            ("SCORE", "9"),
        ] {
            assert!(attributes.mapped(name).unwrap().value(Some(text)).is_err(), "{name}");
        }
        for name in ["FIRSTNAME", "BUDGET", "TIER"] {
            assert_eq!(attributes.mapped(name).unwrap().value(None), Ok(json!("")));
        }
        assert_eq!(attributes.mapped("TAGS").unwrap().value(None), Ok(json!([])));
    }

    #[test]
    fn what_is_mapped_wrongly_is_told() {
        let attributes = attributes();
        let refused = attributes.mapped("FIRST_NAME").unwrap_err().to_string();
        assert!(refused.contains("did you mean \"FIRSTNAME\"?"), "{refused}");
        let formula = attributes.fits(&Mapped::new("message", "SCORE")).unwrap_err().to_string();
        assert!(formula.contains("is a formula"), "{formula}");
        let mut words = Mapped::new("message", "TIER");
        words.values.insert("yes".to_owned(), "Bronze".to_owned());
        let refused = attributes.fits(&words).unwrap_err().to_string();
        assert!(refused.contains("is none of the attribute's values (Gold)"), "{refused}");
        words.values.insert("yes".to_owned(), "Gold".to_owned());
        assert_eq!(attributes.fits(&words), Ok(()));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(at in 0..7_usize, text in ".{0,40}") {
            let attribute = attributes().0[at].clone();
            if let Ok(value) = attribute.value(Some(&text)) {
                let _ = attribute.text(&value);
            }
        }
    }
}
