//! The `leadsync` program: parse, run, exit code.

use std::process::ExitCode;

fn main() -> ExitCode {
    leadsync::cli::main().into()
}
