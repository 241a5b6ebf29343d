//! The answer to a push, in the form that the client asked for: what became of each ref, and
//! words for the person who pushes.

use bytes::{Bytes, BytesMut};

use crate::commands::Capabilities;
use crate::pktline::{self, Band};

/// What became of a push.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Why the objects were not taken, if they were not.
    pub unpack_error: Option<String>,
    /// In the order of the commands: the name as it was sent, and why not, if not.
    pub refs: Vec<(String, Option<String>)>,
    /// Shown as `remote: ...`, where the client can.
    pub messages: Vec<String>,
}

/// Longer reasons are for the messages.
const MAX_REASON: usize = 1_000;

impl Report {
    /// The body of the response.
    pub fn encode(&self, capabilities: &Capabilities) -> Bytes {
        let mut out = BytesMut::new();
        let status = self.status(capabilities);
        if !capabilities.side_band_64k {
            return status;
        }
        for message in &self.messages {
            for line in message.lines() {
                let line = format!("{}\n", plain(line));
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
        let unpack = self.unpack_error.as_deref().map_or("ok".to_owned(), plain);
        pktline::put_text(&mut out, &format!("unpack {unpack}\n"));
        for (name, refused) in &self.refs {
            let line = match refused {
                None => format!("ok {}\n", plain(name)),
                Some(reason) => format!("ng {} {}\n", plain(name), plain(reason)),
            };
            pktline::put_text(&mut out, &line);
        }
        pktline::put_flush(&mut out);
        out.freeze()
    }
}

/// One line that does nothing to a terminal and is never empty.
fn plain(text: &str) -> String {
    let cleaned = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let cleaned: String = cleaned.take(MAX_REASON).collect();
    match cleaned.trim() {
        "" => "-".to_owned(),
        trimmed => trimmed.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            unpack_error: None,
            refs: vec![
                ("refs/heads/a".to_owned(), None),
                (
                    "refs/heads/b".to_owned(),
                    Some("no\nway\u{1b}[31m".to_owned()),
                ),
            ],
            messages: vec!["first\nsecond\u{7}".to_owned()],
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
        let expected =
            b"000b\x02first\n000c\x02second\n004b\x01000eunpack ok\n0014ok refs/heads/a\n\
            0020ng refs/heads/b no way [31m\n00000000";
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
        report.unpack_error = Some("bad pack".to_owned());
        report.refs.truncate(1);
        let body = report.encode(&plain);
        assert_eq!(&body[..], b"0014unpack bad pack\n0014ok refs/heads/a\n0000");
        assert!(report.encode(&Capabilities::default()).is_empty());
    }
}
