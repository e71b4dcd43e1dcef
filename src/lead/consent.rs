//! The words senders use for yes and no.

/// Words that mean yes, in lower case.
pub const YES: &[&str] = &[
    "true",
    "1",
    "on",
    "yes",
    "y",
    "t",
    "checked",
    "granted",
    "subscribed",
    "opt_in",
    "opted_in",
    "opt-in",
    "opted-in",
    "accepted",
    "agree",
    "agreed",
    "i agree",
    "i accept",
    "sim",
    "aceito",
    "concordo",
    "ja",
    "akzeptiert",
    "zugestimmt",
    "oui",
    "accepté",
    "sí",
    "si",
    "acepto",
    "accetto",
    "tak",
];

/// Words that mean no, in lower case.
pub const NO: &[&str] = &[
    "false",
    "0",
    "off",
    "no",
    "n",
    "f",
    "unchecked",
    "denied",
    "declined",
    "revoked",
    "unsubscribed",
    "opt_out",
    "opted_out",
    "opt-out",
    "opted-out",
    "não",
    "nao",
    "recusado",
    "recuso",
    "nein",
    "abgelehnt",
    "non",
    "refusé",
    "rechazado",
    "rifiuto",
    "nie",
];

/// Words that say nothing: nobody has been asked, or has not answered yet.
pub const UNKNOWN: &[&str] = &["unknown", "not_subscribed", "pending", "none", "null", "n/a"];

/// A word that is in none of the lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

/// What a consent word says; `None`: nothing. Blank is unknown, never no.
pub fn parse(word: &str) -> Result<Option<bool>, UnknownWord> {
    let Some(word) = super::text::key(word) else { return Ok(None) };
    let word = word.to_lowercase();
    let is_in = |list: &[&str]| list.contains(&word.as_str());
    match () {
        () if is_in(YES) => Ok(Some(true)),
        () if is_in(NO) => Ok(Some(false)),
        () if is_in(UNKNOWN) => Ok(None),
        () => Err(UnknownWord),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(parse(" Aceito\n"), Ok(Some(true)));
        assert_eq!(parse("FALSE"), Ok(Some(false)));
        assert_eq!(parse("  "), Ok(None), "blank is not a no");
        assert_eq!(parse("not_subscribed"), Ok(None), "never asked is not an opt-out");
        assert_eq!(parse("perhaps"), Err(UnknownWord));
    }

    #[test]
    fn no_word_is_in_two_lists() {
        let all: Vec<_> = [YES, NO, UNKNOWN].concat();
        let set: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(set.len(), all.len());
        assert!(all.iter().all(|w| *w == w.to_lowercase()));
    }
}
