//! Rebuilds the crate when a migration is added: `embed_migrations!` notices edits, not new files.
fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
