//! Shopify `customers/*`: the topic and the event's id stand only in headers.

use crate::config::SignatureEncoding;
use crate::lead::Field;
use crate::mapping::{Document, Target, Via, rule, rule_via};

use super::{Auth, Scheme, Signing, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "shopify",
    title: "Shopify",
    auth: Auth::Signed(Scheme::Hmac(Signing {
        header: "x-shopify-hmac-sha256",
        encoding: SignatureEncoding::Base64,
        ..Signing::BODY
    })),
    split: Split::Whole,
    rules: &[&[
        rule(Target::Email, &["$.email"]),
        rule(Target::Field(Field::FirstName), &["$.first_name"]),
        rule(Target::Field(Field::LastName), &["$.last_name"]),
        rule(
            Target::Field(Field::Phone),
            &[
                "$.phone",
                "$.default_address.phone",
                "$.addresses[?@.default==true].phone",
                "$.addresses[0].phone",
            ],
        ),
        rule(
            Target::Field(Field::Company),
            &[
                "$.default_address.company",
                "$.addresses[?@.default==true].company",
                "$.addresses[0].company",
            ],
        ),
        rule(
            Target::Field(Field::City),
            &["$.default_address.city", "$.addresses[?@.default==true].city"],
        ),
        rule(
            Target::Field(Field::Region),
            &["$.default_address.province", "$.addresses[?@.default==true].province"],
        ),
        rule(
            Target::Field(Field::Country),
            &["$.default_address.country", "$.addresses[?@.default==true].country"],
        ),
        rule(Target::MarketingConsent, &["$.email_marketing_consent.state"]),
        rule_via(Target::Tags, &["$.tags"], Via::Commas),
        rule(Target::OccurredAt, &["$.updated_at", "$.created_at"]),
        rule(Target::EventId, &["$['@headers']['x-shopify-event-id']"]),
        rule(Target::EventType, &["$['@headers']['x-shopify-topic']"]),
    ]],
    headers: &["x-shopify-shop-domain", "x-shopify-test"],
    prepare: None,
    ignore: Some(ignore),
    handshake: None,
};

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let header =
        |name: &str| doc.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim());
    if header("x-shopify-test").is_some_and(|test| test.eq_ignore_ascii_case("true")) {
        return Some("test");
    }
    let about_a_lead =
        ["customers/create", "customers/update", "customers/enable", "customers/disable"];
    header("x-shopify-topic").filter(|topic| !about_a_lead.contains(topic)).map(|_| "event_type")
}
