//! Writes a settings file with every setting of the table: those that were chosen as they are, the
//! others as comments. `.env` files, systemd and compose read it alike.

use std::path::Path;

use super::settings::specs;
use super::spec::{PREFIX, Spec};
use super::{ConfigErrors, Loaded, Row, Source, args, load};

const INTRO: &str = "\
# Settings of ngit-grasp. A line that begins with # is a comment: those with a variable show its
# default. What is set in the environment or by a flag wins over this file.
";
const WIDTH: usize = 100;

/// What packages set: the unit gives the server this directory and no other.
const PACKAGED: [(&str, &str); 2] = [
    ("NGIT_GIT_DATA_PATH", "/var/lib/ngit-grasp/git"),
    ("NGIT_RELAY_DATA_PATH", "/var/lib/ngit-grasp/relay"),
];

/// The file that packages bring.
pub fn packaged() -> Result<String, ConfigErrors> {
    let command = clap::Command::new("ngit-grasp").args(args());
    let matches = command.get_matches_from(["ngit-grasp"]);
    let set = PACKAGED.map(|(name, value)| (name.into(), value.into()));
    load(&matches, set, Path::new("")).map(|loaded| render(&loaded))
}

/// The whole file.
pub fn render(loaded: &Loaded) -> String {
    let mut file = INTRO.to_owned();
    let mut group = "";
    for (spec, row) in specs().iter().zip(loaded.describe()) {
        if spec.group != group {
            group = spec.group;
            file.push_str(&heading(group));
        }
        file.push_str(&entry(loaded, spec, &row));
    }
    file.push_str(&strays(loaded));
    file
}

/// True if something in the settings file must not be read by others.
pub fn has_secrets(loaded: &Loaded) -> bool {
    let mut rows = specs().iter().zip(loaded.describe());
    rows.any(|(spec, row)| spec.secret && matches!(row.source, Source::File(_)))
}

/// What the file had before and is no setting: variables of others stay, and what looks like one
/// of ours is a comment.
fn strays(loaded: &Loaded) -> String {
    if loaded.strays.is_empty() {
        return String::new();
    }
    let mut text = heading("No settings of this version");
    text.push('\n');
    for (name, value) in &loaded.strays {
        let ours = name.to_ascii_uppercase().starts_with(PREFIX);
        let comment = if ours { "#" } else { "" };
        text.push_str(&format!("{comment}{name}={}\n", quoted(value.reveal())));
    }
    text
}

fn heading(group: &str) -> String {
    let dashes = "-".repeat(WIDTH.saturating_sub(group.len() + 5));
    format!("\n# -- {group} {dashes}\n")
}

fn entry(loaded: &Loaded, spec: &Spec, row: &Row) -> String {
    let mut text = String::from("\n");
    let about = format!("{} Value: {}.", spec.help, spec.expects);
    for line in wrapped(&about) {
        text.push_str(&format!("# {line}\n"));
    }
    let line = match (&row.source, spec.secret) {
        (Source::Default, _) => format!("#{}={}", spec.env, quoted(spec.default)),
        (_, true) => format!("{}={}", spec.env, quoted(secret(loaded, spec))),
        (_, false) => format!("{}={}", spec.env, quoted(&row.value)),
    };
    text.push_str(&line);
    text.push('\n');
    text
}

/// A setting that is masked wherever else it is shown.
fn secret<'l>(loaded: &'l Loaded, spec: &Spec) -> &'l str {
    let secret = match spec.env {
        "NGIT_RELAY_OWNER_NSEC" => loaded.config.relay_owner_nsec.as_ref(),
        "NGIT_STATUS_TOKEN" => loaded.config.status_token.as_ref(),
        _ => None,
    };
    secret.map_or("", |secret| secret.reveal())
}

/// As it is where nothing in it has a meaning to anybody who reads such files.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,:/@+*[]".contains(c);
    if value.chars().all(plain) {
        value.to_owned()
    } else if !value.contains(['\'', '\n']) {
        format!("'{value}'")
    } else {
        let escaped = value.replace('\\', r"\\").replace('"', "\\\"");
        let escaped = escaped.replace('$', r"\$").replace('\n', r"\n");
        format!("\"{escaped}\"")
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + word.len() + 3 <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::dotenv;
    use super::*;

    fn loaded(env: &[(&str, &str)]) -> Loaded {
        let matches = clap::Command::new("test")
            .args(args())
            .get_matches_from(["test"]);
        let env = env
            .iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        load(&matches, env, Path::new("/nonexistent/.env")).unwrap()
    }

    fn from_file(text: &str) -> Loaded {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.env");
        std::fs::write(&path, text).unwrap();
        let matches = clap::Command::new("test").args(args());
        load(&matches.get_matches_from(["test"]), [], &path).unwrap()
    }

    fn read_back(file: &str) -> Vec<(String, String)> {
        dotenv::parse(file).unwrap()
    }

    #[test]
    fn with_nothing_chosen_every_setting_is_a_comment() {
        let file = render(&loaded(&[]));
        assert_eq!(read_back(&file), []);
        for spec in specs() {
            let line = format!("\n#{}=", spec.env);
            assert_eq!(file.matches(&line).count(), 1, "{}", spec.env);
        }
        assert!(file.lines().all(|line| line.len() <= WIDTH + 40), "{file}");
    }

    #[test]
    fn a_comment_that_is_uncommented_says_the_default() {
        let file = render(&loaded(&[])).replace("\n#NGIT_", "\nNGIT_");
        for ((name, value), spec) in read_back(&file).iter().zip(specs()) {
            assert_eq!((name.as_str(), value.as_str()), (spec.env, spec.default));
        }
    }

    #[test]
    fn what_was_chosen_is_read_back_as_it_was() {
        let chosen = [
            ("NGIT_DOMAIN", "git.example.com"),
            ("NGIT_RELAY_NAME", r#"Ann's "own" $relay \ # 1"#),
            ("NGIT_RELAY_DESCRIPTION", "plain words # and more"),
            ("NGIT_TRUSTED_PROXIES", "127.0.0.1,::1"),
        ];
        let file = render(&loaded(&chosen));
        let found = read_back(&file);
        let found: Vec<(&str, &str)> = found.iter().map(|(n, v)| (&**n, &**v)).collect();
        assert_eq!(found, chosen);
    }

    #[test]
    fn a_secret_is_written_in_the_clear_and_the_file_is_known_to_have_it() {
        let key = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";
        let given = [
            ("NGIT_RELAY_OWNER_NSEC", key),
            ("NGIT_STATUS_TOKEN", "correct horse battery"),
        ];
        let all: Vec<&str> = specs().iter().filter(|s| s.secret).map(|s| s.env).collect();
        assert_eq!(all, given.map(|(name, _)| name), "every secret is tried");
        for (name, value) in given {
            let by_environment = loaded(&[(name, value)]);
            assert!(!has_secrets(&by_environment), "{name} is in no file");
            let text = render(&by_environment);
            assert_eq!(read_back(&text), [(name.to_owned(), value.to_owned())]);
            assert!(has_secrets(&from_file(&text)), "{name}");
        }
    }

    #[test]
    fn what_is_no_setting_is_kept_and_that_of_others_stays_set() {
        let before = "NGIT_DOMIAN='a # b'\nTAG=latest\nNGIT_DOMAIN=git.example.com\n";
        let file = render(&from_file(before));
        assert!(file.contains("\n#NGIT_DOMIAN='a # b'\n"), "{file}");
        let set = [("NGIT_DOMAIN", "git.example.com"), ("TAG", "latest")];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(read_back(&file), set);
    }
}
