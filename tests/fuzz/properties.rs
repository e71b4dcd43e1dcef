//! What must hold for whatever arrives. A fuzz target and a test that replays its findings are the same
//! function of the same bytes: each target has one file here and one line in [`PROPERTIES`].

#[path = "properties/api.rs"]
mod api;
#[path = "properties/decode.rs"]
mod decode;
#[path = "properties/handshake.rs"]
mod handshake;
#[path = "properties/leads.rs"]
mod leads;
#[path = "properties/map.rs"]
mod map;
#[path = "properties/message.rs"]
mod message;
#[path = "properties/normalise.rs"]
mod normalise;
#[path = "properties/proof.rs"]
mod proof;
#[path = "properties/signatures.rs"]
mod signatures;
#[path = "properties/split.rs"]
mod split;
#[path = "properties/tokens.rs"]
mod tokens;

/// Panics where the bytes break a promise.
pub type Property = fn(&[u8]);

/// By the name of the fuzz target, and of the folder of its findings in `tests/fixtures/fuzz/`.
pub const PROPERTIES: &[(&str, Property)] = &[
    ("api", api::holds),
    ("body_key", tokens::body_key),
    ("content", signatures::content),
    ("credentials", tokens::credentials),
    ("decode", decode::holds),
    ("handshake", handshake::holds),
    ("hmac", signatures::hmac),
    ("hubspot", signatures::hubspot),
    ("map", map::holds),
    ("normalise", normalise::holds),
    ("split", split::holds),
    ("standard_webhooks", signatures::standard_webhooks),
    ("url_token", tokens::url_token),
];

/// Runs the property of that name.
pub fn of(name: &str, data: &[u8]) {
    let property = PROPERTIES.iter().find(|(given, _)| *given == name);
    let (_, holds) = property.unwrap_or_else(|| panic!("there is no property {name}"));
    holds(data);
}
