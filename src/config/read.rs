//! Reads typed values out of the tree with serde, so that a struct in `config.rs` is all there is to
//! say about a setting. Errors carry the place and the path of what is wrong, and never its value
//! where that may be a secret.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::tree::{Node, Place, Step, Table, Value};

/// What is wrong, where. `path` runs from the innermost step outwards.
#[derive(Debug)]
pub(super) struct ReadError {
    pub what: What,
    pub place: Option<Place>,
    pub path: Vec<Step>,
}

#[derive(Debug)]
pub(super) enum What {
    /// A key that the table does not have; the last step of the path is the key.
    UnknownKey { expected: &'static [&'static str] },
    /// A key that the table must have.
    MissingKey(&'static str),
    /// A sentence about the value.
    Value(String),
}

impl ReadError {
    fn value(sentence: impl fmt::Display) -> ReadError {
        ReadError { what: What::Value(sentence.to_string()), place: None, path: Vec::new() }
    }

    fn at(mut self, place: &Place, step: Step) -> ReadError {
        self.place.get_or_insert_with(|| place.clone());
        self.path.push(step);
        self
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::UnknownKey { .. } => f.write_str("unknown key"),
            What::MissingKey(key) => write!(f, "`{key}` is missing"),
            What::Value(sentence) => f.write_str(sentence),
        }
    }
}

impl std::error::Error for ReadError {}

/// serde's names of types, in words.
fn in_words(expected: &dyn Expected) -> String {
    let text = expected.to_string();
    match text.as_str() {
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" | "u32" | "u64" | "usize" => "a whole number from 0".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" => "a text".to_owned(),
        "a sequence" => "a list (of tables: [[two brackets]])".to_owned(),
        "a map" => "a table".to_owned(),
        text if text.starts_with("struct ") => "a table".to_owned(),
        text => text.to_owned(),
    }
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(sentence: T) -> ReadError {
        ReadError::value(sentence)
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        let found = match found {
            Unexpected::Bool(_) => "a truth value",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a whole number",
            Unexpected::Float(_) => "a number with a fraction",
            Unexpected::Str(_) => "a text",
            Unexpected::Seq => "a list",
            Unexpected::Map => "a table",
            _ => "something else",
        };
        ReadError::value(format!("expected {}, found {found}", in_words(expected)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> ReadError {
        let expected = in_words(expected);
        ReadError::value(match found {
            Unexpected::Unsigned(number) => {
                format!("{number} is out of range; expected {expected}")
            }
            Unexpected::Signed(number) => format!("{number} is out of range; expected {expected}"),
            _ => format!("expected {expected}"),
        })
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> ReadError {
        let hint = hint(found, expected);
        ReadError::value(format!("\"{found}\" is not one of {}{hint}", expected.join(", ")))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> ReadError {
        ReadError { what: What::UnknownKey { expected }, place: None, path: Vec::new() }
    }

    fn missing_field(key: &'static str) -> ReadError {
        ReadError { what: What::MissingKey(key), place: None, path: Vec::new() }
    }
}

/// "; did you mean `x`?" where a name is near, else nothing.
pub(super) fn hint(found: &str, names: &[&str]) -> String {
    nearest(found, names.iter().copied())
        .map_or(String::new(), |name| format!("; did you mean `{name}`?"))
}

/// The name most like the one found, if any is like it at all.
pub(super) fn nearest<'a>(found: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let found = found.to_ascii_lowercase().replace('-', "_");
    names
        .map(|name| (strsim::jaro_winkler(&found, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

/// Reads one node.
pub(super) struct Reader<'a>(pub &'a Node);

/// Numbers and truth values of the environment and of flags arrive as text.
macro_rules! loose {
    ($($method:ident $visit:ident $type:ty, $what:literal;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
            match &self.0.value {
                Value::Loose(text) => match text.trim().parse::<$type>() {
                    Ok(value) => visitor.$visit(value),
                    Err(_) => Err(ReadError::value(concat!("expected ", $what))),
                },
                _ => self.deserialize_any(visitor),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match &self.0.value {
            Value::Text(text) | Value::Loose(text) => visitor.visit_borrowed_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Other(what) => {
                let expected = in_words(&visitor);
                Err(ReadError::value(format!("expected {expected}, found {what}")))
            }
            Value::List(list) => visitor.visit_seq(Items(list.iter().enumerate())),
            Value::Table(table) => visitor.visit_map(Entries::new(table)),
        }
    }

    loose! {
        deserialize_bool visit_bool bool, "true or false";
        deserialize_u8 visit_u64 u64, "a whole number from 0";
        deserialize_u16 visit_u64 u64, "a whole number from 0";
        deserialize_u32 visit_u64 u64, "a whole number from 0";
        deserialize_u64 visit_u64 u64, "a whole number from 0";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match &self.0.value {
            Value::Text(text) | Value::Loose(text) => {
                let variant: StrDeserializer<'_, ReadError> = text.as_str().into_deserializer();
                visitor.visit_enum(variant)
            }
            other => {
                let (names, found) = (variants.join(", "), other.kind());
                Err(ReadError::value(format!("expected one of {names}, found {found}")))
            }
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a>(std::iter::Enumerate<std::slice::Iter<'a, Node>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = ReadError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((index, node)) = self.0.next() else { return Ok(None) };
        let read = seed.deserialize(Reader(node));
        read.map(Some).map_err(|error| error.at(&node.place, Step::Index(index)))
    }
}

struct Entries<'a> {
    rest: std::collections::btree_map::Iter<'a, String, (Place, Node)>,
    value: Option<(&'a str, &'a Node)>,
}

impl<'a> Entries<'a> {
    fn new(table: &'a Table) -> Entries<'a> {
        Entries { rest: table.iter(), value: None }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = ReadError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, ReadError> {
        let Some((key, (place, node))) = self.rest.next() else { return Ok(None) };
        self.value = Some((key, node));
        let name: StrDeserializer<'de, ReadError> = key.as_str().into_deserializer();
        let read = seed.deserialize(name);
        read.map(Some).map_err(|error| error.at(place, Step::Key(key.clone())))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, ReadError> {
        let (key, node) =
            self.value.take().ok_or_else(|| ReadError::value("a key has no value"))?;
        let read = seed.deserialize(Reader(node));
        read.map_err(|error| error.at(&node.place, Step::Key(key.to_owned())))
    }
}
