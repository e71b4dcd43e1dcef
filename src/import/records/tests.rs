use super::*;
use proptest::prelude::*;

/// A source that gives as many bytes at once as it is told.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len());
        (&mut self.0).take(count as u64).read(buffer)
    }
}

type Owned = (u64, Vec<u8>, Option<Broken>);

fn pieces(bytes: &[u8], form: Form, at_once: usize) -> Vec<Owned> {
    let mut pieces = Pieces::new(Trickle(bytes, at_once), form, 1);
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().unwrap() {
        all.push((piece.line, piece.bytes.to_vec(), piece.broken));
    }
    all
}

fn csv(text: &str) -> Vec<(u64, String, Option<Broken>)> {
    let all = pieces(text.as_bytes(), Form::Csv(b','), BLOCK);
    assert_eq!(all, pieces(text.as_bytes(), Form::Csv(b','), 1), "byte by byte");
    all.into_iter().map(|(n, b, broken)| (n, String::from_utf8(b).unwrap(), broken)).collect()
}

fn good(line: u64, text: &str) -> (u64, String, Option<Broken>) {
    (line, text.to_owned(), None)
}

#[test]
fn line_ends_of_every_system() {
    assert_eq!(
        csv("a,b\r\n\r\nc\n\nd\re"),
        [good(1, "a,b"), good(3, "c"), good(5, "d"), good(6, "e")]
    );
    assert_eq!(csv("a\r\n"), [good(1, "a")]);
    assert_eq!(csv(""), []);
    assert_eq!(csv("\n \r\n\t\n"), []);
}

#[test]
fn quoted_line_ends_are_counted() {
    let text = "x,\"one\r\ntwo \"\"2\"\"\nthree\",y\nnext";
    assert_eq!(csv(text), [good(1, "x,\"one\r\ntwo \"\"2\"\"\nthree\",y"), good(4, "next")]);
    assert_eq!(csv("5\" pipe,x\nnext"), [good(1, "5\" pipe,x"), good(2, "next")]);
}

#[test]
fn a_quote_that_is_never_closed_costs_its_line() {
    let open = (2, "a,\"open".to_owned(), Some(Broken::OpenQuote));
    assert_eq!(
        csv("h\na,\"open\nb\nc,d\n"),
        [good(1, "h"), open.clone(), good(3, "b"), good(4, "c,d")]
    );
    // The next quote would close it in the middle of another field.
    let after = (2, "a,\"open".to_owned(), Some(Broken::AfterQuote));
    assert_eq!(
        csv("h\na,\"open\nb\nc,\"d\"\n"),
        [good(1, "h"), after, good(3, "b"), good(4, "c,\"d\"")]
    );
    let text = (1, "\"a\"b,c".to_owned(), Some(Broken::AfterQuote));
    assert_eq!(csv("\"a\"b,c\nd"), [text, good(2, "d")]);
    assert_eq!(csv("\"a"), [(1, "\"a".to_owned(), Some(Broken::OpenQuote))]);
}

#[test]
fn what_is_too_long_is_passed_over() {
    let long = "x".repeat(MAX_RECORD * 2);
    for end in ["\n", "\r\n", "\r"] {
        let text = format!("a{end}{long}{end}b{end}\"{long}{end}c");
        for at_once in [BLOCK, 1000] {
            let found = pieces(text.as_bytes(), Form::Csv(b','), at_once);
            let told: Vec<_> = found.iter().map(|(n, b, broken)| (*n, b.len(), *broken)).collect();
            let too_long = |line| (line, MAX_RECORD, Some(Broken::TooLong));
            assert_eq!(told.len(), 5, "{told:?}");
            assert_eq!((told[0], told[2], told[4]), ((1, 1, None), (3, 1, None), (5, 1, None)));
            for (at, line) in [(1, 2), (3, 4)] {
                assert_eq!((told[at].0, told[at].2), (too_long(line).0, too_long(line).2));
                assert!(told[at].1 <= MAX_RECORD && told[at].1 > MAX_RECORD / 2);
            }
        }
    }
    // An open quote whose line ends: only that line is lost.
    let text = format!("\"a\n{}z", "b,c\n".repeat(MAX_RECORD / 2));
    let found = pieces(text.as_bytes(), Form::Csv(b','), BLOCK);
    assert_eq!(found[0], (1, b"\"a".to_vec(), Some(Broken::OpenQuote)));
    assert_eq!(found.len(), MAX_RECORD / 2 + 2);
    assert_eq!(found.last().unwrap().0, (MAX_RECORD / 2 + 2) as u64);
}

#[test]
fn fields_are_unquoted() {
    let mut fields = Fields::new(b';');
    for (record, wanted) in [
        ("a;b;c", &["a", "b", "c"][..]),
        ("\"a;\"\"b\"\"\n\";;", &["a;\"b\"\n", "", ""]),
        ("x", &["x"]),
        (";", &["", ""]),
    ] {
        fields.read(record.as_bytes());
        let found: Vec<&[u8]> = fields.iter().collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(|w| w.as_bytes()).collect();
        assert_eq!(found, wanted, "{record}");
    }
    let many = vec!["x".repeat(100); 500].join(";");
    fields.read(many.as_bytes());
    assert_eq!((fields.len(), fields.get(499).len(), fields.get(500).len()), (500, 100, 0));
}

/// What a file of these records is, written as RFC 4180 says.
fn written(records: &[Vec<String>]) -> String {
    let field = |text: &String| match text.contains(['"', ',', '\n', '\r']) || text.is_empty() {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.clone(),
    };
    let line =
        |record: &Vec<String>| record.iter().map(field).collect::<Vec<_>>().join(",") + "\r\n";
    records.iter().map(line).collect()
}

proptest! {
    /// Every byte of a file is in a piece or is a line end, line numbers are right, and it does not
    /// matter how the file is read.
    #[test]
    fn any_bytes_are_cut_into_pieces(
        bytes in prop_oneof![
            any::<Vec<u8>>(),
            "[\",;x\\r\\n \u{0}é]{0,200}".prop_map(String::into_bytes),
        ],
        at_once in 1..70usize,
        csv in any::<bool>(),
    ) {
        let form = if csv { Form::Csv(b',') } else { Form::Lines };
        let all = pieces(&bytes, form, BLOCK);
        prop_assert_eq!(&all, &pieces(&bytes, form, at_once));
        // Line by line, as an editor counts.
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n").replace('\r', "\n");
        let lines: Vec<&str> = text.split('\n').collect();
        let mut before = 0;
        for (line, piece, _) in &all {
            prop_assert!(*line > before, "{} after {}", line, before);
            before = *line;
            let piece = String::from_utf8_lossy(piece).replace("\r\n", "\n").replace('\r', "\n");
            let first = piece.split('\n').next().unwrap_or_default();
            prop_assert_eq!(lines.get(*line as usize - 1).copied(), Some(first));
            before += piece.matches('\n').count() as u64;
        }
        let mut fields = Fields::new(b',');
        all.iter().for_each(|(_, piece, _)| fields.read(piece));
    }

    #[test]
    fn what_is_written_is_read(records in proptest::collection::vec(
        proptest::collection::vec("[a-z\", \\r\\né]{0,8}", 1..5), 0..20
    )) {
        let found = pieces(written(&records).as_bytes(), Form::Csv(b','), 7);
        let mut fields = Fields::new(b',');
        // One field of blanks alone is a blank line, unless it is quoted.
        let told = |record: &&Vec<String>| match record.as_slice() {
            [one] => one.is_empty() || one.contains(['\r', '\n']) || !one.trim().is_empty(),
            _ => true,
        };
        let wanted: Vec<_> = records.iter().filter(told).collect();
        prop_assert_eq!(found.len(), wanted.len());
        for ((_, piece, broken), record) in found.iter().zip(wanted) {
            prop_assert_eq!(*broken, None);
            fields.read(piece);
            let read: Vec<String> = fields.iter().map(|f| String::from_utf8(f.to_vec()).unwrap()).collect();
            prop_assert_eq!(&read, record);
        }
    }
}
