//! GETs that check an address.

use hmac::{Hmac, KeyInit, Mac};
use leadsync::secret::Secret;
use leadsync::sources::handshake::{hub_challenge, linkedin_challenge};
use serde_json::Value;
use sha2::Sha256;

use super::message::message;

/// The secret, then the query: answered only where it is whole, and with nothing but its challenge.
pub fn holds(data: &[u8]) {
    let message = message(data);
    let query = String::from_utf8_lossy(message.body);
    let secrets = [Secret::new("another"), Secret::new(message.line.clone())];
    let given = |name: &str| -> Vec<String> {
        let pairs = form_urlencoded::parse(query.as_bytes());
        pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).collect()
    };
    let once = |name: &str| match given(name).as_slice() {
        [one] if one.len() <= 512 => Some(one.clone()),
        _ => None,
    };
    let token = once("hub.verify_token")
        .filter(|token| [&message.line, "another"].contains(&token.as_str()));
    let mode = once("hub.mode").filter(|mode| mode == "subscribe");
    let expected = token.and(mode).and(once("hub.challenge"));
    let answer = hub_challenge(&query, &secrets);
    assert!(answer.iter().all(|a| a.status == 200 && a.content_type.starts_with("text/plain")));
    assert_eq!(answer.map(|answer| answer.body), expected);

    let answer = linkedin_challenge(&query, &secrets[1..]);
    assert_eq!(answer.is_some(), once("challengeCode").is_some());
    if let (Some(answer), Some(code)) = (answer, once("challengeCode")) {
        let body: Value = serde_json::from_str(&answer.body).expect("JSON");
        let mut mac = Hmac::<Sha256>::new_from_slice(message.line.as_bytes()).expect("any length");
        mac.update(code.as_bytes());
        assert_eq!(body["challengeCode"], code.as_str());
        assert_eq!(body["challengeResponse"], hex::encode(mac.finalize().into_bytes()));
    }
}
