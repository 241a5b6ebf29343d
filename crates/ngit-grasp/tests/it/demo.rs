//! The first session of the README, line by line: commands are run, messages are sent, and what is
//! shown is compared. Only the port is another, and `cargo run` the binary under test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::documents::checkout;
use crate::shown::check_output;
use crate::support::{DEADLINE, bin, skipped};

const README: &str = include_str!("../../../../README.md");
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/demo");
const ADDRESS: &str = "localhost:7334";
const STARTS: &str = "cargo run --release";
const CONNECTS: &str = "python3 -m websockets";

/// What is typed at a prompt, `$` or `>`, and what comes back.
#[derive(Debug)]
struct Turn {
    prompt: char,
    typed: String,
    shown: Vec<String>,
}

fn turns() -> Vec<Turn> {
    let from = README.split("## A first session").nth(1);
    let session = from.and_then(|rest| rest.split("\n## ").next());
    let mut turns: Vec<Turn> = Vec::new();
    for line in session.unwrap().lines() {
        let Some(line) = line.strip_prefix("    ") else {
            continue;
        };
        match (line.split_once(' '), turns.last_mut()) {
            (Some((prompt @ ("$" | ">"), typed)), _) => turns.push(Turn {
                prompt: prompt.chars().next().unwrap(),
                typed: typed.to_owned(),
                shown: Vec::new(),
            }),
            (_, Some(turn)) => {
                let line = line.strip_prefix("< ").unwrap_or(line);
                turn.shown.push(line.to_owned());
            }
            (_, None) => panic!("nothing was typed before {line}"),
        }
    }
    turns
}

struct Session {
    root: PathBuf,
    server: Child,
    /// Where it listens.
    addr: String,
    socket: Option<WebSocketStream<MaybeTlsStream<TcpStream>>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn environment(command: &mut Command, dir: &Path) {
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("NGIT_DOMAIN", ADDRESS)
        .env("NGIT_BIND_ADDRESS", "127.0.0.1:0")
        .stdin(Stdio::null());
}

impl Session {
    /// The log up to the line that says where the server listens is what the README shows.
    async fn start(turn: &Turn, root: &Path) -> Self {
        let log = root.join("server.log");
        let mut command = Command::new(bin());
        environment(&mut command, root);
        let server = command.stderr(fs::File::create(&log).unwrap()).spawn();
        let deadline = Instant::now() + DEADLINE;
        let (text, port) = loop {
            let text = fs::read_to_string(&log).unwrap();
            let listens = text.split("listening on http://127.0.0.1:").nth(1);
            if let Some((port, _)) = listens.and_then(|rest| rest.split_once('\n')) {
                break (text.clone(), port.to_owned());
            }
            assert!(Instant::now() < deadline, "{text}");
            tokio::task::yield_now().await;
        };
        // Times of day are left out.
        let shown: Vec<String> = turn.shown.iter().map(|line| format!("…{line}")).collect();
        compare(turn, &shown, &text.replace(&format!(":{port}"), ":7334"));
        Self {
            root: root.to_owned(),
            server: server.unwrap(),
            addr: format!("localhost:{port}"),
            socket: None,
        }
    }

    async fn connect(&mut self) {
        let connected = timeout(DEADLINE, connect_async(format!("ws://{}", self.addr))).await;
        self.socket = Some(connected.unwrap().unwrap().0);
    }

    /// A message that is cut is in the file whose name stands behind it.
    async fn say(&mut self, turn: &Turn) {
        let socket = self.socket.as_mut().unwrap();
        let text = match turn.typed.split_once('…') {
            Some((begin, rest)) => {
                let file = rest.trim().trim_matches(['(', ')']);
                let text = fs::read_to_string(Path::new(DEMO).join(file)).unwrap();
                assert!(text.starts_with(begin.trim_end()), "{file}: {begin}");
                text.trim().to_owned()
            }
            None => turn.typed.clone(),
        };
        socket.send(Message::text(text)).await.unwrap();
        let mut answers = Vec::new();
        for _ in &turn.shown {
            let answer = timeout(DEADLINE, socket.next()).await;
            let answer = answer.unwrap_or_else(|_| panic!("{turn:?}: only {answers:?}"));
            answers.push(answer.unwrap().unwrap().into_text().unwrap().to_string());
        }
        compare(turn, &turn.shown, &answers.join("\n"));
    }

    /// In the shell of the session: where it is, and what it has set, stays.
    fn run(&self, turn: &Turn) {
        let typed = turn.typed.replace(ADDRESS, &self.addr);
        let script = format!(
            "set -a\n. ./shell\n{typed}\ncode=$?\n\
             {{ export -p; echo \"cd '$PWD'\"; }} > '{}/shell'\nexit $code",
            self.root.display()
        );
        let mut command = Command::new("bash");
        environment(&mut command, &self.root);
        let output = command
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .output();
        let printed = String::from_utf8(output.unwrap().stdout).unwrap();
        compare(turn, &turn.shown, &printed.replace(&self.addr, ADDRESS));
    }
}

fn compare(turn: &Turn, shown: &[String], printed: &str) {
    let shown: Vec<&str> = shown.iter().map(String::as_str).collect();
    let of = format!("README.md: {}", turn.typed);
    let same = check_output(&of, &shown, printed);
    assert!(same.is_ok(), "{}", same.unwrap_err());
}

#[tokio::test]
async fn the_first_session_of_the_readme_works() {
    let dir = tempfile::tempdir().unwrap();
    checkout(dir.path());
    fs::write(dir.path().join("shell"), "").unwrap();
    let turns = turns();
    let (start, rest) = turns.split_first().unwrap();
    assert_eq!(start.typed, STARTS);
    let curl = Command::new("curl").arg("--version").output().is_ok();
    let mut session = Session::start(start, dir.path()).await;
    for turn in rest {
        match turn.prompt {
            '>' => session.say(turn).await,
            _ if turn.typed.starts_with(CONNECTS) => session.connect().await,
            _ if turn.typed.starts_with("curl") && !curl => {
                skipped(&format!("README.md: {}: curl is not installed", turn.typed));
            }
            _ => session.run(turn),
        }
    }
    assert!(rest.len() > 10, "{rest:?}");
}
