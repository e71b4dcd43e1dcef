//! Bodies of `POST /v1/leads`.

use leadsync::config::EmailFolding;
use leadsync::lead::LeadPatch;
use leadsync::sources::api::{self, Form};
use leadsync::sources::json::Problem;
use serde_json::Value;

use super::leads;
use super::message::{message, rules, shown};

type Read = Result<LeadPatch, Vec<Problem>>;

/// By media type; anything else is read as lines.
pub fn holds(data: &[u8]) {
    let message = message(data);
    let form = Form::of(&message.line).unwrap_or(Form::Lines);
    let rules = rules(Some("BR"), EmailFolding::Plus);
    let Ok(leads) = api::read(form, message.body, &rules) else { return };
    assert_eq!(leads.items().len(), leads.leads.len());
    for lead in &leads.leads {
        good_or_named(lead);
    }
    if form == Form::Lines {
        return;
    }
    // Each is read as if it had come alone.
    let Ok(Value::Array(values)) = serde_json::from_slice::<Value>(message.body) else {
        assert!(leads.single);
        return;
    };
    for (value, lead) in values.iter().zip(&leads.leads).filter(|(value, _)| value.is_object()) {
        let alone = api::read(Form::Lines, value.to_string().as_bytes(), &rules).expect("a line");
        assert_eq!(shown(&alone.leads), shown(&[lead]));
    }
}

fn good_or_named(lead: &Read) {
    match lead {
        Ok(patch) => leads::lead(patch),
        Err(problems) => {
            assert!((1..=200).contains(&problems.len()), "{}", problems.len());
            for problem in problems {
                assert!(!problem.message.is_empty() && problem.message.len() < 200);
                assert!(problem.field.len() < 1000, "{}", problem.field.len());
            }
        }
    }
}
