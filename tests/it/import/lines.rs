//! Lines that are no leads: told with their number, kept as they were, harmless to all others.

use super::{Rig, counts};

#[tokio::test]
async fn no_line_stops_the_rest() {
    let rig = Rig::new().await;
    let long = "x".repeat(3 << 20);
    let mut file = b"email,company,Created\n".to_vec();
    let mut line = |bytes: &[u8]| {
        file.extend(bytes);
        file.push(b'\n');
    };
    line(b"a1@example.com,One,2026-03-01"); // 2
    line(b"nobody,Two,2026-03-01"); // 3
    line(b",Three,2026-03-01"); // 4
    line(b"a2@example.com,\"open,2026-03-01"); // 5
    line(b"a3@example.com,\"two\nlines\",2026-03-01"); // 6, 7
    line(b"a4@example.com"); // 8
    line(b"a5@example.com,Five,2026-03-01,surplus"); // 9
    line(b"a6@example.com,Six,2026-03-01,,"); // 10
    line(b"a7@example.com,nul\0,2026-03-01"); // 11
    line(format!("a8@example.com,{long},2026-03-01").as_bytes()); // 12
    line("a9@example.com,São,2026-03-01".as_bytes()); // 13
    line("a10@example.com,Ação çãõé,2026-03-01".as_bytes()); // 14
    line("b10@example.com,áéíóúâêôàüáéíóúâêôàü,2026-03-01".as_bytes()); // 15
    line(b"a11@example.com,S\xe3o,2026-03-01"); // 16
    line(b"a12@example.com,Twelve,the day before"); // 17
    line(b",,"); // blank
    line(b""); // blank
    line(format!("a13@example.com,{},2026-03-01", "y".repeat(9000)).as_bytes()); // 20
    line(b"a14@example.com,\"quoted\"text,2026-03-01"); // 21
    line(b"a15@example.com,Last,2026-03-01"); // 22
    rig.write("messy.csv", &file);

    let ended = rig.run(&["messy.csv", "--map", "Created=occurred_at"]).await.with(1);
    assert!(ended.stdout.contains("8 leads taken"), "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("10 lines refused"), "{}", ended.stdout);
    for told in [
        "refused: email: ",
        "messy.csv.refused.csv; mend them",
        "value left out: company: longer than 512 bytes (1 lines, the first is 20)",
    ] {
        assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
    }
    assert_eq!(rig.leads().await, 8);
    assert_eq!(rig.of("a3@example.com", "company").await.as_deref(), Some("two lines"));
    assert_eq!(rig.of("a13@example.com", "company").await, None);

    let refused = std::fs::read(rig.path("messy.csv.refused.csv")).unwrap();
    let refused = String::from_utf8(refused).unwrap();
    let starts: Vec<String> = refused
        .split("\r\n")
        .filter(|row| !row.is_empty())
        .map(|row| row.split(',').take(2).collect::<Vec<_>>().join(","))
        .collect();
    assert_eq!(
        starts,
        [
            "refused_line,refused_column",
            "3,email",
            "4,email",
            "5,",
            "8,",
            "9,",
            "11,company",
            "12,",
            "16,company",
            "17,Created",
            "21,"
        ]
    );
    assert!(refused.contains("\"a2@example.com,\"\"open,2026-03-01\""), "the line as it was");
    assert!(refused.contains("S\u{fffd}o"));

    // Mended, the file of refused lines is one like any other; what is still wrong is refused again.
    let mended =
        refused.replace(",nobody,", ",a16@example.com,").replace("the day before", "2026-03-02");
    rig.write("mended.csv", mended);
    let summary = rig.import(&["mended.csv", "--map", "Created=occurred_at"], 1).await;
    assert_eq!(counts(&summary), [3, 0, 0, 0, 7], "{summary}");
    let attributes = rig.of("a12@example.com", "attributes").await;
    assert_eq!(attributes, None, "the columns of the refusal are none of the lead");
}

/// The file of refused lines is of this import, not of one before.
#[tokio::test]
async fn refused_lines_are_those_of_the_last_import() {
    let rig = Rig::new().await;
    rig.write("a.csv", "email\na@example.com\nnobody\n");
    rig.import(&["a.csv"], 1).await;
    let first = rig.read("a.csv.refused.csv");
    let summary = rig.import(&["a.csv"], 1).await;
    assert_eq!(counts(&summary), [0, 0, 0, 1, 1]);
    assert_eq!(rig.read("a.csv.refused.csv"), first, "also of lines that were passed over");
    rig.write("a.csv", "email\na@example.com\nb@example.com\n");
    assert_eq!(counts(&rig.import(&["a.csv"], 0).await), [1, 0, 1, 0, 0]);
    assert!(!rig.path("a.csv.refused.csv").exists());
    // A dry run writes none.
    rig.write("b.csv", "email\nnobody\na@example.com\n");
    rig.import(&["b.csv", "--dry-run"], 1).await;
    assert!(!rig.path("b.csv.refused.csv").exists());
}
