//! A result as text, for people, spreadsheets, programs and documents.

use std::io;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::{Map, Value};

use crate::error::Printable;
use crate::store::reports::{ColumnKind, Rows};

/// Characters that make a spreadsheet take a cell for a formula when they begin it.
const FORMULA: [char; 6] = ['=', '+', '-', '@', '\t', '\r'];

/// For a terminal.
pub(super) fn table(rows: &Rows) -> String {
    let count = match rows.rows.len() {
        1 => "(1 row)".to_owned(),
        count => format!("({count} rows)"),
    };
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    fill(&mut table, rows, |text| Printable(text).to_string());
    format!("{table}\n{count}\n")
}

/// For a document.
pub(super) fn markdown(rows: &Rows) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    // HTML would be taken for such.
    let cell = |text: &str| {
        let text = Printable(text).to_string();
        text.replace('&', "&amp;").replace('<', "&lt;").replace('|', "\\|")
    };
    fill(&mut table, rows, cell);
    format!("{table}\n")
}

fn fill(table: &mut Table, rows: &Rows, cell: impl Fn(&str) -> String) {
    table.set_header(rows.columns.iter().map(|column| cell(&column.name)));
    for row in &rows.rows {
        table.add_row(rows.columns.iter().zip(row).map(|(column, value)| {
            let shown = Cell::new(value.as_deref().map_or(String::new(), &cell));
            match column.kind {
                ColumnKind::Number => shown.set_alignment(CellAlignment::Right),
                _ => shown,
            }
        }));
    }
}

/// For a spreadsheet, RFC 4180 with a heading. What would be a formula is made a text by an apostrophe.
pub(super) fn csv(rows: &Rows) -> io::Result<String> {
    let mut writer =
        csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(vec![]);
    writer.write_record(rows.columns.iter().map(|column| &column.name)).map_err(io::Error::from)?;
    for row in &rows.rows {
        let cells = rows.columns.iter().zip(row).map(|(column, value)| {
            let text = value.as_deref().unwrap_or_default();
            match column.kind {
                ColumnKind::Number => text.to_owned(),
                _ => disarmed(text),
            }
        });
        writer.write_record(cells).map_err(io::Error::from)?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

fn disarmed(text: &str) -> String {
    match text.starts_with(FORMULA) {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

/// For a program: a list of objects, one per line.
pub(super) fn json(rows: &Rows) -> io::Result<String> {
    let mut lines = Vec::new();
    for row in &rows.rows {
        let members = rows.columns.iter().zip(row).map(|(column, value)| {
            let value = match (column.kind, value) {
                (_, None) => Value::Null,
                (ColumnKind::Text, Some(text)) => Value::String(text.clone()),
                // NaN and the like are no JSON.
                (_, Some(text)) => {
                    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.clone()))
                }
            };
            (column.name.clone(), value)
        });
        lines.push(serde_json::to_string(&members.collect::<Map<_, _>>())?);
    }
    Ok(match lines.is_empty() {
        true => "[]\n".to_owned(),
        false => format!("[\n{}\n]\n", lines.join(",\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::reports::Column;

    fn rows(values: &[[Option<&str>; 3]]) -> Rows {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        Rows {
            columns: vec![
                column("text", ColumnKind::Text),
                column("number", ColumnKind::Number),
                column("list", ColumnKind::Json),
            ],
            rows: values.iter().map(|row| row.map(|v| v.map(str::to_owned)).to_vec()).collect(),
        }
    }

    #[test]
    fn csv_is_quoted_and_holds_no_formula() {
        let row = |text| [Some(text), Some("-1.5"), None];
        let all = rows(&[
            row("=cmd|' /C calc'!A0"),
            row("+5511912345678"),
            row("-2+3"),
            row("@SUM(A1)"),
            row("\tx"),
            row("\rx"),
            row("a,\"b\"\nc"),
            row("harmless = 1"),
        ]);
        let expected = "text,number,list\r\n'=cmd|' /C calc'!A0,-1.5,\r\n'+5511912345678,-1.5,\r\n'-2+3,-1.5,\r\n\
                        '@SUM(A1),-1.5,\r\n'\tx,-1.5,\r\n\"'\rx\",-1.5,\r\n\"a,\"\"b\"\"\nc\",-1.5,\r\nharmless = 1,-1.5,\r\n";
        assert_eq!(csv(&all).expect("written"), expected);
        assert_eq!(csv(&rows(&[])).expect("written"), "text,number,list\r\n");
    }

    #[test]
    fn json_keeps_kinds_and_order() {
        let all = rows(&[
            [Some("1"), Some("12.50"), Some(r#"["a"]"#)],
            [None, Some("NaN"), None],
            [Some("x\"y"), Some("9007199254740993"), Some("{}")],
        ]);
        let expected = "[\n{\"text\":\"1\",\"number\":12.5,\"list\":[\"a\"]},\n\
                        {\"text\":null,\"number\":\"NaN\",\"list\":null},\n\
                        {\"text\":\"x\\\"y\",\"number\":9007199254740993,\"list\":{}}\n]\n";
        assert_eq!(json(&all).expect("written"), expected);
        assert_eq!(json(&rows(&[])).expect("written"), "[]\n");
    }

    #[test]
    fn tables_command_no_terminal_and_break_no_document() {
        let all = rows(&[[Some("\u{1b}[2J a|b <i>"), Some("7"), None]]);
        let shown = table(&all);
        assert!(shown.contains("\\u{1b}[2J a|b <i>") && shown.ends_with("(1 row)\n"), "{shown}");
        let shown = markdown(&all);
        assert!(shown.contains("a\\|b &lt;i>"), "{shown}");
        assert_eq!(shown.lines().count(), 3, "{shown}");
    }
}
