//! Files for packages and containers, and the documents about them: whatever setting, command,
//! service or file they name exists. What `console` blocks show needs Docker, root or a public name,
//! so it is read here and not run; blocks marked `sh` are run by `documents.rs`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ngit_grasp::config::specs;

use crate::support::{bin, skipped};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Settings of other servers that are none here. The page on moving says what follows.
const ELSEWHERE: [&str; 5] = [
    "NGIT_ARCHIVE_ALL",
    "NGIT_ARCHIVE_GRASP_SERVICES",
    "NGIT_ARCHIVE_READ_ONLY",
    "NGIT_ARCHIVE_WHITELIST",
    "NGIT_GRASP06_ENABLE",
];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| !path.ends_with("generated") && !path.ends_with("adr"))
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path],
        })
        .collect()
}

/// Names of variables in a text, whole ones: `NGIT_ARCHIVE_*` stands for several.
fn variables(text: &str) -> BTreeSet<&str> {
    let starts = text.match_indices("NGIT_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| {
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_uppercase() && !c.is_ascii_digit());
        &rest[..end.unwrap_or(rest.len())]
    });
    names.filter(|name| !name.ends_with('_')).collect()
}

#[test]
fn every_setting_that_is_named_exists() {
    let known: BTreeSet<&str> = specs().iter().map(|spec| spec.env).collect();
    let root = Path::new(ROOT);
    let mut files = files_below(&root.join("packaging"));
    files.extend(files_below(&root.join("docs")));
    files.push(root.join("README.md"));
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for name in variables(&text) {
            let none = file.ends_with("migrate.md") && ELSEWHERE.contains(&name);
            assert!(known.contains(name) || none, "{}: {name}", file.display());
        }
    }
}

#[test]
fn the_page_on_moving_names_what_is_not_here() {
    let page = read("docs/howto/migrate.md");
    for name in ELSEWHERE {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
}

/// Commands in blocks marked `console`, each on one line and without comments.
fn console_commands(page: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut inside = false;
    let text = page.replace("\\\n", " ");
    for line in text.lines() {
        match line.strip_prefix("```") {
            Some(kind) => inside = kind == "console",
            None if inside => commands.extend(line.strip_prefix("$ ").map(without_comment)),
            None => {}
        }
    }
    commands
}

fn without_comment(line: &str) -> String {
    line.split(" # ").next().unwrap_or(line).to_owned()
}

#[test]
fn commands_that_need_docker_or_root_name_what_exists() {
    let pages = [
        "README.md",
        "docs/tutorial.md",
        "docs/howto/backup.md",
        "docs/howto/deploy.md",
        "docs/howto/migrate.md",
    ];
    let mut count = 0;
    for page in pages {
        let text = read(page);
        let commands = console_commands(&text);
        for command in commands.iter().flat_map(|line| line.split("&&")) {
            let mut words: Vec<&str> = command.split_whitespace().collect();
            let redirect = words.iter().position(|word| ["<", ">"].contains(word));
            words.truncate(redirect.unwrap_or(words.len()));
            words.retain(|word| *word != "sudo");
            check_command(&words).unwrap_or_else(|problem| panic!("{page}: {command}: {problem}"));
            count += 1;
        }
    }
    assert!(count > 30, "{count}");
}

fn check_command(words: &[&str]) -> Result<(), String> {
    words.iter().try_for_each(|word| check_path(word))?;
    match words {
        ["docker", "compose", verb, rest @ ..] => check_compose(verb, rest),
        ["ngit-grasp" | "target/release/ngit-grasp", args @ ..] => check_ours(args),
        ["as_server", "ngit-grasp", args @ ..] => check_ours(args),
        ["as_server()", rest @ ..] => rest.iter().try_for_each(|word| check_property(word)),
        ["systemctl", .., unit] => match *unit {
            "daemon-reload" | "ngit-grasp" | "caddy" => Ok(()),
            _ => Err(format!("no unit {unit}")),
        },
        _ => Ok(()),
    }
}

/// A command of ours is understood as it stands.
fn check_ours(args: &[&str]) -> Result<(), String> {
    let help = Command::new(bin()).args(args).arg("--help").output();
    let help = help.map_err(|error| error.to_string())?;
    match help.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&help.stderr).into_owned()),
    }
}

/// The service is one of the compose file; what it runs is a command of ours, unless the entry
/// point is another.
fn check_compose(verb: &str, rest: &[&str]) -> Result<(), String> {
    let compose = read("packaging/docker/compose.yaml");
    let entry = rest.iter().position(|word| *word == "--entrypoint");
    let flags = entry.map_or(0, |at| at + 2);
    let mut words = rest[flags..]
        .iter()
        .skip_while(|word| word.starts_with('-'));
    let Some(service) = words.next() else {
        return Ok(());
    };
    if !compose.contains(&format!("\n  {service}:\n")) {
        return Err(format!("no service {service}"));
    }
    let args: Vec<&str> = words.copied().collect();
    match (verb, entry, args.as_slice()) {
        ("run", None, args) => check_ours(args),
        ("exec", _, ["ngit-grasp", args @ ..]) => check_ours(args),
        _ => Ok(()),
    }
}

/// What a command runs with is what the unit runs with.
fn check_property(word: &str) -> Result<(), String> {
    let unit = read("packaging/systemd/ngit-grasp.service");
    let environment = word.strip_prefix("--setenv=");
    let line = match word.strip_prefix("--property=") {
        Some(property) => Some(property.to_owned()),
        None => environment.map(|variable| format!("Environment={variable}")),
    };
    match line.is_none_or(|line| unit.lines().any(|of| of == line)) {
        true => Ok(()),
        false => Err(format!("not in the unit: {word}")),
    }
}

/// A file of this repository, of the package or of the volume.
fn check_path(word: &str) -> Result<(), String> {
    let manifest = read("crates/ngit-grasp/Cargo.toml");
    let exists = if word.starts_with("packaging/") {
        Path::new(ROOT).join(word).exists()
    } else if let Some(name) = word.strip_prefix("/usr/share/doc/ngit-grasp/") {
        let name = name.rsplit('/').next().unwrap_or(name);
        manifest.contains(&format!("/{name}\", \"usr/share/doc/ngit-grasp"))
    } else if word.starts_with("/data") {
        read("packaging/docker/compose.yaml").contains("- data:/data\n")
    } else {
        true
    };
    match exists {
        true => Ok(()),
        false => Err(format!("no {word}")),
    }
}

/// With the comments taken for settings.
#[test]
fn the_settings_file_of_the_package_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("ngit-grasp.env");
    let text = read("packaging/deb/ngit-grasp.env").replace("#NGIT_", "NGIT_");
    fs::write(&file, &text).unwrap();
    let mut config = Command::new(bin());
    let config = config.env_clear().arg("--env-file").arg(&file);
    let config = config.arg("config").output().unwrap();
    let said = String::from_utf8_lossy(&config.stderr);
    assert!(config.status.success() && said.is_empty(), "{said}");
    let shown = String::from_utf8_lossy(&config.stdout);
    let set = shown
        .lines()
        .filter(|line| line.contains(" ngit-grasp.env "));
    assert_eq!(set.count(), variables(&text).len(), "{shown}");
}

/// Where systemd is not installed there is nobody to ask.
#[test]
fn systemd_understands_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = read("packaging/systemd/ngit-grasp.service");
    // It looks for the binary and the man page as well, which are not installed here.
    let unit = unit.replace("/usr/bin/ngit-grasp", "/bin/true");
    let unit = unit.replace("man:ngit-grasp(1)", "https://ngit.dev");
    let path = dir.path().join("ngit-grasp.service");
    fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output();
    let Ok(verified) = verified else {
        return skipped("systemd_understands_the_unit, systemd-analyze is not installed");
    };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_us: Vec<&str> = said
        .lines()
        .filter(|of| of.contains("ngit-grasp"))
        .collect();
    assert!(about_us.is_empty(), "{said}");
}

#[test]
fn what_packages_bring_is_there() {
    let manifest = read("crates/ngit-grasp/Cargo.toml");
    let assets = manifest.split("[\"../../").skip(1);
    let assets = assets.filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for asset in assets.filter(|asset| !asset.contains("/generated/")) {
        assert!(Path::new(ROOT).join(asset).exists(), "{asset}");
        count += 1;
    }
    assert!(count >= 4, "{manifest}");
}
