//! The token of our own address: written into it, and found where a sender repeats that address in the body
//! (JotForm does), so that it can be taken out before the body is archived.

use bytes::Bytes;

use crate::secret::Secret;
use crate::sources::Request;

const NAME: &[u8] = b"token";
/// As it stands in a URL, in a URL inside a form, and in a form inside a form.
const EQUALS: [&[u8]; 4] = [b"=", b"%3D", b"%3d", b"%253D"];

/// The body with asterisks for `token=` with one of the tokens. Done twice it is the same.
pub(in crate::sources) fn without(body: &Bytes, tokens: &[Secret]) -> Bytes {
    let tokens = tokens.iter().map(Secret::expose).filter(|token| !token.is_empty());
    let spellings: Vec<String> = tokens.flat_map(spellings).collect();
    let mut kept = Vec::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(rest) = body.get(at..)
        && let Some(found) = rest.windows(NAME.len()).position(|bytes| bytes == NAME)
    {
        at += found + NAME.len();
        let rest = body.get(at..).unwrap_or_default();
        let Some(equals) = EQUALS.into_iter().find(|equals| rest.starts_with(equals)) else {
            continue;
        };
        let value = rest.get(equals.len()..).unwrap_or_default();
        let Some(token) = spellings.iter().find(|spelling| is_all_of(value, spelling)) else {
            continue;
        };
        at += equals.len();
        kept.extend_from_slice(body.get(copied..at).unwrap_or_default());
        kept.extend_from_slice(b"***");
        at += token.len();
        copied = at;
    }
    if copied == 0 {
        return body.clone();
    }
    kept.extend_from_slice(body.get(copied..).unwrap_or_default());
    kept.into()
}

/// The query with the token, once.
pub(super) fn put(request: &mut Request, token: &Secret) {
    let is_token = |pair: &&str| {
        form_urlencoded::parse(pair.as_bytes()).any(|(name, _)| name.as_bytes() == NAME)
    };
    let others = request.query.split('&').filter(|pair| !pair.is_empty() && !is_token(pair));
    let mut pairs: Vec<String> = others.map(str::to_owned).collect();
    pairs.push(
        form_urlencoded::Serializer::new(String::new())
            .append_pair("token", token.expose())
            .finish(),
    );
    request.query = pairs.join("&");
}

/// As typed, with JSON's escaped slashes, and escaped once and twice for URLs.
fn spellings(token: &str) -> [String; 4] {
    let escaped = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let once = escaped(token);
    [token.to_owned(), token.replace('/', "\\/"), escaped(&once), once]
}

/// Whether a value begins with the token and does not go on: a longer one is another token.
fn is_all_of(value: &[u8], token: &str) -> bool {
    let goes_on = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
    value.starts_with(token.as_bytes()) && !value.get(token.len()).is_some_and(goes_on)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_our_token_goes() {
        let tokens = [Secret::new("tok/1 x"), Secret::new("old")];
        for (body, kept) in [
            ("https://l.example/hooks/s?token=old", "https://l.example/hooks/s?token=***"),
            ("a=1&u=%3Ftoken%3Dold%26b&token=old&x", "a=1&u=%3Ftoken%3D***%26b&token=***&x"),
            (r#"{"u":"?token=tok\/1 x"}"#, r#"{"u":"?token=***"}"#),
            ("?token=tok%2F1+x", "?token=***"),
            ("u=%3Ftoken%3Dtok%252F1%2Bx", "u=%3Ftoken%3D***"),
            ("token=older&token=new&old&token", "token=older&token=new&old&token"),
            ("token=token=old", "token=token=***"),
        ] {
            let once = without(&Bytes::from(body), &tokens);
            assert_eq!(once, kept, "{body}");
            assert_eq!(without(&once, &tokens), once);
        }
        assert_eq!(without(&Bytes::from("token="), &[Secret::new("")]), "token=");
    }

    proptest! {
        #[test]
        fn nothing_panics(body in "(token|=|%3D|old|\\PC){0,20}", token in "\\PC{0,3}") {
            let tokens = [Secret::new(token), Secret::new("old")];
            let once = without(&Bytes::from(body), &tokens);
            prop_assert!(!once.ends_with(b"token=old"));
        }
    }
}
