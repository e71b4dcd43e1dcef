use std::collections::BTreeMap;

use proptest::prelude::*;

use super::leads::{Leads, Line};
use super::*;
use crate::sources::LineReader;

fn options() -> Options {
    Options {
        ndjson: None,
        encoding: None,
        delimiter: None,
        header: true,
        map: Vec::new(),
        order: Some(Order::DayFirst),
        zone: TimeZone::UTC,
        occurred_at: None,
        refused: PathBuf::new(),
    }
}

type Lines = Vec<(u64, Result<String, Refusal>)>;

/// Every line of a file: its number, and what it is.
fn lines(bytes: &[u8], options: &Options) -> Result<Lines, ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let leads = crate::config::Config::parse("").unwrap().config.leads;
    let survey = Survey::of(&path, options, &BTreeMap::new())?;
    let mut lines = Leads::open(survey, LineReader::unconfigured("import", &leads)).unwrap();
    let mut all = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        all.push(match line {
            Line::Lead { line, patch, .. } => (line, Ok(patch.email.as_str().to_owned())),
            Line::Refused(refusal) => (refusal.line, Err(refusal)),
        });
    }
    assert_eq!(lines.position(), bytes.len() as u64, "read to the end");
    Ok(all)
}

proptest! {
    /// Whatever the file is, its lines are leads or refusals with growing numbers, or it is an error.
    #[test]
    fn any_bytes_give_leads_or_refusals(
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            "(email,name|\u{feff}email;x|\\{)?[\r\n]{0,2}([a-c@.]{0,6}[\",;\t\r\n\u{0}é]{0,3}|a@b\\.example,x\n){0,40}".prop_map(String::into_bytes),
        ],
        header in any::<bool>(),
        ndjson in proptest::option::of(any::<bool>()),
        occurred_at in proptest::option::of(any::<i64>()),
    ) {
        let options = Options { header, ndjson, occurred_at, ..options() };
        if let Ok(lines) = lines(&bytes, &options) {
            let numbers: Vec<u64> = lines.iter().map(|(line, _)| *line).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", numbers);
        }
    }

    /// Good lines between bad ones: each is found at its number, and nothing else is.
    #[test]
    fn good_lines_are_found_between_bad_ones(
        bad in proptest::collection::vec(prop_oneof![
            Just("nobody,x"), Just("\"open,x"), Just("a,\"open"), Just("one"), Just("a,b,c"), Just("\"x\"y,z"), Just("\"\"\""),
        ], 0..30),
        end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
    ) {
        let mut text = format!("email,name{end}");
        for (n, bad) in bad.iter().enumerate() {
            text.push_str(&format!("p{n}@example.com,\"N \"\"{n}\"\"\"{end}{bad}{end}"));
        }
        let found = lines(text.as_bytes(), &options());
        if bad.is_empty() {
            prop_assert!(found.is_ok_and(|lines| lines.is_empty()));
            return Ok(());
        }
        let found = found.unwrap();
        let wanted: Vec<(u64, bool)> =
            (0..bad.len() as u64).flat_map(|n| [(2 + 2 * n, true), (3 + 2 * n, false)]).collect();
        let told: Vec<(u64, bool)> = found.iter().map(|(line, lead)| (*line, lead.is_ok())).collect();
        prop_assert_eq!(told, wanted);
        for (line, refusal) in found.iter().filter_map(|(line, lead)| Some((line, lead.as_ref().err()?))) {
            let wanted = bad[(*line as usize - 3) / 2];
            // As it was, or taken apart.
            let original = &refusal.original;
            prop_assert!(original[0] == wanted || original.join(",") == wanted, "{:?}", refusal);
        }
    }
}
