//! Tables of targets, in which `attributes.NAME` is one of them.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Error as _, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A mapping in which `attributes.budget = ...` is one target. TOML reads the dot as a table named
/// `attributes`; quoted (`"attributes.budget"`) it is a key of its own. Both end up as the latter.
pub(super) fn dotted<'de, D, V>(reader: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Targets<V>(PhantomData<V>);

    impl<'de, V: Deserialize<'de>> Visitor<'de> for Targets<V> {
        type Value = BTreeMap<String, V>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of fields")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut targets = BTreeMap::new();
            while let Some(name) = map.next_key::<String>()? {
                let found: Vec<(String, V)> = if name == "attributes" {
                    match map.next_value()? {
                        Attributes::Each(inner) => {
                            let dotted = |(key, value)| (format!("{name}.{key}"), value);
                            inner.into_iter().map(dotted).collect()
                        }
                        Attributes::Whole(value) => vec![(name, value)],
                    }
                } else {
                    vec![(name, map.next_value()?)]
                };
                for (name, value) in found {
                    if targets.contains_key(&name) {
                        return Err(A::Error::custom(format!("`{name}` is written twice")));
                    }
                    targets.insert(name, value);
                }
            }
            Ok(targets)
        }
    }

    reader.deserialize_map(Targets(PhantomData))
}

/// What may stand under `attributes`.
enum Attributes<V> {
    /// A table: one attribute each.
    Each(BTreeMap<String, V>),
    /// A text or a list: whatever has all of them.
    Whole(V),
}

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Attributes<V> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Either<V>(PhantomData<V>);

        impl<'de, V: Deserialize<'de>> Visitor<'de> for Either<V> {
            type Value = Attributes<V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table of attributes, or a JSONPath of an object")
            }

            fn visit_str<E: de::Error>(self, path: &str) -> Result<Self::Value, E> {
                V::deserialize(path.into_deserializer()).map(Attributes::Whole)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                V::deserialize(SeqAccessDeserializer::new(list)).map(Attributes::Whole)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(Attributes::Each)
            }
        }

        reader.deserialize_any(Either(PhantomData))
    }
}
