//! The tutorial and the how-tos: every command in a block marked `sh` is run, page by page, in a
//! shell of its own, and what a block marked `output` shows is all that it printed, but for what
//! is left out with `…`. A page begins where its reader does, at the root of this repository with
//! the server built, and nothing else is given to it. Blocks marked `console` need root, Docker or
//! a public name and are not run; `packaging.rs` looks at what they name.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use testkit::{Author, Project};

use crate::shown::check_output;
use crate::support::{bin, skipped, to_json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
/// Pages wait for other servers to notice what happened.
const DEADLINE: Duration = Duration::from_secs(180);
/// What servers on the pages listen on.
const PORTS: [u16; 3] = [7334, 7401, 7402];
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
    let mut script = String::new();
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

/// Where a page runs.
enum Network {
    /// Made for it, so that the ports on the page are free.
    Own,
    /// Everybody's, in a machine that does not let us make one; one page after the other.
    Shared { _turn: MutexGuard<'static, ()> },
}

impl Network {
    fn find(dir: &Path) -> Option<Self> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        if Self::Own.works(dir) {
            return Some(Self::Own);
        }
        let turn = ONE_AT_A_TIME.lock();
        let _turn = turn.unwrap_or_else(PoisonError::into_inner);
        let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let shared = Self::Shared { _turn };
        (PORTS.iter().all(free) && shared.works(dir)).then_some(shared)
    }

    /// Whether there is what pages use beside git.
    fn works(&self, dir: &Path) -> bool {
        let mut tried = self.shell("command -v curl > curl.txt", dir);
        let status = tried.stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    }

    fn shell(&self, script: &str, dir: &Path) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut command = match self {
            Self::Own => {
                let mut command = Command::new("unshare");
                command.args(["--map-root-user", "--net", "--pid", "--fork"]);
                command.args(["--kill-child", "bash", "-c"]);
                command.arg(format!("set -eu\nip link set lo up\n{script}"));
                command
            }
            Self::Shared { .. } => {
                let mut command = Command::new("bash");
                command.arg("-c").arg(format!("set -eu\n{script}"));
                command
            }
        };
        command
            .current_dir(dir)
            .env_clear()
            .env("PATH", path)
            .env("HOME", dir)
            .env("TMPDIR", dir)
            .stdin(Stdio::null())
            .process_group(0);
        command
    }
}

/// The repository as its reader has it after `cargo build --release`, as far as pages use it.
pub fn checkout(dir: &Path) {
    let release = dir.join("target/release");
    fs::create_dir_all(&release).unwrap();
    fs::create_dir(dir.join("docs")).unwrap();
    std::os::unix::fs::symlink(bin(), release.join("ngit-grasp")).unwrap();
    let demo = Path::new(ROOT).join("docs/demo");
    let copied = Command::new("cp")
        .arg("-a")
        .arg(demo)
        .arg(dir.join("docs"))
        .status();
    assert!(copied.unwrap().success());
}

fn run_page(page: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (work, outputs) = (dir.path().join("work"), dir.path().join("out"));
    for dir in [&work, &outputs] {
        fs::create_dir(dir).unwrap();
    }
    let Some(network) = Network::find(dir.path()) else {
        return skipped(&format!(
            "{page} needs curl, and the ports {PORTS:?} or a network of its own"
        ));
    };
    checkout(&work);
    let text = fs::read_to_string(Path::new(ROOT).join("docs").join(page)).unwrap();
    let blocks = blocks(&text);
    assert!(!blocks.is_empty(), "{page} has no commands");
    let ended = finish(network.shell(&script(&blocks, &outputs), &work));
    let mut problems = Vec::new();
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
        let shown: Vec<&str> = block.output.iter().map(String::as_str).collect();
        if !shown.is_empty() {
            let of = format!("{page}:\n{}", block.commands);
            problems.extend(check_output(&of, &shown, &printed).err());
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// True if it ended well. Nothing that it began is left.
fn finish(mut command: Command) -> bool {
    let mut child = command.spawn().unwrap();
    let group = format!("-{}", child.id());
    let (done, ended) = mpsc::channel();
    thread::spawn(move || done.send(child.wait()));
    let well = match ended.recv_timeout(DEADLINE) {
        Ok(status) => status.unwrap().success(),
        Err(_) => false,
    };
    let _ = Command::new("kill")
        .args(["-KILL", "--", &group])
        .stderr(Stdio::null())
        .status();
    well
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
fn the_how_to_on_backups_works() {
    run_page("howto/backup.md");
}

#[test]
fn the_how_to_on_bootstrap_relays_works() {
    run_page("howto/bootstrap.md");
}

#[test]
fn the_how_to_on_deploying_works() {
    run_page("howto/deploy.md");
}

#[test]
fn the_how_to_on_moving_works() {
    run_page("howto/migrate.md");
}

#[test]
fn the_how_to_on_moderation_works() {
    run_page("howto/moderate.md");
}

#[test]
fn every_how_to_is_run() {
    let source = include_str!("documents.rs");
    for entry in fs::read_dir(Path::new(ROOT).join("docs/howto")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let run = format!("run_page(\"howto/{name}\")");
        assert!(source.contains(&run), "{name} is not run");
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
