//! The `SELECT` that Salesforce's SOQL and Zoho's COQL have in common: one object, conditions, an order by id, a limit.

use std::cmp::Ordering;

use serde_json::Value;

/// Whose rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Salesforce: `= null`, any number of conditions beside each other.
    Soql,
    /// Zoho: `is null`, brackets around every two conditions, 50 values in a list, 50 columns.
    Coql,
}

/// A query, read.
#[derive(Debug, PartialEq)]
pub(super) struct Select {
    pub columns: Vec<String>,
    pub from: String,
    pub condition: Option<Condition>,
    pub limit: Option<usize>,
    pub offset: usize,
}

/// What a record must satisfy.
#[derive(Debug, PartialEq)]
pub(super) enum Condition {
    And(Vec<Condition>),
    Or(Vec<Condition>),
    Is { column: String, test: Test, values: Vec<Value> },
}

/// How a column is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    /// Equal to one of the values.
    In,
    /// To none.
    NotIn,
    /// Comes after the value.
    After,
    /// Comes before the value.
    Before,
}

impl Condition {
    /// Whether it holds for a record whose columns `read` gives. Letter case is ignored.
    pub fn holds(&self, read: &dyn Fn(&str) -> Value) -> bool {
        match self {
            Condition::And(all) => all.iter().all(|c| c.holds(read)),
            Condition::Or(any) => any.iter().any(|c| c.holds(read)),
            Condition::Is { column, test, values } => {
                let there = read(column);
                let order = |v: &Value| order(&there, v);
                match test {
                    Test::In => values.iter().any(|v| order(v) == Some(Ordering::Equal)),
                    Test::NotIn => values.iter().all(|v| order(v) != Some(Ordering::Equal)),
                    Test::After => values.iter().any(|v| order(v) == Some(Ordering::Greater)),
                    Test::Before => values.iter().any(|v| order(v) == Some(Ordering::Less)),
                }
            }
        }
    }

    /// Visits every value that a column is compared with.
    pub fn each_value(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Condition::And(list) | Condition::Or(list) => {
                list.iter_mut().for_each(|condition| condition.each_value(visit));
            }
            Condition::Is { values, .. } => values.iter_mut().for_each(visit),
        }
    }

    /// Every column it names.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            Condition::And(list) | Condition::Or(list) => {
                list.iter().flat_map(Condition::columns).collect()
            }
            Condition::Is { column, .. } => vec![column],
        }
    }
}

fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64()?.partial_cmp(&b.as_f64()?),
        (Value::String(a), Value::String(b)) => Some(a.to_lowercase().cmp(&b.to_lowercase())),
        _ => (a == b).then_some(Ordering::Equal),
    }
}

/// Reads a query, or says what is wrong with it.
pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Select, String> {
    let mut parser = Parser { words: words(text)?, at: 0, dialect };
    let select = parser.select()?;
    match parser.words.get(parser.at) {
        None => Ok(select),
        Some(word) => Err(format!("unexpected token: {}", word.shown())),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// A name, keyword or number.
    Bare(String),
    Text(String),
    /// `(`, `,`, `>=` and the like.
    Sign(&'static str),
}

impl Word {
    fn shown(&self) -> &str {
        match self {
            Word::Bare(word) | Word::Text(word) => word,
            Word::Sign(sign) => sign,
        }
    }
}

const SIGNS: [&str; 9] = ["!=", ">=", "<=", "=", ">", "<", "(", ")", ","];

fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            words.push(Word::Sign(sign));
            rest = &rest[sign.len()..];
        } else if first == '\'' {
            let (word, after) = quoted(&rest[1..])?;
            words.push(Word::Text(word));
            rest = after;
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "!=<>(),'".contains(c));
            let end = end.unwrap_or(rest.len()).max(first.len_utf8());
            words.push(Word::Bare(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(words)
}

/// A text up to its closing quote, with what `\` takes the meaning from, and what comes after it.
fn quoted(text: &str) -> Result<(String, &str), String> {
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Ok((word, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, 'n')) => word.push('\n'),
                Some((_, c @ ('\'' | '"' | '\\'))) => word.push(c),
                _ => return Err("Illegal string literal".to_owned()),
            },
            c => word.push(c),
        }
    }
    Err("unterminated string literal".to_owned())
}

struct Parser {
    words: Vec<Word>,
    at: usize,
    dialect: Dialect,
}

impl Parser {
    fn select(&mut self) -> Result<Select, String> {
        self.keyword("select")?;
        let mut columns = vec![self.name()?];
        while self.sign(",") {
            columns.push(self.name()?);
        }
        self.keyword("from")?;
        let from = self.name()?;
        let condition = match self.is_keyword("where") {
            true => Some(self.any()?),
            false => None,
        };
        if self.dialect == Dialect::Coql {
            if condition.is_none() {
                return Err("missing clause: where".to_owned());
            }
            if columns.len() > 50 {
                return Err("more than 50 columns".to_owned());
            }
        }
        if self.is_keyword("order") {
            self.keyword("by")?;
            if !self.name()?.eq_ignore_ascii_case("id") {
                return Err("this stand-in orders by id only".to_owned());
            }
            self.is_keyword("asc");
        }
        let mut number = |keyword: &str| match self.is_keyword(keyword) {
            true => self.number().map(Some),
            false => Ok(None),
        };
        let (limit, offset) = (number("limit")?, number("offset")?.unwrap_or(0));
        Ok(Select { columns, from, condition, limit, offset })
    }

    fn any(&mut self) -> Result<Condition, String> {
        let list = self.list("or", Parser::all)?;
        Ok(joined(list, Condition::Or))
    }

    fn all(&mut self) -> Result<Condition, String> {
        let list = self.list("and", Parser::one)?;
        Ok(joined(list, Condition::And))
    }

    fn list(
        &mut self,
        between: &str,
        item: fn(&mut Parser) -> Result<Condition, String>,
    ) -> Result<Vec<Condition>, String> {
        let mut list = vec![item(self)?];
        while self.is_keyword(between) {
            list.push(item(self)?);
        }
        match self.dialect == Dialect::Coql && list.len() > 2 {
            true => Err("more than two conditions without brackets".to_owned()),
            false => Ok(list),
        }
    }

    fn one(&mut self) -> Result<Condition, String> {
        if self.sign("(") {
            let inner = self.any()?;
            return match self.sign(")") {
                true => Ok(inner),
                false => Err("a bracket is not closed".to_owned()),
            };
        }
        let column = self.name()?;
        if self.dialect == Dialect::Coql && self.is_keyword("is") {
            let test = if self.is_keyword("not") { Test::NotIn } else { Test::In };
            self.keyword("null")?;
            return Ok(Condition::Is { column, test, values: vec![Value::Null] });
        }
        let not = self.is_keyword("not");
        if self.is_keyword("in") {
            let test = if not { Test::NotIn } else { Test::In };
            return Ok(Condition::Is { column, test, values: self.values()? });
        }
        let sign = [("=", Test::In), ("!=", Test::NotIn), (">", Test::After), ("<", Test::Before)]
            .into_iter()
            .find(|(sign, _)| !not && self.sign(sign));
        let Some((_, test)) = sign else { return Err(self.unexpected()) };
        Ok(Condition::Is { column, test, values: vec![self.value()?] })
    }

    fn values(&mut self) -> Result<Vec<Value>, String> {
        if !self.sign("(") {
            return Err(self.unexpected());
        }
        let mut values = vec![self.value()?];
        while self.sign(",") {
            values.push(self.value()?);
        }
        if self.dialect == Dialect::Coql && values.len() > 50 {
            return Err("more than 50 values in a list".to_owned());
        }
        match self.sign(")") {
            true => Ok(values),
            false => Err(self.unexpected()),
        }
    }

    fn value(&mut self) -> Result<Value, String> {
        let value = match self.words.get(self.at) {
            Some(Word::Text(text)) => Value::from(text.as_str()),
            Some(Word::Bare(word)) => match word.to_lowercase().as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                "null" if self.dialect == Dialect::Soql => Value::Null,
                number => match number.parse::<f64>() {
                    Ok(number) => Value::from(number),
                    Err(_) => return Err(self.unexpected()),
                },
            },
            _ => return Err(self.unexpected()),
        };
        self.at += 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<usize, String> {
        let Some(Word::Bare(word)) = self.words.get(self.at) else { return Err(self.unexpected()) };
        let number = word.parse().map_err(|_| self.unexpected())?;
        self.at += 1;
        Ok(number)
    }

    fn name(&mut self) -> Result<String, String> {
        match self.words.get(self.at) {
            Some(Word::Bare(name))
                if name.chars().all(|c| c.is_alphanumeric() || "_.".contains(c)) =>
            {
                self.at += 1;
                Ok(name.clone())
            }
            _ => Err(self.unexpected()),
        }
    }

    fn keyword(&mut self, keyword: &str) -> Result<(), String> {
        match self.is_keyword(keyword) {
            true => Ok(()),
            false => Err(self.unexpected()),
        }
    }

    /// Steps over the keyword where it comes next.
    fn is_keyword(&mut self, keyword: &str) -> bool {
        let next = matches!(self.words.get(self.at), Some(Word::Bare(w)) if w.eq_ignore_ascii_case(keyword));
        self.at += usize::from(next);
        next
    }

    fn sign(&mut self, sign: &str) -> bool {
        let next = matches!(self.words.get(self.at), Some(Word::Sign(s)) if *s == sign);
        self.at += usize::from(next);
        next
    }

    fn unexpected(&self) -> String {
        match self.words.get(self.at) {
            Some(word) => format!("unexpected token: {}", word.shown()),
            None => "unexpected token: '<EOF>'".to_owned(),
        }
    }
}

fn joined(mut list: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match list.len() {
        1 => list.remove(0),
        _ => join(list),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(query: &str, dialect: Dialect, record: &Value) -> bool {
        let select = parse(query, dialect).unwrap();
        select.condition.unwrap().holds(&|column| record[column].clone())
    }

    #[test]
    fn conditions_hold_as_written() {
        let ana = json!({"Email": "Ana@Example.com", "Gone": false, "Key": null, "Id": "2"});
        for (condition, wanted) in [
            ("Email = 'ana@example.com'", true),
            ("Email IN ('bo@example.com', 'ANA@example.com')", true),
            ("Email != 'ana@example.com'", false),
            ("Email not in ('x')", true),
            ("Gone = false and Key = null", true),
            ("Gone = true or (Key = null and Id > '1')", true),
            ("Id < '2'", false),
            ("Email = 'O\\'Brien'", false),
        ] {
            let query = format!("select Id, Email from Lead where {condition} order by Id limit 5");
            assert_eq!(holds(&query, Dialect::Soql, &ana), wanted, "{condition}");
        }
        let query =
            "select Email from Leads where (Key is null and Email in ('ana@example.com')) limit 10";
        assert!(holds(query, Dialect::Coql, &ana));
        assert!(!holds("select Email from Leads where Key is not null", Dialect::Coql, &ana));
    }

    #[test]
    fn what_is_wrong_is_refused() {
        let fifty_one = vec!["'x'"; 51].join(",");
        for (query, dialect) in [
            ("", Dialect::Soql),
            ("select from Lead", Dialect::Soql),
            ("select Id from Lead where", Dialect::Soql),
            ("select Id from Lead where Email = 'ana", Dialect::Soql),
            ("select Id from Lead where Email = 'a\\z'", Dialect::Soql),
            ("select Id from Lead where Email in ()", Dialect::Soql),
            ("select Id from Lead where (Id = 'x'", Dialect::Soql),
            ("select Id from Lead; drop", Dialect::Soql),
            ("select Id from Lead where Id is null", Dialect::Soql),
            ("select id from Leads", Dialect::Coql),
            ("select id from Leads where Key = null", Dialect::Coql),
            ("select id from Leads where a = 1 or b = 2 or c = 3", Dialect::Coql),
            (&format!("select id from Leads where a in ({fifty_one})"), Dialect::Coql),
        ] {
            assert!(parse(query, dialect).is_err(), "{query}");
        }
        assert!(
            parse("select id from Leads where ((a = 1 or b = 2) or c = 3)", Dialect::Coql).is_ok()
        );
    }
}
