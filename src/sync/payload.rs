//! What a destination gets of a lead: own fields only.

use sha2::{Digest, Sha256};

use crate::destinations::Mapped;
use crate::lead::Lead;

/// The mapped properties of a lead, in the order of `fields`. A value that was never set is left out
/// (it is left alone at the CRM); one that was cleared on purpose is `None`.
pub fn properties(lead: &Lead, fields: &[Mapped]) -> Vec<(String, Option<String>)> {
    let property = |field: &Mapped| {
        let value = lead.value_of(&field.value)?;
        let value = value.map(|value| field.values.get(&value).cloned().unwrap_or(value));
        Some((field.property.clone(), value))
    };
    fields.iter().filter_map(property).collect()
}

/// Digest of what is sent: the same again needs no call. Where the `whole` lead is sent and not only its
/// properties, every version is news.
pub fn hash(lead: &Lead, whole: bool, properties: &[(String, Option<String>)]) -> Vec<u8> {
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

    #[test]
    fn three_states_are_carried() {
        let mut lead = Lead::default();
        lead.fields.insert(Field::FirstName, Some("Ana".into()));
        lead.fields.insert(Field::Phone, None);
        let properties = properties(&lead, &fields());
        assert_eq!(properties, [("firstname".into(), Some("Ana".into())), ("phone".into(), None)]);
    }

    #[test]
    fn the_hash_tells_cleared_from_absent_and_ignores_unmapped_values() {
        let mut lead = Lead::default();
        let of = |lead: &Lead| hash(lead, false, &properties(lead, &fields()));
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
        let of = |lead: &Lead| hash(lead, true, &properties(lead, &fields()));
        let first = of(&lead);
        lead.version = 1;
        assert_ne!(of(&lead), first);
    }
}
