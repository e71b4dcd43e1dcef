//! What the columns fill that nobody spoke of: by their names, and by what is in them.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::{Column, REFUSED, values};
use crate::import::time::{Order, Times};
use crate::lead::email::Folding;
use crate::lead::{Email, consent};
use crate::mapping::{MAX_MEMBERS, MAX_NAME_BYTES, Target};
use crate::sources::{letters, recognise};

/// Names of columns with the time of the last change, as [`letters`] has them. They come before [`CREATED`]:
/// it is when the values in the line were true.
#[rustfmt::skip]
const CHANGED: &[&str] = &[
    "occurredat", "lastmodifieddate", "lastmodified", "lastmodifiedat", "modifieddate", "modified", "modifiedat", "modifiedon",
    "updatedat", "updated", "updateddate", "updatetime", "lastupdated", "lastupdate", "dateupdated", "lastchanged", "changedat",
    "ultimamodificacao", "ultimaatualizacao", "dataultimaalteracao", "dataultimaatualizacao", "atualizadoem",
    "fechademodificacion", "ultimamodificacion", "actualizadoen", "geandertam", "letzteanderung", "modifiele",
    "datedemodification", "derniermodification", "ultimamodifica",
];

/// Names of columns with the time of the beginning, likewise.
#[rustfmt::skip]
const CREATED: &[&str] = &[
    "createdat", "created", "createddate", "createdon", "createdtime", "createdate", "createtime", "creationdate", "datecreated",
    "dateadded", "added", "addedat", "addedon", "addtime", "timestamp", "submittedat", "submittedon", "submissiondate",
    "submissiontime", "optintime", "confirmtime", "signupdate", "signedup", "registrationdate", "registeredat", "date", "datetime", "time",
    "data", "datahora", "datadecriacao", "datacriacao", "datadecadastro", "datacadastro", "datadaconversao", "criadoem", "fecha",
    "fechadecreacion", "creadoen", "datum", "erstelltam", "erstellt", "erstellungsdatum", "datedecreation", "creele",
    "datadicreazione", "creatoil",
];

/// Names of other columns that no form has, by target, likewise.
#[rustfmt::skip]
const OTHERS: &[(&str, &[&str])] = &[
    ("tags", &["tags", "tag", "labels", "etiquetas", "etiquette", "etichette", "schlagworte", "groups"]),
    ("lifecycle_stage", &["lifecyclestage", "lifecycle", "etapadociclodevida", "estagio"]),
    ("source", &["leadsource", "source", "origem", "origen", "quelle", "fonte", "originalsource", "origemdolead"]),
    ("job_title", &["title"]),
    ("language", &["locale"]),
    ("region", &["stateregion", "mailingstate", "billingstate"]),
    ("city", &["mailingcity", "billingcity"]),
    ("country", &["countryregion", "mailingcountry", "billingcountry"]),
    ("phone", &["mobilephonenumber", "phonemobile", "phonework"]),
    ("company", &["account", "accountname"]),
];

/// What the columns that nobody spoke of fill.
pub(super) fn guess(
    all: &[Column],
    rows: &[Vec<String>],
    decided: &[bool],
    taken: &BTreeSet<String>,
) -> Vec<(usize, Target)> {
    let open = |at: usize| !decided[at] && !REFUSED.contains(&all[at].name.as_str());
    let mut guesses: BTreeMap<usize, Target> = BTreeMap::new();
    for at in (0..all.len()).filter(|at| open(*at)) {
        let target = named(&all[at].name).filter(|target| holds(target, rows, at));
        if let Some(target) = target.filter(|target| !taken.contains(&target.name())) {
            guesses.insert(at, target);
        }
    }
    if !taken.contains("occurred_at") {
        let time = |names: &[&str]| {
            (0..all.len()).filter(|at| open(*at) && !guesses.contains_key(at)).find(|at| {
                names.contains(&letters(&all[*at].name).as_str())
                    && holds(&Target::OccurredAt, rows, *at)
            })
        };
        if let Some(at) = time(CHANGED).or_else(|| time(CREATED)) {
            guesses.insert(at, Target::OccurredAt);
        }
    }
    let has_email = taken.contains("email") || guesses.values().any(|t| *t == Target::Email);
    if !has_email {
        let addresses = |at: &usize| open(*at) && mostly(rows, *at, is_address);
        guesses.extend((0..all.len()).find(addresses).map(|at| (at, Target::Email)));
    }
    let mut attributes = 0;
    for at in (0..all.len()).filter(|at| open(*at)) {
        if attributes < MAX_MEMBERS
            && !guesses.contains_key(&at)
            && let Some(name) = attribute(&all[at].name)
        {
            attributes += 1;
            guesses.insert(at, Target::Attribute(Cow::Owned(name)));
        }
    }
    guesses.into_iter().collect()
}

/// The target that a column's name speaks of; times are another matter, since files have several.
fn named(name: &str) -> Option<Target> {
    let letters = letters(name);
    let other = || OTHERS.iter().find(|(_, names)| names.contains(&letters.as_str()));
    let is_time = CHANGED.contains(&letters.as_str()) || CREATED.contains(&letters.as_str());
    match Target::parse(name.trim()) {
        Some(Target::Attributes | Target::OccurredAt) => None,
        Some(target) => Some(target),
        None if is_time => None,
        None => {
            let found = other().map(|(target, _)| *target).or_else(|| recognise(name));
            found.and_then(Target::parse)
        }
    }
}

/// Whether what is in a column can be what its name says, where that can be told.
fn holds(target: &Target, rows: &[Vec<String>], at: usize) -> bool {
    let either = |order| Times { order: Some(order), zone: jiff::tz::TimeZone::UTC };
    match target {
        _ if values(rows, at).next().is_none() => *target != Target::OccurredAt,
        Target::Email => values(rows, at).any(is_address),
        Target::MarketingConsent => mostly(rows, at, |value| consent::parse(value).is_ok()),
        Target::OccurredAt => mostly(rows, at, |value| {
            either(Order::DayFirst).read(value).is_some()
                || either(Order::MonthFirst).read(value).is_some()
        }),
        _ => true,
    }
}

fn mostly(rows: &[Vec<String>], at: usize, so: impl Fn(&str) -> bool) -> bool {
    let (mut yes, mut all) = (0, 0);
    for value in values(rows, at) {
        all += 1;
        yes += usize::from(so(value));
    }
    all > 0 && yes * 10 >= all * 8
}

/// Whether a text is an address.
pub(in crate::import) fn is_address(value: &str) -> bool {
    Email::parse(value, Folding::None).is_ok()
}

/// The name of the attribute that an unknown column becomes.
fn attribute(column: &str) -> Option<String> {
    let mut name = String::new();
    for c in column.to_lowercase().chars() {
        if c.is_alphanumeric() {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('_') {
            name.push('_');
        }
    }
    let name = name.trim_end_matches('_');
    let end = (0..=MAX_NAME_BYTES.min(name.len())).rev().find(|at| name.is_char_boundary(*at))?;
    // A name that is a number is that of a column without one.
    let known = name.chars().any(char::is_alphabetic);
    name.get(..end).filter(|_| known).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_are_written_as_they_are_compared() {
        for name in CHANGED.iter().chain(CREATED).chain(OTHERS.iter().flat_map(|(_, names)| *names))
        {
            assert_eq!(letters(name), **name);
            assert_eq!(
                recognise(name).filter(|target| *target != "marketing_consent"),
                None,
                "{name} is a label already"
            );
        }
        for (target, _) in OTHERS {
            assert!(Target::parse(target).is_some(), "{target}");
        }
    }
}
