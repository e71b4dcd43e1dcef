//! `/v1/deliveries`: what arrived, as the archive has it.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use uuid::Uuid;
use warp::reply::Response;

use super::auth::authorize;
use super::body::Arrived;
use super::ops::read_only;
use super::{Context, HttpError};
use crate::lead::{Micros, Outcome};
use crate::mapping::nearest_name;
use crate::mapping::time::rfc3339;
use crate::store::archive::{DeliveryFilter, Place};

/// Parameters of the list.
const PARAMETERS: [&str; 8] =
    ["source", "outcome", "reason", "since", "until", "lead_id", "limit", "cursor"];

const OUTCOMES: [&str; 6] = ["created", "updated", "unchanged", "queued", "rejected", "ignored"];

/// Deliveries on a page where nobody says how many, and at most.
const LIMIT: i64 = 50;
const MOST: i64 = 200;

/// `GET /v1/deliveries`
pub(super) async fn list(context: Arc<Context>, arrived: Arrived) -> Response {
    let id = arrived.id;
    super::finish(page(&context, arrived).await, id)
}

/// `GET /v1/deliveries/{id}`
pub(super) async fn show(delivery_id: String, context: Arc<Context>, arrived: Arrived) -> Response {
    let id = arrived.id;
    super::finish(look_up(&delivery_id, &context, arrived).await, id)
}

async fn look_up(
    delivery_id: &str,
    context: &Context,
    arrived: Arrived,
) -> Result<Response, HttpError> {
    authorize(context, &arrived)?;
    read_only(&arrived.method)?;
    let delivery_id = Uuid::try_parse(delivery_id).map_err(|_| HttpError::not_found())?;
    let delivery = context.store.delivery(delivery_id).await?;
    super::json(&delivery.ok_or_else(HttpError::not_found)?)
}

async fn page(context: &Context, arrived: Arrived) -> Result<Response, HttpError> {
    authorize(context, &arrived)?;
    read_only(&arrived.method)?;
    let asked = Asked::read(&arrived.query)?;
    if let Some(source) = &asked.filter.source {
        let names = context.store.source_names().await?;
        if !names.iter().any(|name| name == source) {
            return Err(no_such("source", source, names.iter().map(String::as_str)));
        }
    }
    // One more than asked for tells whether there is a next page.
    let limit = asked.limit + 1;
    let mut deliveries = context.store.deliveries(&asked.filter, asked.after, limit).await?;
    let more = i64::try_from(deliveries.len()).unwrap_or(i64::MAX) > asked.limit;
    if more {
        deliveries.pop();
    }
    let last = deliveries.last().filter(|_| more);
    let next_cursor = last.map(|last| written(last.place()));
    super::json(&json!({ "deliveries": deliveries, "next_cursor": next_cursor }))
}

/// What a query asks for.
#[derive(Debug)]
struct Asked {
    filter: DeliveryFilter,
    after: Option<Place>,
    limit: i64,
}

impl Asked {
    fn read(query: &str) -> Result<Asked, HttpError> {
        let mut asked = Asked { filter: DeliveryFilter::default(), after: None, limit: LIMIT };
        let mut seen = BTreeSet::new();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let known = PARAMETERS.into_iter().find(|known| *known == name);
            let Some(name) = known else { return Err(no_such("parameter", &name, PARAMETERS)) };
            if !seen.insert(name) {
                return Err(unusable(name, "is given twice"));
            }
            asked.take(name, &value)?;
        }
        Ok(asked)
    }

    fn take(&mut self, name: &'static str, value: &str) -> Result<(), HttpError> {
        let filter = &mut self.filter;
        match name {
            // The database takes no NUL, and no name has one.
            _ if value.is_empty() || value.contains('\0') => {
                return Err(unusable(name, "has no value; leave it out for any"));
            }
            "source" => filter.source = Some(value.to_owned()),
            "reason" => filter.reason = Some(value.to_owned()),
            "outcome" => {
                let outcome = Outcome::parse(value);
                filter.outcome = Some(outcome.ok_or_else(|| no_such("outcome", value, OUTCOMES))?);
            }
            "since" => filter.since = Some(time(name, value)?),
            "until" => filter.until = Some(time(name, value)?),
            "lead_id" => {
                let id = Uuid::try_parse(value);
                filter.lead_id = Some(id.map_err(|_| unusable(name, "is not a UUID"))?);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                self.limit = limit.ok_or_else(|| unusable(name, "goes from 1 to 200"))?;
            }
            _ => {
                let place = read(value);
                let what = "is not the next_cursor of a page";
                self.after = Some(place.ok_or_else(|| unusable(name, what))?);
            }
        }
        Ok(())
    }
}

fn time(name: &str, value: &str) -> Result<Micros, HttpError> {
    let what = "is not a time; write it like 2026-11-30T09:00:00Z, with a + as %2B";
    rfc3339(value).ok_or_else(|| unusable(name, what))
}

fn unusable(name: &str, what: &str) -> HttpError {
    HttpError::unprocessable("invalid_parameter", format!("{name} {what}"))
}

/// Says what there is instead, and never what was asked for.
fn no_such<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> HttpError {
    let nearest = nearest_name(name, known.clone());
    let hint = nearest.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
    let known = known.into_iter().collect::<Vec<_>>().join(", ");
    let detail = format!("there is no such {what}{hint}; there are {known}");
    HttpError::unprocessable("invalid_parameter", detail)
}

/// A place as text that means nothing to anybody else.
fn written(place: Place) -> String {
    let mut bytes = [0; 24];
    let (at, id) = bytes.split_at_mut(8);
    at.copy_from_slice(&place.received_at.to_be_bytes());
    id.copy_from_slice(place.delivery_id.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

fn read(text: &str) -> Option<Place> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (at, id) = bytes.split_first_chunk()?;
    let received_at = Micros::from_be_bytes(*at);
    // What the database can hold and a receipt can be.
    let plausible = (0..=253_402_300_799_000_000).contains(&received_at);
    let delivery_id = Uuid::from_slice(id).ok()?;
    plausible.then_some(Place { received_at, delivery_id })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_asked_for() {
        for odd in [
            "sorce=x",
            "source=",
            "source=a&source=b",
            "outcome=lost",
            "outcome=Created",
            "since=yesterday",
            "until=2026-11-30",
            "lead_id=5",
            "limit=0",
            "limit=201",
            "limit=ten",
            "cursor=x",
            "cursor=AAAA",
            "reason=%00",
        ] {
            assert!(Asked::read(odd).is_err(), "{odd}");
        }
        let asked =
            Asked::read("outcome=rejected&limit=200&since=2026-11-30T09:00:00%2B01:00").unwrap();
        assert_eq!((asked.filter.outcome, asked.limit), (Some(Outcome::Rejected), 200));
        assert_eq!(asked.filter.since, rfc3339("2026-11-30T08:00:00Z"));
        assert_eq!(Asked::read("").unwrap().limit, LIMIT);
    }

    #[test]
    fn outcomes_are_all_there_are() {
        assert!(OUTCOMES.iter().all(|name| Outcome::parse(name).is_some()));
    }

    proptest! {
        #[test]
        fn places_survive(received_at in 0..253_402_300_799_000_000i64, id in any::<u128>()) {
            let place = Place { received_at, delivery_id: Uuid::from_u128(id) };
            prop_assert_eq!(read(&written(place)), Some(place));
        }

        #[test]
        fn nothing_panics(query in "\\PC*|(cursor|since|limit)=[A-Za-z0-9_%-]{0,40}") {
            let _ = Asked::read(&query);
        }
    }
}
