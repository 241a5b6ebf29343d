//! Comparing what a document shows with what was printed. In a line, … stands for anything; as a
//! line of its own, for lines that are left out.

const LEFT_OUT: &str = "…";

/// All that was printed is shown, in that order; or a text that says what is not.
pub fn check_output(of: &str, shown: &[&str], printed: &str) -> Result<(), String> {
    let lines: Vec<&str> = printed.lines().collect();
    is_shown(shown, &lines)
        .map_err(|missing| format!("{of}\nshould print\n{missing}\nand printed\n{printed}"))
}

/// The lines that are not where they should be, if any.
fn is_shown(shown: &[&str], mut lines: &[&str]) -> Result<(), String> {
    let parts: Vec<&[&str]> = shown.split(|line| line.trim() == LEFT_OUT).collect();
    let last = parts.len() - 1;
    for (n, part) in parts.into_iter().enumerate() {
        let most = lines.len().checked_sub(part.len());
        let mut places = match (n, n == last, most) {
            (_, _, None) => 0..0,
            (0, true, Some(most)) if most > 0 => 0..0,
            (0, _, Some(_)) => 0..1,
            (_, true, Some(most)) => most..most + 1,
            (_, false, Some(most)) => 0..most + 1,
        };
        let same = |at: &usize| {
            let pairs = part.iter().zip(&lines[*at..]);
            pairs.into_iter().all(|(shown, line)| matches(shown, line))
        };
        let found = places.find(same).ok_or_else(|| part.join("\n"))?;
        lines = &lines[found + part.len()..];
    }
    Ok(())
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
fn lines_that_are_not_shown_are_left_out_by_dots() {
    let lines = ["a", "b", "c", "d"];
    for good in [
        &["a", "b", "c", "d"][..],
        &["…"],
        &["a", "…"],
        &["…", "d"],
        &["a", "…", "c", "…"],
        &["…", "b", "…", "d"],
    ] {
        assert_eq!(is_shown(good, &lines), Ok(()), "{good:?}");
    }
    for bad in [
        &["a", "b", "d"][..],
        &["a", "b", "c"],
        &["b", "…"],
        &["…", "c"],
        &["a", "…", "a", "…"],
        &["a", "…", "c", "d", "…", "d"],
    ] {
        assert!(is_shown(bad, &lines).is_err(), "{bad:?}");
    }
}
