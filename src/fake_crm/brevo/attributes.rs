//! The attributes of a contact and which values they take.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An attribute of the account.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// In upper case.
    pub name: String,
    /// What kind of attribute.
    #[serde(default)]
    pub category: Category,
    /// `text`, `date`, `float`, `boolean`, `id` or `multiple-choice` for a normal one.
    #[serde(rename = "type", default)]
    pub kind: Option<String>,
    /// Numbers and labels of a `category` attribute; labels alone of a `multiple-choice` one.
    #[serde(default)]
    pub values: Vec<(u64, String)>,
}

/// The categories of attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// A value of a type.
    #[default]
    Normal,
    /// One of a list of values.
    Category,
    /// Of the account's transactions; written as a normal one.
    Transactional,
    /// A formula; cannot be written.
    Calculated,
    /// A formula of the account.
    Global,
}

/// The attributes an account starts with here: Brevo's usual ones and some custom ones.
pub(super) fn registry() -> Vec<Attribute> {
    let normal = |name: &str, kind: &str| Attribute {
        name: name.to_owned(),
        category: Category::Normal,
        kind: Some(kind.to_owned()),
        values: Vec::new(),
    };
    let values = |list: &[&str]| (1..).zip(list.iter().map(|v| (*v).to_owned())).collect();
    vec![
        normal("FIRSTNAME", "text"),
        normal("LASTNAME", "text"),
        normal("SMS", "text"),
        normal("WHATSAPP", "text"),
        normal("LANDLINE_NUMBER", "text"),
        normal("EXT_ID", "text"),
        normal("COMPANY", "text"),
        normal("CITY", "text"),
        normal("JOB_TITLE", "text"),
        normal("BUDGET", "float"),
        normal("FIRST_SEEN", "date"),
        normal("CONSENT", "boolean"),
        Attribute {
            category: Category::Category,
            kind: None,
            values: values(&["Gold", "Silver"]),
            ..normal("TIER", "")
        },
        Attribute {
            values: values(&["vip", "demo", "pricing"]),
            ..normal("LEAD_TAGS", "multiple-choice")
        },
        Attribute { category: Category::Calculated, ..normal("SCORE", "float") },
        Attribute { category: Category::Transactional, ..normal("ORDER_ID", "id") },
    ]
}

/// An attribute as `GET /v3/contacts/attributes` shows it.
pub(super) fn shown(attribute: &Attribute) -> Value {
    let mut shown = json!({"name": attribute.name, "category": attribute.category});
    if let Some(kind) = &attribute.kind {
        shown["type"] = json!(kind);
    }
    match attribute.category {
        Category::Category => {
            let values = attribute.values.iter().map(|(v, l)| json!({"value": v, "label": l}));
            shown["enumeration"] = values.collect();
        }
        Category::Calculated => shown["calculatedValue"] = json!("COUNT[CONTACT-CLICKS]"),
        _ if attribute.kind.as_deref() == Some("multiple-choice") => {
            shown["multiCategoryOptions"] =
                attribute.values.iter().map(|(_, l)| json!(l)).collect();
        }
        _ => {}
    }
    shown
}

/// Whether a value is of the attribute's type. One that is not is dropped without a word.
pub(super) fn fits(attribute: &Attribute, value: &Value) -> bool {
    if matches!(attribute.category, Category::Calculated | Category::Global) {
        return false;
    }
    let listed = |text: &Value| attribute.values.iter().any(|(_, label)| text == label);
    if attribute.category == Category::Category {
        return attribute.values.iter().any(|(number, _)| value.as_u64() == Some(*number));
    }
    match attribute.kind.as_deref() {
        Some("float") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("date") => {
            let date = value.as_str().and_then(|d| d.parse::<jiff::civil::Date>().ok());
            date.is_some_and(|d| value == &json!(d.to_string()))
        }
        Some("multiple-choice") => value.as_array().is_some_and(|list| list.iter().all(listed)),
        _ => value.is_string() || value.is_number(),
    }
}

/// Whether a value clears.
pub(super) fn is_blank(value: &Value) -> bool {
    value == "" || value.as_array().is_some_and(Vec::is_empty)
}

/// A value as text; strings without their quotes.
pub(super) fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
