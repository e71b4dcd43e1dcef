//! Phone numbers, to E.164.

use phonenumber::{Mode, country};

use super::text::{is_invisible, narrow};

/// The region whose rules national numbers follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region(country::Id);

impl Region {
    /// The region of an ISO 3166-1 alpha-2 code in either case ("BR").
    pub fn parse(code: &str) -> Option<Region> {
        let code = code.trim().to_ascii_uppercase();
        (code.len() == 2).then(|| code.parse().ok()).flatten().map(Region)
    }
}

/// The text is not a phone number that can be told apart from a wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a valid phone number")]
pub struct PhoneError;

/// Longest number in E.164, with its plus.
const MAX_LENGTH: usize = 16;

/// What may stand between a number and its extension; the extension is dropped.
const EXTENSION_WORDS: &[&str] = &[
    "x",
    "ext",
    "extn",
    "extension",
    "ramal",
    "anexo",
    "poste",
    "durchwahl",
    "dw",
    "app",
    "int",
    "interno",
];

/// The number in E.164 ("+5511912345678"). `region` gives national forms their meaning; without one
/// only international forms are understood.
pub fn parse(text: &str, region: Option<Region>) -> Result<String, PhoneError> {
    // Longer than any number with its decoration: not worth the work.
    if text.len() > 256 {
        return Err(PhoneError);
    }
    let (mut international, digits) = plain(text)?;
    let mut digits = digits.as_str();
    if !(3..=19).contains(&digits.len()) {
        return Err(PhoneError);
    }
    // 00 is how most of the world dials +; no national number begins with it.
    if let (false, Some(rest)) = (international, digits.strip_prefix("00"))
        && valid(None, &format!("+{rest}")).is_some()
    {
        (international, digits) = (true, rest);
    }
    if international {
        return valid(None, &format!("+{digits}")).ok_or(PhoneError);
    }
    let Region(id) = region.ok_or(PhoneError)?;
    // Whole international numbers are written without + so often that a national reading of one
    // (4915228817386 in DE) may pass as valid and still be somebody else's.
    let code = country_code(id);
    if code.is_some_and(|code| digits.starts_with(&code))
        && let Some(number) = valid(None, &format!("+{digits}"))
    {
        return Ok(number);
    }
    // Some numbers (0900 in BR) are valid only from inside the country: whoever reads their E.164 refuses it.
    let national = valid(Some(id), digits);
    national.filter(|number| valid(None, number).is_some()).ok_or(PhoneError)
}

/// Only ASCII digits, and whether a + led them. The parser crate is never given anything else.
fn plain(text: &str) -> Result<(bool, String), PhoneError> {
    let lower: String = text
        .chars()
        .filter(|c| !is_invisible(*c))
        .map(|c| plain_character(narrow(c)))
        .collect::<String>()
        .to_lowercase();
    let mut text = lower.trim();
    text = text.strip_prefix("tel:").unwrap_or(text).trim_start();
    let without_extension = cut_extension(text);
    let international = without_extension.starts_with('+')
        || without_extension.strip_prefix('(').is_some_and(|t| t.starts_with('+'));
    // +49 (0)40: the trunk zero in brackets is for callers inside the country.
    let without_trunk = match international || without_extension.starts_with("00") {
        true => without_extension.replacen("(0)", "", 1),
        false => without_extension.to_owned(),
    };
    let mut digits = String::new();
    for c in without_trunk.chars() {
        match c {
            '0'..='9' => digits.push(c),
            '+' if digits.is_empty() => {}
            '('
            | ')'
            | '['
            | ']'
            | '-'
            | '.'
            | '/'
            | '\''
            | '\u{2010}'..='\u{2015}'
            | '\u{2212}' => {}
            c if c.is_whitespace() => {}
            _ => return Err(PhoneError),
        }
    }
    Ok((international, digits))
}

/// Arabic-Indic digits as ASCII ones, and as a dash the prolonged sound mark, which is that key in Japan.
fn plain_character(c: char) -> char {
    let zero = match c {
        '\u{30FC}' | '\u{FF70}' => return '-',
        '\u{0660}'..='\u{0669}' => 0x0660,
        '\u{06F0}'..='\u{06F9}' => 0x06F0,
        _ => return c,
    };
    char::from_digit(u32::from(c) - zero, 10).unwrap_or(c)
}

/// The text before an extension ("040 123-45 ext. 6", ";ext=6", "#6"); all of it where there is none.
fn cut_extension(text: &str) -> &str {
    let Some(at) = text.find(|c: char| c.is_alphabetic() || c == ';' || c == '#' || c == ',')
    else {
        return text;
    };
    let (number, tail) = text.split_at(at);
    let tail = tail.trim_start_matches([';', '#', ',', ' ']);
    let word_ends = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
    let (word, rest) = tail.split_at(word_ends);
    let rest = rest.trim_start_matches(['.', ':', '=', ' ', '-']).trim_end();
    let is_extension = (word.is_empty() || EXTENSION_WORDS.contains(&word))
        && (1..=7).contains(&rest.len())
        && rest.bytes().all(|b| b.is_ascii_digit());
    // Left whole, the odd character makes it invalid further on.
    if is_extension { number.trim_end() } else { text }
}

fn country_code(id: country::Id) -> Option<String> {
    phonenumber::metadata::DATABASE.by_id(id.as_ref()).map(|m| m.country_code().to_string())
}

fn valid(region: Option<country::Id>, digits: &str) -> Option<String> {
    let number = phonenumber::parse(region, digits).ok()?;
    let number = number.is_valid().then(|| number.format().mode(Mode::E164).to_string())?;
    // Germany has numbers that are longer, on paper; nobody who reads E.164 takes them.
    (number.len() <= MAX_LENGTH).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, region: &str) -> Option<String> {
        parse(text, Region::parse(region)).ok()
    }

    #[test]
    fn forms() {
        for (text, region, number) in [
            ("+55 11 91234-5678", "", Some("+5511912345678")),
            ("(21) 98765-4321", "BR", Some("+5521987654321")),
            ("(021) 98765-4321", "BR", Some("+5521987654321")),
            ("206-555-0142", "US", Some("+12065550142")),
            ("12065550142", "US", Some("+12065550142")),
            ("4915228817386", "DE", Some("+4915228817386")),
            ("+49 (0)40 66969-321", "", Some("+494066969321")),
            ("0049 (0)40 66969-321", "BR", Some("+494066969321")),
            ("(+49) 40 66969321", "US", Some("+494066969321")),
            ("040 66969-321", "DE", Some("+494066969321")),
            ("tel:+1-206-555-0142;ext=12", "", Some("+12065550142")),
            ("+1 206 555 0142 x12", "", Some("+12065550142")),
            ("\u{202A}+1 206\u{A0}555\u{2011}0142\u{202C}", "", Some("+12065550142")),
            ("＋１２０６５５５０１４２", "", Some("+12065550142")),
            ("０９０－１２３４－５６７８", "JP", Some("+819012345678")),
            ("（０９０）１２３４ー５６７８", "JP", Some("+819012345678")),
            ("＋８１（０）９０．１２３４．５６７８", "", Some("+819012345678")),
            ("206-555-0142", "", None),
            ("0900000000", "BR", None),
            ("2027-99999/99/0000", "DE", None),
            ("call me", "US", None),
            ("1-800-FLOWERS", "US", None),
            ("0000000000000000000000000000000000000000", "US", None),
            ("+1 206 555 0142 / +1 206 555 0143", "US", None),
            ("", "US", None),
            ("+", "US", None),
        ] {
            assert_eq!(read(text, region).as_deref(), number, "{text} in {region:?}");
        }
    }

    #[test]
    fn regions() {
        assert!(Region::parse("br").is_some());
        assert!(Region::parse("Brazil").is_none());
        assert!(Region::parse("XX").is_none());
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "\\PC*|.*|[+0-9() x#;ext.-]{0,30}") {
            for region in ["BR", "US", "DE", "IT", ""] {
                let _ = read(&text, region);
            }
        }

        #[test]
        fn idempotent(digits in "[+]?[0-9]{6,14}") {
            for region in ["BR", "US", "DE", "IT", "AR"] {
                if let Some(number) = read(&digits, region) {
                    prop_assert_eq!(read(&number, region), Some(number.clone()));
                    prop_assert_eq!(read(&number, ""), Some(number.clone()));
                }
            }
        }
    }
}
