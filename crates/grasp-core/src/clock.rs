//! Time as an argument. The driver reads the clocks once per turn; the core only compares.

use std::time::Duration;

/// Unix seconds: what events carry and what rules about events are written in.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span.as_secs()))
    }

    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span.as_secs()))
    }

    /// So many seconds later, or earlier.
    pub fn shifted(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }
}

/// Time since the process started; never jumps. Deadlines and rates are written in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub Duration);

impl Mono {
    pub fn since(self, earlier: Mono) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::ops::Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, span: Duration) -> Mono {
        Mono(self.0.saturating_add(span))
    }
}

/// Both readings of one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Now {
    pub mono: Mono,
    pub unix: Timestamp,
}

/// So much the wall clock may be set at once without being doubted.
const TOLERANCE_SECS: u64 = 10 * 60;
/// How long a time must stand that is further away: as long as it is away, but at least and at most
/// so long.
const MIN_DOUBT: Duration = Duration::from_secs(60 * 60);
const MAX_DOUBT: Duration = Duration::from_secs(24 * 60 * 60);

/// The wall clock as far as it is believed. One that moved against the steady clock is wrong, was
/// wrong, or the machine slept: nobody can tell at once, and what is destroyed by mistake is gone.
/// So time goes on as before, until the new one has stood for a while.
#[derive(Debug, Clone, Copy, Default)]
pub struct BelievedClock {
    /// Unix seconds when the steady clock was at zero; `None` before the first reading.
    origin: Option<i64>,
    doubt: Option<Doubt>,
}

#[derive(Debug, Clone, Copy)]
struct Doubt {
    origin: i64,
    since: Mono,
}

impl BelievedClock {
    /// Takes a reading. By how many seconds the believed time moves, if a doubt ends: what was
    /// written in the old time is to be moved along.
    #[must_use]
    pub fn observe(&mut self, now: Now) -> Option<i64> {
        let read = origin(now);
        let believed = *self.origin.get_or_insert(read);
        let away = read.saturating_sub(believed);
        if away.unsigned_abs() <= TOLERANCE_SECS {
            self.origin = Some(read);
            self.doubt = None;
            return None;
        }
        let same = |doubt: &Doubt| doubt.origin.abs_diff(read) <= TOLERANCE_SECS;
        let fresh = Doubt {
            origin: read,
            since: now.mono,
        };
        let doubt = self.doubt.filter(same).unwrap_or(fresh);
        self.doubt = Some(doubt);
        let needed = Duration::from_secs(away.unsigned_abs()).clamp(MIN_DOUBT, MAX_DOUBT);
        if now.mono.since(doubt.since) < needed {
            return None;
        }
        self.origin = Some(read);
        self.doubt = None;
        Some(away)
    }

    /// The time that is believed now. Before the first reading it is what the wall clock says.
    pub fn unix(&self, now: Now) -> Timestamp {
        let origin = self.origin.unwrap_or_else(|| origin(now));
        Timestamp(
            origin
                .saturating_add_unsigned(now.mono.0.as_secs())
                .max(0)
                .unsigned_abs(),
        )
    }
}

fn origin(now: Now) -> i64 {
    let unix = i64::try_from(now.unix.0).unwrap_or(i64::MAX);
    unix.saturating_sub_unsigned(now.mono.0.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: u64 = 1_700_000_000;
    const HOUR: u64 = 60 * 60;

    fn at(mono: u64, off: i64) -> Now {
        Now {
            mono: Mono(Duration::from_secs(mono)),
            unix: Timestamp((NOON + mono).saturating_add_signed(off)),
        }
    }

    /// Readings of seconds and how far the wall clock is off then; what is believed, and by how
    /// much that moved.
    fn believes(steps: &[(u64, i64, i64, Option<i64>)]) {
        let mut clock = BelievedClock::default();
        for (mono, off, believed, moved) in steps {
            let now = at(*mono, *off);
            assert_eq!(clock.observe(now), *moved, "at {mono}");
            assert_eq!(clock.unix(now), at(*mono, *believed).unix, "at {mono}");
        }
    }

    #[test]
    fn small_corrections_are_believed_at_once() {
        believes(&[(0, 0, 0, None), (10, 500, 500, None), (20, -50, -50, None)]);
    }

    #[test]
    fn a_jump_and_back_is_never_believed() {
        let day = 24 * HOUR as i64;
        for far in [day, -day, 900] {
            believes(&[
                (0, 0, 0, None),
                (10, far, 0, None),
                (HOUR, far, 0, None),
                (HOUR + 1, 3, 3, None),
                // Doubt begins anew.
                (HOUR + 2, far, 3, None),
                (2 * HOUR, far, 3, None),
            ]);
        }
    }

    #[test]
    fn a_time_that_stands_is_believed_after_as_long_as_it_is_away() {
        let (three, year) = (3 * HOUR as i64, 365 * 24 * HOUR as i64);
        for far in [three, -three] {
            believes(&[
                (0, 0, 0, None),
                (100, far, 0, None),
                (100 + 3 * HOUR - 1, far, 0, None),
                (100 + 3 * HOUR, far, far, Some(far)),
                (100 + 4 * HOUR, far, far, None),
            ]);
        }
        believes(&[
            (0, 0, 0, None),
            (100, year, 0, None),
            (100 + 24 * HOUR, year, year, Some(year)),
        ]);
    }

    #[test]
    fn another_jump_begins_another_doubt() {
        believes(&[
            (0, 0, 0, None),
            (100, 7_200, 0, None),
            (5_000, 3_600, 0, None),
            (100 + 7_200, 3_600, 0, None),
            (5_000 + 3_600, 3_600, 3_600, Some(3_600)),
        ]);
    }
}
