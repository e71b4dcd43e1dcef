//! Imported leads as the archive keeps them: one canonical lead per line, written from what was taken, so
//! that a replay needs neither the file nor what was known of its columns.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Item;
use super::configured::folding;
use super::json::forgiving;
use crate::config;
use crate::lead::email::Folding;
use crate::lead::phone::Region;
use crate::lead::{Change, LeadPatch, Micros};
use crate::mapping::{Settings, Target};

/// Reads imported leads of one source.
#[derive(Clone, Debug)]
pub struct LineReader {
    pub(super) source: String,
    pub(super) folding: Folding,
    pub(super) region: Option<Region>,
    pub(super) double_opt_in: bool,
}

impl LineReader {
    /// Of a source that nobody has configured.
    pub fn unconfigured(source: &str, leads: &config::Leads) -> LineReader {
        LineReader {
            source: source.to_owned(),
            folding: folding(leads.email_folding),
            region: leads.default_region.as_deref().and_then(Region::parse),
            double_opt_in: false,
        }
    }

    /// What normalisation needs to know.
    pub fn settings(&self) -> Settings<'_> {
        Settings {
            folding: self.folding,
            region: self.region,
            double_opt_in: self.double_opt_in,
            source: Some(&self.source),
        }
    }

    /// The items of a body, one per line, in order.
    pub fn read(&self, body: &[u8]) -> Vec<Item> {
        let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| self.item(line)).collect()
    }

    fn item(&self, line: &[u8]) -> Item {
        let rejected =
            |reason: &str, detail: String| Item::Rejected { reason: reason.to_owned(), detail };
        match serde_json::from_slice::<Value>(line) {
            Err(_) => rejected("malformed", "the line is not JSON".to_owned()),
            Ok(value) => match forgiving(&value, &self.settings()).lead {
                Ok(patch) => Item::Lead(Box::new(patch)),
                Err(none) => rejected(none.reason(), none.to_string()),
            },
        }
    }

    /// The line of a lead, without its end. `unusable` has the texts of targets that could not be used: in
    /// the line too, so that whoever reads it finds the same fault.
    pub fn line(&self, patch: &LeadPatch, unusable: &BTreeMap<String, String>) -> Vec<u8> {
        let mut lead = Map::new();
        let mut put = |name: &str, value: Value| _ = lead.insert(name.to_owned(), value);
        put("email", json!(patch.email_as_typed));
        if let Some(at) = patch.occurred_at {
            put("occurred_at", json!(rfc3339(at)));
        }
        let mut clear = Vec::new();
        for (field, change) in &patch.fields {
            match change {
                Change::Set(value) => put(field.name(), json!(value)),
                Change::Clear => clear.push(field.name().to_owned()),
            }
        }
        if let Some(consent) = patch.consent {
            put("marketing_consent", json!(consent.granted));
        }
        if !patch.tags.is_empty() {
            put("tags", json!(patch.tags));
        }
        let touch = &patch.touch;
        let own = touch.source.as_ref().filter(|source| **source != self.source);
        for (target, value) in [
            (Target::Source, own),
            (Target::UtmSource, touch.utm_source.as_ref()),
            (Target::UtmMedium, touch.utm_medium.as_ref()),
            (Target::UtmCampaign, touch.utm_campaign.as_ref()),
            (Target::UtmTerm, touch.utm_term.as_ref()),
            (Target::UtmContent, touch.utm_content.as_ref()),
            (Target::LandingPage, touch.landing_page.as_ref()),
            (Target::EventId, patch.event_id.as_ref()),
            (Target::EventType, patch.event_type.as_ref()),
        ] {
            if let Some(value) = value {
                put(&target.name(), json!(value));
            }
        }
        let mut attributes = Map::new();
        for (name, change) in &patch.attributes {
            match change {
                Change::Set(value) => _ = attributes.insert(name.clone(), json!(value)),
                Change::Clear => clear.push(format!("attributes.{name}")),
            }
        }
        for (target, text) in unusable {
            match target.strip_prefix("attributes.") {
                Some(name) => _ = attributes.insert(name.to_owned(), json!(text)),
                None => put(target, json!(text)),
            }
        }
        if !attributes.is_empty() {
            put("attributes", Value::Object(attributes));
        }
        if !clear.is_empty() {
            put("clear", json!(clear));
        }
        Value::Object(lead).to_string().into_bytes()
    }
}

/// A day before the end of the year 9999 the crate's times end; the merge believes neither.
fn rfc3339(at: Micros) -> String {
    match Timestamp::from_microsecond(at) {
        Ok(time) => time.to_string(),
        Err(_) => "9999-12-31T00:00:00Z".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::json::canonical;

    fn reader() -> LineReader {
        LineReader::unconfigured("import", &leads())
    }

    fn leads() -> config::Leads {
        crate::config::Config::parse("[leads]\ndefault_region = \"BR\"").unwrap().config.leads
    }

    #[test]
    fn a_line_reads_as_what_it_was_written_from() {
        let lead = json!({
            "email": "Ana@Example.com", "occurred_at": "2026-03-05T14:22:10.123456Z", "source": "expo",
            "full_name": "Ana da Silva", "phone": "(11) 91234-5678", "message": "two\nlines", "marketing_consent": false,
            "tags": ["b", "a"], "attributes": {"budget": "10k", "x": 5}, "clear": ["website", "attributes.old"],
            "lifecycle_stage": "Customer", "utm_source": "ads", "utm_medium": "cpc", "utm_campaign": "c", "utm_term": "t",
            "utm_content": "d", "landing_page": "https://example.com/?a=1", "event_id": "e1", "event_type": "t1"
        });
        let mut patch = canonical(&lead, &leads()).unwrap();
        let line = reader().line(&patch, &BTreeMap::new());
        let unusable = BTreeMap::from([("city".to_owned(), "x".repeat(9000))]);
        let faulty = reader().line(&patch, &unusable);
        let body = [&line[..], b"\n", &faulty, b"\n\n{\n{\"email\":\"x\"}\n"].concat();
        let items = reader().read(&body);
        assert_eq!(items.len(), 4);
        let Item::Lead(read) = &items[0] else { panic!("{:?}", items[0]) };
        assert_eq!(**read, patch);
        let Item::Lead(read) = &items[1] else { panic!("{:?}", items[1]) };
        patch.field_errors.insert("city".into(), "longer than 512 bytes".into());
        assert_eq!(read.field_errors.len(), 1, "{:?}", read.field_errors);
        for (item, word) in items[2..].iter().zip(["malformed", "invalid_email"]) {
            assert!(matches!(item, Item::Rejected { reason, .. } if reason == word), "{item:?}");
        }
    }

    #[test]
    fn a_source_that_the_event_does_not_name_is_not_written() {
        let patch =
            forgiving(&json!({"email": "a@example.com"}), &reader().settings()).lead.unwrap();
        assert_eq!(patch.touch.source.as_deref(), Some("import"));
        assert_eq!(reader().line(&patch, &BTreeMap::new()), br#"{"email":"a@example.com"}"#);
    }
}
