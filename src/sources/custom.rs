//! A source that the configuration spells out: authentication, split and fields.

use super::{Auth, Source, Split};

/// The kind.
pub const SOURCE: Source = Source {
    kind: "custom",
    title: "Custom (written in the configuration)",
    auth: Auth::Written,
    split: Split::Whole,
    rules: &[],
    headers: &[],
    prepare: None,
    ignore: None,
    handshake: None,
};
