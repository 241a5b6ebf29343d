//! A strict reader of `.env` files: `KEY=VALUE` lines with an optional `export`, `#` comments
//! and quotes. Nothing is expanded or guessed; what cannot be read is named with its line.

use std::collections::HashMap;
use std::fmt;

#[derive(Debug, PartialEq, Eq)]
pub struct BadLine {
    line: usize,
    problem: String,
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

/// The entries in the order of the file, or every line that cannot be read.
pub fn parse(text: &str) -> Result<Vec<(String, String)>, Vec<BadLine>> {
    let mut entries = Vec::new();
    let mut bad_lines = Vec::new();
    let mut first_given = HashMap::new();
    for (index, text) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = index + 1;
        match parse_line(text.trim()) {
            Ok(None) => {}
            Ok(Some((key, value))) => match first_given.insert(key, line) {
                None => entries.push((key.to_owned(), value)),
                Some(first) => {
                    let problem = format!("{key} was already given on line {first}");
                    bad_lines.push(BadLine { line, problem });
                }
            },
            Err(problem) => bad_lines.push(BadLine { line, problem }),
        }
    }
    if bad_lines.is_empty() {
        Ok(entries)
    } else {
        Err(bad_lines)
    }
}

fn parse_line(line: &str) -> Result<Option<(&str, String)>, String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let assignment = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest,
        _ => line,
    };
    // The text of the line is not repeated in errors: it may hold a secret.
    let (key, value) = assignment.split_once('=').ok_or("expected KEY=VALUE")?;
    let key = key.trim();
    let is_name = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if key.is_empty() || !is_name || key.starts_with(|first: char| first.is_ascii_digit()) {
        return Err("before the = stands a name of letters, digits and _".into());
    }
    Ok(Some((key, parse_value(value)?)))
}

fn parse_value(text: &str) -> Result<String, String> {
    let trimmed = text.trim();
    let (value, rest) = if let Some(quoted) = trimmed.strip_prefix('\'') {
        let (value, rest) = quoted
            .split_once('\'')
            .ok_or("the ' is not closed on this line")?;
        (value.to_owned(), rest)
    } else if let Some(quoted) = trimmed.strip_prefix('"') {
        parse_double_quoted(quoted)?
    } else {
        let comment = [" #", "\t#"]
            .iter()
            .filter_map(|start| text.find(start))
            .min();
        return Ok(text
            .split_at(comment.unwrap_or(text.len()))
            .0
            .trim()
            .to_owned());
    };
    let rest = rest.trim_start();
    if rest.is_empty() || rest.starts_with('#') {
        return Ok(value);
    }
    Err("after the closing quote only a # comment may follow".into())
}

fn parse_double_quoted(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut chars = text.chars();
    while let Some(next) = chars.next() {
        match next {
            '"' => return Ok((value, chars.as_str())),
            '\\' => match chars.next() {
                Some('n') => value.push('\n'),
                Some(escaped @ ('"' | '\\' | '$')) => value.push(escaped),
                _ => return Err(r#"in double quotes, \ stands only before " \ $ or n"#.into()),
            },
            plain => value.push(plain),
        }
    }
    Err("the \" is not closed on this line".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(line: &str) -> String {
        let entries = parse(line).unwrap();
        assert_eq!(entries.len(), 1, "{line}");
        entries[0].1.clone()
    }

    fn errors(text: &str) -> Vec<String> {
        parse(text)
            .unwrap_err()
            .iter()
            .map(BadLine::to_string)
            .collect()
    }

    #[test]
    fn values_may_be_plain_quoted_or_empty() {
        assert_eq!(value("A=b"), "b");
        assert_eq!(value("  export A = b c  "), "b c");
        assert_eq!(value("exported=b"), "b");
        assert_eq!(value("A="), "");
        assert_eq!(value("A=it's"), "it's");
        assert_eq!(value("A='b # \"c\" \\n $D'"), "b # \"c\" \\n $D");
        assert_eq!(value(r#"A="b \"c\" \\ \$D""#), r#"b "c" \ $D"#);
        assert_eq!(value(r#"A="two\nlines""#), "two\nlines");
        assert_eq!(value("A=x=y"), "x=y");
    }

    #[test]
    fn comments_start_a_line_or_follow_a_space() {
        assert_eq!(value("# note\n\nA=b # note\r\n"), "b");
        assert_eq!(value("A=b#c"), "b#c");
        assert_eq!(value("A=b\t# note # more"), "b");
        assert_eq!(value("A= # note"), "");
        assert_eq!(value("A='b' # note"), "b");
        assert_eq!(value("\u{feff}A=b"), "b");
    }

    #[test]
    fn every_unreadable_line_is_named() {
        let text = "A=b\nnonsense\nB='open\nC=\"open\nD='x'y\nE=\"\\p\"\n1F=x\nG H=x\n=x";
        let expected = [
            "line 2: expected KEY=VALUE",
            "line 3: the ' is not closed on this line",
            "line 4: the \" is not closed on this line",
            "line 5: after the closing quote only a # comment may follow",
            "line 6: in double quotes, \\ stands only before \" \\ $ or n",
            "line 7: before the = stands a name of letters, digits and _",
            "line 8: before the = stands a name of letters, digits and _",
            "line 9: before the = stands a name of letters, digits and _",
        ];
        assert_eq!(errors(text), expected);
    }

    #[test]
    fn a_name_given_twice_is_an_error() {
        assert_eq!(
            errors("A=1\nB=2\nA=3"),
            ["line 3: A was already given on line 1"]
        );
    }

    #[test]
    fn an_error_does_not_repeat_the_line() {
        assert!(
            !errors("nsec1hidden\nA='nsec1hidden")
                .concat()
                .contains("hidden")
        );
    }
}
