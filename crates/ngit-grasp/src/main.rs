//! The `ngit-grasp` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ngit_grasp::cli::main()
}
