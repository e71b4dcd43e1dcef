//! How long to wait after a failed attempt. Pure, so that it can be tested by a table.

use std::time::Duration;

/// Exponential backoff with full jitter: a random part of `base` doubled with each failed attempt
/// after the first, and of `max` at most. Full jitter spreads leads that failed together best.
///
/// `attempts` counts the failed ones, this one included; 0 counts as 1. `random_unit` is uniform in
/// 0 to 1; anything outside counts as the nearer end, and what is no number as 1.
pub fn delay(attempts: u32, base: Duration, max: Duration, random_unit: f64) -> Duration {
    let doublings = attempts.saturating_sub(1);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    let longest = base.saturating_mul(factor).min(max);
    let part = if random_unit.is_nan() { 1.0 } else { random_unit.clamp(0.0, 1.0) };
    // `mul_f64` panics where rounding carries the longest of all durations over its end.
    Duration::try_from_secs_f64(longest.as_secs_f64() * part).map_or(longest, |d| d.min(longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(900);

    #[test]
    fn table() {
        // Failed attempts, the random part, milliseconds.
        let table = [
            (0, 1.0, 1_000),
            (1, 1.0, 1_000),
            (1, 0.5, 500),
            (1, 0.0, 0),
            (2, 1.0, 2_000),
            (3, 0.25, 1_000),
            (10, 1.0, 512_000),
            (11, 1.0, 900_000),
            (11, 0.5, 450_000),
            (32, 1.0, 900_000),
            (33, 1.0, 900_000),
            (u32::MAX, 1.0, 900_000),
            (1, -3.0, 0),
            (1, 7.0, 1_000),
            (1, f64::INFINITY, 1_000),
            (1, f64::NAN, 1_000),
        ];
        for (attempts, random, millis) in table {
            let expected = Duration::from_millis(millis);
            assert_eq!(delay(attempts, BASE, MAX, random), expected, "{attempts} {random}");
        }
    }

    #[test]
    fn nothing_overflows() {
        let century = Duration::from_secs(36_500 * 86_400);
        for attempts in [0, 1, 2, 31, 32, u32::MAX] {
            assert!(delay(attempts, Duration::MAX, Duration::MAX, 1.0) <= Duration::MAX);
            assert!(delay(attempts, century, century, 0.999) <= century);
            assert!(delay(attempts, Duration::ZERO, MAX, 1.0).is_zero());
        }
    }
}
