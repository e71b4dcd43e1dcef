//! Google Ads lead forms: columns by `column_id`; the key is in the body. Ids are 64-bit numbers.

use std::borrow::Cow;

use serde_json::Value;

use crate::lead::Field;
use crate::mapping::{Document, Target, rule};

use super::{Auth, Scheme, Source, Split};

/// The kind. What "Send test data" sends is nobody's.
pub const SOURCE: Source = Source {
    kind: "google-ads",
    title: "Google Ads lead forms",
    auth: Auth::Signed(Scheme::BodyKey("google_key")),
    split: Split::Whole,
    rules: &[&[
        rule(
            Target::Email,
            &[
                "$.user_column_data[?@.column_id=='EMAIL'].string_value",
                "$.user_column_data[?@.column_id=='WORK_EMAIL'].string_value",
            ],
        ),
        column(Field::FullName, &["$.user_column_data[?@.column_id=='FULL_NAME'].string_value"]),
        column(Field::FirstName, &["$.user_column_data[?@.column_id=='FIRST_NAME'].string_value"]),
        column(Field::LastName, &["$.user_column_data[?@.column_id=='LAST_NAME'].string_value"]),
        column(Field::Phone, &["$.user_column_data[?@.column_id=='PHONE_NUMBER'].string_value"]),
        column(Field::Phone, &["$.user_column_data[?@.column_id=='WORK_PHONE'].string_value"]),
        column(Field::Company, &["$.user_column_data[?@.column_id=='COMPANY_NAME'].string_value"]),
        column(Field::JobTitle, &["$.user_column_data[?@.column_id=='JOB_TITLE'].string_value"]),
        column(Field::City, &["$.user_column_data[?@.column_id=='CITY'].string_value"]),
        column(Field::Region, &["$.user_column_data[?@.column_id=='REGION'].string_value"]),
        column(Field::Country, &["$.user_column_data[?@.column_id=='COUNTRY'].string_value"]),
        rule(Target::Attribute(Cow::Borrowed("gclid")), &["$.gcl_id"]),
        rule(Target::Attribute(Cow::Borrowed("campaign_id")), &["$.campaign_id"]),
        rule(Target::Attribute(Cow::Borrowed("form_id")), &["$.form_id"]),
        rule(Target::OccurredAt, &["$.lead_submit_time"]),
        rule(Target::EventId, &["$.lead_id"]),
    ]],
    headers: &[],
    prepare: None,
    ignore: Some(ignore),
    handshake: None,
};

const fn column(field: Field, from: &'static [&'static str]) -> crate::mapping::Rule {
    rule(Target::Field(field), from)
}

fn ignore(doc: &Document<'_>) -> Option<&'static str> {
    let test = doc.part.get("is_test")?;
    (*test == Value::Bool(true) || test.as_str() == Some("true")).then_some("test")
}
