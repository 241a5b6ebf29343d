//! A second process: this test program once more, told by a variable what to do with a store.

use std::path::Path;
use std::process::{Command, Stdio};

use grasp_store::{Store, StoreError};

use crate::support::{ALICE, note, put_all};

const TASK: &str = "STORE_TEST_TASK";
const PATH: &str = "STORE_TEST_PATH";
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

fn ask(task: &str, store: &Path) -> String {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args([
            "--exact",
            "child::second_process",
            "--ignored",
            "--nocapture",
        ])
        .env(TASK, task)
        .env(PATH, store)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
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
