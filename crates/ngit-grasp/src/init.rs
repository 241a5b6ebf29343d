//! `ngit-grasp init`: asks for the settings that most people set, and writes the settings file.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::config::{self, ConfigErrors, Loaded, Source, file};

/// A setting, and what is asked about it.
const QUESTIONS: [(&str, &str); 8] = [
    (
        "NGIT_DOMAIN",
        "Public name, as people write it, such as git.example.com",
    ),
    ("NGIT_BIND_ADDRESS", "Address and port to listen on"),
    (
        "NGIT_TRUSTED_PROXIES",
        "Addresses of the TLS proxy in front (127.0.0.1,::1 if it is on this machine)",
    ),
    ("NGIT_RELAY_NAME", "Name of this server, for people"),
    (
        "NGIT_RELAY_CONTACT",
        "How to reach you, such as mailto:admin@example.com",
    ),
    (
        "NGIT_RELAY_DATA_PATH",
        "Directory for events and the server's key",
    ),
    ("NGIT_GIT_DATA_PATH", "Directory for repositories"),
    (
        "NGIT_SYNC_BOOTSTRAP_RELAY_URL",
        "Relays that are always asked for announcements, such as wss://relay.example.com",
    ),
];

#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error(
        "{} is there already; --force writes it anew with the values that it has, and keeps the \
         old one as {}", .0.display(), old(.0).display()
    )]
    Exists(PathBuf),
    #[error(transparent)]
    Settings(#[from] ConfigErrors),
    #[error("no answer, so nothing was written")]
    NoAnswer,
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
}

type Env = Vec<(OsString, OsString)>;

/// Where the answers come from and the questions go.
pub struct Dialogue<'d> {
    pub answers: &'d mut dyn BufRead,
    pub questions: &'d mut dyn Write,
}

/// Writes the file. Without a dialogue it takes what flags and environment say, and defaults.
pub fn init(
    matches: &ArgMatches,
    env: Env,
    path: &Path,
    force: bool,
    dialogue: Option<Dialogue<'_>>,
) -> Result<Loaded, InitError> {
    if path.exists() && !force {
        return Err(InitError::Exists(path.to_owned()));
    }
    let loaded = match dialogue {
        Some(dialogue) => ask(matches, env, path, dialogue)?,
        None => config::load(matches, env, path)?,
    };
    let written = write(path, &file::render(&loaded), file::has_secrets(&loaded));
    written.map_err(|source| InitError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(loaded)
}

/// Everything that no flag has answered. An answer counts like a variable of the environment.
fn ask(
    matches: &ArgMatches,
    mut env: Env,
    path: &Path,
    mut dialogue: Dialogue<'_>,
) -> Result<Loaded, InitError> {
    let mut loaded = config::load(matches, env.clone(), path)?;
    for (name, question) in QUESTIONS {
        let rows = loaded.describe();
        let Some(row) = rows.iter().find(|row| row.env == name) else {
            continue;
        };
        if row.source == Source::Flag {
            continue;
        }
        loop {
            let answer = dialogue.ask(question, &row.value)?;
            if answer.is_empty() {
                break;
            }
            let mut with_answer = env.clone();
            with_answer.retain(|(known, _)| known != name);
            with_answer.push((name.into(), answer.into()));
            match config::load(matches, with_answer.clone(), path) {
                Ok(found) => {
                    (env, loaded) = (with_answer, found);
                    break;
                }
                Err(errors) => errors.lines.iter().for_each(|line| dialogue.complain(line)),
            }
        }
    }
    Ok(loaded)
}

impl Dialogue<'_> {
    /// An empty answer keeps what stands in brackets.
    fn ask(&mut self, question: &str, now: &str) -> Result<String, InitError> {
        let shown = if now.is_empty() { "none" } else { now };
        let _ = write!(self.questions, "{question} [{shown}]: ");
        let _ = self.questions.flush();
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(1..) => Ok(line.trim().to_owned()),
            _ => Err(InitError::NoAnswer),
        }
    }

    /// Without the name of the setting and where it came from: it was asked for just now.
    fn complain(&mut self, line: &str) {
        let problem = line.split_once("): ").map_or(line, |(_, problem)| problem);
        let _ = writeln!(self.questions, "  {problem}");
    }
}

/// A file that was there is kept beside the new one.
fn write(path: &Path, text: &str, secret: bool) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    match fs::rename(path, old(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mode = if secret { 0o600 } else { 0o644 };
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

fn old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".old");
    name.into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("new/.env")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }

        fn init(&self, flags: &[&str], env: &[(&str, &str)], force: bool) -> Result<(), String> {
            self.talk(flags, env, force, None).0
        }

        /// With what was asked.
        fn talk(
            &self,
            flags: &[&str],
            env: &[(&str, &str)],
            force: bool,
            answers: Option<&str>,
        ) -> (Result<(), String>, String) {
            let matches = clap::Command::new("test")
                .args(config::args())
                .get_matches_from(["test"].iter().chain(flags));
            let env = env.iter().map(|(name, value)| (name.into(), value.into()));
            let mut asked = Vec::new();
            let mut answers = answers.map(str::as_bytes);
            let dialogue = answers.as_mut().map(|answers| Dialogue {
                answers,
                questions: &mut asked,
            });
            let done = init(&matches, env.collect(), &self.path(), force, dialogue);
            let done = done.map(|_| ()).map_err(|error| error.to_string());
            (done, String::from_utf8(asked).unwrap())
        }
    }

    #[test]
    fn flags_and_environment_are_written_and_nothing_else_is_set() {
        let place = Place::new();
        let env = [("NGIT_RELAY_NAME", "ours"), ("HOME", "/root")];
        place
            .init(&["--domain", "git.example.com"], &env, false)
            .unwrap();
        let text = place.text();
        let set: Vec<&str> = text.lines().filter(|l| l.starts_with("NGIT_")).collect();
        assert_eq!(set, ["NGIT_DOMAIN=git.example.com", "NGIT_RELAY_NAME=ours"]);
    }

    #[test]
    fn what_is_there_is_kept_unless_forced_and_then_its_values_are() {
        let place = Place::new();
        place.init(&["--relay-name", "first"], &[], false).unwrap();
        let first = place.text();
        let refused = place.init(&["--domain", "a.example"], &[], false);
        assert!(refused.unwrap_err().contains("--force"));
        assert_eq!(place.text(), first);
        place.init(&["--domain", "a.example"], &[], true).unwrap();
        assert!(place.text().contains("\nNGIT_DOMAIN=a.example\n"));
        assert!(place.text().contains("\nNGIT_RELAY_NAME=first\n"));
        assert_eq!(fs::read_to_string(old(&place.path())).unwrap(), first);
    }

    #[test]
    fn only_its_owner_reads_a_file_with_a_secret() {
        let mode = |place: &Place| fs::metadata(place.path()).unwrap().permissions().mode() & 0o777;
        let (open, closed) = (Place::new(), Place::new());
        open.init(&[], &[], false).unwrap();
        assert_eq!(mode(&open) & 0o600, 0o600);
        let key = [("NGIT_RELAY_OWNER_NSEC", "ab".repeat(32))];
        let key = key.each_ref().map(|(name, value)| (*name, value.as_str()));
        closed.init(&[], &key, false).unwrap();
        assert_eq!(mode(&closed), 0o600);
        assert!(closed.text().contains("NGIT_RELAY_OWNER_NSEC=abab"));
    }

    #[test]
    fn a_wrong_value_writes_nothing() {
        let place = Place::new();
        let refused = place.init(&["--domain", "https://a.example"], &[], false);
        assert!(refused.unwrap_err().contains("--domain"));
        assert!(!place.path().exists());
    }

    #[test]
    fn questions_are_asked_until_the_answer_is_one_and_flags_are_not_asked_again() {
        let place = Place::new();
        let answers = "https://no\ngit.example.com\n\n::1\nmailto:me@a.example\n\n\n\n";
        let (done, asked) = place.talk(&["--relay-name", "x"], &[], false, Some(answers));
        done.unwrap();
        assert_eq!(asked.matches("Public name").count(), 2, "{asked}");
        assert!(asked.contains("  give only the host"), "{asked}");
        assert!(!asked.contains("Name of this server"), "{asked}");
        assert!(asked.contains("listen on [127.0.0.1:7334]: "), "{asked}");
        let text = place.text();
        let set: Vec<&str> = text.lines().filter(|l| l.starts_with("NGIT_")).collect();
        let expected = [
            "NGIT_DOMAIN=git.example.com",
            "NGIT_RELAY_NAME=x",
            "NGIT_RELAY_CONTACT=mailto:me@a.example",
            "NGIT_TRUSTED_PROXIES=::1",
        ];
        assert_eq!(set, expected);
    }

    #[test]
    fn an_end_in_the_middle_writes_nothing() {
        let place = Place::new();
        let (done, _) = place.talk(&[], &[], false, Some("git.example.com\n"));
        assert_eq!(done.unwrap_err(), "no answer, so nothing was written");
        assert!(!place.path().exists());
    }
}
