//! Finding texts in a document.

use serde_json::Value;

use crate::lead::text;

use super::{Document, Fate, FieldError, Line, Path, Place, Trace};

impl Path {
    /// The values the path finds, in document order.
    pub(super) fn find<'a>(&self, doc: &Document<'a>) -> Vec<&'a Value> {
        match &self.place {
            Place::Part(path) => path.query(doc.part).all(),
            Place::Body(path) => path.query(doc.body).all(),
            Place::Header(_) => Vec::new(),
        }
    }

    fn header<'a>(&self, doc: &Document<'a>) -> Option<&'a str> {
        let Place::Header(wanted) = &self.place else { return None };
        doc.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// Why a path that found these gave nothing.
    fn nothing(&self, doc: &Document<'_>, found: &[&Value]) -> Fate {
        match found.is_empty() && self.header(doc).is_none() {
            true => Fate::NoNode,
            false => Fate::Blank,
        }
    }
}

impl Line {
    /// The first non-blank text of the paths, else the constant. A value that cannot be a text is
    /// passed over, and is the answer only when nothing else is found.
    pub(super) fn text(
        &self,
        doc: &Document<'_>,
        trace: &mut Trace,
    ) -> Result<Option<String>, FieldError> {
        let mut error = None;
        for (at, path) in self.from.iter().enumerate() {
            if let Some(header) = path.header(doc).filter(|header| !text::is_blank(header)) {
                trace.chose(self, at, || header.to_owned());
                return Ok(Some(header.to_owned()));
            }
            let found = path.find(doc);
            let text = match self.via.joins() {
                Some(separator) => joined(&found, separator),
                None => first(&found),
            };
            match text {
                Ok(Some(text)) => {
                    trace.chose(self, at, || text.clone());
                    return Ok(Some(text));
                }
                Ok(None) => trace.passed(self, at, path.nothing(doc, &found)),
                Err(e) => {
                    trace.passed(self, at, Fate::WrongType(e));
                    error = error.or(Some(e));
                }
            }
        }
        match (&self.value, error) {
            (Some(constant), _) => {
                trace.chose(self, self.from.len(), || constant.clone());
                Ok(Some(constant.clone()))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// Every non-blank text of the first path that finds any, lists opened.
    pub(super) fn texts(
        &self,
        doc: &Document<'_>,
        trace: &mut Trace,
    ) -> Result<Vec<String>, FieldError> {
        for (at, path) in self.from.iter().enumerate() {
            let header = path.header(doc).filter(|header| !text::is_blank(header));
            if let Some(header) = header {
                trace.chose(self, at, || header.to_owned());
                return Ok(vec![header.to_owned()]);
            }
            let found = path.find(doc);
            let texts = flat(&found).inspect_err(|error| {
                trace.passed(self, at, Fate::WrongType(*error));
                trace.not_reached(self, at + 1);
            })?;
            if !texts.is_empty() {
                trace.chose(self, at, || texts.join(", "));
                return Ok(texts);
            }
            trace.passed(self, at, path.nothing(doc, &found));
        }
        if let Some(constant) = &self.value {
            trace.chose(self, self.from.len(), || constant.clone());
        }
        Ok(self.value.iter().cloned().collect())
    }

    /// The first object with members that a path finds.
    pub(super) fn object<'a>(
        &self,
        doc: &Document<'a>,
        trace: &mut Trace,
    ) -> Result<Option<&'a serde_json::Map<String, Value>>, FieldError> {
        for (at, path) in self.from.iter().enumerate() {
            let found = path.find(doc);
            for value in &found {
                match value {
                    Value::Object(members) if !members.is_empty() => {
                        trace.chose(self, at, || value.to_string());
                        return Ok(Some(members));
                    }
                    // An empty list is how PHP writes an empty object.
                    Value::Object(_) | Value::Null => {}
                    Value::Array(list) if list.is_empty() => {}
                    Value::String(blank) if text::is_blank(blank) => {}
                    other => {
                        let found = kind(other);
                        let error = FieldError::WrongType { found, wanted: "an object" };
                        trace.passed(self, at, Fate::WrongType(error));
                        trace.not_reached(self, at + 1);
                        return Err(error);
                    }
                }
            }
            trace.passed(self, at, path.nothing(doc, &found));
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
