//! Where values come from: flags before the environment before `.env` before defaults. Keeps
//! the source of every value, and warns of variables that look like settings but are none.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches};

use super::dotenv;
use super::settings::specs;
use super::spec::{ALIASES, PREFIX, Spec};
use super::value::{Secret, Setting, Shape};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Flag,
    Environment,
    /// Its name, without the folder.
    File(String),
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File(name) => name,
            Self::Default => "default",
        })
    }
}

/// The texts that were given, and what is wrong with how they were given. It holds secrets in
/// the clear, so it cannot be printed.
#[derive(Default)]
pub struct Layers {
    given: HashMap<&'static str, (Source, String)>,
    /// What the file sets and is no setting, a secret that was misspelt perhaps.
    pub strays: Vec<(String, Secret)>,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

impl Layers {
    pub fn gather(
        matches: &ArgMatches,
        env: impl IntoIterator<Item = (OsString, OsString)>,
        dotenv_path: &Path,
    ) -> Self {
        let mut layers = Self::default();
        // Each layer overwrites those before it.
        layers.add_dotenv(dotenv_path);
        layers.add_environment(env);
        layers.add_flags(matches);
        layers
    }

    pub fn source(&self, spec: &Spec) -> Source {
        self.given
            .get(spec.env)
            .map_or(Source::Default, |(source, _)| source.clone())
    }

    /// As if nobody had given it.
    pub fn forget(&mut self, env: &str) {
        self.given.remove(env);
    }

    /// The value of a setting, or an error line and `None`.
    pub fn read<T: Setting>(&mut self, spec: &Spec) -> Option<T> {
        let given = self.given.get(spec.env);
        let text = given.map_or(spec.default, |(_, text)| text.as_str());
        match T::parse(text, &spec.rules) {
            Ok(value) => Some(value),
            Err(problem) => {
                let line = complaint(spec, &self.source(spec), &problem);
                self.errors.push(line);
                None
            }
        }
    }

    fn add_dotenv(&mut self, path: &Path) {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => {
                self.errors
                    .push(format!("{} cannot be read: {error}", path.display()));
                return;
            }
        };
        self.file = Some(path.to_owned());
        let name = path.file_name().unwrap_or(path.as_os_str());
        let source = Source::File(name.to_string_lossy().into_owned());
        match dotenv::parse(&text) {
            Ok(entries) => {
                for (name, text) in entries {
                    self.add(&name, &source, &text);
                    if spec_of(&name).is_none() {
                        self.strays.push((name, Secret::new(text)));
                    }
                }
            }
            Err(bad_lines) => {
                let lines = bad_lines
                    .iter()
                    .map(|bad| format!("{} {bad}", path.display()));
                self.errors.extend(lines);
            }
        }
    }

    fn add_environment(&mut self, env: impl IntoIterator<Item = (OsString, OsString)>) {
        for (name, text) in env {
            let Some(name) = name.to_str() else { continue };
            match text.to_str() {
                Some(text) => self.add(name, &Source::Environment, text),
                None if spec_of(name).is_some() => {
                    self.errors.push(format!(
                        "{name} ({}): must be UTF-8 text",
                        Source::Environment
                    ));
                }
                None => {}
            }
        }
    }

    fn add_flags(&mut self, matches: &ArgMatches) {
        for spec in specs() {
            // An error means that this command does not have the flag.
            let Ok(Some(texts)) = matches.try_get_many::<String>(spec.env) else {
                continue;
            };
            if spec.secret {
                let problem = format!(
                    "other users of this machine can read the command line, so give it as {} \
                     in the environment or in .env, or leave it out and use the key file",
                    spec.env
                );
                self.errors.push(complaint(spec, &Source::Flag, &problem));
                continue;
            }
            let texts: Vec<&str> = texts.map(String::as_str).collect();
            self.add(spec.env, &Source::Flag, &texts.join(","));
        }
    }

    fn add(&mut self, name: &str, source: &Source, text: &str) {
        let text = text.trim();
        if let Some(spec) = spec_of(name) {
            // Where both names are given in one place, ours counts.
            let given = self.given.get(spec.env);
            let surpassed = name != spec.env && given.is_some_and(|(of, _)| of == source);
            if !text.is_empty() && !surpassed {
                let given = (source.clone(), text.to_owned());
                self.given.insert(spec.env, given);
            }
        } else if name.to_ascii_uppercase().starts_with(PREFIX) {
            let hint = nearest(name).map(|known| format!("; did you mean {known}?"));
            self.warnings.push(format!(
                "{name} ({source}): no setting of this version, ignored{}",
                hint.unwrap_or_default()
            ));
        }
    }
}

/// A flag for every setting, for the command line of the server.
pub fn args() -> Vec<Arg> {
    specs().iter().map(arg).collect()
}

fn arg(spec: &'static Spec) -> Arg {
    let arg = Arg::new(spec.env)
        .long(spec.flag.as_str())
        .value_name("VALUE")
        .help_heading(spec.group)
        .aliases(aliases_of(spec));
    if spec.secret {
        // It is taken in any form, because the parser's own error would repeat the value.
        return arg
            .hide(true)
            .num_args(0..=1)
            .default_missing_value("")
            .action(ArgAction::Append);
    }
    let default = if spec.default.is_empty() {
        String::new()
    } else {
        format!(" [default: {}]", spec.default)
    };
    let arg = arg.help(format!("{}{default} [env: {}]", spec.help, spec.env));
    match spec.shape {
        Shape::One => arg,
        Shape::List => arg.action(ArgAction::Append),
        Shape::Switch => arg
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
    }
}

/// Names what the operator wrote, so that it can be found.
fn complaint(spec: &Spec, source: &Source, problem: &str) -> String {
    match source {
        Source::Flag => format!("--{} ({source}): {problem}", spec.flag),
        _ => format!("{} ({source}): {problem}", spec.env),
    }
}

fn spec_of(name: &str) -> Option<&'static Spec> {
    let alias = ALIASES.iter().find(|alias| alias.env == name);
    let name = alias.map_or(name, |alias| alias.of);
    specs().iter().find(|spec| spec.env == name)
}

/// As flags.
fn aliases_of(spec: &Spec) -> impl Iterator<Item = &'static str> {
    let aliases = ALIASES.iter().filter(|alias| alias.of == spec.env);
    aliases.map(|alias| alias.flag)
}

/// The setting whose name is likely meant.
fn nearest(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_uppercase();
    let tolerated = if name.len() < PREFIX.len() + 12 { 2 } else { 3 };
    let distances = specs()
        .iter()
        .map(|spec| (distance(&name, spec.env), spec.env));
    distances
        .filter(|(distance, _)| *distance <= tolerated)
        .min()
        .map(|(_, env)| env)
}

/// Single-letter edits between two names, after Levenshtein, one row of the matrix at a time.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (1..=to.len()).collect();
    for (index, letter) in from.bytes().enumerate() {
        let (mut diagonal, mut left) = (index, index + 1);
        for (cell, other) in row.iter_mut().zip(to.bytes()) {
            let replaced = diagonal + usize::from(letter != other);
            left = replaced.min(left + 1).min(*cell + 1);
            diagonal = std::mem::replace(cell, left);
        }
    }
    row.last().copied().unwrap_or(from.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_single_letter_edits() {
        let cases = [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("kitten", "sitting", 3),
            ("ab", "ba", 2),
        ];
        for (from, to, edits) in cases {
            assert_eq!(distance(from, to), edits, "{from} {to}");
        }
    }

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(nearest("NGIT_DOMIAN"), Some("NGIT_DOMAIN"));
        assert_eq!(nearest("ngit_domain"), Some("NGIT_DOMAIN"));
        assert_eq!(nearest("NGIT_MAX_CONECTION"), Some("NGIT_MAX_CONNECTIONS"));
        assert_eq!(nearest("NGIT_NOTHING_LIKE_IT"), None);
    }

    #[test]
    fn the_flags_make_a_valid_command() {
        clap::Command::new("test").args(args()).debug_assert();
    }

    #[test]
    fn help_names_group_default_and_variable_and_hides_secrets() {
        let help = clap::Command::new("test")
            .args(args())
            .term_width(1_000)
            .render_help()
            .to_string();
        assert!(help.contains("\nConnections:\n"), "{help}");
        assert!(
            help.contains("[default: 127.0.0.1:7334] [env: NGIT_BIND_ADDRESS]"),
            "{help}"
        );
        assert!(!help.contains("nsec"), "{help}");
    }
}
