//! What a mapping does, step by step, for people who write one. The code that maps notes it; nothing is
//! decided here.

use std::collections::HashSet;
use std::ptr;

use serde_json::Value;

use crate::lead::email::EmailError;
use crate::lead::text;

use super::extract::scalar;
use super::{Document, FieldError, Line, Mapping, Target, Via};

/// Where a kind leaves what it recognised; copies of what stands elsewhere in the part.
const FOUND: &str = "@found";

/// What became of one path of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The target's name.
    pub target: String,
    /// The path as written; `None`: the rule's constant.
    pub path: Option<String>,
    /// The rule's conversion.
    pub via: Via,
    /// The text that stood there, before its conversion.
    pub found: Option<String>,
    /// What became of it.
    pub fate: Fate,
}

/// How a path ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fate {
    /// It gave the target its value, or its part of it.
    #[error("used")]
    Used,
    /// There is nothing in that place.
    #[error("nothing there")]
    NoNode,
    /// What is there is blank.
    #[error("blank")]
    Blank,
    /// What is there can be no text.
    #[error("{0}")]
    WrongType(FieldError),
    /// An earlier path decided.
    #[error("not looked at, an earlier path decided")]
    NotReached,
    /// The conversion, or the target's own cleaning, left nothing of it.
    #[error("nothing is left after conversion")]
    NothingLeft,
    /// The conversion, or the target's own rules, refused it.
    #[error("{0}")]
    Refused(FieldError),
    /// No address.
    #[error("{0}")]
    NoAddress(EmailError),
}

impl Fate {
    /// A stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Fate::Used => "used",
            Fate::NoNode => "no_node",
            Fate::Blank => "blank",
            Fate::NotReached => "not_reached",
            Fate::NothingLeft => "nothing_left",
            Fate::WrongType(error) | Fate::Refused(error) => error.code(),
            Fate::NoAddress(_) => "invalid_email",
        }
    }
}

/// Takes notes, or does not.
#[derive(Debug)]
pub struct Trace {
    steps: Option<Vec<Step>>,
    /// The step whose text is being converted.
    chosen: Option<usize>,
}

impl Trace {
    /// For work that nobody watches: notes nothing, costs nothing.
    pub const fn off() -> Trace {
        Trace { steps: None, chosen: None }
    }

    /// Notes every step.
    pub const fn on() -> Trace {
        Trace { steps: Some(Vec::new()), chosen: None }
    }

    /// The notes, in the order of the rules.
    pub fn steps(self) -> Vec<Step> {
        self.steps.unwrap_or_default()
    }

    /// The path at that place of the line (past the last: the constant) is not the one.
    pub(super) fn passed(&mut self, line: &Line, at: usize, fate: Fate) {
        if let Some(steps) = &mut self.steps {
            steps.push(step(line, at, None, fate));
        }
    }

    /// The path at that place of the line is the one, and no later one is looked at.
    pub(super) fn chose(&mut self, line: &Line, at: usize, found: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.steps {
            self.chosen = Some(steps.len());
            steps.push(step(line, at, Some(found()), Fate::Used));
            self.not_reached(line, at + 1);
        }
    }

    /// From that place of the line on nothing is looked at.
    pub(super) fn not_reached(&mut self, line: &Line, from: usize) {
        if let Some(steps) = &mut self.steps {
            let end = line.from.len() + usize::from(line.value.is_some());
            steps.extend((from..end).map(|at| step(line, at, None, Fate::NotReached)));
        }
    }

    /// What was chosen came to this instead.
    pub(super) fn came_to(&mut self, fate: Fate) {
        let chosen = self.chosen.take();
        let steps = self.steps.as_mut().zip(chosen);
        if let Some(step) = steps.and_then(|(steps, at)| steps.get_mut(at)) {
            step.fate = fate;
        }
    }

    /// The line is done.
    pub(super) fn settle(&mut self, taken: Result<bool, FieldError>, has_value: bool) {
        match taken {
            Ok(false) => self.came_to(Fate::NothingLeft),
            // A list may be taken but for some of its members.
            Err(error) if !has_value => self.came_to(Fate::Refused(error)),
            _ => {}
        }
        self.chosen = None;
    }
}

fn step(line: &Line, at: usize, found: Option<String>, fate: Fate) -> Step {
    let path = line.from.get(at).map(|path| path.written.clone());
    Step { target: line.target.name(), path, via: line.via, found, fate }
}

/// A value that is in no rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Leaf {
    /// A path to it, ready for `[source.fields]`.
    pub path: String,
    /// A text, a number or a boolean; never blank.
    pub value: Value,
}

impl Mapping {
    /// Values of the part that no rule looks at.
    pub fn unmapped(&self, doc: &Document<'_>) -> Vec<Leaf> {
        let mut reached = self.reached(doc);
        let recognised = doc.part.get(FOUND);
        recognised.into_iter().for_each(|found| mark_all(found, &mut reached));
        let copies = recognised.and_then(Value::as_object).into_iter().flatten();
        let mut copied = HashSet::new();
        copies.for_each(|(_, value)| texts(value, &mut copied));
        let mut leaves = Vec::new();
        walk(doc.part, "$", &reached, &mut leaves);
        leaves.retain(|leaf| text_of(&leaf.value).is_none_or(|text| !copied.contains(&text)));
        leaves
    }

    /// Values of the body around its parts that no rule looks at.
    pub fn unmapped_around(&self, doc: &Document<'_>, parts: &[&Value]) -> Vec<Leaf> {
        let mut reached = self.reached(doc);
        parts.iter().for_each(|part| mark_all(part, &mut reached));
        let mut leaves = Vec::new();
        walk(doc.body, "$['@body']", &reached, &mut leaves);
        leaves
    }

    /// Where in memory the values are that the rules look at.
    fn reached(&self, doc: &Document<'_>) -> HashSet<*const Value> {
        let mut reached = HashSet::new();
        for line in &self.lines {
            for node in line.from.iter().flat_map(|path| path.find(doc)) {
                reached.insert(ptr::from_ref(node));
                match node {
                    Value::Array(list) => reached.extend(list.iter().map(ptr::from_ref)),
                    Value::Object(members) if line.target == Target::Attributes => {
                        reached.extend(members.values().map(ptr::from_ref));
                    }
                    _ => {}
                }
            }
        }
        reached
    }
}

fn mark_all(value: &Value, reached: &mut HashSet<*const Value>) {
    reached.insert(ptr::from_ref(value));
    match value {
        Value::Array(list) => list.iter().for_each(|value| mark_all(value, reached)),
        Value::Object(members) => members.values().for_each(|value| mark_all(value, reached)),
        _ => {}
    }
}

fn text_of(value: &Value) -> Option<String> {
    scalar(value).ok().flatten().map(|text| text.trim().to_owned())
}

fn texts(value: &Value, all: &mut HashSet<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| texts(value, all)),
        value => all.extend(text_of(value)),
    }
}

fn walk(value: &Value, path: &str, reached: &HashSet<*const Value>, leaves: &mut Vec<Leaf>) {
    match value {
        Value::Array(list) => {
            for (at, value) in list.iter().enumerate() {
                walk(value, &format!("{path}[{at}]"), reached, leaves);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                walk(value, &format!("{path}{}", member(name)), reached, leaves);
            }
        }
        Value::Null => {}
        Value::String(blank) if text::is_blank(blank) => {}
        _ if reached.contains(&ptr::from_ref(value)) => {}
        value => leaves.push(Leaf { path: path.to_owned(), value: value.clone() }),
    }
}

/// The segment of a JSONPath that names a member.
fn member(name: &str) -> String {
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let plain = name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit());
    if plain {
        return format!(".{name}");
    }
    let mut quoted = String::new();
    for c in name.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    format!("['{quoted}']")
}
