//! From a decoded body to what one event says about one lead, by rules that are data.
//!
//! The same language serves built-in kinds and `[source.fields]`: a target, RFC 9535 JSONPaths of
//! which the first with a non-blank text wins, and a conversion. A path sees one part of the body as
//! `$`. Two other roots: `$['@body']` is the whole body where it was split into parts, and
//! `$['@headers']['name']` is a request header.

use serde_json::Value;
use serde_json_path::JsonPath;

mod apply;
mod errors;
mod extract;
mod target;
pub mod time;
mod trace;
mod via;

pub use apply::{Mapped, Settings};
pub use errors::{FieldError, NoLead};
pub use target::Target;
pub use trace::{Fate, Leaf, Step, Trace};
pub use via::Via;

/// Most attributes, and most tags, that one event may give a lead.
pub const MAX_MEMBERS: usize = 100;
/// Longest name of an attribute and longest tag, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// Longest value of an attribute, in bytes.
pub const MAX_ATTRIBUTE_BYTES: usize = 2048;

/// One line of a built-in mapping.
#[derive(Debug)]
pub struct Rule {
    /// What it fills.
    pub target: Target,
    /// Paths, first non-blank wins.
    pub from: &'static [&'static str],
    /// Conversion.
    pub via: Via,
}

/// A rule that takes texts as they are.
pub const fn rule(target: Target, from: &'static [&'static str]) -> Rule {
    Rule { target, from, via: Via::Text }
}

/// A rule with a conversion.
pub const fn rule_via(target: Target, from: &'static [&'static str], via: Via) -> Rule {
    Rule { target, from, via }
}

/// One line of a mapping as somebody wrote it in configuration.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// Name of the target.
    pub target: String,
    /// Paths, first non-blank wins.
    pub from: Vec<String>,
    /// Name of the conversion.
    pub via: Option<String>,
    /// A constant, where no path gives a value.
    pub value: Option<String>,
}

/// Why a mapping cannot be compiled; says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MappingError {
    /// No such target.
    #[error("unknown target \"{name}\"{}", did_you_mean(.nearest))]
    UnknownTarget {
        /// As written.
        name: String,
        /// Closest valid name.
        nearest: Option<String>,
    },
    /// No such conversion.
    #[error("{target}: unknown conversion via = \"{name}\"{}", did_you_mean(.nearest))]
    UnknownVia {
        /// The target of the line.
        target: String,
        /// As written.
        name: String,
        /// Closest valid name.
        nearest: Option<String>,
    },
    /// The conversion gives something the target cannot hold.
    #[error("{target}: via = \"{via}\" cannot be used for this target; {hint}")]
    ViaDoesNotFit {
        /// The target of the line.
        target: String,
        /// The conversion.
        via: &'static str,
        /// Where it can be used.
        hint: &'static str,
    },
    /// Not an RFC 9535 JSONPath.
    #[error("{target}: \"{path}\" is not a JSONPath: {message}")]
    BadPath {
        /// The target of the line.
        target: String,
        /// As written.
        path: String,
        /// The parser's words.
        message: String,
    },
    /// A line without a source of values.
    #[error("{0}: write at least one path in `from`, or a constant in `value`")]
    Nothing(String),
}

impl MappingError {
    /// The target whose line is at fault.
    pub fn target(&self) -> &str {
        match self {
            MappingError::UnknownTarget { name: target, .. }
            | MappingError::UnknownVia { target, .. }
            | MappingError::ViaDoesNotFit { target, .. }
            | MappingError::BadPath { target, .. }
            | MappingError::Nothing(target) => target,
        }
    }
}

fn did_you_mean(name: &Option<String>) -> String {
    name.as_ref().map(|name| format!("; did you mean \"{name}\"?")).unwrap_or_default()
}

/// The candidate most like `name`, where any is like it at all.
pub fn nearest_name<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}

/// What a mapping reads: one part, the body it is a part of, and the request's headers.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// `$`
    pub part: &'a Value,
    /// `$['@body']`
    pub body: &'a Value,
    /// `$['@headers']`, names in lower case.
    pub headers: &'a [(String, String)],
}

/// Rules, compiled.
#[derive(Debug)]
pub struct Mapping {
    lines: Vec<Line>,
}

#[derive(Debug)]
struct Line {
    target: Target,
    from: Vec<Path>,
    via: Via,
    value: Option<String>,
}

#[derive(Debug)]
struct Path {
    /// As somebody wrote it.
    written: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Part(JsonPath),
    Body(JsonPath),
    Header(String),
}

impl Mapping {
    /// Compiles a kind's rules and those of the configuration, which replace all rules of the same target.
    pub fn compile(rules: &[&[Rule]], written: &[Written]) -> Result<Mapping, MappingError> {
        let written = written.iter().map(compile_written).collect::<Result<Vec<_>, _>>()?;
        let rules = rules.iter().copied().flatten();
        let kept = rules.filter(|rule| written.iter().all(|line| line.target != rule.target));
        let mut lines = kept
            .map(|rule| {
                let name = rule.target.name();
                let from = rule.from.iter().map(|path| compile_path(&name, path));
                let from = from.collect::<Result<Vec<_>, _>>()?;
                fits(&rule.target, rule.via)?;
                Ok(Line { target: rule.target.clone(), from, via: rule.via, value: None })
            })
            .collect::<Result<Vec<_>, _>>()?;
        lines.extend(written);
        Ok(Mapping { lines })
    }

    /// Names of the headers the rules read, in lower case: what the archive must keep for a replay.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().flat_map(|line| &line.from).filter_map(|path| match &path.place {
            Place::Header(name) => Some(name.as_str()),
            Place::Part(_) | Place::Body(_) => None,
        })
    }
}

fn compile_written(written: &Written) -> Result<Line, MappingError> {
    let target = Target::parse(&written.target).ok_or_else(|| MappingError::UnknownTarget {
        name: written.target.clone(),
        nearest: nearest_name(&written.target, Target::NAMES.iter().copied()),
    })?;
    let name = target.name();
    let via = match &written.via {
        None => Via::Text,
        Some(via) => Via::parse(via).ok_or_else(|| MappingError::UnknownVia {
            target: name.clone(),
            name: via.clone(),
            nearest: nearest_name(via, Via::ALL.iter().map(|via| via.name())),
        })?,
    };
    fits(&target, via)?;
    if written.from.is_empty() && written.value.is_none() {
        return Err(MappingError::Nothing(name));
    }
    let from =
        written.from.iter().map(|path| compile_path(&name, path)).collect::<Result<_, _>>()?;
    Ok(Line { target, from, via, value: written.value.clone() })
}

fn fits(target: &Target, via: Via) -> Result<(), MappingError> {
    via.fits(target).map_err(|hint| MappingError::ViaDoesNotFit {
        target: target.name(),
        via: via.name(),
        hint,
    })
}

/// Compiles a JSONPath outside a rule (a source's `split`).
pub fn compile_json_path(key: &str, path: &str) -> Result<JsonPath, MappingError> {
    JsonPath::parse(path).map_err(|error| MappingError::BadPath {
        target: key.to_owned(),
        path: path.to_owned(),
        message: error.message().to_owned(),
    })
}

fn compile_path(target: &str, path: &str) -> Result<Path, MappingError> {
    Ok(Path { written: path.to_owned(), place: compile_place(target, path)? })
}

fn compile_place(target: &str, path: &str) -> Result<Place, MappingError> {
    let after = |root: &str| {
        let quoted = [format!("$['{root}']"), format!("$[\"{root}\"]")];
        quoted.iter().find_map(|quoted| path.strip_prefix(quoted.as_str()))
    };
    if let Some(rest) = after("@body") {
        return compile_json_path(target, &format!("${rest}")).map(Place::Body);
    }
    if let Some(rest) = after("@headers") {
        let name = rest
            .strip_prefix("['")
            .and_then(|rest| rest.strip_suffix("']"))
            .or_else(|| rest.strip_prefix("[\"").and_then(|rest| rest.strip_suffix("\"]")))
            .filter(|name| {
                !name.is_empty()
                    && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            });
        return match name {
            Some(name) => Ok(Place::Header(name.to_ascii_lowercase())),
            None => Err(MappingError::BadPath {
                target: target.to_owned(),
                path: path.to_owned(),
                message: "a header is written $['@headers']['x-name']".to_owned(),
            }),
        };
    }
    compile_json_path(target, path).map(Place::Part)
}

#[cfg(test)]
mod tests;
