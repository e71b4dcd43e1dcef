//! The document that all layers are laid into: every value remembers where it was written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the built-in defaults, at a line.
    Default(usize),
    /// In a file.
    File {
        /// As it was named.
        name: Arc<str>,
        /// From 1.
        line: usize,
        /// In characters, from 1.
        column: usize,
    },
    /// In an environment variable of that name.
    Env(String),
    /// In a flag of that name.
    Flag(String),
    /// Nowhere in particular.
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default(line) => write!(f, "built-in defaults:{line}"),
            Place::File { name, line, column } => write!(f, "{name}:{line}:{column}"),
            Place::Env(name) | Place::Flag(name) => f.write_str(name),
            Place::Nowhere => f.write_str("configuration"),
        }
    }
}

/// One step from a table or list to what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// A path as people read and write it: `source[0].fields.company`.
pub(super) fn path_text(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Key(key) if text.is_empty() => text.push_str(key),
            Step::Key(key) => text.push_str(&format!(".{key}")),
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

/// A value and its place. Not `Debug`: secrets are in here in the clear.
#[derive(Clone)]
pub(super) struct Node {
    pub place: Place,
    pub value: Value,
}

#[derive(Clone)]
pub(super) enum Value {
    Text(String),
    /// From the environment or a flag: a text that may be read as a number or a truth value.
    Loose(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    /// Nothing that any setting takes: the word says what it is.
    Other(&'static str),
    List(Vec<Node>),
    Table(Table),
}

/// Key to the place of the key and the value.
pub(super) type Table = BTreeMap<String, (Place, Node)>;

impl Value {
    /// What it is, for messages. Never the value itself, which may be a secret in the wrong place.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Text(_) | Value::Loose(_) => "a text",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number with a fraction",
            Value::Bool(_) => "a truth value",
            Value::Other(what) => what,
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }
}

/// Turns byte offsets of one document into places.
struct Document<'a> {
    text: &'a str,
    name: Option<Arc<str>>,
    /// Offsets of the first byte of every line.
    lines: Vec<usize>,
}

impl<'a> Document<'a> {
    fn new(text: &'a str, name: Option<Arc<str>>) -> Document<'a> {
        let after_ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Document { text, name, lines: std::iter::once(0).chain(after_ends).collect() }
    }

    fn place(&self, offset: usize) -> Place {
        // The first line begins at 0, so there is always at least one.
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start..offset).unwrap_or_default();
        // A byte order mark is no column to anybody who looks at the file.
        let column = before.chars().filter(|c| *c != '\u{feff}').count() + 1;
        match &self.name {
            Some(name) => Place::File { name: name.clone(), line, column },
            None => Place::Default(line),
        }
    }

    fn table(&self, table: &DeTable<'_>) -> Table {
        let entry = |(key, value): (&Spanned<_>, &Spanned<_>)| {
            let name: &std::borrow::Cow<'_, str> = key.get_ref();
            (name.to_string(), (self.place(key.span().start), self.node(value)))
        };
        table.iter().map(entry).collect()
    }

    fn node(&self, node: &Spanned<DeValue<'_>>) -> Node {
        let value = match node.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or(Value::Other("a number that is too large"), Value::Integer),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .map_or(Value::Other("a number that cannot be read"), Value::Float),
            DeValue::Boolean(truth) => Value::Bool(*truth),
            DeValue::Datetime(_) => Value::Other("a date or time"),
            DeValue::Array(list) => Value::List(list.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { place: self.place(node.span().start), value }
    }
}

/// Parses TOML. The name is the file's; without one the text is the built-in defaults. Errors are
/// places and sentences that quote nothing of the document, where secrets may stand.
pub(super) fn parse(text: &str, name: Option<Arc<str>>) -> Result<Node, Vec<(Place, String)>> {
    let document = Document::new(text, name);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        let place = document.place(0);
        return Ok(Node { place, value: Value::Table(document.table(table.get_ref())) });
    }
    let error = |error: toml::de::Error| {
        let offset = error.span().map_or(text.len(), |span| span.start);
        (document.place(offset), format!("not TOML: {}", error.message()))
    };
    Err(errors.into_iter().map(error).collect())
}

impl Node {
    /// Lays another node over this one: tables are joined, everything else is replaced.
    pub fn lay(&mut self, over: Node) {
        let Node { place, value } = over;
        match (&mut self.value, value) {
            (Value::Table(under), Value::Table(entries)) => {
                for (key, (place, node)) in entries {
                    if let Some((old_place, old)) = under.get_mut(&key) {
                        *old_place = place;
                        old.lay(node);
                    } else {
                        under.insert(key, (place, node));
                    }
                }
                // A table of several layers is placed in the file, where people look first.
                if !matches!(self.place, Place::File { .. }) {
                    self.place = place;
                }
            }
            (old, value) => {
                *old = value;
                self.place = place;
            }
        }
    }

    /// A text at the end of a path, for one environment variable or flag.
    pub fn loose(keys: &[&str], text: String, place: &Place) -> Node {
        let end = Node { place: place.clone(), value: Value::Loose(text) };
        keys.iter().rev().fold(end, |inner, key| {
            let table = BTreeMap::from([((*key).to_owned(), (place.clone(), inner))]);
            Node { place: place.clone(), value: Value::Table(table) }
        })
    }

    /// What is at a path.
    pub fn get(&self, path: &[Step]) -> Option<&Node> {
        path.iter().try_fold(self, |node, step| match (&node.value, step) {
            (Value::Table(table), Step::Key(key)) => table.get(key).map(|(_, node)| node),
            (Value::List(list), Step::Index(index)) => list.get(*index),
            _ => None,
        })
    }

    fn get_mut(&mut self, path: &[Step]) -> Option<&mut Node> {
        path.iter().try_fold(self, |node, step| match (&mut node.value, step) {
            (Value::Table(table), Step::Key(key)) => table.get_mut(key).map(|(_, node)| node),
            (Value::List(list), Step::Index(index)) => list.get_mut(*index),
            _ => None,
        })
    }

    /// Puts a node at a path whose parent exists, or takes away what is there. `false`: nothing changed.
    pub fn put(&mut self, path: &[Step], node: Option<Node>) -> bool {
        let Some((last, parent)) = path.split_last() else { return false };
        let Some(parent) = self.get_mut(parent) else { return false };
        match (&mut parent.value, last, node) {
            (Value::Table(table), Step::Key(key), Some(node)) => {
                table.insert(key.clone(), (node.place.clone(), node)).is_some()
            }
            (Value::Table(table), Step::Key(key), None) => table.remove(key).is_some(),
            (Value::List(list), Step::Index(index), None) if *index < list.len() => {
                list.remove(*index);
                true
            }
            _ => false,
        }
    }

    /// Visits this node and everything in it, with the path of each.
    pub fn walk(&self, visit: &mut impl FnMut(&[Step], &Node)) {
        self.walk_from(&mut Vec::new(), visit);
    }

    fn walk_from(&self, path: &mut Vec<Step>, visit: &mut impl FnMut(&[Step], &Node)) {
        visit(path, self);
        let mut inside = |step, node: &Node| {
            path.push(step);
            node.walk_from(path, visit);
            path.pop();
        };
        match &self.value {
            Value::Table(table) => {
                table.iter().for_each(|(key, (_, node))| inside(Step::Key(key.clone()), node));
            }
            Value::List(list) => {
                list.iter().enumerate().for_each(|(at, node)| inside(Step::Index(at), node));
            }
            _ => {}
        }
    }
}
