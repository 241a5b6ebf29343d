//! The answer to a push, in the form that the client asked for: what became of each ref, and
//! words for the person who pushes.

use bytes::{Bytes, BytesMut};

use crate::commands::Capabilities;
use crate::pktline::{self, Band};
use crate::text::is_plain;

/// What became of a push, which happens as a whole or not at all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report<'a> {
    /// Why the objects were not taken, if they were not.
    pub unpack_error: Option<&'a str>,
    /// In the order of the commands, the names as they were sent.
    pub refs: Vec<&'a str>,
    /// Why none of them was moved.
    pub refused: Option<&'a str>,
    /// Shown as `remote: ...`, where the client can.
    pub messages: Vec<&'a str>,
}

/// Bytes of a line.
const MAX_LINE: usize = 1_024;
/// Bytes of the reason, said again for each ref. Beyond 2,000 refs it is cut short, and stands in
/// the messages as a whole.
const MAX_REASONS: usize = 2 * 1024 * 1024;

impl Report<'_> {
    /// The body of the response.
    pub fn encode(&self, capabilities: &Capabilities) -> Bytes {
        let mut out = BytesMut::new();
        let status = self.status(capabilities);
        if !capabilities.side_band_64k {
            return status;
        }
        for message in &self.messages {
            for line in message.lines() {
                let line = format!("{}\n", plain(line, MAX_LINE));
                pktline::put_band(&mut out, Band::Progress, line.as_bytes());
            }
        }
        pktline::put_band(&mut out, Band::Data, &status);
        pktline::put_flush(&mut out);
        out.freeze()
    }

    fn status(&self, capabilities: &Capabilities) -> Bytes {
        let mut out = BytesMut::new();
        if !capabilities.report_status && !capabilities.report_status_v2 {
            return out.freeze();
        }
        let unpack = self.unpack_error.map(|why| plain(why, MAX_LINE));
        let unpack = unpack.as_deref().unwrap_or("ok");
        pktline::put_text(&mut out, &format!("unpack {unpack}\n"));
        let most = MAX_LINE.min(MAX_REASONS / self.refs.len().max(1));
        let reason = self.refused.map(|reason| plain(reason, most));
        for name in &self.refs {
            let name = plain(name, MAX_LINE);
            let line = match &reason {
                None => format!("ok {name}\n"),
                Some(reason) => format!("ng {name} {reason}\n"),
            };
            pktline::put_text(&mut out, &line);
        }
        pktline::put_flush(&mut out);
        out.freeze()
    }
}

/// One line of so many bytes at most, which does nothing to a terminal and is never empty.
fn plain(text: &str, most: usize) -> String {
    let within = |(at, c): &(usize, char)| at + c.len_utf8() <= most;
    let kept = text.char_indices().take_while(within);
    let cleaned: String = kept.map(|(_, c)| unless_control(c)).collect();
    match cleaned.trim() {
        "" => "-".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

fn unless_control(c: char) -> char {
    if is_plain(c) { c } else { ' ' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report<'static> {
        Report {
            unpack_error: None,
            refs: vec!["refs/heads/a", "refs/heads/b"],
            refused: Some("no\nway\u{1b}[31m\u{9b}\u{202e}"),
            messages: vec!["first\nsecond\u{7}"],
        }
    }

    #[test]
    fn a_client_with_side_band_gets_words_and_the_report() {
        let both = Capabilities {
            report_status: true,
            side_band_64k: true,
            ..Capabilities::default()
        };
        let body = report().encode(&both);
        let expected = b"000b\x02first\n000c\x02second\n0057\x01000eunpack ok\n\
            0020ng refs/heads/a no way [31m\n0020ng refs/heads/b no way [31m\n00000000";
        assert_eq!(
            String::from_utf8_lossy(&body),
            String::from_utf8_lossy(expected)
        );
    }

    #[test]
    fn a_client_without_side_band_gets_the_report_alone() {
        let plain = Capabilities {
            report_status: true,
            ..Capabilities::default()
        };
        let mut report = report();
        report.unpack_error = Some("bad pack");
        report.refused = None;
        report.refs.truncate(1);
        let body = report.encode(&plain);
        assert_eq!(&body[..], b"0014unpack bad pack\n0014ok refs/heads/a\n0000");
        assert!(report.encode(&Capabilities::default()).is_empty());
    }

    #[test]
    fn a_reason_is_cut_where_there_are_many_refs() {
        let plain = Capabilities {
            report_status: true,
            ..Capabilities::default()
        };
        let reason = "ä".repeat(30_000);
        let length = |refs: usize| {
            let report = Report {
                refs: vec!["r"; refs],
                refused: Some(&reason),
                ..Report::default()
            };
            report.encode(&plain).len()
        };
        assert_eq!(length(1) - length(0), "0000ng r \n".len() + MAX_LINE);
        assert!(length(20_000) < MAX_REASONS + 20_000 * 10 + 100);
    }
}
