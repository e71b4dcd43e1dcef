//! Queries and their rows.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::typed;
use super::super::{Record, Remote};
use super::Object;

/// Longest query that is sent, in bytes as they stand in the URL. Salesforce takes 16,384 for the whole URI.
const MAX_QUERY: usize = 12_000;

/// A record of the org.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub id: String,
    /// In lower case.
    pub email: String,
    /// In lower case.
    pub key: String,
    pub deleted: bool,
    /// What it was merged into.
    pub master: Option<String>,
    pub converted: bool,
    /// What it was converted to.
    pub contact: Option<String>,
    pub columns: Value,
}

impl Row {
    fn read(row: &Value, key: &str) -> Option<Row> {
        let text = |name: &str| row[name].as_str().unwrap_or_default();
        let id = |name: &str| Some(text(name).to_owned()).filter(|id| !id.is_empty());
        Some(Row {
            id: id("Id")?,
            email: text("Email").to_lowercase(),
            key: text(key).to_lowercase(),
            deleted: row["IsDeleted"] == true,
            master: id("MasterRecordId"),
            converted: row["IsConverted"] == true,
            contact: id("ConvertedContactId"),
            columns: row.clone(),
        })
    }

    /// As the core wants it; `columns`: property that was asked for, and the field that it is here.
    pub fn remote(self, columns: &[(String, String)]) -> Remote {
        let value = |(property, field): &(String, String)| {
            (property.clone(), typed::text(&self.columns[field.as_str()]))
        };
        Remote {
            properties: columns.iter().map(value).collect(),
            email: Some(self.email).filter(|email| !email.is_empty()),
            archived: self.deleted || self.converted,
            id: self.id,
        }
    }
}

/// The rows of a page, and the path of the next one.
pub(super) fn page(body: &Value, key: &str) -> (Vec<Row>, Option<String>) {
    let list = body["records"].as_array().map(Vec::as_slice).unwrap_or_default();
    let next = body["nextRecordsUrl"].as_str().filter(|next| next.starts_with("/services/data/"));
    (list.iter().filter_map(|row| Row::read(row, key)).collect(), next.map(str::to_owned))
}

/// What a row is always read with.
pub(super) fn own_columns(object: Object, key: Option<&str>) -> Vec<String> {
    let own: &[&str] = match object {
        Object::Lead => {
            &["Id", "Email", "IsDeleted", "MasterRecordId", "IsConverted", "ConvertedContactId"]
        }
        Object::Contact => &["Id", "Email", "IsDeleted", "MasterRecordId"],
    };
    own.iter().copied().chain(key).map(str::to_owned).collect()
}

/// `SELECT … FROM … `, each column once.
pub(super) fn select(object: Object, columns: &[String]) -> String {
    let mut seen = HashSet::new();
    let columns: Vec<&str> =
        columns.iter().map(String::as_str).filter(|c| seen.insert(c.to_lowercase())).collect();
    format!("SELECT {} FROM {} ", columns.join(", "), object.name())
}

/// `SELECT … WHERE {each of the columns in by} IN (…)`, as many as it takes for all values.
pub(super) fn queries(
    object: Object,
    columns: &[String],
    by: &[&str],
    values: &[&str],
) -> Vec<String> {
    let head = format!("{}WHERE ", select(object, columns));
    let mut queries = Vec::new();
    let mut list: Vec<String> = Vec::new();
    let mut length = weight(&head);
    let query = |list: &[String]| {
        let list = list.join(",");
        let tests: Vec<String> = by.iter().map(|column| format!("{column} IN ({list})")).collect();
        format!("{head}{}", tests.join(" OR "))
    };
    for value in values {
        let quoted = quoted(value);
        let more = (weight(&quoted) + 3) * by.len();
        if !list.is_empty() && length + more > MAX_QUERY {
            queries.push(query(&list));
            list.clear();
            length = weight(&head);
        }
        length += more;
        list.push(quoted);
    }
    if !list.is_empty() {
        queries.push(query(&list));
    }
    queries
}

/// A text as SOQL writes it.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from("'");
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('\'');
    quoted
}

/// Bytes that a text takes in a URL at most.
fn weight(text: &str) -> usize {
    text.bytes().map(|b| if b.is_ascii_alphanumeric() { 1 } else { 3 }).sum()
}

/// The part of an id that is the same in both of its forms, of 15 and of 18 characters.
pub(super) fn short(id: &str) -> &str {
    id.get(..15).unwrap_or(id)
}

/// The rows that are about each record, by key or e-mail.
pub(super) fn about<'a>(rows: &'a [Row], records: &[&Record]) -> Vec<Vec<&'a Row>> {
    let mut by_text = HashMap::<&str, Vec<&Row>>::new();
    for row in rows {
        by_text.entry(&row.email).or_default().push(row);
        if row.key != row.email {
            by_text.entry(&row.key).or_default().push(row);
        }
    }
    let of = |record: &&Record| {
        let email = record.lead.email.to_lowercase();
        let mut rows = by_text.get(email.as_str()).cloned().unwrap_or_default();
        let mut seen = HashSet::new();
        rows.retain(|row| seen.insert(short(&row.id)));
        rows
    };
    records.iter().map(of).collect()
}

/// Which of the rows with its key or e-mail a lead is: the one with our key, else those that are leads still, else what
/// was converted.
pub(super) fn standing<'a>(email: &str, rows: &[&'a Row]) -> Vec<&'a Row> {
    let email = email.to_lowercase();
    let ours: Vec<&Row> = rows.iter().copied().filter(|row| row.key == email).collect();
    let live: Vec<&Row> = rows.iter().copied().filter(|row| !row.converted).collect();
    match (ours.is_empty(), live.is_empty()) {
        (false, _) => ours,
        (true, false) => live,
        (true, true) => rows.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_lists_are_spread_over_queries() {
        let emails: Vec<String> =
            (0..200).map(|n| format!("{}{n}@example.com", "o'".repeat(60))).collect();
        let emails: Vec<&str> = emails.iter().map(String::as_str).collect();
        let columns = ["Id".to_owned(), "Email".to_owned(), "id".to_owned()];
        let by = ["Email", "Key__c"];
        let queries = queries(Object::Lead, &columns, &by, &emails);
        assert!(queries.len() > 1);
        for query in &queries {
            let encoded = form_urlencoded::byte_serialize(query.as_bytes()).collect::<String>();
            assert!(encoded.len() < 14_000, "{}", encoded.len());
            assert!(
                query.starts_with("SELECT Id, Email FROM Lead WHERE Email IN ('o\\'"),
                "{query}"
            );
        }
        let named: usize = queries.iter().map(|q| q.matches("@example.com").count()).sum();
        assert_eq!(named, 400);
        assert!(super::queries(Object::Lead, &columns, &by, &[]).is_empty());
    }

    #[test]
    fn our_key_comes_before_leads_and_they_before_converted_ones() {
        let row = |id: &str, key: &str, converted: bool| Row {
            id: id.to_owned(),
            email: "ana@example.com".to_owned(),
            key: key.to_owned(),
            converted,
            ..Row::default()
        };
        let of = |rows: &[&Row]| {
            let found = standing("Ana@example.com", rows);
            found.iter().map(|row| row.id.clone()).collect::<Vec<_>>().join(" ")
        };
        let ours = row("1", "ana@example.com", false);
        let theirs = row("2", "", false);
        let other = row("3", "bo@example.com", false);
        let gone = row("4", "", true);
        assert_eq!(of(&[]), "");
        assert_eq!(of(&[&theirs, &ours]), "1");
        assert_eq!(of(&[&theirs, &gone]), "2");
        assert_eq!(of(&[&theirs, &other, &gone]), "2 3");
        assert_eq!(of(&[&gone]), "4");
        let ours = Row { converted: true, ..ours };
        assert_eq!(of(&[&theirs, &ours, &gone]), "1");
    }

    #[test]
    fn pages_of_any_shape_are_read() {
        let body = json!({"records": [{"Id": "00Q1", "Email": "A@x.com"}, {"Id": null}, 5],
                          "nextRecordsUrl": "/services/data/v67.0/query/01g-2000"});
        let (rows, next) = page(&body, "Key__c");
        assert_eq!((rows.len(), rows[0].email.as_str()), (1, "a@x.com"));
        assert!(next.is_some());
        for odd in
            [json!(null), json!([1]), json!({"records": {}, "nextRecordsUrl": "https://elsewhere"})]
        {
            assert_eq!(page(&odd, "Key__c"), (Vec::new(), None), "{odd}");
        }
    }
}
