//! The columns that are promised. When this fails because a column is new, add its line to `columns.txt`; when because one
//! is gone or has another type, somebody's dashboard has just broken.

use std::collections::BTreeSet;

use super::texts;
use crate::support::db::TestDb;

const PROMISED: &str = include_str!("columns.txt");

const COLUMNS: &str = "
    select c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
    from pg_class as c
    join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = $1::text::regnamespace and c.relkind = 'v'
    order by c.relname, a.attnum";

#[tokio::test]
async fn promised_columns_are_there_with_their_types() {
    let db = TestDb::new().await;
    let client = db.client().await;
    for schema in ["analytics", "analytics_masked"] {
        let rows = client.query(COLUMNS, &[&schema]).await.expect("the catalog");
        let there: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let promised: Vec<&str> = PROMISED.lines().collect();
        let gone: Vec<_> =
            promised.iter().filter(|line| !there.iter().any(|t| t == *line)).collect();
        assert!(gone.is_empty(), "{schema}: promised, and gone or of another type: {gone:#?}");
        let new: Vec<_> = there.iter().filter(|t| !promised.contains(&t.as_str())).collect();
        assert!(new.is_empty(), "{schema}: not in columns.txt yet: {new:#?}");
        assert_eq!(there, promised, "{schema}: the order of columns is promised, too");
    }
}

#[tokio::test]
async fn everything_has_a_comment() {
    let db = TestDb::new().await;
    let client = db.client().await;
    let bare = texts(
        &client,
        "select n.nspname, c.relname, a.attname
         from pg_class as c
         join pg_namespace as n on n.oid = c.relnamespace
         join pg_attribute as a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         where n.nspname in ('leadsync', 'analytics', 'analytics_masked') and c.relkind in ('r', 'p', 'v')
            and not c.relispartition and c.relname <> 'schema_history'
            and (col_description(c.oid, a.attnum) is null or obj_description(c.oid, 'pg_class') is null)
         union all
         select n.nspname, p.proname, null
         from pg_proc as p
         join pg_namespace as n on n.oid = p.pronamespace
         where n.nspname in ('leadsync', 'analytics', 'analytics_masked') and obj_description(p.oid, 'pg_proc') is null
         union all
         select n.nspname, null, null from pg_namespace as n
         where n.nspname in ('analytics', 'analytics_masked') and obj_description(n.oid, 'pg_namespace') is null",
    )
    .await;
    assert_eq!(bare, Vec::<String>::new());
}

/// The entities of the README's diagram, column by column, against the catalog.
#[tokio::test]
async fn the_diagram_is_that_of_the_views() {
    let readme = include_str!("../../../README.md");
    let diagram = readme.split("```mermaid\nerDiagram\n").nth(1).expect("a diagram");
    let diagram = diagram.split("```").next().expect("its end");
    let promised: BTreeSet<(String, String)> = PROMISED
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(column, of)| (column.to_owned(), of.to_owned()))
        .collect();
    let types = [
        ("uuid", "uuid"),
        ("text", "text"),
        ("time", "timestamp with time zone"),
        ("day", "date"),
        ("number", "bigint"),
        ("count", "integer"),
        ("boolean", "boolean"),
        ("json", "jsonb"),
        ("texts", "text[]"),
        ("uuids", "uuid[]"),
        ("interval", "interval"),
        ("float", "double precision"),
        ("numeric", "numeric"),
    ];
    let (mut entities, mut entity) = (BTreeSet::new(), None);
    for line in diagram.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_suffix(" {") {
            entities.insert(name);
            entity = Some(name);
        } else if line == "}" {
            entity = None;
        } else if let Some(view) = entity {
            let mut words = line.split_whitespace();
            let (of, column) = (words.next().expect("a type"), words.next().expect("a column"));
            let of = types.iter().find(|(short, _)| *short == of).expect("a known type").1;
            let column = (format!("{view}.{column}"), of.to_owned());
            assert!(promised.contains(&column), "there is no {column:?}");
        } else {
            // leads ||--o{ lead_fields : lead_id
            let words: Vec<&str> = line.split_whitespace().collect();
            let [left, _, right, ":", key] = words.as_slice() else { panic!("{line}") };
            for view in [left, right] {
                let column = format!("{view}.{key}");
                assert!(promised.iter().any(|(name, _)| *name == column), "there is no {column}");
            }
        }
    }
    let views: BTreeSet<&str> =
        PROMISED.lines().filter_map(|line| line.split('.').next()).collect();
    assert_eq!(entities, views, "views and entities");
}
