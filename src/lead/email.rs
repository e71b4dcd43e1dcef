//! The key of a lead.

use std::fmt;

use idna::uts46::{AsciiDenyList, DnsLength, Hyphens, Uts46};
use unicode_normalization::UnicodeNormalization;

use super::text;

/// A normalised e-mail address: only [`Email::parse`] makes one, past it nobody checks again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Email(String);

/// How addresses are folded into one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Folding {
    /// Only letter case, white space and the domain's form.
    #[default]
    None,
    /// Also drops `+tag` from the local part.
    Plus,
    /// `Plus`, and dots in the local part of gmail.com and googlemail.com, which become one domain.
    Gmail,
}

/// Why a text is no address that can be a key. Never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmailError {
    /// Nothing there.
    #[error("the address is blank")]
    Blank,
    /// Not an address at all.
    #[error("the address has no @")]
    NoAt,
    /// Two addresses, or a stray @: which one is meant cannot be known.
    #[error("there is more than one address, or more than one @")]
    SeveralAddresses,
    /// A line break or another control character inside.
    #[error("the address has a control character")]
    ControlCharacter,
    /// White space inside.
    #[error("the address has white space inside")]
    WhiteSpace,
    /// `Name <address>`.
    #[error("the address comes with a display name")]
    DisplayName,
    /// `"john doe"@...` and comments: valid on paper, refused by nearly every CRM.
    #[error("the local part is quoted or has a comment")]
    QuotedLocalPart,
    /// `@[192.0.2.1]`, `@192.0.2.1`.
    #[error("the domain is an IP address")]
    IpLiteral,
    /// Empty, a dot at an end, two dots together, or a character that has no place there.
    #[error("the part before the @ is not valid")]
    InvalidLocalPart,
    /// No dot, an empty label, or a label that is not a host name.
    #[error("the domain is not valid")]
    InvalidDomain,
    /// Local part over 64 bytes or the whole over 254 (RFC 5321 4.5.3.1, and what fits in a path).
    #[error("the address is too long")]
    TooLong,
}

impl EmailError {
    /// A stable word for answers and tables.
    pub const fn word(self) -> &'static str {
        match self {
            EmailError::Blank => "blank",
            EmailError::NoAt => "no_at",
            EmailError::SeveralAddresses => "several_addresses",
            EmailError::ControlCharacter => "control_character",
            EmailError::WhiteSpace => "white_space",
            EmailError::DisplayName => "display_name",
            EmailError::QuotedLocalPart => "quoted_local_part",
            EmailError::IpLiteral => "ip_literal",
            EmailError::InvalidLocalPart => "invalid_local_part",
            EmailError::InvalidDomain => "invalid_domain",
            EmailError::TooLong => "too_long",
        }
    }
}

impl Email {
    /// Longest address, in bytes of its normalised form.
    pub const MAX_BYTES: usize = 254;

    /// The key of an address as somebody typed it. Idempotent: the key of a key is itself.
    pub fn parse(typed: &str, folding: Folding) -> Result<Email, EmailError> {
        // Bounds the work; far above what the limits below let through.
        if typed.len() > 4096 {
            return Err(EmailError::TooLong);
        }
        let seen = typed.chars().filter(|c| !text::is_invisible(*c)).map(text::narrow);
        let seen: String = seen.nfc().collect();
        let address = strip_mailto(seen.trim());
        look_for_trouble(address)?;
        let (local, domain) = address.split_once('@').ok_or(EmailError::NoAt)?;
        let (local, domain) = fold(local_part(local)?, domain_part(domain)?, folding)?;
        if local.len() > 64 || local.len() + 1 + domain.len() > Email::MAX_BYTES {
            return Err(EmailError::TooLong);
        }
        Ok(Email(format!("{local}@{domain}")))
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The address as it was typed, for people: on one line, white space at its ends stripped.
pub fn as_typed(typed: &str) -> String {
    text::single_line(typed).unwrap_or_default()
}

fn strip_mailto(address: &str) -> &str {
    let Some(scheme) = address.get(..7).filter(|s| s.eq_ignore_ascii_case("mailto:")) else {
        return address;
    };
    let rest = &address[scheme.len()..];
    // `?subject=...` of a link; a question mark before the @ belongs to the address.
    match rest.find('@').and_then(|at| rest[at..].find('?').map(|mark| at + mark)) {
        Some(mark) => rest[..mark].trim(),
        None => rest.trim(),
    }
}

/// Refusals that deserve a word of their own, from the plainest to the subtlest.
fn look_for_trouble(address: &str) -> Result<(), EmailError> {
    let has = |test: fn(char) -> bool| address.chars().any(test);
    match address.chars().filter(|c| *c == '@').count() {
        _ if address.is_empty() => Err(EmailError::Blank),
        _ if has(|c| c.is_control()) => Err(EmailError::ControlCharacter),
        _ if has(|c| c == '"' || c == '(' || c == ')') => Err(EmailError::QuotedLocalPart),
        0 => Err(EmailError::NoAt),
        1 if has(|c| c == '<' || c == '>') => Err(EmailError::DisplayName),
        1 if has(char::is_whitespace) => Err(EmailError::WhiteSpace),
        1 => Ok(()),
        _ => Err(EmailError::SeveralAddresses),
    }
}

fn local_part(local: &str) -> Result<String, EmailError> {
    let local: String = local.to_lowercase().nfc().collect();
    // RFC 5322 atext, and every visible character beyond ASCII (RFC 6531).
    let allowed =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+/=?^_`{|}~-.".contains(c);
    let dots_right = !local.starts_with('.') && !local.ends_with('.') && !local.contains("..");
    match !local.is_empty() && dots_right && local.chars().all(allowed) {
        true => Ok(local),
        false => Err(EmailError::InvalidLocalPart),
    }
}

/// The domain as A-labels in lower case, without the root's dot (UTS 46, non-transitional).
fn domain_part(domain: &str) -> Result<String, EmailError> {
    if domain.starts_with('[') {
        return Err(EmailError::IpLiteral);
    }
    let ascii = Uts46::new()
        .to_ascii(
            domain.as_bytes(),
            AsciiDenyList::STD3,
            Hyphens::CheckFirstLast,
            DnsLength::VerifyAllowRootDot,
        )
        .map_err(|_| EmailError::InvalidDomain)?;
    let domain = ascii.strip_suffix('.').unwrap_or(&ascii);
    match domain.rsplit_once('.') {
        None => Err(EmailError::InvalidDomain),
        Some((_, last)) if last.bytes().all(|b| b.is_ascii_digit()) => Err(EmailError::IpLiteral),
        Some(_) => Ok(domain.to_owned()),
    }
}

fn fold(
    mut local: String,
    mut domain: String,
    folding: Folding,
) -> Result<(String, String), EmailError> {
    if folding != Folding::None
        && let Some(plus) = local.find('+').filter(|plus| *plus > 0)
    {
        local.truncate(plus);
        // "ana.+x" is an address, "ana." is none.
        local.truncate(local.trim_end_matches('.').len());
    }
    if folding == Folding::Gmail && matches!(domain.as_str(), "gmail.com" | "googlemail.com") {
        local.retain(|c| c != '.');
        domain = "gmail.com".to_owned();
    }
    if local.is_empty() { Err(EmailError::InvalidLocalPart) } else { Ok((local, domain)) }
}

impl fmt::Display for Email {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(typed: &str) -> Result<String, EmailError> {
        Email::parse(typed, Folding::None).map(|email| email.to_string())
    }

    #[test]
    fn one_person_one_key() {
        for typed in [
            "ana.maria@example.com",
            "  Ana.Maria@EXAMPLE.com\r\n",
            "mailto:ana.maria@example.com?subject=Oi",
            "MAILTO: ana.maria@example.com",
            "ana.maria@example.com.",
            "\u{FEFF}ana\u{200B}.maria@exam\u{AD}ple.com\u{202C}",
            "\u{A0}ana.maria@example。com",
            "\u{3000}ａｎａ．Ｍａｒｉａ＠ｅｘａｍｐｌｅ．ｃｏｍ",
        ] {
            assert_eq!(key(typed).as_deref(), Ok("ana.maria@example.com"), "{typed:?}");
        }
        assert_eq!(key("j@MÜNCHEN.example"), key("j@xn--mnchen-3ya.example"));
        assert_eq!(key("jose\u{301}@example.com"), key("JOSÉ@example.com"));
        assert_eq!(key("j@faß.example").as_deref(), Ok("j@xn--fa-hia.example"), "non-transitional");
        assert_ne!(key("a+x@example.com"), key("a@example.com"), "never merged silently");
        assert_ne!(key("p\u{430}t@example.com"), key("pat@example.com"), "confusables stay apart");
    }

    #[test]
    fn refusals() {
        use EmailError::*;
        let long_local = format!("{}@example.com", "a".repeat(65));
        let long = format!("a@{}com", "abcdefgh.".repeat(30));
        for (typed, error) in [
            ("", Blank),
            (" \u{200B}\n", Blank),
            ("ana", NoAt),
            ("ana at example.com", NoAt),
            ("a@b.com; c@d.com", SeveralAddresses),
            ("a@b@c.com", SeveralAddresses),
            ("a@b.com\r\nbcc: c", ControlCharacter),
            ("a\u{0}@b.com", ControlCharacter),
            ("a b@c.com", WhiteSpace),
            ("Ana <a@b.com>", DisplayName),
            ("\"a b\"@c.com", QuotedLocalPart),
            ("a(x)@c.com", QuotedLocalPart),
            ("a@[192.0.2.1]", IpLiteral),
            ("a@192.0.2.1", IpLiteral),
            ("@b.com", InvalidLocalPart),
            (".a@b.com", InvalidLocalPart),
            ("a.@b.com", InvalidLocalPart),
            ("a..b@c.com", InvalidLocalPart),
            ("a,b@c.com", InvalidLocalPart),
            ("a@localhost", InvalidDomain),
            ("a@b..com", InvalidDomain),
            ("a@-b.com", InvalidDomain),
            ("a@b_c.com", InvalidDomain),
            ("a@", InvalidDomain),
            (&long_local, TooLong),
            (&long, InvalidDomain),
        ] {
            assert_eq!(key(typed), Err(error), "{typed:?}");
        }
        let most = format!("{}@{}.com", "a".repeat(64), "b".repeat(60));
        assert!(key(&most).is_ok());
        let total = format!("{}@{}com", "a".repeat(64), "abcdefgh.".repeat(21));
        assert_eq!(total.len(), 257);
        assert_eq!(key(&total), Err(TooLong));
    }

    #[test]
    fn folding() {
        let fold = |typed, folding| Email::parse(typed, folding).map(|e| e.to_string());
        assert_eq!(fold("Ana.M+x@Gmail.com", Folding::Plus).as_deref(), Ok("ana.m@gmail.com"));
        assert_eq!(fold("Ana.M+x@googlemail.com", Folding::Gmail).as_deref(), Ok("anam@gmail.com"));
        assert_eq!(fold("Ana.M+x@example.com", Folding::Gmail).as_deref(), Ok("ana.m@example.com"));
        assert_eq!(fold("+ana@example.com", Folding::Plus).as_deref(), Ok("+ana@example.com"));
        assert_eq!(fold("ana.+x@example.com", Folding::Plus).as_deref(), Ok("ana@example.com"));
    }

    const FOLDINGS: [Folding; 3] = [Folding::None, Folding::Plus, Folding::Gmail];

    proptest! {
        #[test]
        fn idempotent(typed in "\\PC{0,40}|\\PC{1,12}@\\PC{1,12}\\.(com|de|рф)|[a-zA-ZÀ-ÿ.+]{1,12}@[a-zA-ZÀ-ÿ-]{1,12}[.。][a-zé]{2,3}\\.?") {
            for folding in FOLDINGS {
                if let Ok(email) = Email::parse(&typed, folding) {
                    prop_assert_eq!(Email::parse(email.as_str(), folding), Ok(email.clone()));
                    let (local, domain) = email.as_str().split_once('@').unwrap();
                    prop_assert!(local.len() <= 64 && email.as_str().len() <= 254);
                    prop_assert!(domain.is_ascii() && domain.contains('.'));
                    prop_assert_eq!(email.as_str().to_lowercase(), email.as_str());
                }
            }
        }

        #[test]
        fn nothing_panics(typed in any::<String>()) {
            for folding in FOLDINGS {
                let _ = Email::parse(&typed, folding);
            }
            let _ = as_typed(&typed);
        }
    }
}
