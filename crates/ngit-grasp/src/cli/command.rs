//! Every command, its arguments and what is said about them.

use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};

use crate::config;

/// The flag that names the settings file.
pub const ENV_FILE: &str = "env-file";

const SETTINGS: &str = "Settings apply here, too: as flags, as environment variables, in .env or in \
                        the file that --env-file names.\n`ngit-grasp --help` lists them.";

/// The whole command line, for `--help` and for the documentation.
pub fn command() -> Command {
    let dir = |help| {
        Arg::new("DIR")
            .required(true)
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    let file = |help| {
        Arg::new("FILE")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    let json = || {
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print JSON")
    };
    Command::new("ngit-grasp")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A GRASP server: Nostr relay, git host and mirror in one binary.")
        .long_about(
            "A GRASP server: Nostr relay, git host and mirror in one binary.\n\n\
             Without a command it serves, at localhost:7334 if nothing else is set. Every setting \
             can be given as a flag, as an environment variable or in a .env file, in that order.",
        )
        .after_help("-h shows the settings that most people set, --help shows all of them.")
        .args(settings())
        .arg(
            Arg::new(ENV_FILE)
                .long(ENV_FILE)
                .value_name("FILE")
                .global(true)
                .value_parser(value_parser!(PathBuf))
                .help("Read settings from this file, and not from .env in the working directory"),
        )
        .subcommand(
            Command::new("init")
                .about("Write a commented settings file; asks for what matters if somebody is there to answer")
                .arg(
                    Arg::new("force")
                        .long("force")
                        .action(ArgAction::SetTrue)
                        .help("Write a file that is there anew: its values stay, the old file is kept as FILE.old"),
                )
                .arg(
                    Arg::new("defaults")
                        .long("defaults")
                        .action(ArgAction::SetTrue)
                        .help("Ask nothing: take flags, environment and defaults"),
                ),
        )
        .subcommand(
            Command::new("doctor")
                .about("Look whether all is well around the server: name, address, TLS, git, disk, clock, permissions")
                .arg(json()),
        )
        .subcommand(
            Command::new("config")
                .about("Print every setting, its value and where it came from")
                .arg(json()),
        )
        .subcommand(
            Command::new("repos")
                .about("List the repositories: size, refs, age of the state, in step or not; the server may be running")
                .arg(json()),
        )
        .subcommand(
            Command::new("status")
                .about("Ask the running server whether all is well, and how sync stands: every relay, its state, what is missing, what comes next")
                .arg(json()),
        )
        .subcommand(
            Command::new("check")
                .about("Check ids and signatures of all events, and every repository: objects, refs against its state, held events; the server may be running")
                .arg(
                    Arg::new("repair")
                        .long("repair")
                        .action(ArgAction::SetTrue)
                        .help("First bring refs and store in step, clear what a crash left, and fetch lost git data from other servers; the server must be stopped"),
                )
                .arg(json()),
        )
        .subcommand(
            Command::new("backup")
                .about("Copy events and owner key into a new directory; the server may be running")
                .arg(dir("A directory that does not exist yet or is empty"))
                .arg(json()),
        )
        .subcommand(
            Command::new("restore")
                .about("Put a backup where there are no events yet, not even such that wait for git data; the server must be stopped")
                .arg(dir("A directory made by `ngit-grasp backup`"))
                .arg(json()),
        )
        .subcommand(
            Command::new("export")
                .about("Write all events as JSON lines, also those that wait for git data; the server may be running")
                .arg(file("Where to write; standard output if not given")),
        )
        .subcommand(
            Command::new("import")
                .about("Read events from JSON lines and store the valid ones; the server must be stopped")
                .arg(file("What to read; standard input if not given"))
                .arg(json()),
        )
        .subcommand(
            Command::new("purge")
                .about("Remove what the lists of repositories and authors do not take any more; the server must be stopped")
                .arg(
                    Arg::new("yes")
                        .long("yes")
                        .action(ArgAction::SetTrue)
                        .help("Really remove it: without this, only what would go is shown"),
                )
                .arg(json()),
        )
        .subcommand(
            Command::new("completions")
                .about("Print a script that completes commands and settings in a shell")
                .arg(
                    Arg::new("SHELL")
                        .required(true)
                        .value_parser(["bash", "zsh", "fish"])
                        .help("bash, zsh or fish"),
                ),
        )
        .subcommand(Command::new("man").about("Print the man page"))
        .mut_subcommands(helped)
}

/// Every command takes all settings; its help names its own arguments only, or nobody would find
/// them.
fn helped(command: Command) -> Command {
    let name = format!("ngit-grasp {}", command.get_name());
    let alone = command.clone().bin_name(name).after_help(SETTINGS);
    let help = alone.disable_help_subcommand(true).render_help();
    command.override_help(help)
}

/// Every setting as a flag of every command. The short help has those that most people set.
fn settings() -> impl Iterator<Item = Arg> {
    let usual = ["Service", "Storage"];
    config::args().into_iter().map(move |arg| {
        let rare = arg.get_help_heading().is_none_or(|of| !usual.contains(&of));
        arg.global(true).hide_short_help(rare)
    })
}
