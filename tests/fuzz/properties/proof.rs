//! What every way of proving a sender must do.

use arbitrary::{Arbitrary, Unstructured};
use leadsync::sources::{AuthError, ConfiguredSource, Request, SignError, Verified};

use super::message::shown;

/// A bit of a signed request that is turned around.
#[derive(Arbitrary, Debug)]
pub struct Damage {
    part: u8,
    at: u16,
    bit: u8,
}

/// The structure that the bytes stand for; `None`: too few.
pub fn read<'a, T: Arbitrary<'a>>(data: &'a [u8]) -> Option<T> {
    T::arbitrary_take_rest(Unstructured::new(data)).ok()
}

/// A moment after 1970 and in this age or the next.
pub fn moment(seed: u32) -> i64 {
    i64::from(seed) + 1_000_000
}

/// The request signed by the product itself, which must be believed; `None` where that cannot be done.
pub fn signed(source: &ConfiguredSource, bare: &Request, now: i64) -> Option<Request> {
    let signed = match source.sign(bare.clone(), now) {
        Ok(signed) => signed,
        Err(SignError::NoPlaceForKey(_) | SignError::Unreadable) => return None,
    };
    believed(source, &signed, now);
    // What came signed may be signed again.
    let again = source.sign(signed.clone(), now).expect("what was signed");
    believed(source, &again, now);
    Some(signed)
}

pub fn believed(source: &ConfiguredSource, request: &Request, now: i64) {
    if let Err(error) = source.verify(request.clone(), now) {
        let headers = &request.headers;
        panic!("{error}: {source:?} {headers:?} ?{} {:?}", request.query, request.body);
    }
}

/// The request with one bit turned in what proves it or is covered by the proof: a header that came with
/// the signature, the query, the method or the body. `None`: nothing has changed.
pub fn damaged(signed: &Request, bare: &Request, damage: &Damage) -> Option<Request> {
    let mut request = signed.clone();
    let flip = |text: &mut Vec<u8>| {
        let at = usize::from(damage.at) % text.len().max(1);
        if let Some(byte) = text.get_mut(at) {
            *byte ^= 1 << (damage.bit % 8);
        }
    };
    let flip_text = |text: &mut String| {
        let mut bytes = std::mem::take(text).into_bytes();
        flip(&mut bytes);
        *text = String::from_utf8_lossy(&bytes).into_owned();
    };
    let added: Vec<usize> = (0..request.headers.len())
        .filter(|at| !bare.headers.contains(&request.headers[*at]))
        .collect();
    match usize::from(damage.part) % (added.len() + 3) {
        0 => {
            let mut body = request.body.to_vec();
            flip(&mut body);
            request.body = body.into();
        }
        1 => flip_text(&mut request.query),
        2 => flip_text(&mut request.method),
        header => flip_text(&mut request.headers[added[header - 3]].1),
    }
    let same = request.body == signed.body
        && request.query == signed.query
        && request.method == signed.method
        && request.headers == signed.headers;
    (!same).then_some(request)
}

/// Why the request is not believed; `None`: it is.
pub fn refusal(source: &ConfiguredSource, request: &Request, now: i64) -> Option<AuthError> {
    let refused = source.verify(request.clone(), now).err();
    assert!(refused.is_some() || source.verify_head(request).is_ok(), "refused too early");
    refused
}

/// All that a source reads out of a request.
pub fn meaning(source: &ConfiguredSource, request: &Request) -> String {
    shown(&source.explain(&Verified::stored(request.clone())))
}
