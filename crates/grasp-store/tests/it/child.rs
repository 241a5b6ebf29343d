//! A second process: this test program once more, told by a variable what to do with a store.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use grasp_store::{Store, StoreError, TailLimits};

use crate::support::{ALICE, note, put_all};
use crate::tail::{History, UNLIMITED};

const TASK: &str = "STORE_TEST_TASK";
const PATH: &str = "STORE_TEST_PATH";
const SEED: &str = "STORE_TEST_SEED";
const TAIL: &str = "STORE_TEST_TAIL";
/// Keeps the answer apart from what the test harness prints.
const ANSWER: &str = "answer: ";

/// Stores three events and dies at once: no destructor, no clean close.
pub fn commit_and_abort(store: &Path) -> String {
    ask("commit and abort", store)
}

pub fn count_read_only(store: &Path) -> String {
    ask("count read-only", store)
}

pub fn open(store: &Path) -> String {
    ask("open", store)
}

/// A history for a store, and when its process dies in it.
pub struct Life {
    pub seed: u64,
    /// Events that the tail takes.
    pub tail: u64,
    /// Killed from outside as soon as it has acknowledged so many steps, whatever it does then;
    /// else it aborts after the last one.
    pub killed_after: Option<usize>,
}

/// Says how many steps were acknowledged before the end.
pub fn live_and_die(store: &Path, life: &Life) -> usize {
    let mut child = process("live and abort", store)
        .env(SEED, life.seed.to_string())
        .env(TAIL, life.tail.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, answer)) = line.split_once(ANSWER) else {
            continue;
        };
        acknowledged = answer.parse().unwrap();
        if life.killed_after == Some(acknowledged) {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert_eq!(status.code(), None, "ended by a signal");
    acknowledged
}

fn process(task: &str, store: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "child::second_process",
            "--ignored",
            "--nocapture",
        ])
        .env(TASK, task)
        .env(PATH, store)
        .stderr(Stdio::inherit());
    command
}

fn ask(task: &str, store: &Path) -> String {
    let output = process(task, store).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text
        .split_once(ANSWER)
        .and_then(|(_, rest)| rest.lines().next());
    answer
        .unwrap_or_else(|| panic!("no answer in {text:?}"))
        .to_owned()
}

#[test]
#[ignore = "other tests start it in a process of its own"]
fn second_process() {
    let (Some(task), Some(path)) = (std::env::var_os(TASK), std::env::var_os(PATH)) else {
        return;
    };
    let path = Path::new(&path);
    match task.to_str() {
        Some("commit and abort") => {
            let store = Store::open(path).unwrap();
            put_all(&store, &[10, 11, 12].map(|at| note(ALICE, at, &[])));
            println!("{ANSWER}committed {}", store.stats().unwrap().events);
            std::process::abort();
        }
        Some("live and abort") => {
            let limits = TailLimits {
                events: number(TAIL),
                ..UNLIMITED
            };
            let store = Store::open_with(path, limits).unwrap();
            for (n, step) in History::new(number(SEED)).steps.iter().enumerate() {
                step.apply(&store);
                println!("{ANSWER}{}", n + 1);
            }
            std::process::abort();
        }
        Some("count read-only") => {
            let store = Store::open_read_only(path).unwrap();
            println!("{ANSWER}counted {}", store.stats().unwrap().events);
        }
        Some("open") => match Store::open(path) {
            Ok(_) => println!("{ANSWER}opened"),
            Err(StoreError::Locked { pid: Some(pid), .. }) => println!("{ANSWER}locked by {pid}"),
            Err(error) => println!("{ANSWER}{error}"),
        },
        other => panic!("no such task: {other:?}"),
    }
}

fn number(name: &str) -> u64 {
    std::env::var(name).unwrap().parse().unwrap()
}
