//! The environment as a layer: `LEADSYNC_SECTION__KEY` and `LEADSYNC_DATA_DIR`.

use std::collections::BTreeSet;
use std::ffi::OsString;

use super::Problem;
use super::read::hint;
use super::tree::{Node, Place, Step, Value};

const PREFIX: &str = "LEADSYNC_";

/// What was found on the way.
#[derive(Default)]
pub(super) struct Notes {
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

/// Lays the environment over the tree. Variables that the file names as `{ env = "NAME" }` belong to
/// whoever wrote the file and set nothing by themselves.
pub(super) fn lay_environment(
    tree: &mut Node,
    defaults: &Node,
    environment: impl Iterator<Item = (OsString, OsString)>,
) -> Notes {
    let mut notes = Notes::default();
    let named = named_variables(tree);
    let Value::Table(known) = &defaults.value else { return notes };
    let is_section =
        |key: &str| known.get(key).is_some_and(|(_, node)| matches!(node.value, Value::Table(_)));
    for (name, value) in environment {
        let Some(name) = name.to_str() else { continue };
        let Some(rest) = name.strip_prefix(PREFIX).filter(|_| !named.contains(name)) else {
            continue;
        };
        let note = |sentence: String| Problem { place: Place::Env(name.to_owned()), sentence };
        let lower = rest.to_ascii_lowercase();
        let keys: Vec<&str> = lower.split("__").collect();
        let section = keys.first().copied().unwrap_or_default();
        if let [key] = keys.as_slice() {
            if !known.contains_key(*key) || is_section(key) {
                let near = key.split('_').next().is_some_and(is_section);
                if near || !hint(key, &["data_dir"]).is_empty() {
                    notes.warnings.push(note(format!(
                        "sets nothing; settings are {PREFIX}DATA_DIR and {PREFIX}SECTION__KEY, \
                         with two underscores"
                    )));
                }
                continue;
            }
        } else if matches!(section, "source" | "destination") {
            let sentence = format!("[[{section}]] can be written in the file only");
            notes.problems.push(note(sentence));
            continue;
        } else if !is_section(section) {
            let sections: Vec<&str> =
                known.keys().map(String::as_str).filter(|k| is_section(k)).collect();
            let near = hint(section, &sections);
            notes.problems.push(note(format!("unknown section `{section}`{near}")));
            continue;
        }
        match value.into_string() {
            Ok(text) => tree.lay(Node::loose(&keys, text, &Place::Env(name.to_owned()))),
            Err(_) => notes.problems.push(note("not UTF-8".to_owned())),
        }
    }
    notes
}

fn named_variables(tree: &Node) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    tree.walk(&mut |path, node| {
        if let (Some(Step::Key(key)), Value::Text(name)) = (path.last(), &node.value)
            && key == "env"
        {
            names.insert(name.clone());
        }
    });
    names
}
