//! What goes wrong: scripted for one coming request, or drawn at random from a seed.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

/// One thing that goes wrong with one request. As JSON: `{"fault":"delay_after","ms":5000}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// Nothing goes wrong: lets one request through before the next fault.
    Pass,
    /// A fixed status instead of the true answer.
    Status {
        /// 100 to 599; 3xx answers carry `Location: /`.
        status: u16,
        /// What the body is.
        #[serde(default)]
        body: Body,
        /// How much of the request is done all the same.
        #[serde(default)]
        apply: Apply,
        /// `Retry-After`, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// The limit is reached, as the CRM words it; nothing is done.
    RateLimited {
        /// `Retry-After`, in seconds.
        #[serde(default)]
        retry_after: Option<u64>,
        /// The daily limit instead of that of a short time (HubSpot, Pipedrive, Salesforce, Zoho).
        #[serde(default)]
        daily: bool,
    },
    /// Waits, then does the request, whether the client is still there or not.
    DelayBefore {
        /// Milliseconds.
        ms: u64,
    },
    /// Does the request, then waits before it answers.
    DelayAfter {
        /// Milliseconds.
        ms: u64,
    },
    /// Waits until the test releases it, then does the request.
    HoldBefore,
    /// Does the request, then waits until the test releases it.
    HoldAfter,
    /// Resets the connection; nothing is done.
    ResetBefore,
    /// Does the request, then resets the connection without an answer.
    ResetAfter,
    /// Does the request, then cuts the connection in the middle of the body.
    Truncated,
    /// Does the request, then answers with half of the JSON as if it were all of it.
    CutJson,
    /// Does the request, then answers with no body.
    EmptyBody {
        /// 200 or 204, say.
        status: u16,
    },
    /// Does nothing and answers 200 with neither results nor errors.
    EmptyResults,
    /// Does the request; the results come in this order.
    Reorder {
        /// The order.
        order: Order,
    },
    /// The answer names neither success nor failure of one input.
    Omit {
        /// Which one, from 0.
        input: usize,
        /// Whether it is written all the same.
        #[serde(default)]
        written: bool,
    },
    /// Somebody else creates the first input's contact in this instant, and the CRM refuses it (HubSpot: all of them) with
    /// that contact's id; without a unique key it is there twice.
    Conflict,
}

/// The body of a [`Fault::Status`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The CRM's error envelope.
    #[default]
    Json,
    /// A page, as edges and proxies answer.
    Html,
    /// Nothing.
    Empty,
}

/// How much of a request is done although the answer is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Apply {
    /// Nothing.
    #[default]
    None,
    /// The first half of the inputs, rounded up.
    Half,
    /// Everything.
    All,
}

/// Order of the results of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As sent.
    AsSent,
    /// Last first. The default: whoever lines up by position is found out.
    #[default]
    Reversed,
    /// Shuffled by the seed.
    Shuffled,
}

/// A fault that waits for its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scripted {
    /// Only requests whose path begins so, or methods and path ("POST|PATCH /api/v2/persons"); absent: any request but those to the
    /// stand-in's own pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The fault.
    #[serde(flatten)]
    pub fault: Fault,
}

impl From<Fault> for Scripted {
    fn from(fault: Fault) -> Scripted {
        Scripted { path: None, fault }
    }
}

/// How often requests go wrong by themselves, each from 0 to 1; their sum is at most 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultRates {
    /// Done, but answered only after `slow_ms`.
    pub slow_after_apply: f64,
    /// Done, then the connection is reset.
    pub reset_after_apply: f64,
    /// The connection is reset before anything is done.
    pub reset_before_apply: f64,
    /// Done, but the body is cut.
    pub truncated: f64,
    /// 500, 502, 503 or 504 with nothing, half or all of it done.
    pub error_5xx: f64,
    /// 429 with `Retry-After: 1`.
    pub rate_limited: f64,
    /// Length of a slow answer, in milliseconds.
    pub slow_ms: u64,
}

impl FaultRates {
    /// The fault of the next request, if it has one.
    pub(super) fn draw(&self, rng: &mut StdRng) -> Option<Fault> {
        let drawn: f64 = rng.random();
        let error = Fault::Status {
            status: [500, 502, 503, 504][rng.random_range(0..4)],
            body: [Body::Json, Body::Html, Body::Empty][rng.random_range(0..3)],
            apply: [Apply::None, Apply::Half, Apply::All][rng.random_range(0..3)],
            retry_after: None,
        };
        let mut up_to = 0.0;
        [
            (self.slow_after_apply, Fault::DelayAfter { ms: self.slow_ms }),
            (self.reset_after_apply, Fault::ResetAfter),
            (self.reset_before_apply, Fault::ResetBefore),
            (self.truncated, Fault::Truncated),
            (self.error_5xx, error),
            (self.rate_limited, Fault::RateLimited { retry_after: Some(1), daily: false }),
        ]
        .into_iter()
        .find(|(rate, _)| {
            up_to += rate;
            drawn < up_to
        })
        .map(|(_, fault)| fault)
    }
}

/// How a batch is treated differently because of a fault.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tweak {
    /// Only the first half of the inputs is done.
    pub half: bool,
    /// Order of the results, where it is not the configured one.
    pub order: Option<Order>,
    /// An input that the answer does not name, and whether it is done.
    pub omit: Option<(usize, bool)>,
    /// Nothing is done, the results are empty.
    pub empty_results: bool,
    /// Somebody else creates the first input's contact.
    pub conflict: bool,
}

impl Fault {
    /// Whether the request is done at all.
    pub(super) fn applies(&self) -> bool {
        match self {
            Fault::Status { apply, .. } => *apply != Apply::None,
            Fault::RateLimited { .. } | Fault::ResetBefore => false,
            _ => true,
        }
    }

    /// What it changes inside a batch.
    pub(super) fn tweak(&self) -> Tweak {
        let mut tweak = Tweak::default();
        match self {
            Fault::Status { apply: Apply::Half, .. } => tweak.half = true,
            Fault::Reorder { order } => tweak.order = Some(*order),
            Fault::Omit { input, written } => tweak.omit = Some((*input, *written)),
            Fault::EmptyResults => tweak.empty_results = true,
            Fault::Conflict => tweak.conflict = true,
            _ => {}
        }
        tweak
    }

    /// Wait before the request is done.
    pub(super) fn before(&self) -> Wait {
        match self {
            Fault::DelayBefore { ms } => Wait::For(Duration::from_millis(*ms)),
            Fault::HoldBefore => Wait::Release,
            _ => Wait::No,
        }
    }

    /// Wait after it.
    pub(super) fn after(&self) -> Wait {
        match self {
            Fault::DelayAfter { ms } => Wait::For(Duration::from_millis(*ms)),
            Fault::HoldAfter => Wait::Release,
            _ => Wait::No,
        }
    }
}

/// A pause in the middle of a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    No,
    For(Duration),
    Release,
}
