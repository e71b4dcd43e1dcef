//! The fields of the models, and how `load` reads a cell of text.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// A field of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelField {
    /// Technical name.
    pub name: String,
    /// What people see.
    pub label: String,
    /// What it holds.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Computed or kept by Odoo.
    #[serde(default)]
    pub readonly: bool,
    /// A record cannot be without it.
    #[serde(default)]
    pub required: bool,
    /// Key and label of a selection.
    #[serde(default)]
    pub selection: Vec<(String, String)>,
    /// Model that a many2one or many2many points at.
    #[serde(default)]
    pub relation: Option<String>,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// One line.
    Char,
    /// Several lines.
    Text,
    /// Yes or no.
    Boolean,
    /// Whole number.
    Integer,
    /// Number.
    Float,
    /// `2026-11-30`
    Date,
    /// `2026-11-30 10:00:00`, UTC.
    Datetime,
    /// One of a list.
    Selection,
    /// A record of another model.
    Many2one,
    /// Records of another model.
    Many2many,
}

fn field(name: &str, label: &str, kind: FieldType) -> ModelField {
    ModelField {
        name: name.to_owned(),
        label: label.to_owned(),
        kind,
        readonly: false,
        required: false,
        selection: Vec::new(),
        relation: None,
    }
}

/// What partners and leads have in common.
fn both() -> Vec<ModelField> {
    use FieldType::*;
    let readonly = |field| ModelField { readonly: true, ..field };
    let to = |model: &str, field| ModelField { relation: Some(model.to_owned()), ..field };
    vec![
        readonly(field("id", "ID", Integer)),
        field("active", "Active", Boolean),
        readonly(field("email_normalized", "Normalized Email", Char)),
        field("phone", "Phone", Char),
        field("mobile", "Mobile", Char),
        field("function", "Job Position", Char),
        field("website", "Website Link", Char),
        field("street", "Street", Char),
        field("city", "City", Char),
        field("zip", "Zip", Char),
        to("res.country", field("country_id", "Country", Many2one)),
        to("res.users", field("user_id", "Salesperson", Many2one)),
        readonly(field("create_date", "Created on", Datetime)),
        readonly(field("write_date", "Last Updated on", Datetime)),
        field("color", "Color Index", Integer),
        field("x_budget", "Budget", Char),
        field("x_source", "First source", Char),
        field("x_opt_in", "Marketing consent", Boolean),
        field("x_score", "Score", Float),
        field("x_seen_on", "Seen on", Date),
        field("x_seen_at", "Seen at", Datetime),
    ]
}

fn selection(name: &str, label: &str, options: &[(&str, &str)]) -> ModelField {
    let selection = options.iter().map(|(k, l)| ((*k).to_owned(), (*l).to_owned())).collect();
    ModelField { selection, ..field(name, label, FieldType::Selection) }
}

/// Fields of `res.partner`, Odoo's usual ones and some custom ones.
pub(super) fn partner() -> Vec<ModelField> {
    use FieldType::*;
    let mut all = both();
    all.extend([
        field("name", "Name", Char),
        field("email", "Email", Char),
        field("company_name", "Company Name", Char),
        field("comment", "Notes", Text),
        field("ref", "Reference", Char),
        field("is_company", "Is a Company", Boolean),
        field("date", "Date", Date),
        selection(
            "type",
            "Address Type",
            &[
                ("contact", "Contact"),
                ("invoice", "Invoice Address"),
                ("delivery", "Delivery Address"),
                ("other", "Other Address"),
                ("private", "Private Address"),
            ],
        ),
        ModelField {
            relation: Some("res.partner.category".to_owned()),
            ..field("category_id", "Tags", Many2many)
        },
    ]);
    all
}

/// Fields of `crm.lead`.
pub(super) fn lead() -> Vec<ModelField> {
    use FieldType::*;
    let mut all = both();
    all.extend([
        ModelField { required: true, ..field("name", "Opportunity", Char) },
        field("email_from", "Email", Char),
        field("contact_name", "Contact Name", Char),
        field("partner_name", "Company Name", Char),
        field("description", "Notes", Text),
        field("expected_revenue", "Expected Revenue", Float),
        ModelField {
            required: true,
            ..selection("type", "Type", &[("lead", "Lead"), ("opportunity", "Opportunity")])
        },
        selection(
            "priority",
            "Priority",
            &[("0", "Low"), ("1", "Medium"), ("2", "High"), ("3", "Very High")],
        ),
        ModelField { relation: Some("crm.tag".to_owned()), ..field("tag_ids", "Tags", Many2many) },
    ]);
    all
}

/// Records of the small models that others point at: model, id, name, code, external id.
pub(super) const POINTED_AT: [(&str, i64, &str, &str, &str); 6] = [
    ("res.country", 31, "Brazil", "BR", "base.br"),
    ("res.country", 57, "Germany", "DE", "base.de"),
    ("res.country", 183, "Portugal", "PT", "base.pt"),
    ("res.country", 233, "United States", "US", "base.us"),
    ("res.users", 2, "Mitchell Admin", "", "base.user_admin"),
    ("crm.tag", 1, "Product", "", "sales_team.categ_oppor1"),
];

impl ModelField {
    /// A line of text, as people add it to a model.
    pub fn text(name: &str) -> ModelField {
        field(name, name, FieldType::Char)
    }

    /// What `fields_get` says of it.
    pub(super) fn described(&self, attributes: &[String]) -> Value {
        let mut all = Map::new();
        all.insert("type".to_owned(), json!(self.kind));
        all.insert("string".to_owned(), json!(self.label));
        all.insert("readonly".to_owned(), json!(self.readonly));
        all.insert("required".to_owned(), json!(self.required));
        all.insert("store".to_owned(), json!(true));
        if !self.selection.is_empty() {
            all.insert("selection".to_owned(), json!(self.selection));
        }
        if let Some(relation) = &self.relation {
            all.insert("relation".to_owned(), json!(relation));
        }
        all.retain(|name, _| attributes.is_empty() || attributes.contains(name));
        Value::Object(all)
    }

    /// The value that a cell of a `load` stands for, and a warning; or why it stands for none.
    pub(super) fn read(
        &self,
        text: &str,
        sub: Option<&str>,
    ) -> Result<(Value, Option<Value>), Value> {
        let wrong = |message: String| json!({"field": self.name, "message": message});
        let label = &self.label;
        let taken = |value: Value| Ok((value, None));
        match self.kind {
            FieldType::Char | FieldType::Text => taken(json!(text)),
            FieldType::Boolean => match text.to_lowercase().as_str() {
                "1" | "true" | "yes" => taken(json!(true)),
                "" | "0" | "false" | "no" => taken(json!(false)),
                _ => {
                    let mut warning = wrong(format!(
                        "Unknown value '{text}' for boolean field '{label}', assuming 'yes'"
                    ));
                    warning["moreinfo"] = json!("Use '1' for yes and '0' for no");
                    Ok((json!(true), Some(warning)))
                }
            },
            FieldType::Integer => match text.parse::<i64>() {
                Ok(number) => taken(json!(number)),
                Err(_) => Err(wrong(format!(
                    "'{text}' does not seem to be an integer for field '{label}'"
                ))),
            },
            FieldType::Float => match text.parse::<f64>() {
                Ok(number) => taken(json!(number)),
                Err(_) => {
                    Err(wrong(format!("'{text}' does not seem to be a number for field '{label}'")))
                }
            },
            FieldType::Date => match jiff::civil::Date::strptime("%Y-%m-%d", text) {
                Ok(_) => taken(json!(text)),
                Err(_) => Err(json!({
                    "field": self.name, "moreinfo": "Use the format '2012-12-31'",
                    "message": format!("'{text}' does not seem to be a valid date for field '{label}'"),
                })),
            },
            FieldType::Datetime => {
                match jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S", text) {
                    Ok(_) => taken(json!(text)),
                    Err(_) => Err(json!({
                        "field": self.name, "moreinfo": "Use the format '2012-12-31 23:59:59'",
                        "message": format!("'{text}' does not seem to be a valid datetime for field '{label}'"),
                    })),
                }
            }
            FieldType::Selection => {
                match self.selection.iter().find(|(key, label)| key == text || label == text) {
                    Some((key, _)) => taken(json!(key)),
                    None => {
                        let labels: Vec<&String> = self.selection.iter().map(|(_, l)| l).collect();
                        let mut wrong =
                            wrong(format!("Value '{text}' not found in selection field '{label}'"));
                        wrong["moreinfo"] = json!(labels);
                        Err(wrong)
                    }
                }
            }
            FieldType::Many2one => match self.pointed_at(text, sub) {
                Some((id, name)) => taken(json!([id, name])),
                None => {
                    let what = match sub {
                        None => "name",
                        Some("id") => "external id",
                        Some(_) => "database id",
                    };
                    Err(wrong(format!(
                        "No matching record found for {what} '{text}' in field '{label}'"
                    )))
                }
            },
            FieldType::Many2many => {
                let mut ids = Vec::new();
                for name in text.split(',') {
                    match self.pointed_at(name, sub) {
                        Some((id, _)) => ids.push(id),
                        None => {
                            return Err(wrong(format!(
                                "No matching record found for name '{name}' in field '{label}'"
                            )));
                        }
                    }
                }
                taken(json!(ids))
            }
        }
    }

    fn pointed_at(&self, text: &str, sub: Option<&str>) -> Option<(i64, &'static str)> {
        let relation = self.relation.as_deref()?;
        POINTED_AT
            .iter()
            .find(|(model, id, name, code, external)| {
                *model == relation
                    && match sub {
                        None => *name == text || !code.is_empty() && *code == text,
                        Some("id") => *external == text,
                        Some(_) => id.to_string() == text,
                    }
            })
            .map(|(_, id, name, _, _)| (*id, *name))
    }
}

/// The address in `email_normalized`: exactly one, in lower case, without a name around it.
pub(super) fn normalized(email: &str) -> Option<String> {
    let inner = match (email.rfind('<'), email.rfind('>')) {
        (Some(from), Some(to)) if from < to => &email[from + 1..to],
        _ => email,
    };
    let inner = inner.trim();
    let odd = |c: char| c.is_whitespace() || "\"<>,;".contains(c);
    let whole = inner.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && domain.contains('.') && !domain.contains('@')
    });
    (whole && !inner.contains(odd)).then(|| inner.to_lowercase())
}
