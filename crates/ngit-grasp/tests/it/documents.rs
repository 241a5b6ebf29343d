//! The tutorial and the how-tos: every command in a block marked `sh` is run, page by page, in a
//! shell of its own, and what a block marked `output` shows must be in what it printed.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use testkit::{Author, Project};

use crate::support::{bin, to_json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Pages wait for other servers to notice what happened.
const DEADLINE: Duration = Duration::from_secs(180);
/// Who signed the demo; everybody can know this key.
const ADA: u64 = 2026;
const FIRST: (u64, &str) = (1_767_225_600, "bd811b2dfbe31d1ec123055b371cc2c90a2ed81a");
const SECOND: (u64, &str) = (1_767_312_000, "da57fd28d5a95d597a9fde3ac658c5b294f1c2e4");

struct Block {
    commands: String,
    /// Lines, in which … stands for anything.
    output: Vec<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            continue;
        };
        let text: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match (kind, blocks.last_mut()) {
            ("sh", _) => blocks.push(Block {
                commands: text.join("\n"),
                output: Vec::new(),
            }),
            ("output", Some(block)) => block.output.extend(text.iter().map(|of| of.to_string())),
            _ => {}
        }
    }
    blocks
}

/// All blocks in one shell, the output of each in a file of its own.
fn script(blocks: &[Block], outputs: &Path) -> String {
    let mut script = "set -eu\n".to_owned();
    for (n, block) in blocks.iter().enumerate() {
        let output = outputs.join(n.to_string());
        script.push_str(&format!(
            "{{\n{}\n}} > {} 2>&1 < /dev/null\n",
            block.commands,
            output.display()
        ));
    }
    script
}

/// In a network of its own, so that the ports on the page are free.
fn shell(script: &str, dir: &Path, bins: &Path) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("unshare");
    command
        .args([
            "--map-root-user",
            "--net",
            "--kill-child",
            "--pid",
            "--fork",
        ])
        .args(["bash", "-c"])
        .arg(format!("ip link set lo up\n{script}"))
        .current_dir(dir)
        .env_clear()
        .env("PATH", format!("{}:{path}", bins.display()))
        .env("HOME", dir)
        .env("demo", Path::new(ROOT).join("docs/demo"))
        .env("packaging", Path::new(ROOT).join("packaging"))
        .stdin(Stdio::null())
        .process_group(0);
    command
}

/// Whether this machine lets us make a network, and has what the pages use beside git.
fn can_run(dir: &Path) -> bool {
    let tried = shell("command -v curl > curl.txt", dir, dir)
        .stderr(Stdio::null())
        .status();
    tried.is_ok_and(|status| status.success())
}

fn run_page(page: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (bins, work, outputs) = (
        dir.path().join("bin"),
        dir.path().join("work"),
        dir.path().join("out"),
    );
    for dir in [&bins, &work, &outputs] {
        fs::create_dir(dir).unwrap();
    }
    if !can_run(dir.path()) {
        println!("skipped: {page} needs a network namespace of its own, and curl");
        return;
    }
    std::os::unix::fs::symlink(bin(), bins.join("ngit-grasp")).unwrap();
    let text = fs::read_to_string(Path::new(ROOT).join("docs").join(page)).unwrap();
    let blocks = blocks(&text);
    assert!(!blocks.is_empty(), "{page} has no commands");
    let ended = finish(shell(&script(&blocks, &outputs), &work, &bins));
    for (n, block) in blocks.iter().enumerate() {
        let printed = fs::read_to_string(outputs.join(n.to_string()));
        let Ok(printed) = printed else {
            panic!("{page} ended before\n{}", block.commands);
        };
        let last = !outputs.join((n + 1).to_string()).exists();
        if last && !ended {
            let logs = logs(&work);
            panic!("{page}:\n{}\nprinted\n{printed}\n{logs}", block.commands);
        }
        check_output(page, block, &printed);
    }
}

/// True if it ended well.
fn finish(mut command: Command) -> bool {
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(child.wait()));
    match ended.recv_timeout(DEADLINE) {
        Ok(status) => status.unwrap().success(),
        Err(_) => {
            let group = format!("-{pid}");
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            false
        }
    }
}

fn logs(dir: &Path) -> String {
    let mut found: Vec<PathBuf> = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            match path.is_dir() {
                true => dirs.push(path),
                false if path.extension().is_some_and(|of| of == "log") => found.push(path),
                false => {}
            }
        }
    }
    let text = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        format!("{}:\n{text}\n", path.display())
    };
    found.iter().map(text).collect()
}

/// Every line that the page shows was printed, in that order.
fn check_output(page: &str, block: &Block, printed: &str) {
    let mut lines = printed.lines();
    for expected in &block.output {
        if expected.trim() == "…" {
            continue;
        }
        let found = lines.any(|line| matches(expected, line));
        assert!(
            found,
            "{page}:\n{}\nshould print\n{expected}\nand printed\n{printed}",
            block.commands
        );
    }
}

/// Widths of columns and what … stands for may differ.
fn matches(expected: &str, line: &str) -> bool {
    let tidy = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (expected, line) = (tidy(expected), tidy(line));
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[test]
fn dots_stand_for_anything() {
    assert!(matches("a … c", "a  b b c"));
    assert!(matches("a…", "abc") && matches("…c", "abc") && matches("a…c…e", "abcde"));
    assert!(!matches("a…", "bc") && !matches("a", "ab") && !matches("a…c", "ab"));
}

#[test]
fn the_demo_is_signed_for_the_servers_of_the_tutorial() {
    let ada = Author::new(ADA);
    let project = Project::new(&ada, "hello");
    let hosts = ["localhost:7401".to_owned(), "localhost:7402".to_owned()];
    let state = |(at, tip): (u64, &str)| project.state(&ada, at, &[("refs/heads/main", tip)]);
    let announcement = project.announcement_at(FIRST.0, &hosts, &[]);
    let files = [
        ("repository.jsonl", vec![announcement, state(FIRST)]),
        ("update.jsonl", vec![state(SECOND)]),
    ];
    for (name, events) in files {
        let lines: String = events
            .iter()
            .map(|event| format!("{}\n", to_json(event)))
            .collect();
        let found = fs::read_to_string(Path::new(ROOT).join("docs/demo/mirror").join(name));
        assert_eq!(found.unwrap_or_default(), lines, "{name} by {}", ada.npub());
    }
}

#[test]
fn the_tutorial_works() {
    run_page("tutorial.md");
}

#[test]
fn the_how_tos_work() {
    for page in ["backup", "bootstrap", "deploy", "migrate", "moderate"] {
        run_page(&format!("howto/{page}.md"));
    }
}

#[test]
fn the_reference_has_every_path() {
    let source = fs::read_to_string(Path::new(ROOT).join("crates/ngit-grasp/src/http/mod.rs"));
    let source = source.unwrap();
    let page = fs::read_to_string(Path::new(ROOT).join("docs/reference/http.md")).unwrap();
    let routes = source.split(".route(\"").skip(1);
    let paths: Vec<&str> = routes.filter_map(|rest| rest.split('"').next()).collect();
    assert!(paths.len() > 4, "{paths:?}");
    for path in paths {
        assert!(page.contains(&format!("`{path}`")), "{path}");
    }
}
