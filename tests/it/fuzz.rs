//! What fuzzing has found, and what it started from, through the same properties.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[path = "../fuzz/properties.rs"]
mod properties;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn folders(path: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[test]
fn every_finding_stays_mended() {
    let names = properties::PROPERTIES.iter().map(|(name, _)| (*name).to_owned());
    let found = root().join("fixtures/fuzz");
    assert_eq!(folders(&found), names.clone().collect(), "one folder for each target");
    for name in names {
        let files = folders(&found.join(&name));
        assert!(!files.is_empty(), "{name} has nothing to replay");
        for file in files {
            let data = std::fs::read(found.join(&name).join(&file)).unwrap();
            let replay = std::panic::catch_unwind(|| properties::of(&name, &data));
            assert!(replay.is_ok(), "tests/fixtures/fuzz/{name}/{file}");
        }
    }
}

#[test]
fn every_property_has_a_target() {
    let manifest = std::fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    let manifest: toml::Table = manifest.parse().unwrap();
    let binaries = manifest["bin"].as_array().unwrap().iter();
    let targets: Vec<&str> = binaries.map(|bin| bin["name"].as_str().unwrap()).collect();
    let names: Vec<&str> = properties::PROPERTIES.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, names);
    for name in names {
        let target = std::fs::read_to_string(root().join(format!("fuzz/targets/{name}.rs")));
        assert!(target.unwrap().contains(&format!("\"{name}\"")), "{name}");
    }
}
