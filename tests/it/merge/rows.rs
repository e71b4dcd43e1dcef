//! Rows as JSON: of a folded state, of the table, and as parameters of the upsert by column name.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leadsync::lead::Field;
use leadsync::lead::merge::{LeadState, Register};
use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::oracle::Row;

/// The statement under test.
pub const UPSERT: &str = include_str!("../../../sql/leads/upsert.sql");

/// The row that a state alone amounts to.
pub fn of_state(state: &LeadState) -> Row {
    let mut row = Row::new();
    let mut put = |name: String, value: Value| row.insert(name, value);
    for (field, register) in Field::ALL.into_iter().zip(&state.fields) {
        let part = |pick: fn(&Register) -> Value| register.as_ref().map_or(Value::Null, pick);
        put(field.name().to_owned(), part(|r| json!(r.value)));
        put(format!("{}_stamp", field.name()), part(|r| json!(r.stamp)));
        put(format!("{}_source", field.name()), part(|r| json!(r.source)));
    }
    let consent = state.consent;
    for (kind, register) in
        [("out", consent.opt_out), ("in", consent.opt_in), ("proven", consent.proven)]
    {
        put(format!("consent_{kind}_stamp"), json!(register.map(|r| r.0)));
        put(format!("consent_{kind}_source"), json!(register.map(|r| r.1)));
    }
    put("marketing_consent".to_owned(), json!(consent.granted()));
    let typed = state.email_as_typed.as_ref();
    put("email_as_typed".to_owned(), json!(typed.and_then(|r| r.value.as_deref())));
    put("email_as_typed_stamp".to_owned(), json!(typed.map(|r| r.stamp)));
    let tags: Map<_, _> = state.tags.iter().map(|t| (t.clone(), json!(true))).collect();
    put("tags".to_owned(), if tags.is_empty() { Value::Null } else { Value::Object(tags) });
    let attributes: Map<_, _> = state
        .attributes
        .iter()
        .map(|(name, r)| (name.clone(), json!([r.stamp, r.source, r.value])))
        .collect();
    let attributes = if attributes.is_empty() { Value::Null } else { Value::Object(attributes) };
    put("attributes".to_owned(), attributes);
    let touch = &state.first.touch;
    put("first_seen_reliable".to_owned(), json!(state.first.time.reliable));
    put("first_seen_at".to_owned(), json!(state.first.time.at));
    put("first_source".to_owned(), json!(touch.source));
    put("utm_source".to_owned(), json!(touch.utm_source));
    put("utm_medium".to_owned(), json!(touch.utm_medium));
    put("utm_campaign".to_owned(), json!(touch.utm_campaign));
    put("utm_term".to_owned(), json!(touch.utm_term));
    put("utm_content".to_owned(), json!(touch.utm_content));
    put("landing_page".to_owned(), json!(touch.landing_page));
    put("last_seen_reliable".to_owned(), json!(state.last.time.reliable));
    put("last_seen_at".to_owned(), json!(state.last.time.at));
    put("last_source".to_owned(), json!(state.last.touch.source));
    row
}

/// A stored lead.
pub struct Stored {
    pub email: String,
    pub version: i64,
    /// Every merged column.
    pub row: Row,
    /// Where and by whom the row was last written, with its rows in `lead_sync`.
    pub writing: String,
}

/// All leads, by e-mail bytewise.
pub async fn stored(client: &Client) -> Vec<Stored> {
    // Whatever column is added belongs to the merge, until it is named here.
    let sql = "
        select l.email, l.version,
            to_jsonb(l) - '{email,lead_id,version,created_at,updated_at,moved}'::text[]
                || jsonb_build_object(
                    'first_seen_at', (extract(epoch from l.first_seen_at) * 1000000)::bigint,
                    'last_seen_at', (extract(epoch from l.last_seen_at) * 1000000)::bigint
                ),
            concat_ws(' ', l.ctid, l.xmin, l.xmax, l.updated_at, (
                select string_agg(concat_ws(' ', s.ctid, s.xmin, s.xmax, s), ',' order by s.destination)
                from leadsync.lead_sync as s where s.lead_id = l.lead_id
            ))
        from leadsync.leads as l
        order by l.email collate \"C\"";
    let rows = client.query(sql, &[]).await.expect("leads");
    let object = |value| match value {
        Value::Object(row) => row,
        other => panic!("not a row: {other}"),
    };
    rows.iter()
        .map(|r| Stored {
            email: r.get(0),
            version: r.get(1),
            row: object(r.get::<_, Value>(2)),
            writing: r.get(3),
        })
        .collect()
}

/// The columns of the statement's `event`, with the types of its parameters.
pub fn columns(sql: &str) -> Vec<(&str, &str)> {
    let (_, parameters) = sql.split_once("from unnest(").expect("arrays");
    let (parameters, names) = parameters.split_once(") as e (").expect("named");
    let (names, _) = names.split_once(')').expect("to the end");
    let types = parameters.split(',').enumerate().map(|(at, parameter)| {
        let typed = parameter.trim().strip_prefix(&format!("${}::", at + 1)).expect("in order");
        typed.strip_suffix("[]").expect("an array")
    });
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    assert_eq!(types.clone().count(), names.len(), "a parameter per column");
    names.into_iter().zip(types).collect()
}

/// The parameters of the upsert for these states in the order given, made from its own column names.
pub fn parameters(states: &[LeadState]) -> Vec<Box<dyn ToSql + Sync + Send>> {
    let rows: Vec<Row> = states
        .iter()
        .map(|state| {
            let mut row = of_state(state);
            row.insert("email".to_owned(), json!(state.email.as_str()));
            row
        })
        .collect();
    let time = |micros: i64| UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs());
    columns(UPSERT)
        .into_iter()
        .map(|(name, kind)| -> Box<dyn ToSql + Sync + Send> {
            if name == "lead_id" {
                return Box::new(rows.iter().map(|_| Uuid::now_v7()).collect::<Vec<_>>());
            }
            let values = rows.iter().map(|row| &row[name]);
            match kind {
                "bigint" => Box::new(values.map(Value::as_i64).collect::<Vec<_>>()),
                "smallint" => Box::new(
                    values
                        .map(|v| Some(i16::try_from(v.as_i64()?).expect("a smallint")))
                        .collect::<Vec<_>>(),
                ),
                "boolean" => Box::new(values.map(Value::as_bool).collect::<Vec<_>>()),
                "text" => {
                    Box::new(values.map(|v| v.as_str().map(str::to_owned)).collect::<Vec<_>>())
                }
                "jsonb" => {
                    Box::new(values.map(|v| (!v.is_null()).then(|| v.clone())).collect::<Vec<_>>())
                }
                "timestamptz" => Box::new(
                    values.map(|v| v.as_i64().map(time)).collect::<Vec<Option<SystemTime>>>(),
                ),
                other => panic!("a column of type {other}"),
            }
        })
        .collect()
}

/// As the client takes them.
pub fn borrowed(parameters: &[Box<dyn ToSql + Sync + Send>]) -> Vec<&(dyn ToSql + Sync)> {
    parameters.iter().map(|p| &**p as &(dyn ToSql + Sync)).collect()
}
