//! Finding texts in a document.

use serde_json::Value;

use crate::lead::text;

use super::{Document, FieldError, Line, Path};

impl Path {
    /// The values the path finds, in document order.
    fn find<'a>(&self, doc: &Document<'a>) -> Vec<&'a Value> {
        match self {
            Path::Part(path) => path.query(doc.part).all(),
            Path::Body(path) => path.query(doc.body).all(),
            Path::Header(_) => Vec::new(),
        }
    }

    fn header<'a>(&self, doc: &Document<'a>) -> Option<&'a str> {
        let Path::Header(wanted) = self else { return None };
        doc.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

impl Line {
    /// The first non-blank text of the paths, else the constant. A value that cannot be a text is
    /// passed over, and is the answer only when nothing else is found.
    pub(super) fn text(&self, doc: &Document<'_>) -> Result<Option<String>, FieldError> {
        let mut error = None;
        for path in &self.from {
            if let Some(header) = path.header(doc).filter(|header| !text::is_blank(header)) {
                return Ok(Some(header.to_owned()));
            }
            let found = path.find(doc);
            let text = match self.via.joins() {
                Some(separator) => joined(&found, separator),
                None => first(&found),
            };
            match text {
                Ok(Some(text)) => return Ok(Some(text)),
                Ok(None) => {}
                Err(e) => error = error.or(Some(e)),
            }
        }
        match (&self.value, error) {
            (Some(constant), _) => Ok(Some(constant.clone())),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Every non-blank text of the first path that finds any, lists opened.
    pub(super) fn texts(&self, doc: &Document<'_>) -> Result<Vec<String>, FieldError> {
        for path in &self.from {
            let header = path.header(doc).filter(|header| !text::is_blank(header));
            if let Some(header) = header {
                return Ok(vec![header.to_owned()]);
            }
            let texts = flat(&path.find(doc))?;
            if !texts.is_empty() {
                return Ok(texts);
            }
        }
        Ok(self.value.iter().cloned().collect())
    }

    /// The first object with members that a path finds.
    pub(super) fn object<'a>(
        &self,
        doc: &Document<'a>,
    ) -> Result<Option<&'a serde_json::Map<String, Value>>, FieldError> {
        for value in self.from.iter().flat_map(|path| path.find(doc)) {
            match value {
                Value::Object(members) if !members.is_empty() => return Ok(Some(members)),
                // An empty list is how PHP writes an empty object.
                Value::Object(_) | Value::Null => {}
                Value::Array(list) if list.is_empty() => {}
                Value::String(blank) if text::is_blank(blank) => {}
                other => {
                    return Err(FieldError::WrongType { found: kind(other), wanted: "an object" });
                }
            }
        }
        Ok(None)
    }
}

fn first(found: &[&Value]) -> Result<Option<String>, FieldError> {
    let mut error = None;
    for value in found {
        match scalar(value) {
            Ok(Some(text)) => return Ok(Some(text)),
            Ok(None) => {}
            Err(e) => error = error.or(Some(e)),
        }
    }
    error.map_or(Ok(None), Err)
}

fn joined(found: &[&Value], separator: &str) -> Result<Option<String>, FieldError> {
    let texts = flat(found)?;
    let trimmed: Vec<&str> = texts.iter().map(|text| text.trim()).collect();
    Ok((!trimmed.is_empty()).then(|| trimmed.join(separator)))
}

fn flat(found: &[&Value]) -> Result<Vec<String>, FieldError> {
    let mut texts = Vec::new();
    for value in found {
        match value {
            Value::Array(list) => {
                for value in list {
                    texts.extend(scalar(value)?);
                }
            }
            value => texts.extend(scalar(value)?),
        }
    }
    Ok(texts)
}

/// The text of a value: lists of one element opened, numbers with their exact digits. `None`: blank.
pub(super) fn scalar(value: &Value) -> Result<Option<String>, FieldError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) if text::is_blank(text) => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Bool(yes) => Ok(Some(yes.to_string())),
        Value::Number(number) => match number.as_f64() {
            // Past 2^53 a float has lost digits already: better no number than a wrong one.
            Some(float) if number.is_f64() && float.abs() >= 9_007_199_254_740_992.0 => {
                Err(FieldError::InexactNumber)
            }
            _ => Ok(Some(number.to_string())),
        },
        Value::Array(list) => match list.as_slice() {
            [] => Ok(None),
            [one] => scalar(one),
            _ => Err(FieldError::WrongType { found: "a list", wanted: "one value" }),
        },
        Value::Object(members) if members.is_empty() => Ok(None),
        Value::Object(_) => Err(FieldError::WrongType { found: "an object", wanted: "one value" }),
    }
}

/// What a value is, in words for an error.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
