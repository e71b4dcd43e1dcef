//! Text as it is kept: NFC, without control characters, blank means absent.

use unicode_normalization::UnicodeNormalization;

/// A value on one line: control characters dropped, every run of white space one blank, ends stripped.
/// `None` when nothing that can be seen is left.
pub fn single_line(text: &str) -> Option<String> {
    let mut line = String::with_capacity(text.len());
    for word in clean(text, |_| false).split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    visible(line)
}

/// A longer text: like [`single_line`], but its line breaks (as `\n`) and inner blanks stay.
pub fn multi_line(text: &str) -> Option<String> {
    let unix = text.replace("\r\n", "\n").replace('\r', "\n");
    let clean = clean(&unix, |c| c == '\n');
    let lines: Vec<&str> = clean.split('\n').map(str::trim_end).collect();
    visible(lines.join("\n").trim().to_owned())
}

/// A name or key made of a text: one line, and without characters nobody sees.
pub fn key(text: &str) -> Option<String> {
    single_line(&text.chars().filter(|c| !is_invisible(*c)).collect::<String>())
}

/// NFC without control characters; `keep` names those that stay, other white space ones become blanks.
fn clean(text: &str, keep: impl Fn(char) -> bool) -> String {
    text.chars()
        .filter_map(|c| match c {
            c if !c.is_control() || keep(c) => Some(c),
            c if c.is_whitespace() => Some(' '),
            _ => None,
        })
        .nfc()
        .collect()
}

fn visible(text: String) -> Option<String> {
    (!is_blank(&text)).then_some(text)
}

/// Whether there is nothing to see: empty, white space, control and zero-width characters only.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || c.is_control() || is_invisible(c))
}

/// Zero-width, directional and tag characters: harmless in a message, a second key in an address.
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{00AD}' | '\u{034F}' | '\u{061C}' | '\u{180B}'..='\u{180E}' | '\u{200B}'..='\u{200F}'
        | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
        | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E0FFF}')
}

/// The ASCII character that a full-width form is of: Japanese keyboards write addresses and numbers with
/// these, and nobody means another character (the width mapping of RFC 8265). Any other as it is.
pub fn narrow(c: char) -> char {
    match c {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c),
        c => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_line() {
        assert_eq!(single_line("  Ana\u{0}\r\n\tda  Silva "), Some("Ana da Silva".into()));
        assert_eq!(single_line("Mu\u{308}ller"), Some("Müller".into()));
        assert_eq!(single_line("e\u{0}\u{301}"), Some("é".into()), "NFC after dropping");
        for blank in ["", " \t\n", "\u{200B}", "\u{0}", "\u{A0}\u{3000}"] {
            assert_eq!(single_line(blank), None, "{blank:?}");
        }
    }

    #[test]
    fn lines_of_a_message_stay() {
        let typed = " Quero orçamento\r\npara 3 salas \r\n\u{7}";
        assert_eq!(multi_line(typed), Some("Quero orçamento\npara 3 salas".into()));
        assert_eq!(multi_line("\n \n"), None);
    }

    #[test]
    fn keys_have_nothing_hidden() {
        assert_eq!(key("bud\u{200B}get\u{202E}"), Some("budget".into()));
    }

    proptest! {
        #[test]
        fn idempotent(text in "\\PC*|.*|[ \\r\\n\\t\u{0}\u{301}a\u{200B}]*") {
            for f in [single_line, multi_line, key] {
                if let Some(once) = f(&text) {
                    prop_assert_eq!(f(&once), Some(once.clone()));
                    prop_assert!(!once.contains('\0'));
                }
            }
        }
    }
}
