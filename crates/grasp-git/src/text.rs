//! A stranger's text among ours: names of refs, subjects, what git says. Git takes any characters
//! but those of ASCII that control a terminal; here all are left out that act on what is around.

/// Whether it is shown as itself. Controls act on a terminal, those beyond ASCII (C1) as well, and
/// directions turn the rest of a line around.
pub fn is_plain(c: char) -> bool {
    let turns = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let breaks = matches!(c, '\u{2028}' | '\u{2029}');
    !c.is_control() && !turns && !breaks
}

/// With a mark in the place of what is not plain: two names that differ stay different to the eye.
pub fn marked(text: &str) -> String {
    let mark = |c: char| {
        if is_plain(c) {
            c
        } else {
            char::REPLACEMENT_CHARACTER
        }
    };
    text.chars().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_its_surroundings_is_not_plain() {
        for c in "a ü 漢 א 🦀 \u{ad}".chars() {
            assert!(is_plain(c), "{c:?}");
        }
        for c in "\n\u{1b}\u{7f}\u{85}\u{9b}\u{200f}\u{202e}\u{2066}\u{2069}\u{2029}".chars() {
            assert!(!is_plain(c), "{c:?}");
        }
        assert_eq!(marked("a\u{9b}b\u{202e}c"), "a\u{fffd}b\u{fffd}c");
    }
}
