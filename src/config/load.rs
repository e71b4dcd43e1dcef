//! From layers to a [`Config`]: built-in defaults < file < environment < flags.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use super::environment::lay_environment;
use super::read::{ReadError, Reader, What, hint};
use super::tree::{self, Node, Place, Step, path_text};
use super::{Config, validate};
use crate::error::Printable;

/// The commented reference, which is also the lowest layer.
const DEFAULTS: &str = include_str!("../config.default.toml");

/// The file that is read when none is named.
const FILE: &str = "leadsync.toml";

/// More problems than this are not collected: the rest are likely consequences.
const MOST_PROBLEMS: usize = 50;

/// One setting from the command line.
#[derive(Clone, Debug)]
pub struct Override {
    /// The flag as it is typed ("--listen"), for messages.
    pub flag: String,
    /// The setting it stands for ("http.listen").
    pub key: String,
    /// Its value, as it would be written in the environment.
    pub value: String,
}

/// Something wrong or risky in the configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where.
    pub place: Place,
    /// What, as a sentence without secrets.
    pub sentence: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", Printable(&self.place), Printable(&self.sentence))
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", Printable(path.display()))]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// All that is wrong, one line each.
    #[error("{}", lines(.0))]
    Refused(Vec<Problem>),
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// A configuration that may be started with.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Legal, but likely not meant, or with a consequence to know of.
    pub warnings: Vec<Problem>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
    places: BTreeMap<String, Place>,
}

impl Loaded {
    /// A problem found later on (a mapping that does not compile) at the place where the setting was
    /// written. The path is `source[0].fields.company`, with indexes in the order of the file; where
    /// nothing was written at it, the nearest outer path counts.
    pub fn problem(&self, path: &str, sentence: impl Into<String>) -> Problem {
        Problem { place: place_of(&self.places, path), sentence: sentence.into() }
    }

    /// The settings in force as TOML, secrets redacted, and as comments where each one that is not
    /// a default was written.
    pub fn show(&self) -> String {
        let mut text = self.config.show();
        text.push_str("\n# Set by:\n");
        for (path, place) in &self.places {
            if !matches!(place, Place::Default(_)) && !path.is_empty() {
                text.push_str(&format!("# {}: {}\n", Printable(path), Printable(place)));
            }
        }
        text
    }
}

/// The place of a path, else of what surrounds it.
fn place_of(places: &BTreeMap<String, Place>, path: &str) -> Place {
    let mut path = path;
    loop {
        match (places.get(path), path.rfind(['.', '['])) {
            (Some(place), _) => return place.clone(),
            (None, Some(at)) => path = &path[..at],
            (None, None) => return Place::Nowhere,
        }
    }
}

impl Config {
    /// Loads all layers: built-in defaults < `file`, else `leadsync.toml` in the working directory if there is
    /// one < `LEADSYNC_*` environment < `flags`. The error lists everything that is wrong.
    pub fn load(file: Option<&Path>, flags: &[Override]) -> Result<Loaded, ConfigError> {
        Config::load_from(file, std::env::vars_os(), flags)
    }

    /// [`Config::load`] from a file's text alone, without environment and flags.
    pub fn parse(text: &str) -> Result<Loaded, ConfigError> {
        Config::from_layers(Some((Path::new(FILE), text)), std::iter::empty(), &[])
    }

    /// The settings as TOML, secrets redacted.
    pub fn show(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_else(|error| format!("# cannot be shown: {error}\n"))
    }

    fn load_from(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[Override],
    ) -> Result<Loaded, ConfigError> {
        let path = file.unwrap_or(Path::new(FILE));
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound && file.is_none() => {
                return Config::from_layers(None, environment, flags);
            }
            Err(source) => return Err(ConfigError::Unreadable { path: path.to_owned(), source }),
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            let place = Place::File { name: name_of(path), line, column: 1 };
            ConfigError::Refused(vec![Problem { place, sentence: "not UTF-8".to_owned() }])
        })?;
        Config::from_layers(Some((path, text)), environment, flags)
    }

    fn from_layers(
        file: Option<(&Path, &str)>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        flags: &[Override],
    ) -> Result<Loaded, ConfigError> {
        let refuse = |problems: Vec<(Place, String)>| {
            let problem = |(place, sentence)| Problem { place, sentence };
            ConfigError::Refused(sorted(problems.into_iter().map(problem).collect()))
        };
        let defaults = tree::parse(DEFAULTS, None).map_err(refuse)?;
        let mut tree = defaults.clone();
        if let Some((path, text)) = file {
            tree.lay(tree::parse(text, Some(name_of(path))).map_err(refuse)?);
        }
        let mut notes = lay_environment(&mut tree, &defaults, environment);
        for Override { flag, key, value } in flags {
            let keys: Vec<&str> = key.split('.').collect();
            tree.lay(Node::loose(&keys, value.clone(), &Place::Flag(flag.clone())));
        }

        let places = places(&tree);
        let mut reading = Reading::default();
        let config = reading.read(&mut tree, &defaults);
        notes.problems.append(&mut reading.problems);
        // Combinations with a value that could not be read prove nothing, nor do the places of a list
        // that lost an item.
        if let Some(config) = config.as_ref().filter(|_| !reading.lost_item) {
            for finding in validate::validate(config) {
                if finding.about.iter().any(|path| reading.mended.contains(path)) {
                    continue;
                }
                let path = finding.about.first().map_or("", String::as_str);
                let place = place_of(&places, path);
                let sentence = match path {
                    "" => finding.sentence,
                    path => format!("{}: {}", without_indexes(path), finding.sentence),
                };
                let notes = if finding.refused { &mut notes.problems } else { &mut notes.warnings };
                notes.push(Problem { place, sentence });
            }
        }
        match config {
            Some(config) if notes.problems.is_empty() => Ok(Loaded {
                config,
                warnings: sorted(notes.warnings),
                file: file.map(|(path, _)| path.to_owned()),
                places,
            }),
            _ => Err(ConfigError::Refused(sorted(notes.problems))),
        }
    }
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort();
    problems.dedup();
    problems
}

fn name_of(path: &Path) -> Arc<str> {
    path.display().to_string().into()
}

fn places(tree: &Node) -> BTreeMap<String, Place> {
    let mut places = BTreeMap::new();
    tree.walk(&mut |path, node| {
        places.insert(path_text(path), node.place.clone());
    });
    places
}

/// `source[0].trust` as it is named in the documentation: `source.trust`.
fn without_indexes(path: &str) -> String {
    path.split('.').map(|part| part.split('[').next().unwrap_or(part)).collect::<Vec<_>>().join(".")
}

/// Reads the tree again and again, each time without what was wrong the last time, so that one
/// start names everything that is wrong.
#[derive(Default)]
struct Reading {
    problems: Vec<Problem>,
    /// Paths that now hold their default or nothing.
    mended: BTreeSet<String>,
    /// A whole `[[source]]` or `[[destination]]` had to go.
    lost_item: bool,
}

impl Reading {
    /// `None`: what is wrong cannot be stepped over.
    fn read(&mut self, tree: &mut Node, defaults: &Node) -> Option<Config> {
        loop {
            let error = match Config::deserialize(Reader(tree)) {
                Ok(config) => return Some(config),
                Err(error) => error,
            };
            let path: Vec<Step> = error.path.iter().rev().cloned().collect();
            self.note(error, &path, tree);
            if self.problems.len() >= MOST_PROBLEMS || !self.mend(tree, defaults, &path) {
                return None;
            }
        }
    }

    fn note(&mut self, error: ReadError, path: &[Step], tree: &Node) {
        let sentence = match error.what {
            What::UnknownKey { expected } => unknown_key(path, expected),
            // Not missing, only taken out because it was wrong.
            What::MissingKey(key) if self.mended.contains(&path_text(&keyed(path, key))) => return,
            What::MissingKey(key) => format!("`{key}` is missing in {}", section(path)),
            What::Value(sentence) => {
                format!("{}: {sentence}", without_indexes(&path_text(path)))
            }
        };
        let place = error.place.unwrap_or_else(|| tree.place.clone());
        self.problems.push(Problem { place, sentence });
    }

    fn mend(&mut self, tree: &mut Node, defaults: &Node, path: &[Step]) -> bool {
        if let [Step::Key(list), Step::Index(_)] = path {
            self.lost_item = true;
            let inside = format!("{list}[");
            self.mended.retain(|mended| !mended.starts_with(&inside));
        } else {
            self.mended.insert(path_text(path));
        }
        tree.put(path, defaults.get(path).cloned())
    }
}

fn keyed(path: &[Step], key: &str) -> Vec<Step> {
    let mut path = path.to_vec();
    path.push(Step::Key(key.to_owned()));
    path
}

/// The header over a path: `[http]`, `[[source]]`.
fn section(path: &[Step]) -> String {
    let name = without_indexes(&path_text(path));
    match path.last() {
        None => "the file".to_owned(),
        Some(Step::Index(_)) => format!("[[{name}]]"),
        Some(Step::Key(_)) => format!("[{name}]"),
    }
}

fn unknown_key(path: &[Step], expected: &[&str]) -> String {
    let Some((Step::Key(key), table)) = path.split_last() else {
        return "unknown key".to_owned();
    };
    let place = match table {
        [] => "at the top level".to_owned(),
        table => format!("in {}", section(table)),
    };
    let hint = match hint(key, expected) {
        hint if hint.is_empty() => format!("; known are {}", expected.join(", ")),
        hint => hint,
    };
    format!("unknown key `{key}` {place}{hint}")
}

#[cfg(test)]
mod tests;
