//! Conversions: a small closed set, one list that configuration, documentation and tests walk.

use crate::lead::{Field, Micros, consent, name, phone, text};

use super::target::Target;
use super::time;
use super::{FieldError, Settings};

/// A conversion between the text found and the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// As it is, cleaned up by the target's own rules.
    Text,
    /// In lower case.
    Lower,
    /// First word.
    FirstWord,
    /// All words but the first.
    RestWords,
    /// All texts found, joined with a blank.
    Join,
    /// All texts found, joined with a comma.
    List,
    /// One text cut at its commas.
    Commas,
    /// HTML entities decoded.
    Html,
    /// The target's own parameter from the query of a URL.
    Utm,
    /// E.164.
    Phone,
    /// `true` or `false`.
    Consent,
    /// RFC 3339.
    Rfc3339,
    /// `YYYY-MM-DD HH:MM:SS`, UTC.
    UtcDatetime,
    /// Seconds since 1970.
    EpochS,
    /// Milliseconds since 1970.
    EpochMs,
}

impl Via {
    /// Every conversion, in the order of the documentation.
    pub const ALL: [Via; 15] = [
        Via::Text,
        Via::Lower,
        Via::FirstWord,
        Via::RestWords,
        Via::Join,
        Via::List,
        Via::Commas,
        Via::Html,
        Via::Utm,
        Via::Phone,
        Via::Consent,
        Via::Rfc3339,
        Via::UtcDatetime,
        Via::EpochS,
        Via::EpochMs,
    ];

    /// Its name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Via::Text => "text",
            Via::Lower => "lower",
            Via::FirstWord => "first_word",
            Via::RestWords => "rest_words",
            Via::Join => "join",
            Via::List => "list",
            Via::Commas => "commas",
            Via::Html => "html",
            Via::Utm => "utm",
            Via::Phone => "phone",
            Via::Consent => "consent",
            Via::Rfc3339 => "rfc3339",
            Via::UtcDatetime => "utc_datetime",
            Via::EpochS => "epoch_s",
            Via::EpochMs => "epoch_ms",
        }
    }

    /// One line for the documentation.
    pub const fn what(self) -> &'static str {
        match self {
            Via::Text => "the text as it is; the default",
            Via::Lower => "in lower case",
            Via::FirstWord => "the first word (given name of a whole name)",
            Via::RestWords => "all words but the first (family name of a whole name)",
            Via::Join => "all texts the path finds, joined with a blank (area code and number)",
            Via::List => "all texts the path finds, joined with a comma and a blank (choices)",
            Via::Commas => "one text cut at its commas; for `tags` and `clear`",
            Via::Html => "HTML entities decoded",
            Via::Utm => "the parameter named like the target, from the query of a URL; for `utm_*`",
            Via::Phone => "E.164; what `phone` always does, for an attribute",
            Via::Consent => {
                "yes or no by its word; what `marketing_consent` always does, for an attribute"
            }
            Via::Rfc3339 => {
                "a time with offset (`2026-03-05T14:22:10Z`, also `+0000`); what `occurred_at` does by default"
            }
            Via::UtcDatetime => "`2026-03-05 14:22:10`, taken as UTC",
            Via::EpochS => "seconds since 1970, number or text",
            Via::EpochMs => "milliseconds since 1970, number or text",
        }
    }

    /// The conversion with that name.
    pub fn parse(name: &str) -> Option<Via> {
        Via::ALL.into_iter().find(|via| via.name() == name)
    }

    /// Whether the target can hold what it gives; the error says where it belongs.
    pub(super) fn fits(self, target: &Target) -> Result<(), &'static str> {
        let time = matches!(self, Via::Rfc3339 | Via::UtcDatetime | Via::EpochS | Via::EpochMs);
        match self {
            _ if time && *target != Target::OccurredAt => Err("it is for occurred_at"),
            Via::Utm if !target.is_utm() => Err("it is for utm_*"),
            Via::Commas if !matches!(target, Target::Tags | Target::Clear) => {
                Err("it is for tags and clear")
            }
            Via::Consent if !matches!(target, Target::MarketingConsent | Target::Attribute(_)) => {
                Err("it is for marketing_consent and attributes")
            }
            Via::Phone if !matches!(target, Target::Field(Field::Phone) | Target::Attribute(_)) => {
                Err("it is for phone and attributes")
            }
            _ if *target == Target::OccurredAt && !time && self != Via::Text => {
                Err("write rfc3339, utc_datetime, epoch_s or epoch_ms")
            }
            _ => Ok(()),
        }
    }

    /// Whether it wants every text a path finds, not only the first.
    pub(super) const fn joins(self) -> Option<&'static str> {
        match self {
            Via::Join => Some(" "),
            Via::List => Some(", "),
            _ => None,
        }
    }

    /// The text converted; `None` where nothing is left of it.
    pub(super) fn convert(
        self,
        found: &str,
        target: &Target,
        settings: &Settings<'_>,
    ) -> Result<Option<String>, FieldError> {
        Ok(match self {
            Via::Lower => Some(found.to_lowercase()),
            Via::FirstWord => text::single_line(found).map(|line| name::split(&line).0.to_owned()),
            Via::RestWords => {
                text::single_line(found).and_then(|line| name::split(&line).1.map(str::to_owned))
            }
            Via::Html => Some(html_escape::decode_html_entities(found).into_owned()),
            Via::Utm => query_parameter(found, &target.name()),
            Via::Phone => {
                Some(phone::parse(found, settings.region).map_err(|_| FieldError::InvalidPhone)?)
            }
            Via::Consent => consent::parse(found)
                .map_err(|_| FieldError::InvalidConsent)?
                .map(|granted| granted.to_string()),
            _ => Some(found.to_owned()),
        })
    }

    /// The text as a time.
    pub(super) fn time(self, found: &str) -> Option<Micros> {
        match self {
            Via::UtcDatetime => time::utc_datetime(found),
            Via::EpochS => time::epoch(found, 1_000_000),
            Via::EpochMs => time::epoch(found, 1_000),
            _ => time::rfc3339(found),
        }
    }
}

/// The first non-blank value of a parameter in the query of a URL, without its fragment.
fn query_parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.trim().split_once('?')?;
    let query = query.split('#').next().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes())
        .find(|(key, value)| key == name && !value.trim().is_empty())
        .map(|(_, value)| value.into_owned())
}
