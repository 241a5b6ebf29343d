//! Files for packages and containers, and the documents about them: whatever setting or command
//! they name exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ngit_grasp::config::specs;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

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
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_uppercase());
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
            // The page on moving says what becomes of a name that is none.
            let none = name == "NGIT_ARCHIVE_ALL";
            assert!(known.contains(name) || none, "{}: {name}", file.display());
        }
    }
}

/// Where systemd is not installed there is nobody to ask.
#[test]
fn systemd_understands_the_unit() {
    let dir = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(Path::new(ROOT).join("packaging/systemd/ngit-grasp.service"));
    // It looks for the binary and the man page as well, which are not installed here.
    let unit = unit.unwrap().replace("/usr/bin/ngit-grasp", "/bin/true");
    let unit = unit.replace("man:ngit-grasp(1)", "https://ngit.dev");
    let path = dir.path().join("ngit-grasp.service");
    fs::write(&path, unit).unwrap();
    let verified = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .arg(&path)
        .output();
    let Ok(verified) = verified else {
        println!("skipped: no systemd-analyze");
        return;
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
    let manifest = fs::read_to_string(Path::new(ROOT).join("crates/ngit-grasp/Cargo.toml"));
    let manifest = manifest.unwrap();
    let assets = manifest.split("[\"../../").skip(1);
    let assets = assets.filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for asset in assets.filter(|asset| !asset.contains("/generated/")) {
        assert!(Path::new(ROOT).join(asset).exists(), "{asset}");
        count += 1;
    }
    assert!(count >= 4, "{manifest}");
}
