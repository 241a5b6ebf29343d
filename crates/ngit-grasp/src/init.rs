//! `ngit-grasp init`: asks for the settings that most people set, and writes the settings file.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, BufRead, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use crate::config::{self, Config, ConfigErrors, Loaded, Row, Source, file};

/// A proxy on this machine.
const LOOPBACKS: &str = "127.0.0.1,::1";

/// A setting, and what is asked about it.
const QUESTIONS: [(&str, &str); 8] = [
    (
        "NGIT_DOMAIN",
        "Public name, as people write it, such as git.example.com",
    ),
    ("NGIT_BIND_ADDRESS", "Address and port to listen on"),
    (
        "NGIT_TRUSTED_PROXIES",
        "Addresses of the TLS proxy in front (127.0.0.1,::1 on this machine, none without one)",
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
         old one as {}", .0.display(), free_old(.0).display()
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

/// What was done.
#[derive(Debug)]
pub struct Written {
    /// Oddities of what was read, one line each.
    pub warnings: Vec<String>,
    /// Where the file is now that was there before.
    pub old: Option<PathBuf>,
}

/// Writes the file. Without a dialogue it takes what flags and environment say, and defaults.
pub fn init(
    matches: &ArgMatches,
    env: Env,
    path: &Path,
    force: bool,
    dialogue: Option<Dialogue<'_>>,
) -> Result<Written, InitError> {
    if path.exists() && !force {
        return Err(InitError::Exists(path.to_owned()));
    }
    let loaded = match dialogue {
        Some(dialogue) => ask(matches, env, path, dialogue)?,
        None => config::load(matches, env, path)?,
    };
    let old = write(path, &file::render(&loaded)).map_err(|source| InitError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(Written {
        warnings: loaded.warnings,
        old,
    })
}

/// Everything that no flag has answered. An answer counts like a variable of the environment.
fn ask(
    matches: &ArgMatches,
    mut env: Env,
    path: &Path,
    mut dialogue: Dialogue<'_>,
) -> Result<Loaded, InitError> {
    let mut loaded = config::load(matches, env.clone(), path)?;
    let mut none: Vec<&str> = Vec::new();
    for (name, question) in QUESTIONS {
        let rows = loaded.describe();
        let Some(row) = rows.iter().find(|row| row.env == name) else {
            continue;
        };
        if row.source == Source::Flag {
            continue;
        }
        let offer = Offer::of(row, &loaded.config);
        loop {
            let answer = dialogue.ask(question, &offer.shown)?;
            let mut without = none.clone();
            let mut with_answer = env.clone();
            match (answer.as_str(), offer.taken) {
                ("", None) => break,
                ("none" | "-", _) => without.push(name),
                ("", Some(text)) | (text, _) => {
                    with_answer.retain(|(known, _)| known != name);
                    with_answer.push((name.into(), text.into()));
                }
            }
            match config::load_without(&without, matches, with_answer.clone(), path) {
                Ok(found) => {
                    (env, none, loaded) = (with_answer, without, found);
                    break;
                }
                Err(errors) => errors.lines.iter().for_each(|line| dialogue.complain(line)),
            }
        }
    }
    Ok(loaded)
}

/// What an empty answer means.
struct Offer {
    shown: String,
    /// To be written; nothing leaves all as it is.
    taken: Option<&'static str>,
}

impl Offer {
    fn of(row: &Row, config: &Config) -> Self {
        let unset = row.source == Source::Default;
        let public = config.domain.as_ref().is_some_and(|of| !of.is_loopback());
        // Who is public and listens to this machine only has a proxy on it.
        let behind_proxy = public && config.bind_address.ip().is_loopback();
        let (shown, taken) = match row.env {
            "NGIT_DOMAIN" if unset => ("none, for this machine only", None),
            "NGIT_TRUSTED_PROXIES" if unset && behind_proxy => (LOOPBACKS, Some(LOOPBACKS)),
            _ if row.value.is_empty() => ("none", None),
            _ => (row.value.as_str(), None),
        };
        let shown = shown.to_owned();
        Self { shown, taken }
    }
}

impl Dialogue<'_> {
    /// An empty answer keeps what stands in brackets.
    fn ask(&mut self, question: &str, now: &str) -> Result<String, InitError> {
        let _ = write!(self.questions, "{question} [{now}]: ");
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

/// A file that was there is kept beside the new one; where it is now. Settings come to hold
/// secrets, so nobody else reads them.
fn write(path: &Path, text: &str) -> io::Result<Option<PathBuf>> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let kept = free_old(path);
    let kept = match fs::rename(path, &kept) {
        Ok(()) => Some(kept),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(kept)
}

/// A name beside the file that nobody has yet.
fn free_old(path: &Path) -> PathBuf {
    let named = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let mut old = named(".old");
    for number in 1.. {
        if !old.exists() {
            break;
        }
        old = named(&format!(".old.{number}"));
    }
    old
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
        let kept = |ending: &str| {
            let path = place.0.path().join(format!("new/.env{ending}"));
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(kept(".old"), first);
        let second = place.text();
        place.init(&["--domain", "b.example"], &[], true).unwrap();
        assert_eq!((kept(".old"), kept(".old.1")), (first, second));
    }

    #[test]
    fn what_is_misspelt_is_told_and_kept() {
        let place = Place::new();
        place.init(&[], &[], false).unwrap();
        fs::write(place.path(), "NGIT_DOMIAN=git.example.com\n").unwrap();
        let matches = clap::Command::new("test").args(config::args());
        let matches = matches.get_matches_from(["test"]);
        let written = init(&matches, Vec::new(), &place.path(), true, None).unwrap();
        assert!(written.warnings[0].contains("did you mean NGIT_DOMAIN"));
        assert!(place.text().contains("\n#NGIT_DOMIAN=git.example.com\n"));
    }

    #[test]
    fn only_its_owner_reads_it() {
        let place = Place::new();
        place.init(&[], &[], false).unwrap();
        let mode = fs::metadata(place.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
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
    fn behind_a_proxy_on_this_machine_it_is_offered_and_none_is_an_answer() {
        let place = Place::new();
        let answers = "git.example.com\n\n\n\n\n\n\n\n";
        let (done, asked) = place.talk(&[], &[], false, Some(answers));
        done.unwrap();
        assert!(asked.contains("such as git.example.com [none, for this machine only]: "));
        assert!(asked.contains("[127.0.0.1,::1]: "), "{asked}");
        assert!(
            place
                .text()
                .contains("\nNGIT_TRUSTED_PROXIES=127.0.0.1,::1\n")
        );
        for none in ["none", "-"] {
            let answers = format!("\n\n{none}\n\n\n\n\n\n");
            let (done, asked) = place.talk(&[], &[], true, Some(&answers));
            done.unwrap();
            assert!(asked.contains("[git.example.com]: "), "{asked}");
            assert!(
                place.text().contains("\n#NGIT_TRUSTED_PROXIES=\n"),
                "{none}"
            );
        }
    }

    #[test]
    fn an_end_in_the_middle_writes_nothing() {
        let place = Place::new();
        let (done, _) = place.talk(&[], &[], false, Some("git.example.com\n"));
        assert_eq!(done.unwrap_err(), "no answer, so nothing was written");
        assert!(!place.path().exists());
    }
}
