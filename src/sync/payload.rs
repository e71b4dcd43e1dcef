//! What a destination gets of a lead: own fields only.

use sha2::{Digest, Sha256};

use crate::destinations::Mapped;
use crate::lead::Lead;

/// A property of the CRM and its value; `None` clears it.
pub type Property = (String, Option<String>);

/// The mapped properties of a lead with their mapping, in the order of `fields`. A value that was never set is
/// left out (it is left alone at the CRM); one that was cleared on purpose is `None`.
pub fn properties<'a>(lead: &Lead, fields: &'a [Mapped]) -> Vec<(&'a Mapped, Property)> {
    let property = |field: &'a Mapped| {
        let value = lead.value_of(&field.value)?;
        let value = value.map(|value| field.values.get(&value).cloned().unwrap_or(value));
        Some((field, (field.property.clone(), value)))
    };
    fields.iter().filter_map(property).collect()
}

/// Digest of what is sent: the same again needs no call. Where the `whole` lead is sent and not only its
/// properties, every version is news.
pub fn hash<'a>(
    lead: &Lead,
    whole: bool,
    properties: impl IntoIterator<Item = &'a Property>,
) -> Vec<u8> {
    let mut digest = Sha256::new();
    let mut part = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_be_bytes());
        digest.update(bytes);
    };
    part(lead.email.as_bytes());
    if whole {
        part(&lead.version.to_be_bytes());
    }
    for (property, value) in properties {
        part(property.as_bytes());
        part(&[u8::from(value.is_some())]);
        part(value.as_deref().unwrap_or_default().as_bytes());
    }
    digest.finalize().to_vec()
}

/// Digest of a mapping: with another one a lead may have to be sent again though it did not change.
pub fn mapping(fields: &[Mapped], whole: bool) -> Vec<u8> {
    let mut digest = Sha256::new();
    let mut part = |text: &str| {
        digest.update((text.len() as u64).to_be_bytes());
        digest.update(text);
    };
    part(if whole { "whole" } else { "mapped" });
    for field in fields {
        part(&field.value);
        part(&field.property);
        part(field.write.name());
        part(&field.values.len().to_string());
        for (ours, theirs) in &field.values {
            part(ours);
            part(theirs);
        }
    }
    digest.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lead::Field;

    fn fields() -> Vec<Mapped> {
        vec![
            Mapped::new("first_name", "firstname"),
            Mapped::new("phone", "phone"),
            Mapped::new("attributes.budget", "budget"),
        ]
    }

    fn plain(lead: &Lead, fields: &[Mapped]) -> Vec<Property> {
        properties(lead, fields).into_iter().map(|(_, property)| property).collect()
    }

    #[test]
    fn words_are_translated_and_others_go_as_they_are() {
        let mut field = Mapped::new("first_name", "firstname");
        field.values.insert("Ana".into(), "A.".into());
        let mut lead = Lead::default();
        for (ours, theirs) in [("Ana", "A."), ("Bo", "Bo")] {
            lead.fields.insert(Field::FirstName, Some(ours.into()));
            let sent = plain(&lead, std::slice::from_ref(&field));
            assert_eq!(sent, [("firstname".to_owned(), Some(theirs.to_owned()))]);
        }
    }

    #[test]
    fn three_states_are_carried() {
        let mut lead = Lead::default();
        lead.fields.insert(Field::FirstName, Some("Ana".into()));
        lead.fields.insert(Field::Phone, None);
        assert_eq!(
            plain(&lead, &fields()),
            [("firstname".into(), Some("Ana".into())), ("phone".into(), None)]
        );
    }

    #[test]
    fn the_hash_tells_cleared_from_absent_and_ignores_unmapped_values() {
        let mut lead = Lead::default();
        let of = |lead: &Lead| hash(lead, false, &plain(lead, &fields()));
        let blank = of(&lead);
        lead.version = 9;
        lead.fields.insert(Field::City, Some("Porto".into()));
        assert_eq!(of(&lead), blank);
        lead.fields.insert(Field::Phone, None);
        assert_ne!(of(&lead), blank);
    }

    #[test]
    fn of_a_whole_lead_every_version_is_news() {
        let mut lead = Lead::default();
        let of = |lead: &Lead| hash(lead, true, &plain(lead, &fields()));
        let first = of(&lead);
        lead.version = 1;
        assert_ne!(of(&lead), first);
    }
}
