//! Values that are written as text: durations, sizes, rates, addresses, "one or a list".
//!
//! The readers are written by hand where serde's derive would buffer the value first
//! (`#[serde(untagged)]`): a buffered value has forgotten on which line it was written.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{FieldRule, FullProperty, FullRule, OneOrMore, Property, Rate};

/// A century: longer spans would overflow the arithmetic on database times later on.
const LONGEST: u64 = 36_500 * 86_400_000;

/// Units of time, in milliseconds, greatest first.
const TIME_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Units of size, in bytes, greatest first.
const SIZE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

pub(super) fn default_trust() -> u8 {
    50
}

pub(super) fn default_tolerance() -> Duration {
    Duration::from_secs(300)
}

pub(super) fn default_backfill_share() -> u8 {
    80
}

pub(super) fn default_create_grace() -> Duration {
    Duration::from_secs(600)
}

/// The schedule as `sync.schedule` spells it: `None` for `continuous`, else the cron expression.
/// The error is a sentence.
pub fn cron(text: &str) -> Result<Option<cronexpr::Crontab>, String> {
    if text.trim() == "continuous" {
        return Ok(None);
    }
    let cron = cronexpr::parse_crontab(text).map_err(|error| {
        // The crate draws the position on lines of its own; its last line is the reason.
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim().to_owned();
        format!(
            "\"{text}\" is neither `continuous` nor a cron expression with a time zone, like \
             \"0 * * * * America/Sao_Paulo\" ({reason})"
        )
    })?;
    // The crate looks four years ahead; these have every day that there is.
    match cron.find_next("2024-01-01T00:00:00Z") {
        Ok(_) => Ok(Some(cron)),
        Err(_) => Err(format!("\"{text}\" never comes")),
    }
}

/// "250ms", "5s", "10m", "1h", "30d" or "0".
fn parse_duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (number, unit) = split_unit(text)?;
    let (_, millis) = TIME_UNITS.into_iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(millis).filter(|ms| *ms <= LONGEST).map(Duration::from_millis)
}

/// "1MiB", "512KiB", "1048576".
fn parse_bytes(text: &str) -> Option<usize> {
    let (number, unit) = split_unit(text.trim())?;
    let factor = match unit {
        "" | "B" => 1,
        unit => SIZE_UNITS.into_iter().find(|(name, _)| *name == unit)?.1,
    };
    number.checked_mul(factor).and_then(|bytes| bytes.try_into().ok())
}

/// "100/10s".
fn parse_rate(text: &str) -> Option<Rate> {
    let (calls, per) = text.split_once('/')?;
    let calls = calls.trim().parse().ok().filter(|calls| *calls > 0)?;
    let per = parse_duration(per).filter(|per| !per.is_zero())?;
    Some(Rate { calls, per })
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    Some((number.parse().ok()?, unit.trim_start()))
}

fn duration_text(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(LONGEST);
    if millis == 0 {
        return "0".to_owned();
    }
    in_units(millis, &TIME_UNITS)
}

fn in_units(number: u64, units: &[(&str, u64)]) -> String {
    match units.iter().find(|(_, factor)| number >= *factor && number.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", number / factor),
        None => number.to_string(),
    }
}

/// Reads a text, or a whole number as its digits, and hands it to a parser.
struct Written<T> {
    what: &'static str,
    parse: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for Written<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).ok_or_else(|| E::custom(format!("\"{text}\" is not {}", self.what)))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.parse)(&number.to_string())
            .ok_or_else(|| E::custom(format!("{number} is not {}", self.what)))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        (self.parse)(&number.to_string())
            .ok_or_else(|| E::custom(format!("{number} is not {}", self.what)))
    }
}

/// Durations, for `#[serde(with)]`.
pub(super) mod duration {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Duration, D::Error> {
        let what = "a duration: a number with ms, s, m, h or d, in quotes, like \"30s\"";
        reader.deserialize_any(Written { what, parse: parse_duration })
    }

    pub fn serialize<S: Serializer>(value: &Duration, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(&duration_text(*value))
    }
}

/// Durations that may be absent, for `#[serde(with)]`.
pub(super) mod optional_duration {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<Duration>, D::Error> {
        duration::deserialize(reader).map(Some)
    }

    pub fn serialize<S: Serializer>(
        value: &Option<Duration>,
        writer: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => duration::serialize(value, writer),
            None => writer.serialize_none(),
        }
    }
}

/// Sizes in bytes, for `#[serde(with)]`.
pub(super) mod bytes {
    use super::*;

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<usize, D::Error> {
        let what = "a size: a number with KiB, MiB or GiB, in quotes, like \"1MiB\"";
        reader.deserialize_any(Written { what, parse: parse_bytes })
    }

    pub fn serialize<S: Serializer>(value: &usize, writer: S) -> Result<S::Ok, S::Error> {
        let bytes = u64::try_from(*value).unwrap_or(u64::MAX);
        writer.serialize_str(&in_units(bytes, &SIZE_UNITS))
    }
}

/// Socket addresses, for `#[serde(with)]`.
pub(super) mod address {
    use super::*;
    use std::net::SocketAddr;

    pub fn deserialize<'de, D: Deserializer<'de>>(reader: D) -> Result<SocketAddr, D::Error> {
        let what = "an IP address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"";
        reader.deserialize_any(Written { what, parse: |text| text.trim().parse().ok() })
    }

    pub fn serialize<S: Serializer>(value: &SocketAddr, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(value)
    }
}

/// A URL as it may be shown: user and query are redacted, which often carry a key.
pub(super) fn without_credentials<S: Serializer>(
    url: &Option<String>,
    writer: S,
) -> Result<S::Ok, S::Error> {
    let shown = url.as_ref().map(|url| {
        let (place, query) = match url.split_once('?') {
            Some((place, _)) => (place, "?[redacted]"),
            None => (url.as_str(), ""),
        };
        // The last @ before the path ends the user.
        let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
        let path = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(path);
        let (user, host) = match authority.rsplit_once('@') {
            Some((_, host)) => ("[redacted]@", host),
            None => ("", authority),
        };
        let colon = if scheme.is_empty() { "" } else { "://" };
        format!("{scheme}{colon}{user}{host}{path}{query}")
    });
    serde::Serialize::serialize(&shown, writer)
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Rate, D::Error> {
        let what = "a rate: calls per time, like \"100/10s\"";
        reader.deserialize_any(Written { what, parse: parse_rate })
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(&format_args!("{}/{}", self.calls, duration_text(self.per)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(text.into_deserializer()).map(OneOrMore::One)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(OneOrMore::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMore::More)
            }
        }

        reader.deserialize_any(Either(PhantomData))
    }
}

impl<'de> Deserialize<'de> for FieldRule {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Rule;

        impl<'de> Visitor<'de> for Rule {
            type Value = FieldRule;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSONPath, a list of them, or { from = ..., via = ... }")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<FieldRule, E> {
                Ok(FieldRule::One(path.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<FieldRule, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(FieldRule::Many)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FieldRule, A::Error> {
                FullRule::deserialize(MapAccessDeserializer::new(map)).map(FieldRule::Full)
            }
        }

        reader.deserialize_any(Rule)
    }
}

impl<'de> Deserialize<'de> for Property {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Written;

        impl<'de> Visitor<'de> for Written {
            type Value = Property;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a CRM property, or { to = \"name\", write = ... }")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Property, E> {
                Ok(Property::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Property, A::Error> {
                FullProperty::deserialize(MapAccessDeserializer::new(map)).map(Property::Full)
            }
        }

        reader.deserialize_any(Written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in
            [("0", 0), ("250ms", 250), (" 5s ", 5_000), ("10m", 600_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in
            ["", "5", "-5s", "s", "1.5h", "5 weeks", "36501d", "18446744073709551615d", "٣s"]
        {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["0", "250ms", "90s", "5m", "2h", "30d"] {
            assert_eq!(parse_duration(text).map(duration_text).as_deref(), Some(text));
        }
    }

    #[test]
    fn urls_are_shown_without_credentials() {
        for (url, shown) in [
            ("https://crm.example/a@b?key=hush@x/", "https://crm.example/a@b?[redacted]"),
            ("http://me:hu@sh@crm.example:8/x", "http://[redacted]@crm.example:8/x"),
            ("https://crm.example", "https://crm.example"),
            ("me@crm", "[redacted]@crm"),
        ] {
            let written = without_credentials(&Some(url.to_owned()), serde_json::value::Serializer);
            assert_eq!(written.unwrap(), shown, "{url}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("1MiB", 1 << 20), ("512 KiB", 512 << 10), ("7", 7), ("7B", 7)] {
            assert_eq!(parse_bytes(text), Some(bytes), "{text}");
        }
        for text in ["", "MiB", "1MB", "-1", "18446744073709551615GiB"] {
            assert_eq!(parse_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn rates() {
        let rate = Rate { calls: 100, per: Duration::from_secs(10) };
        assert_eq!(parse_rate("100/10s"), Some(rate));
        assert_eq!(parse_rate(" 100 / 10s"), Some(rate));
        for text in ["", "100", "0/1s", "100/0", "/1s", "-1/1s", "4294967296/1s"] {
            assert_eq!(parse_rate(text), None, "{text}");
        }
    }

    #[test]
    fn schedules() {
        assert!(matches!(cron("0 0 29 2 * UTC"), Ok(Some(_))));
        assert!(cron("0 0 30 2 * UTC").is_err_and(|error| error.contains("never")));
        assert!(matches!(cron("continuous"), Ok(None)));
        assert!(matches!(cron("0 * * * * America/Sao_Paulo"), Ok(Some(_))));
        for text in ["", "hourly", "0 * * * *", "61 * * * * UTC", "0 * * * * Mars/Olympus"] {
            let error = cron(text).unwrap_err();
            assert!(error.contains("time zone") && !error.contains('\n'), "{error}");
        }
    }
}
