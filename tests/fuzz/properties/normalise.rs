//! Texts of people, made into values.

use std::sync::LazyLock;

use jiff::Timestamp;
use leadsync::lead::email::{self, Folding};
use leadsync::lead::phone::{self, Region};
use leadsync::lead::{Email, consent, name, text};
use leadsync::mapping::time;
use unicode_normalization::{UnicodeNormalization, is_nfc};

use super::leads;

const FOLDINGS: [Folding; 3] = [Folding::None, Folding::Plus, Folding::Gmail];

static REGIONS: LazyLock<Vec<Option<Region>>> = LazyLock::new(|| {
    let codes = ["BR", "DE", "PT", "JP", "US", "IT", "AR", "MX", "GB", "CI"];
    let mut regions: Vec<_> = codes.into_iter().map(Region::parse).collect();
    assert!(regions.iter().all(Option::is_some));
    regions.push(None);
    regions
});

pub fn holds(data: &[u8]) {
    let typed = String::from_utf8_lossy(data);
    texts(&typed);
    emails(&typed);
    phones(&typed);
    consents(&typed);
    times(&typed);
}

fn texts(typed: &str) {
    for clean in [text::single_line, text::multi_line, text::key] {
        let once = clean(typed);
        let decomposed: String = typed.nfd().collect();
        assert_eq!(clean(&decomposed), once, "composed and decomposed are the same text");
        let Some(once) = once else { continue };
        assert_eq!(clean(&once).as_deref(), Some(once.as_str()));
        assert!(is_nfc(&once) && once.trim() == once && !text::is_blank(&once), "{once:?}");
        assert!(!once.chars().any(|c| c.is_control() && c != '\n'), "{once:?}");
    }
    if let Some(line) = text::single_line(typed) {
        leads::one_line(&line, usize::MAX);
        let (first, rest) = name::split(&line);
        let joined = rest.map_or(first.to_owned(), |rest| format!("{first} {rest}"));
        assert_eq!(joined, line, "a name loses nothing by being split");
    }
}

fn emails(typed: &str) {
    let shown = email::as_typed(typed);
    assert_eq!(email::as_typed(&shown), shown);
    for folding in FOLDINGS {
        let once = Email::parse(typed, folding);
        let padded = format!("\u{3000}\t {typed}\r\n\u{200B}");
        let decomposed: String = typed.nfd().collect();
        let capitals = typed.to_ascii_uppercase();
        let wide: String = typed.chars().map(wide).collect();
        let Ok(once) = once else {
            assert!(Email::parse(&padded, folding).is_err(), "{typed:?}");
            continue;
        };
        leads::address(once.as_str());
        for folded in FOLDINGS {
            let again = Email::parse(once.as_str(), folded);
            if folded == folding || folding == Folding::None {
                assert_eq!(again, Email::parse(typed, folded));
            }
        }
        // A text that is too long only for the padding is another matter.
        if typed.len() < 1000 {
            assert_eq!(Email::parse(&padded, folding).as_ref(), Ok(&once));
            assert_eq!(Email::parse(&decomposed, folding).as_ref(), Ok(&once));
            assert_eq!(Email::parse(&capitals, folding).as_ref(), Ok(&once));
            assert_eq!(Email::parse(&wide, folding).as_ref(), Ok(&once));
        }
    }
}

fn phones(typed: &str) {
    let wide: String = typed.chars().map(full_width).collect();
    for region in REGIONS.iter() {
        let Ok(number) = phone::parse(typed, *region) else { continue };
        leads::phone(&number);
        for other in REGIONS.iter() {
            assert_eq!(phone::parse(&number, *other).as_ref(), Ok(&number), "{typed:?}");
        }
        if wide.len() <= 256 {
            assert_eq!(phone::parse(&wide, *region).as_ref(), Ok(&number), "{wide:?}");
        }
    }
}

/// Any ASCII in full width, but for the blanks and controls.
fn wide(c: char) -> char {
    match c {
        '!'..='~' => char::from_u32(u32::from(c) + 0xFEE0).unwrap_or(c),
        c => c,
    }
}

/// As Japanese keyboards write what numbers consist of.
fn full_width(c: char) -> char {
    match c {
        '0'..='9' | '+' | '-' | '(' | ')' | '.' | '/' | '#' => {
            char::from_u32(u32::from(c) + 0xFEE0).unwrap_or(c)
        }
        c => c,
    }
}

fn consents(typed: &str) {
    let said = consent::parse(typed);
    assert_eq!(consent::parse(&typed.to_ascii_uppercase()), said);
    assert_eq!(consent::parse(&format!(" \u{200B}{typed}\n")), said);
    if let Ok(Some(granted)) = said {
        assert_eq!(consent::parse(&granted.to_string()), Ok(Some(granted)));
    }
}

fn times(typed: &str) {
    let padded = format!(" {typed}\n");
    let forms: [fn(&str) -> Option<i64>; 4] = [
        time::rfc3339,
        time::utc_datetime,
        |text| time::epoch(text, 1_000_000),
        |text| time::epoch(text, 1_000),
    ];
    for read in forms {
        let micros = read(typed);
        assert_eq!(read(&padded), micros, "{typed:?}");
        let Some(micros) = micros else { continue };
        assert_eq!(
            time::epoch(&micros.to_string(), 1),
            Some(micros).filter(|_| has_timestamp(micros))
        );
        if let Ok(time) = Timestamp::from_microsecond(micros) {
            assert_eq!(time::rfc3339(&time.to_string()), Some(micros));
        }
    }
    if let (Some(utc), Some(zoned)) =
        (time::utc_datetime(typed), time::rfc3339(&format!("{}Z", typed.trim())))
    {
        assert_eq!(utc, zoned, "{typed:?}");
    }
    if typed.trim().bytes().all(|b| b.is_ascii_digit()) && !typed.trim().is_empty() {
        let seconds = time::epoch(typed, 1_000_000);
        if let Some(seconds) = seconds {
            let millis = format!("{}000", typed.trim());
            assert_eq!(time::epoch(&millis, 1_000), Some(seconds), "{typed:?}");
        }
    }
}

fn has_timestamp(micros: i64) -> bool {
    Timestamp::from_microsecond(micros).is_ok()
}
