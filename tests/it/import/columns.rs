//! Encodings, separators, dates, and who decides about a column.

use super::{Rig, counts};

/// The same text in every encoding that exports come in.
#[tokio::test]
async fn encodings_and_separators() {
    let rig = Rig::new().await;
    let text = |n: u32, separator: &str| {
        let line = ["Nome", "E-mail", "Cidade"].join(separator);
        let email = format!("jose{n}@example.com");
        let lead = ["José Conceição", &email, "\"São\r\nPaulo\""].join(separator);
        format!("{line}\r\n{lead}\r\n")
    };
    let wide = |text: &str, units: fn(u16) -> [u8; 2]| -> Vec<u8> {
        format!("\u{feff}{text}").encode_utf16().flat_map(units).collect()
    };
    let latin =
        |text: &str| -> Vec<u8> { text.chars().map(|c| u8::try_from(c).unwrap()).collect() };
    for (n, bytes, encoding, separator) in [
        (1, text(1, ",").into_bytes(), "UTF-8", ","),
        (2, format!("\u{feff}{}", text(2, ";")).into_bytes(), "UTF-8", ";"),
        (3, latin(&text(3, ";")), "windows-1252", ";"),
        (4, wide(&text(4, "\t"), u16::to_le_bytes), "UTF-16LE", "\t"),
        (5, wide(&text(5, ","), u16::to_be_bytes), "UTF-16BE", ","),
        (6, text(6, "|").into_bytes(), "UTF-8", "|"),
    ] {
        let name = format!("{n}.csv");
        rig.write(&name, bytes);
        let dry = rig.import(&[&name, "--dry-run"], 0).await;
        assert_eq!(
            (&dry["plan"]["encoding"], &dry["plan"]["delimiter"]),
            (&encoding.into(), &separator.into()),
            "{n}"
        );
        assert_eq!(counts(&rig.import(&[&name], 0).await), [1, 0, 0, 0, 0], "{n}");
        let email = format!("jose{n}@example.com");
        let found = rig.of(&email, "full_name || '/' || city").await;
        assert_eq!(found.as_deref(), Some("José Conceição/São Paulo"), "{n}");
    }
    // Where the detector is wrong, somebody can say so.
    rig.write("cyrillic.csv", b"email,first_name\nivan@example.com,\xc8\xe2\xe0\xed\n");
    rig.import(&["cyrillic.csv", "--encoding", "windows-1251"], 0).await;
    assert_eq!(rig.of("ivan@example.com", "first_name").await.as_deref(), Some("Иван"));
}

#[tokio::test]
async fn the_whole_file_tells_whether_the_day_comes_first() {
    let rig = Rig::new().await;
    let file = |dates: &[&str]| {
        let line = |(n, date): (usize, &&str)| format!("a{n}@example.com,{date}\n");
        "email,Created\n".to_owned() + &dates.iter().enumerate().map(line).collect::<String>()
    };
    let seen = "to_char(last_seen_at at time zone 'utc', 'MM-DD HH24:MI')";
    rig.write("day.csv", file(&["05/03/2026 14:22", "06/03/2026", "31/03/2026"]));
    assert_eq!(rig.import(&["day.csv", "--dry-run"], 0).await["plan"]["first_in_dates"], "day");
    rig.import(&["day.csv", "--time-zone", "America/Sao_Paulo"], 0).await;
    assert_eq!(rig.of("a0@example.com", seen).await.as_deref(), Some("03-05 17:22"));

    rig.write("month.csv", file(&["05/03/2026 2:22 PM", "05/30/2026"]));
    rig.import(&["month.csv"], 0).await;
    assert_eq!(rig.of("a0@example.com", seen).await.as_deref(), Some("05-03 14:22"));

    rig.write("either.csv", file(&["06/07/2026", "07/08/2026"]));
    let ended = rig.run(&["either.csv"]).await.with(2);
    assert!(ended.stderr.contains("line 2: \"06/07/2026\" can be two days"), "{}", ended.stderr);
    rig.import(&["either.csv", "--day-first"], 0).await;
    assert_eq!(rig.of("a0@example.com", seen).await.as_deref(), Some("07-06 00:00"));

    rig.write("both.csv", file(&["31/08/2026", "08/30/2026", "1/9/2026"]));
    let ended = rig.run(&["both.csv"]).await.with(2);
    assert!(ended.stderr.contains("first in line 2 and the month in line 3"), "{}", ended.stderr);
    let summary = rig.import(&["both.csv", "--month-first"], 1).await;
    assert_eq!(
        (&summary["refused"], &summary["refusals"][0]["first_line"]),
        (&1.into(), &2.into())
    );
    assert_eq!(summary["refusals"][0]["reason"], "invalid_time");
}

#[tokio::test]
async fn a_configured_source_and_the_command_line_decide_about_columns() {
    let rig = Rig::with(
        r#"
[[source]]
name = "old-crm"
kind = "json"
url_token = "never used"
trust = 20
untimed = "first_receipt"
default_region = "BR"
[source.fields]
company = ["$.Firma", "$['Zweite Firma']"]
first_name = { from = "$.Wer", via = "first_word" }
lifecycle_stage = { value = "customer" }
"#,
    )
    .await;
    rig.write("old.csv", "Mail;Firma;Zweite Firma;Wer;Fone;Notes;Skip\nana@example.com;;Lima;Ana da Silva;11 91234-5678;hi;x\n");
    let arguments =
        ["old.csv", "--source", "old-crm", "--map", "Skip=-", "--map", "notes=attributes.remark"];
    assert_eq!(counts(&rig.import(&arguments, 0).await), [1, 0, 0, 0, 0]);
    let lead = "concat_ws('/', company, first_name, lifecycle_stage, phone, attributes -> 'remark' ->> 2, first_source, message)";
    assert_eq!(
        rig.of("ana@example.com", lead).await.as_deref(),
        Some("Lima/Ana/customer/+5511912345678/hi/old-crm")
    );
    // Of lower trust, it fills and replaces nothing.
    rig.write(
        "new.ndjson",
        r#"{"email":"ana@example.com","company":"New","occurred_at":"2020-01-01T00:00:00Z"}"#,
    );
    assert_eq!(counts(&rig.import(&["new.ndjson"], 0).await), [0, 1, 0, 0, 0]);
    assert_eq!(rig.of("ana@example.com", "company").await.as_deref(), Some("New"));
    assert_eq!(
        rig.program.run(&["replay", "--source", "old-crm"]).await.with(0).stdout,
        "1 unchanged\n"
    );
    assert_eq!(
        rig.program.run(&["replay", "--source", "import"]).await.with(0).stdout,
        "1 unchanged\n"
    );
    // Nobody knows the source any more.
    rig.program.configure(&format!("[database]\nurl = \"{}\"\n", rig.db.url()));
    let replayed = rig.program.run(&["replay"]).await.with(0).stdout;
    assert!(replayed.contains("1 of sources that are not configured any more"), "{replayed}");
}
