//! Segment (Twilio): `identify` calls. `userId` is never an address, even if it looks like one.

use serde_json::Value;

use crate::config::SignatureAlgorithm;
use crate::lead::Field;
use crate::mapping::{Document, Target, Via, rule, rule_via};

use super::labels::{self, Found};
use super::{Auth, Content, Scheme, Signing, Source, Split};

const PAGE: &str = "$.context.page.url";

/// The kind. Of a batch only the first element is signed, so batches need a `url_token`, `header` or
/// `basic` as well.
pub const SOURCE: Source = Source {
    kind: "segment",
    title: "Segment",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-signature",
        algorithm: SignatureAlgorithm::HmacSha1,
        content: Content::FirstElement,
        ..Signing::BODY
    })),
    split: Split::List,
    rules: &[
        &[
            rule(Target::Email, &["$.traits.email"]),
            rule(Target::Field(Field::FirstName), &["$.traits.firstName", "$.traits.first_name"]),
            rule(Target::Field(Field::LastName), &["$.traits.lastName", "$.traits.last_name"]),
            rule(Target::Field(Field::FullName), &["$.traits.name"]),
            rule(Target::Field(Field::Phone), &["$.traits.phone"]),
            rule(Target::Field(Field::Company), &["$.traits.company.name", "$.traits.company"]),
            rule(Target::Field(Field::JobTitle), &["$.traits.title"]),
            rule(Target::Field(Field::Website), &["$.traits.website"]),
            rule(Target::Field(Field::City), &["$.traits.address.city"]),
            rule(Target::Field(Field::Region), &["$.traits.address.state"]),
            rule(Target::Field(Field::Country), &["$.traits.address.country"]),
            rule(Target::Field(Field::Language), &["$.traits.locale", "$.context.locale"]),
            rule(Target::UtmSource, &["$.context.campaign.source"]),
            rule(Target::UtmMedium, &["$.context.campaign.medium"]),
            rule(Target::UtmCampaign, &["$.context.campaign.name"]),
            rule(Target::UtmTerm, &["$.context.campaign.term"]),
            rule(Target::UtmContent, &["$.context.campaign.content"]),
            rule(Target::LandingPage, &[PAGE]),
            rule_via(Target::UtmSource, &[PAGE], Via::Utm),
            rule_via(Target::UtmMedium, &[PAGE], Via::Utm),
            rule_via(Target::UtmCampaign, &[PAGE], Via::Utm),
            rule_via(Target::UtmTerm, &[PAGE], Via::Utm),
            rule_via(Target::UtmContent, &[PAGE], Via::Utm),
            rule(Target::OccurredAt, &["$.timestamp", "$.originalTimestamp"]),
            rule(Target::EventId, &["$.messageId"]),
            rule(Target::EventType, &["$.type"]),
        ],
        labels::RULES,
    ],
    headers: &[],
    prepare: Some(prepare),
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let event = doc.part.get("type").and_then(Value::as_str);
    event.filter(|event| *event != "identify").map(|_| "event_type")
}

/// Traits that the specification has no name for.
fn prepare(part: &mut Value) {
    let mut found = Found::default();
    found.put_members(&part["traits"]);
    found.leave_in(part);
}
