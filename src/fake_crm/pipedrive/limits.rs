//! The burst limits, the daily budget of tokens, and what becomes of those who do not heed them.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::super::exchange::{Answer, Request};
use super::super::hubspot::millis;
use super::errors;

/// What the plan allows.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Requests per window and token.
    pub burst: u32,
    /// Searches per window.
    pub searches: u32,
    /// The window.
    #[serde(rename = "window_ms", with = "millis")]
    pub window: Duration,
    /// Tokens per day.
    pub daily_tokens: u64,
    /// Answers carry `x-daily-ratelimit-token-limit` and `-remaining`, which are not documented.
    pub daily_headers: bool,
    /// After so many 429s in one window the edge answers with a page; 0: never.
    pub blocks_after: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            // High enough never to be met by chance; the tests of limits set their own.
            burst: 1_000_000,
            searches: 1_000_000,
            window: Duration::from_secs(2),
            daily_tokens: 1_000_000_000,
            daily_headers: true,
            blocks_after: 0,
        }
    }
}

/// What was used.
#[derive(Default)]
pub(super) struct Meter {
    requests: VecDeque<Instant>,
    searches: VecDeque<Instant>,
    refusals: VecDeque<Instant>,
    writes_today: u64,
    tokens_today: u64,
}

/// Tokens that a request costs.
pub(super) fn cost(request: &Request) -> u64 {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/api/v2/persons/search") => 20,
        ("GET", "/api/v2/persons" | "/api/v2/personFields") => 10,
        ("GET", _) => 1,
        ("DELETE", _) => 3,
        ("PUT", _) => 40,
        _ => 5,
    }
}

impl Meter {
    /// Counts a request; an answer where it is one too many.
    pub fn spend(&mut self, limits: &Limits, cost: u64, request: &Request) -> Option<Answer> {
        let now = Instant::now();
        for list in [&mut self.requests, &mut self.searches, &mut self.refusals] {
            while list.front().is_some_and(|at| now - *at >= limits.window) {
                list.pop_front();
            }
        }
        if limits.blocks_after > 0 && self.refusals.len() >= limits.blocks_after as usize {
            self.refusals.push_back(now);
            return Some(errors::blocked());
        }
        let search = request.path == "/api/v2/persons/search";
        let full = self.requests.len() >= limits.burst as usize
            || search && self.searches.len() >= limits.searches as usize
            || self.tokens_today + cost > limits.daily_tokens;
        if full {
            self.refusals.push_back(now);
            return Some(errors::too_many());
        }
        self.requests.push_back(now);
        if search {
            self.searches.push_back(now);
        }
        self.tokens_today += cost;
        self.writes_today += u64::from(matches!(request.method.as_str(), "POST" | "PUT"));
        None
    }

    /// The headers of every answer.
    pub fn headers(&self, limits: &Limits, request: &Request) -> Vec<(&'static str, String)> {
        let used = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        let oldest = self.requests.front().map(Instant::elapsed).unwrap_or_default();
        let reset = limits.window.saturating_sub(oldest).as_millis().div_ceil(1000);
        let mut headers = vec![
            ("x-ratelimit-limit", limits.burst.to_string()),
            ("x-ratelimit-remaining", limits.burst.saturating_sub(used).to_string()),
            ("x-ratelimit-reset", reset.to_string()),
        ];
        if request.header("x-api-token").is_some()
            && matches!(request.method.as_str(), "POST" | "PUT")
        {
            let left = 10_000_u64.saturating_sub(self.writes_today);
            headers.push(("x-daily-requests-left", left.to_string()));
        }
        if limits.daily_headers {
            let left = limits.daily_tokens.saturating_sub(self.tokens_today);
            headers.push(("x-daily-ratelimit-token-limit", limits.daily_tokens.to_string()));
            headers.push(("x-daily-ratelimit-token-remaining", left.to_string()));
        }
        headers
    }
}
