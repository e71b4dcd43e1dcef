//! Times as exports write them. Whether the day or the month comes first is decided for a whole file.

use jiff::civil::{Date, DateTime, Time};
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::TimeZone;

use crate::lead::Micros;
use crate::mapping::time;

/// Clock times after a date.
const CLOCKS: &[&str] =
    &["%H:%M:%S%.f", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%I:%M:%S%p", "%I:%M%p"];

/// Dates with the month's name, each with and without a clock time.
const NAMED: &[&str] = &["%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d. %B %Y"];

/// Which number of `03/05/2026` comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// 3 May.
    DayFirst,
    /// 5 March.
    MonthFirst,
}

/// What one text says about the order in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Evidence {
    /// It can only be this one.
    Only(Order),
    /// It would be another day in the other order.
    Either,
    /// Nothing.
    None,
}

/// How times of a file are read.
#[derive(Clone, Debug)]
pub(super) struct Times {
    /// For dates that need it.
    pub order: Option<Order>,
    /// Of times without an offset.
    pub zone: TimeZone,
}

impl Times {
    /// The time in a text; `None` where it is none, or none that can be told.
    pub fn read(&self, text: &str) -> Option<Micros> {
        let text = text.trim();
        time::rfc3339(text)
            .or_else(|| number(text))
            .or_else(|| self.numeric(text))
            .or_else(|| self.named(text))
            .or_else(|| Some(rfc2822::parse(text).ok()?.timestamp().as_microsecond()))
    }

    /// A date of three numbers, with or without a clock time.
    fn numeric(&self, text: &str) -> Option<Micros> {
        let (numbers, rest) = three_numbers(text)?;
        let (year, month, day) = match numbers {
            Numbers::YearFirst(year, month, day) => (year, month, day),
            Numbers::YearLast(first, second, year, separator) => {
                let order = if separator == b'.' { Some(Order::DayFirst) } else { self.order };
                match order? {
                    Order::DayFirst => (year, second, first),
                    Order::MonthFirst => (year, first, second),
                }
            }
        };
        self.at(Date::new(year, month, day).ok()?, rest)
    }

    fn named(&self, text: &str) -> Option<Micros> {
        if !text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
            return None;
        }
        NAMED.iter().find_map(|format| {
            let mut parsed = strtime::BrokenDownTime::parse_prefix(format, text).ok()?;
            let (read, used) = (&mut parsed.0, parsed.1);
            self.at(read.to_date().ok()?, text.get(used..)?)
        })
    }

    /// The date with the clock time that follows it.
    fn at(&self, date: Date, rest: &str) -> Option<Micros> {
        let rest = rest.trim_start_matches([',', 'T', 't']).trim();
        if rest.is_empty() {
            return self.zoned(date.to_datetime(Time::midnight()));
        }
        let (clock, utc) = match rest.strip_suffix("UTC").or_else(|| rest.strip_suffix("GMT")) {
            Some(clock) => (clock.trim_end(), true),
            None => (rest, false),
        };
        for format in CLOCKS {
            if let Ok(read) = strtime::parse(format, clock) {
                let datetime = date.to_datetime(read.to_time().ok()?);
                return if utc { in_zone(&TimeZone::UTC, datetime) } else { self.zoned(datetime) };
            }
            let with_offset =
                [format!("{format} %z"), format!("{format} %:z"), format!("{format}%:z")];
            let read = with_offset.iter().find_map(|format| strtime::parse(format, clock).ok());
            if let Some(read) = read {
                let zone = TimeZone::fixed(read.offset()?);
                return in_zone(&zone, date.to_datetime(read.to_time().ok()?));
            }
        }
        None
    }

    fn zoned(&self, datetime: DateTime) -> Option<Micros> {
        in_zone(&self.zone, datetime)
    }
}

fn in_zone(zone: &TimeZone, datetime: DateTime) -> Option<Micros> {
    Some(zone.to_timestamp(datetime).ok()?.as_microsecond())
}

/// What the text says about the order of day and month.
pub(super) fn evidence(text: &str) -> Evidence {
    let Some((Numbers::YearLast(first, second, _, separator), _)) = three_numbers(text.trim())
    else {
        return Evidence::None;
    };
    match (first, second) {
        // Nobody writes the month first with dots.
        _ if separator == b'.' => Evidence::None,
        (13..=31, 1..=12) => Evidence::Only(Order::DayFirst),
        (1..=12, 13..=31) => Evidence::Only(Order::MonthFirst),
        (1..=12, 1..=12) if first != second => Evidence::Either,
        _ => Evidence::None,
    }
}

enum Numbers {
    YearFirst(i16, i8, i8),
    /// Two numbers, the year, and what separates them.
    YearLast(i8, i8, i16, u8),
}

/// Three numbers with the same separator, and what follows them.
fn three_numbers(text: &str) -> Option<(Numbers, &str)> {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let separator = |text: &str, at: usize| {
        text.as_bytes().get(at).copied().filter(|byte| b"/.-".contains(byte))
    };
    let one = digits(text);
    let mark = separator(text, one)?;
    let after = text.get(one + 1..)?;
    let two = digits(after);
    if separator(after, two) != Some(mark) {
        return None;
    }
    let last = after.get(two + 1..)?;
    let three = digits(last);
    let (first, second) = (text.get(..one)?, after.get(..two)?);
    let (third, rest) = (last.get(..three)?, last.get(three..)?);
    let small = |text: &str| text.parse::<i8>().ok().filter(|_| text.len() <= 2);
    let numbers = match (one, three) {
        (4, 1 | 2) => Numbers::YearFirst(first.parse().ok()?, small(second)?, small(third)?),
        (1 | 2, 4) => Numbers::YearLast(small(first)?, small(second)?, third.parse().ok()?, mark),
        // 69 to 99 are of the last century, as strptime has it.
        (1 | 2, 2) => {
            let year: i16 = third.parse().ok()?;
            let year = if year < 69 { 2000 + year } else { 1900 + year };
            Numbers::YearLast(small(first)?, small(second)?, year, mark)
        }
        _ => return None,
    };
    Some((numbers, rest))
}

/// Seconds, milliseconds or microseconds since 1970, days of a spreadsheet, or `20260305`: told apart by
/// magnitude, all within the years 2000 to 2100, so that no two of them can be meant.
fn number(text: &str) -> Option<Micros> {
    const DAY: i64 = 86_400_000_000;
    /// 1970-01-01 in days of a spreadsheet, which count from 1899-12-30.
    const EPOCH_DAY: i64 = 25_569;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 18 || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let value: i64 = whole.parse().ok()?;
    match value {
        36_526..=73_050 => {
            // To the second, as spreadsheets keep it: their days are binary fractions.
            let part: f64 = format!("0.{fraction}0").parse().ok()?;
            let seconds = (part * 86_400.0).round() as i64;
            Some((value - EPOCH_DAY) * DAY + seconds * 1_000_000)
        }
        20_000_101..=21_001_231 if fraction.is_empty() => {
            let date = strtime::parse("%Y%m%d", whole).ok()?.to_date().ok()?;
            in_zone(&TimeZone::UTC, date.to_datetime(Time::midnight()))
        }
        946_684_800..=4_102_444_800 => time::epoch(text, 1_000_000),
        946_684_800_000..=4_102_444_800_000 => time::epoch(text, 1_000),
        946_684_800_000_000..=4_102_444_800_000_000 if fraction.is_empty() => Some(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times(order: Option<Order>) -> Times {
        Times { order, zone: TimeZone::UTC }
    }

    fn read(text: &str, order: Option<Order>) -> Option<String> {
        let micros = times(order).read(text)?;
        Some(jiff::Timestamp::from_microsecond(micros).unwrap().to_string())
    }

    #[test]
    fn forms_that_need_no_order() {
        for (text, time) in [
            ("2026-03-05T14:22:10Z", "2026-03-05T14:22:10Z"),
            ("2026-03-05T14:22:10.25-03:00", "2026-03-05T17:22:10.25Z"),
            ("2026-03-05 14:22", "2026-03-05T14:22:00Z"),
            ("2026-03-05 14:22:10", "2026-03-05T14:22:10Z"),
            ("2026-03-05 14:22:10 UTC", "2026-03-05T14:22:10Z"),
            ("2026-03-05 14:22:10 -0300", "2026-03-05T17:22:10Z"),
            ("2026/3/5", "2026-03-05T00:00:00Z"),
            ("2026-03-05", "2026-03-05T00:00:00Z"),
            ("05.03.2026 14:22", "2026-03-05T14:22:00Z"),
            ("05.03.26", "2026-03-05T00:00:00Z"),
            ("Mar 5, 2026", "2026-03-05T00:00:00Z"),
            ("March 5, 2026 2:22 PM", "2026-03-05T14:22:00Z"),
            ("5 Mar 2026 14:22", "2026-03-05T14:22:00Z"),
            ("05-Mar-2026", "2026-03-05T00:00:00Z"),
            ("Thu, 5 Mar 2026 14:22:10 +0000", "2026-03-05T14:22:10Z"),
            ("1772720530", "2026-03-05T14:22:10Z"),
            ("1772720530.5", "2026-03-05T14:22:10.5Z"),
            ("1772720530123", "2026-03-05T14:22:10.123Z"),
            ("1772720530123456", "2026-03-05T14:22:10.123456Z"),
            ("46086", "2026-03-05T00:00:00Z"),
            ("46086.5987268519", "2026-03-05T14:22:10Z"),
            ("20260305", "2026-03-05T00:00:00Z"),
        ] {
            assert_eq!(read(text, None).as_deref(), Some(time), "{text}");
            assert_eq!(evidence(text), Evidence::None, "{text}");
        }
        for odd in [
            "",
            "now",
            "yesterday",
            "12",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "14:22",
            "1/2",
            "5/5",
            "n/a",
            "2026-03-05 25:00",
            "2026-03-05 14:22 o'clock",
            "99999999999999999999",
            "-5",
            "1e9",
            "0000-00-00 00:00:00",
        ] {
            assert_eq!(read(odd, Some(Order::DayFirst)), None, "{odd}");
        }
    }

    #[test]
    fn the_order_decides() {
        let (day, month) = (Some(Order::DayFirst), Some(Order::MonthFirst));
        assert_eq!(read("05/03/2026 14:22", day).as_deref(), Some("2026-03-05T14:22:00Z"));
        assert_eq!(read("3/5/2026 2:22 PM", month).as_deref(), Some("2026-03-05T14:22:00Z"));
        assert_eq!(read("05-03-26", day).as_deref(), Some("2026-03-05T00:00:00Z"));
        assert_eq!(read("05/03/2026", None), None);
        assert_eq!(read("31/03/2026", month), None);
        for (text, told) in [
            ("31/03/2026", Evidence::Only(Order::DayFirst)),
            ("3/31/2026 10:00", Evidence::Only(Order::MonthFirst)),
            ("05/03/2026", Evidence::Either),
            ("05/05/2026", Evidence::None),
            ("32/13/2026", Evidence::None),
        ] {
            assert_eq!(evidence(text), told, "{text}");
        }
    }

    #[test]
    fn the_zone_is_of_times_without_an_offset() {
        let zone = TimeZone::get("America/Sao_Paulo").unwrap();
        let times = Times { order: None, zone };
        let utc = Times { order: None, zone: TimeZone::UTC };
        assert_eq!(times.read("2026-03-05 11:22"), utc.read("2026-03-05 14:22"));
        assert_eq!(times.read("2026-03-05T14:22Z"), utc.read("2026-03-05 14:22"));
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*|[0-9/.:TZAPM, -]{0,30}|[0-9]{1,4}[/.-][0-9]{1,2}[/.-][0-9]{1,4} [0-9:]{0,8}") {
            for order in [None, Some(Order::DayFirst), Some(Order::MonthFirst)] {
                let _ = times(order).read(&text);
            }
            let _ = evidence(&text);
        }
    }
}
