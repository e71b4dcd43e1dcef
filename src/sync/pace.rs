//! What the CRM's limits mean for the time between calls. Pure.

use std::time::Duration;

use super::Configured;
use crate::config::Rate;
use crate::destinations::Limit;
use crate::store::destinations::Told;

/// Calls are this much further apart than the rate asks for: one that is late on its way must not land in
/// a window that is full of those behind it.
const SPREAD: f64 = 1.1;

/// Windows from here on are the day's.
const DAY: Duration = Duration::from_secs(3600);

/// Longest time that a count of the CRM's is believed.
const BELIEVED: Duration = Duration::from_secs(86_400);

impl Configured {
    /// Whether calls are counted at all.
    pub(super) fn is_paced(&self) -> bool {
        self.rate.is_some() || self.budget.daily.is_some()
    }
}

/// The time from one call to the next.
pub(super) fn period(rate: Rate) -> Duration {
    apart(rate.per, rate.calls)
}

fn apart(window: Duration, calls: u32) -> Duration {
    let seconds = window.as_secs_f64() * SPREAD / f64::from(calls.max(1));
    Duration::try_from_secs_f64(seconds).unwrap_or(window)
}

/// What an answer's limits say; `None`: nothing. Of several short windows the one that asks for most counts, of
/// several long ones that with least left.
pub(super) fn told(limits: &[Limit]) -> Option<Told> {
    if limits.is_empty() {
        return None;
    }
    let mut told = Told::default();
    for limit in limits {
        if limit.window < DAY {
            let period = limit.allowed.map_or(Duration::ZERO, |calls| apart(limit.window, calls));
            told.period = told.period.max(period.min(limit.window));
            if limit.remaining == 0 {
                // Of a rolling window something comes back soon.
                let hold = limit.resets_in.unwrap_or(limit.window / 10);
                told.hold = told.hold.max(hold.min(DAY));
            }
        } else if told.day_left.is_none_or(|left| limit.remaining < left) {
            told.day_left = Some(limit.remaining);
            told.day_allowed = limit.allowed;
            told.day_for = limit.resets_in.unwrap_or(DAY).min(BELIEVED);
        }
    }
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(seconds: u64, allowed: u32, remaining: u32, resets_in: Option<u64>) -> Limit {
        Limit {
            window: Duration::from_secs(seconds),
            allowed: Some(allowed),
            remaining,
            resets_in: resets_in.map(Duration::from_secs),
        }
    }

    #[test]
    fn calls_are_spread_over_the_window() {
        assert_eq!(
            period(Rate { calls: 100, per: Duration::from_secs(10) }),
            Duration::from_millis(110)
        );
        assert_eq!(apart(Duration::MAX, 1), Duration::MAX, "nothing overflows");
        assert_eq!(apart(Duration::from_secs(1), 0), Duration::from_millis(1100));
    }

    #[test]
    fn the_tightest_limit_counts() {
        assert_eq!(told(&[]), None);
        let some = [
            limit(10, 100, 5, None),
            limit(2, 10, 0, Some(1)),
            limit(60, 10_000, 0, None),
            limit(86_400, 250_000, 17, None),
            limit(7_200, 500, 40, Some(90)),
        ];
        let expected = Told {
            period: Duration::from_millis(220),
            hold: Duration::from_secs(6),
            day_left: Some(17),
            day_allowed: Some(250_000),
            day_for: DAY,
        };
        assert_eq!(told(&some), Some(expected));
        let odd = limit(0, 0, 0, Some(u64::MAX));
        assert_eq!(told(&[odd]).unwrap().hold, DAY);
        assert_eq!(told(&[limit(86_400, 1, 0, Some(u64::MAX))]).unwrap().day_for, BELIEVED);
    }
}
