//! Rust and SQL agree: on the fields, on the order of registers, and on what a stamp says.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leadsync::lead::merge::{EPOCH, EventTime, LeadState, Register, read_stamp, stamp};
use leadsync::lead::{Field, Micros};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use serde_json::{Value, json};

use super::events::{Event, email, seeded};
use super::rows::{UPSERT, columns};
use crate::support::db::TestDb;

const CLAIM: &str = include_str!("../../../sql/sync/claim.sql");
const PREVIEW: &str = include_str!("../../../sql/sync/preview.sql");
const FIND: &str = include_str!("../../../sql/leads/find.sql");

/// Texts of one register, each of which belongs into the upsert so often.
fn patterns(name: &str) -> Vec<(String, usize)> {
    let wins = |e: &str| {
        format!(
            "leadsync.register_wins({e}.{name}_stamp, {e}.{name}, {e}.{name}_source, \
             l.{name}_stamp, l.{name}, l.{name}_source)"
        )
    };
    let (news, excluded) = (wins("e"), wins("excluded"));
    vec![
        // Whether the event is news, before the insert and on the locked row; the rest is below.
        (format!("or {news}"), 1),
        (format!("or {excluded}"), 1),
        (format!("{name} = case when {excluded} then excluded.{name} else l.{name} end,"), 1),
        (
            format!(
                "{name}_source = case when {excluded} then excluded.{name}_source else l.{name}_source end,"
            ),
            1,
        ),
        (format!("{name}_stamp = greatest(l.{name}_stamp, excluded.{name}_stamp),"), 1),
        (
            format!(
                "((excluded.{name} is distinct from l.{name} or l.{name}_stamp is null) and {excluded})"
            ),
            1,
        ),
    ]
}

fn one_line(sql: &str) -> String {
    let code = sql.lines().map(|line| line.split("--").next().unwrap_or_default());
    code.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// The names between two texts.
fn list<'a>(sql: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let (_, rest) = sql.split_once(from).unwrap_or_else(|| panic!("no `{from}`"));
    let (names, _) = rest.split_once(to).unwrap_or_else(|| panic!("no `{to}`"));
    names.split(',').map(str::trim).collect()
}

/// What the statements lack to know exactly these fields.
fn lacking(fields: &[&str]) -> Vec<String> {
    let upsert = one_line(UPSERT);
    // `where` begins with the first field, the others follow with `or`.
    let upsert = upsert.replace("where leadsync.register_wins", "where or leadsync.register_wins");
    let mut lacking = Vec::new();
    for name in fields {
        for (text, times) in patterns(name) {
            if upsert.matches(&text).count() != times {
                lacking.push(format!("upsert: {text}"));
            }
        }
        let columns: Vec<&str> = columns(UPSERT).into_iter().map(|(name, _)| name).collect();
        for column in [format!("{name}_stamp"), format!("{name}_source"), (*name).to_owned()] {
            if columns.iter().filter(|c| **c == column).count() != 1 {
                lacking.push(format!("upsert: column {column}"));
            }
        }
        for (which, sql) in [("claim", CLAIM), ("preview", PREVIEW)] {
            let sql = one_line(sql);
            let set = format!("l.{name}_stamp is not null as {name}_set,");
            if !sql.contains(&format!(" l.{name},")) || !sql.contains(&set) {
                lacking.push(format!("{which}: {name}"));
            }
        }
        let find = list(&one_line(FIND), "select ", " from leadsync.leads").join(",") + ",";
        for column in
            [format!("l.{name},"), format!("l.{name}_stamp,"), format!("l.{name}_source,")]
        {
            if !find.contains(&column) {
                lacking.push(format!("find: {column}"));
            }
        }
    }
    // Nothing that is no field: the three of consent and the address as typed are all there is besides.
    let count = fields.len();
    for (what, should) in [("wins(e.", count + 4), ("wins(excluded.", 4 * count + 8)] {
        let are = upsert.matches(what).count();
        if are != should {
            lacking.push(format!("upsert: {are} times `{what}`, should be {should}"));
        }
    }
    lacking
}

#[test]
fn the_statements_know_every_field() {
    let names = Field::ALL.map(Field::name);
    assert_eq!(lacking(&names), Vec::<String>::new());
    for (at, field) in Field::ALL.into_iter().enumerate() {
        assert_eq!(Field::parse(field.name()), Some(field));
        assert_eq!(field as usize, at, "declared in the order of the columns");
    }
}

#[test]
fn a_field_without_sql_or_sql_without_a_field_is_found() {
    let mut more = Field::ALL.map(Field::name).to_vec();
    more.push("nickname");
    // Six places of the merge, three columns, claim, preview, three columns to be seen, two counts.
    assert_eq!(lacking(&more).len(), 6 + 3 + 2 + 3 + 2, "{:#?}", lacking(&more));
    let fewer = &Field::ALL.map(Field::name)[1..];
    assert_eq!(lacking(fewer).len(), 2, "{:#?}", lacking(fewer));
}

#[test]
fn the_lists_of_the_upsert_name_the_same_columns_in_the_same_order() {
    let upsert = one_line(UPSERT);
    let names: Vec<&str> = columns(UPSERT).into_iter().map(|(name, _)| name).collect();
    let distinct: BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len());
    let inserted = list(&upsert, "leadsync.leads as l (", ")");
    assert_eq!(inserted[..4], ["version", "created_at", "updated_at", "moved"]);
    assert_eq!(inserted[4..], names);
    let selected = list(&upsert, "clock_timestamp(), true, ", " from news as n");
    let selected: Vec<_> =
        selected.iter().map(|n| n.strip_prefix("n.").expect("of news")).collect();
    assert_eq!(selected, names);
}

#[tokio::test]
async fn the_table_has_the_columns_of_every_field_and_no_others() {
    let db = TestDb::new().await;
    let client = db.client().await;
    let sql = "
        select a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(c.collname::text, '')
        from pg_attribute as a left join pg_collation as c on c.oid = a.attcollation
        where a.attrelid = 'leadsync.leads'::regclass and a.attnum > 0 and not a.attisdropped";
    let rows = client.query(sql, &[]).await.expect("columns");
    let mut are: BTreeSet<(String, String)> = BTreeSet::new();
    for row in rows {
        let (name, kind, collation): (String, String, String) =
            (row.get(0), row.get(1), row.get(2));
        assert!(kind != "text" || collation == "C", "{name} is compared by a collation");
        are.insert((name, kind));
    }
    let mut should: BTreeSet<(String, String)> = columns(UPSERT)
        .into_iter()
        .map(|(name, kind)| {
            let kind = if kind == "timestamptz" { "timestamp with time zone" } else { kind };
            (name.to_owned(), kind.to_owned())
        })
        .collect();
    for (name, kind) in [
        ("version", "bigint"),
        ("created_at", "timestamp with time zone"),
        ("updated_at", "timestamp with time zone"),
        ("moved", "boolean"),
        ("marketing_consent", "boolean"),
    ] {
        should.insert((name.to_owned(), kind.to_owned()));
    }
    assert_eq!(are, should);
    for field in Field::ALL.map(Field::name) {
        for (column, kind) in [
            (field.to_owned(), "text"),
            (format!("{field}_stamp"), "bigint"),
            (format!("{field}_source"), "smallint"),
        ] {
            assert!(are.contains(&(column.clone(), kind.to_owned())), "{column} {kind}");
        }
    }
}

fn text(rng: &mut StdRng) -> Option<String> {
    // Where bytes, UTF-16 units, case and dictionaries disagree.
    const LETTERS: [char; 14] = [
        'a',
        'A',
        'b',
        'z',
        'Z',
        '-',
        ' ',
        '\'',
        'á',
        'ß',
        '\u{E000}',
        '\u{FFFD}',
        '\u{10400}',
        '\u{10FFFF}',
    ];
    rng.random_bool(0.85).then(|| {
        let length = rng.random_range(1..=4);
        (0..length).map(|_| LETTERS.choose(rng).expect("not empty")).collect()
    })
}

fn register(rng: &mut StdRng) -> Register {
    let stamps = [1, 2, 3, 1 << 55, (100 << 56) | 7, i64::MAX - 1, i64::MAX];
    Register {
        stamp: stamps[rng.random_range(0..stamps.len())],
        value: text(rng),
        source: [0, 1, 2, 300, i16::MAX][rng.random_range(0..5)],
    }
}

/// A state with one register as a field, as an attribute, or without.
fn state(field: Option<&Register>, attribute: Option<&Register>) -> LeadState {
    let mut event = Event::random(&mut rand::SeedableRng::seed_from_u64(1));
    event.fields.clear();
    event.attributes.clear();
    let mut state = event.state(&email("ana@example.com"));
    state.fields[0] = field.cloned();
    state.attributes.extend(attribute.map(|r| ("budget".to_owned(), r.clone())));
    state
}

#[tokio::test]
async fn registers_have_one_order_in_rust_and_in_sql() {
    let (mut rng, seed) = seeded();
    let db = TestDb::new().await;
    let client = db.client().await;
    let pairs: Vec<(Register, Option<Register>)> = (0..20_000)
        .map(|_| {
            let mine = register(&mut rng);
            let theirs = match rng.random_range(0..10) {
                0 => None,
                // Differing in one part only.
                1 => Some(Register { source: register(&mut rng).source, ..mine.clone() }),
                2..6 => Some(Register { value: text(&mut rng), ..mine.clone() }),
                _ => Some(register(&mut rng)),
            };
            (mine, theirs)
        })
        .collect();
    let should: Vec<(bool, bool)> = pairs
        .iter()
        .map(|(candidate, current)| {
            let mut field = state(current.as_ref(), None);
            let mut attribute = state(None, current.as_ref());
            let (before_field, before_attribute) = (field.clone(), attribute.clone());
            field.join(state(Some(candidate), None));
            attribute.join(state(None, Some(candidate)));
            (field != before_field, attribute != before_attribute)
        })
        .collect();
    let json = |r: &Register| json!([r.stamp, r.source, r.value]);
    let theirs = || pairs.iter().map(|(_, theirs)| theirs.as_ref());
    let stamps: Vec<i64> = pairs.iter().map(|(r, _)| r.stamp).collect();
    let values: Vec<Option<&str>> = pairs.iter().map(|(r, _)| r.value.as_deref()).collect();
    let sources: Vec<i16> = pairs.iter().map(|(r, _)| r.source).collect();
    let their_stamps: Vec<Option<i64>> = theirs().map(|r| r.map(|r| r.stamp)).collect();
    let their_values: Vec<Option<&str>> =
        theirs().map(|r| r.and_then(|r| r.value.as_deref())).collect();
    let their_sources: Vec<Option<i16>> = theirs().map(|r| r.map(|r| r.source)).collect();
    let attributes: Vec<Value> = pairs.iter().map(|(r, _)| json(r)).collect();
    let their_attributes: Vec<Option<Value>> = theirs().map(|r| r.map(json)).collect();
    let sql = "
        select leadsync.register_wins(r.stamp, r.value, r.source, r.stamp2, r.value2, r.source2),
            leadsync.attribute_wins(r.attribute, r.attribute2)
        from unnest(
            $1::bigint[], $2::text[], $3::smallint[], $4::bigint[], $5::text[], $6::smallint[], $7::jsonb[], $8::jsonb[]
        ) with ordinality as r (stamp, value, source, stamp2, value2, source2, attribute, attribute2, place)
        order by r.place";
    let rows = client
        .query(
            sql,
            &[
                &stamps,
                &values,
                &sources,
                &their_stamps,
                &their_values,
                &their_sources,
                &attributes,
                &their_attributes,
            ],
        )
        .await
        .expect("compare");
    let mut won = 0;
    for ((row, should), pair) in rows.iter().zip(&should).zip(&pairs) {
        let is = (row.get::<_, bool>(0), row.get::<_, bool>(1));
        assert_eq!(is, *should, "seed {seed}: {pair:?}");
        won += usize::from(is.0);
    }
    assert_eq!(rows.len(), pairs.len());
    assert!((5_000..15_000).contains(&won), "{won} of 20000 won");
}

#[tokio::test]
async fn stamps_say_the_same_in_rust_and_in_sql() {
    let (mut rng, _) = seeded();
    let db = TestDb::new().await;
    let client = db.client().await;
    let mut stamps = Vec::new();
    for priority in [0, 1, 7, 50, 100, 127, 255] {
        stamps.push(stamp(priority, EventTime::UNKNOWN));
        let last = EPOCH + (1 << 54) - 1;
        let any = (0..40).map(|_| rng.random_range(EPOCH..=last)).collect::<Vec<Micros>>();
        for at in [EPOCH, EPOCH + 1, last - 1, last].into_iter().chain(any) {
            stamps.push(stamp(priority, EventTime::measured(at)));
            stamps.push(stamp(priority, EventTime { reliable: false, at: Some(at) }));
        }
    }
    let sql = "
        select leadsync.lead_stamp_time(s.stamp) from unnest($1::bigint[]) with ordinality as s (stamp, place)
        order by s.place";
    let rows = client.query(sql, &[&stamps]).await.expect("times");
    let time = |at: Micros| UNIX_EPOCH + Duration::from_micros(at.unsigned_abs());
    for (row, stamp) in rows.iter().zip(&stamps) {
        let is: Option<SystemTime> = row.get(0);
        assert_eq!(is, read_stamp(*stamp).1.map(time), "{stamp:#x}");
    }
    assert_eq!(rows.len(), stamps.len());
}
