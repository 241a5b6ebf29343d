//! The command line: `ngit-grasp` serves, its subcommands look after the data.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::app;
use crate::config::{self, Config};
use crate::inspect;
use crate::status;
use crate::transfer;

/// 2 is what clap and the shell use for a command that was misunderstood.
const EXIT_USAGE: u8 = 2;

pub fn main() -> ExitCode {
    match run(std::env::args_os()) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ngit-grasp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let matches = command().get_matches_from(args);
    let loaded = match config::load(&matches, std::env::vars_os(), Path::new(".env")) {
        Ok(loaded) => loaded,
        Err(errors) => {
            for line in &errors.lines {
                let _ = writeln!(std::io::stderr(), "ngit-grasp: {line}");
            }
            return Ok(ExitCode::from(EXIT_USAGE));
        }
    };
    if let Some(("config", sub)) = matches.subcommand() {
        let rows = loaded.describe();
        let text = if sub.get_flag("json") {
            format!("{:#}\n", config::rows_as_json(&rows))
        } else {
            config::render_table(&rows)
        };
        write_stdout(&text)?;
        for warning in &loaded.warnings {
            let _ = writeln!(std::io::stderr(), "warning: {warning}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    start_logging(&loaded.config);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    dispatch(&matches, loaded.config)
}

fn dispatch(matches: &ArgMatches, config: Config) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let path = |sub: &ArgMatches, name: &str| sub.get_one::<PathBuf>(name).cloned();
    match matches.subcommand() {
        None => app::run(config)?,
        Some(("backup", sub)) => transfer::backup(&config, &path(sub, "DIR").unwrap_or_default())?,
        Some(("restore", sub)) => {
            transfer::restore(&config, &path(sub, "DIR").unwrap_or_default())?
        }
        Some(("export", sub)) => transfer::export(&config, path(sub, "FILE").as_deref())?,
        Some(("import", sub)) => {
            let clean = transfer::import(&config, path(sub, "FILE").as_deref())?;
            return Ok(if clean {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Some(("repos", _)) => inspect::repos(&config)?,
        Some(("status", sub)) => status::status(&config, sub.get_flag("json"))?,
        Some(("check", sub)) => {
            let well = inspect::check(&config, sub.get_flag("repair"))?;
            return Ok(if well {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Some((other, _)) => return Err(format!("no such command: {other}").into()),
    }
    Ok(ExitCode::SUCCESS)
}

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
    Command::new("ngit-grasp")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A GRASP server: Nostr relay, git host and mirror in one binary.")
        .long_about(
            "A GRASP server: Nostr relay, git host and mirror in one binary.\n\n\
             Without a command it serves, at localhost:7334 if nothing else is set. Every setting \
             can be given as a flag, as an environment variable or in a .env file, in that order.",
        )
        .args(config::args().into_iter().map(|arg| arg.global(true)))
        .subcommand(
            Command::new("config")
                .about("Print every setting, its value and where it came from")
                .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")),
        )
        .subcommand(
            Command::new("repos")
                .about("List the repositories: size, refs, age of the state, in step or not; the server may be running"),
        )
        .subcommand(
            Command::new("status")
                .about("Ask the running server how sync stands: every relay, its state, what is missing, what comes next")
                .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")),
        )
        .subcommand(
            Command::new("check")
                .about("Check every repository: objects, refs against its state, held events; the server may be running")
                .arg(
                    Arg::new("repair")
                        .long("repair")
                        .action(ArgAction::SetTrue)
                        .help("First bring refs and store in step, clear what a crash left, and fetch lost git data from other servers; the server must be stopped"),
                ),
        )
        .subcommand(
            Command::new("backup")
                .about("Copy events and owner key into a new directory; the server may be running")
                .arg(dir("A directory that does not exist yet or is empty")),
        )
        .subcommand(
            Command::new("restore")
                .about("Put a backup where there are no events yet; the server must be stopped")
                .arg(dir("A directory made by `ngit-grasp backup`")),
        )
        .subcommand(
            Command::new("export")
                .about("Write all events as JSON lines; the server may be running")
                .arg(file("Where to write; standard output if not given")),
        )
        .subcommand(
            Command::new("import")
                .about("Read events from JSON lines and store the valid ones; the server must be stopped")
                .arg(file("What to read; standard input if not given")),
        )
}

fn start_logging(config: &Config) {
    let filter = tracing_subscriber::EnvFilter::new(config.log_level.as_str());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}

fn write_stdout(text: &str) -> std::io::Result<()> {
    std::io::stdout().write_all(text.as_bytes())
}
