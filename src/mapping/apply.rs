//! Running a mapping: texts found, converted, normalised and put together into a patch.

use std::collections::{BTreeMap, BTreeSet};

use crate::lead::email::{self, EmailError, Folding};
use crate::lead::phone::Region;
use crate::lead::{
    Change, Consent, Email, Field, LeadPatch, Micros, Touch, consent, merge, name, phone, text,
};

use super::{
    Document, Fate, FieldError, Line, MAX_MEMBERS, MAX_NAME_BYTES, Mapping, NoLead, Target, Trace,
    Via, extract,
};

/// What normalisation needs to know about the source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings<'a> {
    /// How addresses fold.
    pub folding: Folding,
    /// Region of national phone numbers.
    pub region: Option<Region>,
    /// Opt-ins carry proof.
    pub double_opt_in: bool,
    /// Lead source of events that name none.
    pub source: Option<&'a str>,
}

/// What a mapping made of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The patch, or why there is none.
    pub lead: Result<LeadPatch, NoLead>,
    /// Targets whose value could not be used, by name.
    pub errors: BTreeMap<String, FieldError>,
    /// What kind of event it is, also of one that is no lead.
    pub event_type: Option<String>,
}

impl Mapping {
    /// What the document says about one lead.
    pub fn apply(&self, doc: &Document<'_>, settings: &Settings<'_>) -> Mapped {
        self.apply_noting(doc, settings, &mut Trace::off())
    }

    /// The same; the trace is told of every path.
    pub fn apply_noting(
        &self,
        doc: &Document<'_>,
        settings: &Settings<'_>,
        trace: &mut Trace,
    ) -> Mapped {
        let mut draft = Draft::default();
        for line in &self.lines {
            // The first line that gives a value wins; an earlier one's failure is forgotten then.
            if draft.has(&line.target) {
                trace.not_reached(line, 0);
                continue;
            }
            let name = line.target.name();
            let taken = draft.take(line, doc, settings, trace);
            trace.settle(taken, draft.has(&line.target));
            match taken {
                Ok(true) => _ = draft.errors.remove(&name),
                Ok(false) => {}
                Err(error) => _ = draft.errors.entry(name).or_insert(error),
            }
        }
        draft.finish(settings)
    }
}

#[derive(Default)]
struct Draft {
    email: Option<Result<(Email, String), EmailError>>,
    occurred_at: Option<Micros>,
    fields: BTreeMap<Field, Change>,
    granted: Option<bool>,
    tags: BTreeSet<String>,
    attributes: BTreeMap<String, Change>,
    touch: Touch,
    event_id: Option<String>,
    event_type: Option<String>,
    clears: Vec<Target>,
    errors: BTreeMap<String, FieldError>,
}

impl Draft {
    /// Whether the target has a value already.
    fn has(&mut self, target: &Target) -> bool {
        match target {
            Target::Email => self.email.is_some(),
            Target::Field(field) => self.fields.contains_key(field),
            Target::MarketingConsent => self.granted.is_some(),
            Target::Tags => !self.tags.is_empty(),
            Target::Attribute(name) => self.attributes.contains_key(name.as_ref()),
            Target::Attributes | Target::Clear => false,
            Target::OccurredAt => self.occurred_at.is_some(),
            _ => self.text_slot(target).is_some_and(|slot| slot.is_some()),
        }
    }

    /// Where a target that is a plain text is kept.
    fn text_slot(&mut self, target: &Target) -> Option<&mut Option<String>> {
        Some(match target {
            Target::Source => &mut self.touch.source,
            Target::UtmSource => &mut self.touch.utm_source,
            Target::UtmMedium => &mut self.touch.utm_medium,
            Target::UtmCampaign => &mut self.touch.utm_campaign,
            Target::UtmTerm => &mut self.touch.utm_term,
            Target::UtmContent => &mut self.touch.utm_content,
            Target::LandingPage => &mut self.touch.landing_page,
            Target::EventId => &mut self.event_id,
            Target::EventType => &mut self.event_type,
            _ => return None,
        })
    }

    /// Fills the line's target; `Ok(false)` where the document has nothing for it.
    fn take(
        &mut self,
        line: &Line,
        doc: &Document<'_>,
        settings: &Settings<'_>,
        trace: &mut Trace,
    ) -> Result<bool, FieldError> {
        match &line.target {
            Target::Tags => return self.take_tags(list(line, doc, trace)?),
            Target::Clear => return self.take_clear(list(line, doc, trace)?),
            Target::Attributes => return self.take_attributes(line, doc, trace),
            _ => {}
        }
        let Some(found) = line.text(doc, trace)? else { return Ok(false) };
        if !matches!(line.target, Target::Email) {
            not_absurd(&found, line.target.max_bytes())?;
        }
        let Some(value) = line.via.convert(&found, &line.target, settings)? else {
            return Ok(false);
        };
        if text::is_blank(&value) {
            return Ok(false);
        }
        match &line.target {
            Target::Email => {
                let typed = email::as_typed(&value);
                let email = Email::parse(&value, settings.folding);
                // No field error: without an address there is no lead.
                let _ = email.as_ref().inspect_err(|e| trace.came_to(Fate::NoAddress(**e)));
                self.email = Some(email.map(|email| (email, typed)));
            }
            Target::OccurredAt => {
                self.occurred_at = Some(line.via.time(&value).ok_or(FieldError::InvalidTime)?);
            }
            Target::MarketingConsent => {
                self.granted = consent::parse(&value).map_err(|_| FieldError::InvalidConsent)?;
                return Ok(self.granted.is_some());
            }
            Target::Field(field) => {
                let Some(value) = field_value(*field, &value, settings)? else { return Ok(false) };
                let value = within(value, field.max_bytes())?;
                self.fields.insert(*field, Change::Set(value));
            }
            Target::Attribute(name) => {
                let Some(value) = text::multi_line(&value) else { return Ok(false) };
                let value = within(value, line.target.max_bytes())?;
                self.add_attribute(name.to_string(), Change::Set(value))?;
            }
            target => {
                let Some(value) = text::single_line(&value) else { return Ok(false) };
                let value = within(value, target.max_bytes())?;
                if let Some(slot) = self.text_slot(target) {
                    *slot = Some(value);
                }
            }
        }
        Ok(true)
    }

    fn take_tags(&mut self, texts: Vec<String>) -> Result<bool, FieldError> {
        let mut result = Ok(());
        for tag in texts.iter().filter_map(|tag| text::key(tag)) {
            if tag.len() > MAX_NAME_BYTES {
                result = Err(FieldError::TooLong { max: MAX_NAME_BYTES });
            } else if self.tags.len() < MAX_MEMBERS || self.tags.contains(&tag) {
                self.tags.insert(tag);
            } else {
                result = Err(FieldError::TooMany { max: MAX_MEMBERS });
            }
        }
        result.map(|()| !self.tags.is_empty())
    }

    fn take_clear(&mut self, names: Vec<String>) -> Result<bool, FieldError> {
        let mut result = Ok(true);
        for name in names.iter().filter_map(|name| text::key(name)) {
            match Target::parse(&name) {
                Some(target @ (Target::Field(_) | Target::Attribute(_))) => {
                    self.clears.push(target)
                }
                _ => result = Err(FieldError::NotClearable),
            }
        }
        result
    }

    /// After all values: one in the same event wins over its erasure, as it does in the merge.
    fn clear(&mut self) {
        for target in std::mem::take(&mut self.clears) {
            match target {
                Target::Field(field) => _ = self.fields.entry(field).or_insert(Change::Clear),
                Target::Attribute(name) if !self.attributes.contains_key(name.as_ref()) => {
                    if let Err(error) = self.add_attribute(name.into_owned(), Change::Clear) {
                        self.errors.insert("clear".to_owned(), error);
                    }
                }
                _ => {}
            }
        }
    }

    fn take_attributes(
        &mut self,
        line: &Line,
        doc: &Document<'_>,
        trace: &mut Trace,
    ) -> Result<bool, FieldError> {
        let Some(members) = line.object(doc, trace)? else { return Ok(false) };
        for (name, value) in members {
            let Some(name) = text::key(name).filter(|name| name.len() <= MAX_NAME_BYTES) else {
                return Err(FieldError::InvalidName);
            };
            let bounded = |value: Option<String>| {
                value.map(|v| not_absurd(&v, line.target.max_bytes()).map(|()| v)).transpose()
            };
            let value = match extract::scalar(value).and_then(bounded) {
                Ok(Some(value)) => text::multi_line(&value),
                Ok(None) => None,
                Err(error) => {
                    self.add_error(&name, error);
                    None
                }
            };
            let Some(value) = value else { continue };
            match within(value, line.target.max_bytes()) {
                Ok(value) if !self.attributes.contains_key(&name) => {
                    self.add_attribute(name, Change::Set(value))?;
                }
                Ok(_) => {}
                Err(error) => self.add_error(&name, error),
            }
        }
        Ok(true)
    }

    fn add_error(&mut self, attribute: &str, error: FieldError) {
        if self.errors.len() < MAX_MEMBERS {
            self.errors.insert(format!("attributes.{attribute}"), error);
        }
    }

    fn add_attribute(&mut self, name: String, change: Change) -> Result<(), FieldError> {
        if self.attributes.len() >= MAX_MEMBERS {
            return Err(FieldError::TooMany { max: MAX_MEMBERS });
        }
        self.attributes.insert(name, change);
        Ok(())
    }

    fn finish(mut self, settings: &Settings<'_>) -> Mapped {
        self.clear();
        self.split_full_name();
        self.touch.source = self.touch.source.or_else(|| settings.source.map(str::to_owned));
        let event_type = self.event_type.clone();
        let lead = match self.email {
            None => Err(NoLead::NoEmail),
            Some(Err(error)) => Err(NoLead::InvalidEmail(error)),
            Some(Ok((email, email_as_typed))) => Ok(LeadPatch {
                email,
                email_as_typed,
                occurred_at: self.occurred_at,
                fields: self.fields,
                consent: self
                    .granted
                    .map(|granted| Consent { granted, proven: granted && settings.double_opt_in }),
                tags: self.tags,
                attributes: self.attributes,
                touch: self.touch,
                event_id: self.event_id,
                event_type: self.event_type,
                field_errors: self
                    .errors
                    .iter()
                    .map(|(name, e)| (name.clone(), e.to_string()))
                    .collect(),
            }),
        };
        Mapped { lead, errors: self.errors, event_type }
    }

    /// A whole name alone also gives its parts; parts that were sent are never touched.
    fn split_full_name(&mut self) {
        let has_part =
            [Field::FirstName, Field::LastName].iter().any(|f| self.fields.contains_key(f));
        let full = self.fields.get(&Field::FullName).and_then(Change::value);
        let Some(full) = full.filter(|_| !has_part).map(str::to_owned) else { return };
        let (first, last) = name::split(&full);
        self.fields.insert(Field::FirstName, Change::Set(first.to_owned()));
        if let Some(last) = last {
            self.fields.insert(Field::LastName, Change::Set(last.to_owned()));
        }
    }
}

fn list(line: &Line, doc: &Document<'_>, trace: &mut Trace) -> Result<Vec<String>, FieldError> {
    let texts = line.texts(doc, trace)?;
    Ok(match line.via {
        Via::Commas => texts.iter().flat_map(|text| text.split(',')).map(str::to_owned).collect(),
        Via::Lower => texts.iter().map(|text| text.to_lowercase()).collect(),
        Via::Html => {
            texts.iter().map(|text| html_escape::decode_html_entities(text).into_owned()).collect()
        }
        _ => texts,
    })
}

fn field_value(
    field: Field,
    value: &str,
    settings: &Settings<'_>,
) -> Result<Option<String>, FieldError> {
    Ok(match field {
        Field::Message => text::multi_line(value),
        Field::Phone => {
            Some(phone::parse(value, settings.region).map_err(|_| FieldError::InvalidPhone)?)
        }
        Field::LifecycleStage => Some(lifecycle_stage(value)?),
        _ => text::single_line(value),
    })
}

/// One of the known stages, however its words are written ("Marketing Qualified Lead",
/// "marketingqualifiedlead"); any other could never be ranked.
fn lifecycle_stage(value: &str) -> Result<String, FieldError> {
    let letters: String =
        value.chars().filter(|c| c.is_alphabetic()).flat_map(char::to_lowercase).collect();
    let known = merge::LIFECYCLE_STAGES.iter().find(|stage| stage.replace('_', "") == letters);
    known.map(|stage| (*stage).to_owned()).ok_or(FieldError::UnknownStage)
}

/// Normalising makes texts shorter, but not that much, and a text as long as a body takes it too long.
fn not_absurd(raw: &str, max: usize) -> Result<(), FieldError> {
    if raw.len() <= max.saturating_mul(8) { Ok(()) } else { Err(FieldError::TooLong { max }) }
}

fn within(value: String, max: usize) -> Result<String, FieldError> {
    if value.len() <= max { Ok(value) } else { Err(FieldError::TooLong { max }) }
}
