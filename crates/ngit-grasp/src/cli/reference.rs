//! The command line as documents: `docs/reference/cli.md`, the man page and completions for shells.
//! All are written from the commands themselves.

use clap::{Arg, Command, ValueEnum as _};
use clap_complete::Shell;

use super::command;
use crate::config::{Spec, specs};

/// What a command ends with, and what that means.
const EXIT_CODES: [(u8, &str); 3] = [
    (
        0,
        "Done, and all is well. The server ends so when it is asked to stop (SIGTERM, SIGINT).",
    ),
    (
        1,
        "It failed, or what was looked at is not well: a check or doctor found something, the server \
         that was asked for its status has trouble, a line of an import was refused. What was \
         printed says more.",
    ),
    (
        2,
        "The command line or a setting was not understood, or the settings file that was named is \
         not there. Nothing was done.",
    ),
];

const INTRO: &str = "\
# Commands

<!-- Generated from the commands in the code; edits here are overwritten. -->

Without a command, `ngit-grasp` serves. Every command takes every setting as a flag
([configuration](../configuration.md)), and `--env-file FILE` to read them from another file than
`.env`. Data goes to standard output; progress, results and the log go to standard error. Colours
and progress are for terminals only, and `NO_COLOR` switches colours off. `--json` prints what
programs can read.
";

/// The shells that completions are for.
pub fn shells() -> [Shell; 3] {
    [Shell::Bash, Shell::Zsh, Shell::Fish]
}

/// Settings that few people set are completed before a command only: with all of them at every
/// command, a script would be ten times as long.
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    let mut command = command().mut_args(|arg| {
        let usual = !arg.is_hide_short_help_set();
        let global = arg.is_global_set() && usual;
        arg.global(global)
    });
    clap_complete::generate(shell, &mut command, "ngit-grasp", &mut script);
    script
}

/// The whole page of the reference.
pub fn markdown() -> String {
    let mut page = INTRO.to_owned();
    for sub in command().get_subcommands() {
        page.push_str(&format!(
            "\n## `{}`\n\n{}.\n",
            usage(sub),
            about(sub).trim_end_matches('.')
        ));
        let rows: Vec<String> = own_args(sub)
            .map(|arg| format!("- `{}`: {}\n", shown(arg), help(arg)))
            .collect();
        if !rows.is_empty() {
            page.push('\n');
            page.push_str(&rows.concat());
        }
    }
    page.push_str("\n## Exit codes\n\n| code | means |\n|---|---|\n");
    for (code, meaning) in EXIT_CODES {
        page.push_str(&format!("| {code} | {meaning} |\n"));
    }
    page
}

/// The man page, section 1.
pub fn man() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!(
        ".TH NGIT\\-GRASP 1 \"\" \"ngit\\-grasp {version}\"\n\
         .SH NAME\nngit\\-grasp \\- a GRASP server: Nostr relay, git host and mirror in one binary\n\
         .SH SYNOPSIS\n\\fBngit\\-grasp\\fR [\\fISETTINGS\\fR] [\\fICOMMAND\\fR]\n.SH DESCRIPTION\n"
    );
    let long = command().get_long_about().map(ToString::to_string);
    page.push_str(&paragraphs(&long.unwrap_or_default()));
    page.push_str(".SH COMMANDS\n");
    for sub in command().get_subcommands() {
        let usage = usage(sub);
        let usage = usage.strip_prefix("ngit-grasp ").unwrap_or(&usage);
        page.push_str(&item(usage, about(sub).trim_end_matches('.')));
        for arg in own_args(sub) {
            page.push_str(&format!(
                ".RS\n{}.RE\n",
                item(&shown(arg), help(arg).as_str())
            ));
        }
    }
    page.push_str(&settings());
    page.push_str(".SH EXIT STATUS\n");
    for (code, meaning) in EXIT_CODES {
        page.push_str(&item(&code.to_string(), meaning));
    }
    page.push_str(".SH FILES\n");
    page.push_str(&item(".env", "settings, in the working directory"));
    page.push_str(&item(
        "/etc/ngit-grasp/ngit-grasp.env",
        "settings of the packaged service",
    ));
    page.push_str(".SH SEE ALSO\n.BR git (1)\n");
    page
}

fn settings() -> String {
    let mut text = String::from(".SH SETTINGS\n");
    text.push_str(&paragraphs(
        "Each is a flag, a variable of the environment or of the settings file, in that order.",
    ));
    text.push_str(&item(
        "--env-file FILE",
        "the settings file, if it is not .env",
    ));
    let mut group = "";
    for spec in specs() {
        if spec.group != group {
            group = spec.group;
            text.push_str(&format!(".SS {}\n", escaped(group)));
        }
        text.push_str(&setting(spec));
    }
    text
}

fn setting(spec: &Spec) -> String {
    let name = match spec.secret {
        true => spec.env.to_owned(),
        false => format!("--{} VALUE, {}", spec.flag, spec.env),
    };
    let default = match spec.default {
        "" => "Not set by default.".to_owned(),
        default => format!("Default: {default}."),
    };
    item(
        &name,
        &format!("{} Value: {}. {default}", spec.help, spec.expects),
    )
}

fn item(name: &str, text: &str) -> String {
    format!(".TP\n\\fB{}\\fR\n{}\n", escaped(name), escaped(text))
}

fn paragraphs(text: &str) -> String {
    let parts = text.split("\n\n").map(escaped);
    parts.map(|part| format!(".PP\n{part}\n")).collect()
}

/// For roff: nothing in it is a command.
fn escaped(text: &str) -> String {
    let text = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\n', " ");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

fn about(command: &Command) -> String {
    command
        .get_about()
        .map(ToString::to_string)
        .unwrap_or_default()
}

fn help(arg: &Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// Those that only this command has.
fn own_args(command: &Command) -> impl Iterator<Item = &Arg> {
    let args = command.get_arguments();
    args.filter(|arg| !arg.is_global_set() && arg.get_id() != "help")
}

fn shown(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.get_id().to_string(),
    }
}

fn usage(command: &Command) -> String {
    let mut usage = format!("ngit-grasp {}", command.get_name());
    for arg in own_args(command) {
        let shown = shown(arg);
        usage.push_str(&match arg.is_required_set() {
            true => format!(" {shown}"),
            false => format!(" [{shown}]"),
        });
    }
    usage
}

/// By its name.
pub fn shell(name: &str) -> Option<Shell> {
    let shell = Shell::from_str(name, true).ok()?;
    shells().contains(&shell).then_some(shell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_with_its_arguments() {
        let page = markdown();
        for sub in command().get_subcommands() {
            assert!(page.contains(&format!("## `ngit-grasp {}", sub.get_name())));
        }
        assert!(
            page.contains("## `ngit-grasp backup DIR [--json]`"),
            "{page}"
        );
        assert!(
            page.contains("## `ngit-grasp check [--repair] [--json]`"),
            "{page}"
        );
        assert!(
            !page.contains("max-connections"),
            "settings have a page of their own"
        );
    }

    #[test]
    fn the_man_page_has_every_setting_and_no_line_that_roff_would_take_for_a_command() {
        let page = man();
        for spec in specs() {
            assert!(page.contains(&escaped(spec.env)), "{}", spec.env);
        }
        let known = [".TH ", ".SH ", ".SS ", ".TP", ".PP", ".RS", ".RE", ".BR "];
        for line in page.lines().filter(|line| line.starts_with(['.', '\''])) {
            assert!(known.iter().any(|start| line.starts_with(start)), "{line}");
        }
        assert!(!page.contains("nsec VALUE"), "a secret is no flag");
    }

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for shell in shells() {
            let script = String::from_utf8(completions(shell)).unwrap();
            for word in ["doctor", "completions", "env-file", "bind-address"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
