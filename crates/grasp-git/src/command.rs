//! How a git process is started: no configuration of the user or the system, no prompts, no
//! environment but what is listed here.

use std::ffi::OsStr;
use std::fmt;
use std::process::{Command, Stdio};

use crate::error::GitError;

/// The git binary on the path.
#[derive(Debug, Clone, Copy, Default)]
pub struct Git;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

impl Git {
    pub fn version(self) -> Result<Version, GitError> {
        let text = self.run(&["version"])?;
        Version::parse(&text).ok_or(GitError::Unexpected(text))
    }

    fn run(self, args: &[&str]) -> Result<String, GitError> {
        let output = self.command(args).output()?;
        if !output.status.success() {
            return Err(GitError::Failed {
                args: args.join(" "),
                stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command
            .args(args.iter().map(OsStr::new))
            .env_clear()
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }
}

impl Version {
    /// Reads `git version 2.47.3` and its dressed-up forms (`2.39.5 (Apple Git-154)`).
    fn parse(text: &str) -> Option<Self> {
        let numbers = text.trim().strip_prefix("git version ")?;
        let mut numbers = numbers
            .split([' ', '.', '-'])
            .map_while(|part| part.parse().ok());
        Some(Self {
            major: numbers.next()?,
            minor: numbers.next()?,
            patch: numbers.next().unwrap_or(0),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_every_dress() {
        for (text, expected) in [
            ("git version 2.47.3\n", Some("2.47.3")),
            ("git version 2.39.5 (Apple Git-154)", Some("2.39.5")),
            ("git version 2.51.GIT", Some("2.51.0")),
            ("git version 2.45.1.windows.1", Some("2.45.1")),
            ("fatal: no", None),
            ("", None),
        ] {
            let version = Version::parse(text).map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_real_git_answers() {
        assert!(
            Git.version().unwrap()
                > Version {
                    major: 2,
                    minor: 0,
                    patch: 0
                }
        );
    }
}
