//! Times as senders write them, to microseconds UTC, truncated. PostgreSQL's parser never sees one:
//! it takes `now`, `infinity` and `01/02/2024` as well.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::lead::Micros;

/// A time with an offset: RFC 3339 with any number of fraction digits up to nine, `T` or a blank in
/// the middle, `Z`, `+00:00`, `+0000` or `+00`. Without an offset it is no point in time: `None`.
pub fn rfc3339(text: &str) -> Option<Micros> {
    // RFC 9557 suffixes ("[Europe/Paris]") would need a time zone database to be believed.
    if text.contains('[') {
        return None;
    }
    let text = text.trim();
    match text.parse::<Timestamp>() {
        Ok(time) => in_range(time),
        Err(_) => never(text),
    }
}

/// Many systems write "never" as 9999-12-31, and the crate's timestamps end a day before it. Read in the
/// year before, which has as many days.
fn never(text: &str) -> Option<Micros> {
    const YEAR: i64 = 365 * 86_400_000_000;
    let rest = text.strip_prefix("9999-12-3")?;
    let time = format!("9998-12-3{rest}").parse::<Timestamp>().ok()?;
    time.as_microsecond().checked_add(YEAR)
}

/// `YYYY-MM-DD HH:MM:SS` without an offset, taken as UTC.
pub fn utc_datetime(text: &str) -> Option<Micros> {
    let text = text.trim();
    if text.contains(['[', 'Z', 'z']) {
        return None;
    }
    let datetime: DateTime = text.parse().ok()?;
    in_range(TimeZone::UTC.to_timestamp(datetime).ok()?)
}

/// Time since 1970 as decimal digits, in units of `micros_per_unit`; a fraction is truncated.
pub fn epoch(text: &str, micros_per_unit: i64) -> Option<Micros> {
    let text = text.trim();
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if digits.is_empty() || !all_digits(digits) || !all_digits(fraction) {
        return None;
    }
    let mut micros = whole.parse::<i64>().ok()?.checked_mul(micros_per_unit)?;
    let mut unit = micros_per_unit;
    for digit in fraction.bytes() {
        unit /= 10;
        let part = i64::from(digit - b'0') * unit;
        micros = if whole.starts_with('-') {
            micros.checked_sub(part)?
        } else {
            micros.checked_add(part)?
        };
    }
    in_range(Timestamp::from_microsecond(micros).ok()?)
}

/// Years 1 to 9999: what every clock, CRM and PostgreSQL can hold.
fn in_range(time: Timestamp) -> Option<Micros> {
    const YEAR_1: i64 = -62_135_596_800_000_000;
    Some(time.as_microsecond()).filter(|micros| *micros >= YEAR_1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T: Micros = 1_772_720_530_000_000;

    #[test]
    fn rfc3339_forms() {
        for (text, micros) in [
            ("2026-03-05T14:22:10Z", Some(T)),
            ("2026-03-05T14:22:10+0000", Some(T)),
            ("2026-03-05T09:22:10-05:00", Some(T)),
            ("2026-03-06T04:22:10+14:00", Some(T)),
            ("2026-03-05t14:22:10z", Some(T)),
            (" 2026-03-05 14:22:10Z\n", Some(T)),
            ("2026-03-05T14:22:10.1234569Z", Some(T + 123_456)),
            ("2026-03-05T14:22:10.999999999Z", Some(T + 999_999)),
            ("9999-12-31T23:59:59Z", Some(253_402_300_799_000_000)),
            ("9999-12-31T23:59:60Z", Some(253_402_300_799_000_000)),
            ("9999-12-32T00:00:00Z", None),
            ("9999-12-31", None),
            ("2026-03-05T14:22:10", None),
            ("2026-03-05", None),
            ("2026-03-05T24:00:00Z", None),
            ("2026-03-05T14:22:10+00:00[America/New_York]", None),
            ("01/02/2024", None),
            ("now", None),
            ("infinity", None),
            ("1772720530", None),
            ("", None),
        ] {
            assert_eq!(rfc3339(text), micros, "{text}");
        }
    }

    #[test]
    fn other_forms() {
        assert_eq!(utc_datetime("2026-03-05 14:22:10"), Some(T));
        assert_eq!(utc_datetime("2026-03-05T14:22:10.5"), Some(T + 500_000));
        assert_eq!(utc_datetime("2026-03-05 14:22:10Z"), None);
        assert_eq!(epoch("1772720530", 1_000_000), Some(T));
        assert_eq!(epoch("1772720530.1234567", 1_000_000), Some(T + 123_456));
        assert_eq!(epoch("1772720530000", 1_000), Some(T));
        assert_eq!(epoch("-1", 1_000_000), Some(-1_000_000));
        for odd in ["", "1e9", "+1", "1.x", "99999999999999", "9223372036854775807", "١"] {
            assert_eq!(epoch(odd, 1_000_000), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*|-?[0-9.]{0,40}|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]{0,20}[Z+0-9:-]{0,6}") {
            let _ = (rfc3339(&text), utc_datetime(&text), epoch(&text, 1_000_000), epoch(&text, 1_000));
        }
    }
}
