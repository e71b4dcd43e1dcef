//! What a rule can fill: an enum, so that a typo in a built-in kind is a compile error.

use std::borrow::Cow;

use crate::lead::Field;

use super::MAX_NAME_BYTES;

/// A target of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The key.
    Email,
    /// A text field.
    Field(Field),
    /// Consent to marketing, by the words of `lead/consent.rs`.
    MarketingConsent,
    /// Tags to add: a text, or a list of texts.
    Tags,
    /// One custom attribute.
    Attribute(Cow<'static, str>),
    /// An object whose members are custom attributes.
    Attributes,
    /// The lead source the event names; absent: the configured source's name.
    Source,
    /// `utm_source`.
    UtmSource,
    /// `utm_medium`.
    UtmMedium,
    /// `utm_campaign`.
    UtmCampaign,
    /// `utm_term`.
    UtmTerm,
    /// `utm_content`.
    UtmContent,
    /// Page the form stood on.
    LandingPage,
    /// The event's own time.
    OccurredAt,
    /// The sender's id of the event.
    EventId,
    /// The sender's type of the event.
    EventType,
    /// Names of fields to erase: a text, or a list of texts.
    Clear,
}

impl Target {
    /// Every name a target can be written with; `attributes.` stands for `attributes.NAME`.
    pub const NAMES: [&'static str; 29] = [
        "email",
        "first_name",
        "last_name",
        "full_name",
        "phone",
        "company",
        "job_title",
        "website",
        "city",
        "region",
        "country",
        "language",
        "message",
        "lifecycle_stage",
        "marketing_consent",
        "tags",
        "attributes",
        "attributes.",
        "source",
        "utm_source",
        "utm_medium",
        "utm_campaign",
        "utm_term",
        "utm_content",
        "landing_page",
        "occurred_at",
        "event_id",
        "event_type",
        "clear",
    ];

    /// The target with that name.
    pub fn parse(name: &str) -> Option<Target> {
        if let Some(field) = Field::parse(name) {
            return Some(Target::Field(field));
        }
        if let Some(attribute) = name.strip_prefix("attributes.") {
            let attribute = crate::lead::text::key(attribute)?;
            return (attribute.len() <= MAX_NAME_BYTES)
                .then_some(Target::Attribute(Cow::Owned(attribute)));
        }
        Some(match name {
            "email" => Target::Email,
            "marketing_consent" => Target::MarketingConsent,
            "tags" => Target::Tags,
            "attributes" => Target::Attributes,
            "source" => Target::Source,
            "utm_source" => Target::UtmSource,
            "utm_medium" => Target::UtmMedium,
            "utm_campaign" => Target::UtmCampaign,
            "utm_term" => Target::UtmTerm,
            "utm_content" => Target::UtmContent,
            "landing_page" => Target::LandingPage,
            "occurred_at" => Target::OccurredAt,
            "event_id" => Target::EventId,
            "event_type" => Target::EventType,
            "clear" => Target::Clear,
            _ => return None,
        })
    }

    /// Its name in configuration, in field errors and in the canonical form.
    pub fn name(&self) -> String {
        let name = match self {
            Target::Field(field) => field.name(),
            Target::Attribute(name) => return format!("attributes.{name}"),
            Target::Email => "email",
            Target::MarketingConsent => "marketing_consent",
            Target::Tags => "tags",
            Target::Attributes => "attributes",
            Target::Source => "source",
            Target::UtmSource => "utm_source",
            Target::UtmMedium => "utm_medium",
            Target::UtmCampaign => "utm_campaign",
            Target::UtmTerm => "utm_term",
            Target::UtmContent => "utm_content",
            Target::LandingPage => "landing_page",
            Target::OccurredAt => "occurred_at",
            Target::EventId => "event_id",
            Target::EventType => "event_type",
            Target::Clear => "clear",
        };
        name.to_owned()
    }

    /// Longest text it holds, in bytes.
    pub fn max_bytes(&self) -> usize {
        match self {
            Target::Field(field) => field.max_bytes(),
            Target::Attribute(_) | Target::Attributes => super::MAX_ATTRIBUTE_BYTES,
            Target::Tags => MAX_NAME_BYTES,
            Target::LandingPage => 2048,
            _ => 512,
        }
    }

    /// Whether it is one of the `utm_*`.
    pub fn is_utm(&self) -> bool {
        use Target::*;
        matches!(self, UtmSource | UtmMedium | UtmCampaign | UtmTerm | UtmContent)
    }
}
