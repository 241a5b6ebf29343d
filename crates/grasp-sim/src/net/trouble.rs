//! What befalls the net in a storm.

use std::collections::BTreeSet;
use std::time::Duration;

use grasp_core::ConnNo;
use grasp_core::sync::io::End;

use super::{Moment, Net, Stir};

impl Net {
    /// One misfortune, in words.
    pub(crate) fn trouble(&mut self, at: Moment) -> String {
        let lines: Vec<ConnNo> = self.lines.keys().copied().collect();
        match (self.rng.u8(0..6), self.rng.choice(lines)) {
            (0 | 1, Some(conn)) => {
                let end = End::Closed;
                self.later.push((Duration::ZERO, Stir::Cut { conn, end }));
                format!("{conn:?} breaks")
            }
            (2 | 3, Some(conn)) => {
                let secs = self.rng.u64(1..180);
                if let Some(line) = self.lines.get_mut(&conn) {
                    line.stall(at.now + Duration::from_secs(secs));
                }
                format!("{conn:?} stalls for {secs} s")
            }
            (4, _) => {
                let most = self.rng.u64(60..10_000);
                self.leave(at, 1, most)
            }
            _ => {
                let (many, most) = (self.relays.len().div_ceil(2), self.rng.u64(5..300));
                self.leave(at, many, most)
            }
        }
    }

    /// Up to so many relays are out of reach for up to so many seconds.
    fn leave(&mut self, at: Moment, many: usize, most: u64) -> String {
        let mut gone = BTreeSet::new();
        for _ in 0..many {
            let relay = self.rng.usize(0..self.relays.len().max(1));
            let until = at.now + Duration::from_secs(self.rng.u64(1..most));
            if let Some(there) = self.relays.get_mut(relay) {
                there.away_until = there.away_until.max(until);
                gone.insert(relay);
            }
        }
        let cuts = self.rng.bool();
        for (conn, line) in &mut self.lines {
            let Some(there) = self.relays.get(line.to).filter(|_| gone.contains(&line.to)) else {
                continue;
            };
            if cuts {
                let (conn, end) = (*conn, End::Closed);
                self.later.push((Duration::ZERO, Stir::Cut { conn, end }));
            } else {
                line.stall(there.away_until);
            }
        }
        format!("out of reach: {gone:?}, cut: {cuts}")
    }
}
