//! The `ngit-grasp` command.

use std::process::ExitCode;

/// Events are allocated on one thread and freed on another; the system's allocator pays for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ngit_grasp::crash::arm();
    ngit_grasp::cli::main()
}
