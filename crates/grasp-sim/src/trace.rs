//! The story of a run: always hashed, kept as text only when somebody wants to read it.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

#[derive(Default)]
pub struct Trace {
    hasher: DefaultHasher,
    lines: Option<Vec<String>>,
}

impl Trace {
    /// A trace that can be read afterwards.
    pub fn readable() -> Self {
        Self {
            lines: Some(Vec::new()),
            ..Self::default()
        }
    }

    pub(crate) fn note(&mut self, at: Duration, what: fmt::Arguments<'_>) {
        let line = format!("{:>10.3} s  {what}", at.as_secs_f64());
        line.hash(&mut self.hasher);
        if let Some(lines) = &mut self.lines {
            lines.push(shortened(&line));
        }
    }

    /// Equal for equal stories.
    pub fn fingerprint(&self) -> u64 {
        self.hasher.finish()
    }

    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// Ids and keys by their first digits, and no signatures.
fn shortened(line: &str) -> String {
    let mut short = String::with_capacity(line.len());
    let mut hex = String::new();
    for letter in line.chars().chain([' ']) {
        if letter.is_ascii_hexdigit() {
            hex.push(letter);
            continue;
        }
        // An object's number is in its first ten.
        let digits = match hex.len() {
            40 => 10,
            64.. => 8,
            all => all,
        };
        short.push_str(hex.get(..digits).unwrap_or_default());
        hex.clear();
        short.push(letter);
    }
    let plain = short.replace(r#","content":"","sig":"00000000""#, "");
    plain.trim_end().to_owned()
}
