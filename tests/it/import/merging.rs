//! Several lines about one person, and what lines without a time count with.

use super::{Rig, counts};

const COMPANY: &str = "company";

#[tokio::test]
async fn of_lines_about_one_person_the_newest_counts() {
    let rig = Rig::new().await;
    rig.write(
        "timed.csv",
        "email,company,city,Created\n\
         ana@example.com,Newest,,2026-03-05\n\
         ANA@example.com,Oldest,Porto,2026-03-01\n\
         bo@example.com,A,,2026-03-05\n\
         ana@example.com,Middle,Lisboa,2026-03-03\n",
    );
    assert_eq!(counts(&rig.import(&["timed.csv"], 0).await), [2, 2, 0, 0, 0]);
    assert_eq!(
        rig.of("ana@example.com", "company || '/' || city").await.as_deref(),
        Some("Newest/Lisboa")
    );
    let version = rig.of("ana@example.com", "version").await;
    assert_eq!(counts(&rig.import(&["timed.csv", "--again"], 0).await), [0, 0, 4, 0, 0]);
    assert_eq!(rig.of("ana@example.com", "version").await, version);
}

#[tokio::test]
async fn without_a_time_lines_fill_and_a_time_for_all_makes_the_last_one_count() {
    let rig = Rig::new().await;
    rig.write(
        "known.ndjson",
        r#"{"email":"ana@example.com","company":"Known","occurred_at":"2026-03-05T00:00:00Z"}"#,
    );
    rig.import(&["known.ndjson"], 0).await;
    rig.write(
        "plain.csv",
        "email,company,city\nana@example.com,Zed,Porto\nbo@example.com,B,\nana@example.com,Abel,\n",
    );
    let dry = rig.run(&["plain.csv", "--dry-run"]).await.with(0);
    assert!(dry.stdout.contains("fill blanks and replace nothing"), "{}", dry.stdout);
    rig.import(&["plain.csv"], 0).await;
    assert_eq!(
        rig.of("ana@example.com", "company || '/' || city").await.as_deref(),
        Some("Known/Porto")
    );
    // The file is older than what is known.
    rig.import(&["plain.csv", "--occurred-at", "2026-03-04"], 0).await;
    assert_eq!(rig.of("ana@example.com", COMPANY).await.as_deref(), Some("Known"));
    // The file is newer; its last line counts, though the other value is greater.
    rig.import(&["plain.csv", "--occurred-at", "2026-03-06T10:00:00Z"], 0).await;
    assert_eq!(rig.of("ana@example.com", COMPANY).await.as_deref(), Some("Abel"));
    let again =
        rig.import(&["plain.csv", "--occurred-at", "2026-03-06T10:00:00Z", "--again"], 0).await;
    assert_eq!(counts(&again), [0, 0, 3, 0, 0]);
    assert_eq!(rig.program.run(&["replay"]).await.with(0).stdout, "10 unchanged\n");
}

/// Chunks of 512: the order of lines holds within one and across them.
#[tokio::test]
async fn first_receipt_counts_lines_in_their_order() {
    let source = "[[source]]\nname = \"list\"\nkind = \"json\"\nurl_token = \"x\"\n";
    let rig = Rig::with(source).await;
    let mut file = String::from("email,company\nana@example.com,z first\nbo@example.com,z\n");
    file.push_str("bo@example.com,a second\n");
    for n in 0..1600 {
        file.push_str(&format!("x{n}@example.com,X\n"));
    }
    file.push_str("ana@example.com,a last\n");
    rig.write("list.csv", &file);
    let dry = rig.run(&["list.csv", "--source", "list", "--dry-run"]).await.with(0);
    assert!(dry.stdout.contains("count as of their first import"), "{}", dry.stdout);
    let summary = rig.import(&["list.csv", "--source", "list"], 0).await;
    assert_eq!((&summary["created"], &summary["updated"]), (&1602.into(), &2.into()), "{summary}");
    assert_eq!(rig.of("bo@example.com", COMPANY).await.as_deref(), Some("a second"));
    assert_eq!(rig.of("ana@example.com", COMPANY).await.as_deref(), Some("a last"));
    assert_eq!(rig.value::<i64>("select count(*) from leadsync.deliveries").await, 4);
    let again = rig.import(&["list.csv", "--source", "list", "--again"], 0).await;
    assert_eq!(again["unchanged"], 1604, "{again}");
    assert_eq!(rig.program.run(&["replay"]).await.with(0).stdout, "1604 unchanged\n");
    assert_eq!(rig.of("ana@example.com", COMPANY).await.as_deref(), Some("a last"));
}
