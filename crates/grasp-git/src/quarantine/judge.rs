//! What git's end says about a pack.

use grasp_core::git::ObjectId;

use super::{PRINTED, PackLimits};
use crate::command::Finished;
use crate::error::{GitError, PackFault};
use crate::text::is_plain;

/// What git ends with when the disk, or our part of it, is full. Nothing that a stranger chose
/// comes last in what it says.
const DISK_FULL: [&str; 2] = [": No space left on device", ": Disk quota exceeded"];

/// `cpu_seconds` is what git was allowed at its end.
pub(super) fn judge(
    (finished, printed): (Finished, Vec<u8>),
    limits: &PackLimits,
    cpu_seconds: u64,
) -> Result<(), GitError> {
    if finished.is_ok() {
        return match printed.len() {
            0..=PRINTED => Ok(()),
            _ => Err(PackFault::TrailingBytes.into()),
        };
    }
    let reason = finished.stderr.lines().last().unwrap_or_default();
    let reason = reason.trim_start_matches("fatal: ").to_owned();
    match DISK_FULL.iter().any(|words| reason.ends_with(words)) {
        true => Err(GitError::DiskFull(reason)),
        false => Err(fault(&finished, reason, limits, cpu_seconds).into()),
    }
}

fn fault(finished: &Finished, reason: String, limits: &PackLimits, cpu_seconds: u64) -> PackFault {
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if finished.ran_out_of_time() {
        PackFault::TooMuchCpu {
            seconds: cpu_seconds,
        }
    } else if finished.ran_out_of_memory() {
        PackFault::TooCostly(reason)
    } else if says(&["early EOF"]) {
        PackFault::Truncated
    } else if says(&["maximum allowed size"]) {
        PackFault::TooLarge {
            limit: limits.max_bytes,
        }
    } else if says(&[
        "unresolved delta",
        "not found",
        "not receive",
        "child objects",
    ]) {
        PackFault::Incomplete(reason)
    } else if let Some(fault) = fsck_fault(&finished.stderr) {
        fault
    } else {
        PackFault::Malformed(reason)
    }
}

/// Longer than anything that fsck says of itself; names of files can be in it, too.
const MAX_WORDS: usize = 200;

/// The last `error: object <id>: <fault>: <words>`, which is what it ended for.
fn fsck_fault(stderr: &str) -> Option<PackFault> {
    let said = |line: &str| {
        let (object, rest) = line.strip_prefix("error: object ")?.split_once(": ")?;
        let (fault, words) = rest.split_once(": ")?;
        let named = fault.bytes().all(|byte| byte.is_ascii_alphanumeric());
        named.then_some((ObjectId::parse(object)?, fault.to_owned(), plain(words)))
    };
    let (object, fault, words) = stderr.lines().rev().find_map(said)?;
    Some(PackFault::Fsck {
        object,
        fault,
        words,
    })
}

/// Fit for a terminal.
fn plain(words: &str) -> String {
    let shown = words.chars().filter(|c| is_plain(*c));
    shown.take(MAX_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    fn judged(stderr: &str) -> GitError {
        let finished = Finished {
            name: "index-pack",
            status: ExitStatus::from_raw(128 << 8),
            stderr: stderr.to_owned(),
        };
        judge((finished, Vec::new()), &PackLimits::default(), 10).unwrap_err()
    }

    #[test]
    fn a_full_disk_is_not_the_senders_fault() {
        for full in [
            "fatal: write error: No space left on device",
            "fatal: unable to create temporary file: Disk quota exceeded",
        ] {
            let error = judged(full);
            assert!(error.is_no_space() && !error.is_client_fault(), "{error}");
        }
    }

    #[test]
    fn nobody_can_make_the_disk_look_full() {
        let forged = "error: object 1234: gitmodulesUrl: disallowed: No space left on device\n\
                      fatal: fsck error in packed object";
        let error = judged(forged);
        assert!(!error.is_no_space() && error.is_client_fault(), "{error}");
    }

    #[test]
    fn what_fsck_quotes_turns_nothing_around() {
        let id = "61396da07857bb286657609404b9f10a4cb2be84";
        let said = format!("error: object {id}: hasDotgit: a\u{202e}b\u{9b}c\u{2028}d\nfatal: x");
        let words = judged(&said).to_string();
        assert!(words.contains("has a fault: abcd (hasDotgit)"), "{words:?}");
    }

    #[test]
    fn a_fault_that_fsck_finds_is_told_with_its_object() {
        let id = "61396da07857bb286657609404b9f10a4cb2be84";
        let said = format!(
            "error: object {id}: hasDotgit: contains '.git\u{1b}[2J'\n\
             fatal: fsck error in packed object"
        );
        assert_eq!(
            judged(&said).to_string(),
            format!("the pack is refused: object {id} has a fault: contains '.git[2J' (hasDotgit)")
        );
    }
}
