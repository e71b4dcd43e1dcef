//! Names of people.

/// Splits a whole name at its first blank: given name, and the rest with its particles ("da Silva").
/// One word has no rest. Expects a [`single_line`](super::text::single_line) text.
pub fn split(full: &str) -> (&str, Option<&str>) {
    match full.trim().split_once(char::is_whitespace) {
        Some((first, rest)) => (first, Some(rest.trim_start()).filter(|rest| !rest.is_empty())),
        None => (full.trim(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn particles_stay_with_the_last_name() {
        assert_eq!(split("Noor van Dijk"), ("Noor", Some("van Dijk")));
        assert_eq!(split("Caio Prado Lins"), ("Caio", Some("Prado Lins")));
        assert_eq!(split("Björk"), ("Björk", None));
        assert_eq!(split(""), ("", None));
    }
}
