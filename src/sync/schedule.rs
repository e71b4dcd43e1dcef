//! When the sync loop runs: always, or at the minutes of a cron expression.

use jiff::Timestamp;

use crate::config;

/// `sync.schedule`, parsed.
#[derive(Clone, Debug)]
pub struct Schedule(Option<cronexpr::Crontab>);

/// Not a schedule; the text says what one looks like.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ScheduleError(String);

impl Schedule {
    /// Parses `continuous`, or a cron expression with a time zone ("0 * * * * America/Sao_Paulo").
    /// One that never comes (30 February) is refused.
    pub fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        config::cron(text).map(Schedule).map_err(ScheduleError)
    }

    /// Whether the loop runs all the time.
    pub fn is_continuous(&self) -> bool {
        self.0.is_none()
    }

    /// The next run after `now`, which itself does not count; for a continuous schedule, `now`.
    /// `None`: there is none within four years.
    ///
    /// Local times that a change to summer time skips do not run on that day; those that a change
    /// back repeats run twice. Both are harmless: a pass finds what is due, whenever it comes.
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(cron) = &self.0 else { return Some(now) };
        // The crate's own major version of jiff is another one: times cross over as numbers.
        let now = cronexpr::MakeTimestamp::from_second(now.as_second()).ok()?;
        let next = cron.find_next(now).ok()?;
        Timestamp::from_second(next.timestamp().as_second()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first runs after a time.
    fn runs(schedule: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule).unwrap();
        let first: Timestamp = after.parse().unwrap();
        std::iter::successors(Some(first), |now| schedule.next_after(*now))
            .skip(1)
            .take(count)
            .map(|time| time.to_string())
            .collect()
    }

    #[test]
    fn continuous_is_always_now() {
        let schedule = Schedule::parse("continuous").unwrap();
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        assert!(schedule.is_continuous());
        assert_eq!(schedule.next_after(now), Some(now));
    }

    #[test]
    fn in_the_time_zone_it_names() {
        assert_eq!(
            runs("0 9 * * MON America/Sao_Paulo", "2026-03-01T12:00:00Z", 2),
            ["2026-03-02T12:00:00Z", "2026-03-09T12:00:00Z"]
        );
        // Asked at the very minute, it is the next one.
        assert_eq!(runs("*/15 * * * * UTC", "2026-03-01T12:00:00Z", 1), ["2026-03-01T12:15:00Z"]);
        assert_eq!(runs("*/15 * * * * UTC", "2026-03-01T12:14:59.9Z", 1), ["2026-03-01T12:15:00Z"]);
    }

    #[test]
    fn summer_time_begins() {
        // New York, 2026-03-08: 02:00 becomes 03:00.
        assert_eq!(
            runs("30 * * * * America/New_York", "2026-03-08T06:00:00Z", 3),
            ["2026-03-08T06:30:00Z", "2026-03-08T07:30:00Z", "2026-03-08T08:30:00Z"]
        );
        assert_eq!(
            runs("30 2 * * * America/New_York", "2026-03-07T12:00:00Z", 2),
            ["2026-03-09T06:30:00Z", "2026-03-10T06:30:00Z"]
        );
    }

    #[test]
    fn summer_time_ends() {
        // New York, 2026-11-01: 02:00 becomes 01:00 again.
        assert_eq!(
            runs("30 1 * * * America/New_York", "2026-11-01T00:00:00Z", 3),
            ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]
        );
    }

    #[test]
    fn moves_on_where_midnight_is_skipped() {
        // Cairo's summer time begins at midnight, 2026-04-24.
        for schedule in ["0 0 * * * Africa/Cairo", "30 0 24 * * Africa/Cairo"] {
            let runs = runs(schedule, "2026-04-20T00:00:00Z", 400);
            assert!(runs.is_sorted_by(|a, b| a < b) && runs.len() == 400, "{runs:?}");
        }
    }

    #[test]
    fn refused() {
        for text in ["", "hourly", "0 * * * *", "60 * * * * UTC", "0 0 30 2 * UTC"] {
            assert!(Schedule::parse(text).is_err(), "{text}");
        }
    }
}
