//! What a git server is like: drawn once. Most are plain.

use std::time::Duration;

use fastrand::Rng;
use grasp_core::hunt::io::FetchEnd;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traits {
    pub(crate) manner: Manner,
    /// From the question to the end of the answer, on average.
    pub(crate) latency: Duration,
    /// It thinks for long before the first byte comes.
    pub(crate) slow_start: bool,
    /// Of 100 repositories that are brought to it, how many it shows to nobody.
    pub(crate) absent: u32,
    /// Of 100 objects that are brought to it, how many it does not keep.
    pub(crate) loses: u32,
    /// Of 1,000 fetches in a storm, how many go wrong.
    pub(crate) flaky: u32,
    pub(crate) drips: Drips,
    /// Of one fetch, over the web.
    pub(crate) requests: u32,
}

/// A pack that comes in so many parts, each so long after the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Drips {
    pub(crate) parts: u32,
    pub(crate) every: Duration,
}

impl Drips {
    fn draw(rng: &mut Rng) -> Self {
        match rng.u8(0..5) {
            0 => Self {
                parts: rng.u32(1..6),
                every: Duration::from_secs(rng.u64(1..40)),
            },
            _ => Self::default(),
        }
    }

    /// Others take the place of whoever is slower.
    fn keeps_pace(self) -> bool {
        self.every <= PACE
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Honest,
    /// What it has comes in so many parts.
    Large(u8),
    /// It takes so many requests in a minute, and says how long to wait, or does not.
    Strict(usize, Option<Duration>),
    Dead,
    /// It takes the question and says nothing.
    Tarpit,
    Failing,
    /// Its packs end too early.
    Truncates,
    /// It sends other objects.
    Lies,
    /// Its name leads to an address that nobody may dial.
    Inside,
}

/// The longest that a tarpit is listened to.
const DEADLINE: Duration = Duration::from_secs(120);
const CONNECT: Duration = Duration::from_secs(10);
/// A part in this time is enough for everybody.
const PACE: Duration = Duration::from_secs(12);
/// We put together what came in slices.
const WORK: Duration = Duration::from_secs(40);

impl Traits {
    /// Of 100 servers so many are odd.
    pub(crate) fn draw(rng: &mut Rng, odd: u32) -> Self {
        let is_odd = |rng: &mut Rng| rng.u32(0..100) < odd;
        let some = |rng: &mut Rng, most| if is_odd(rng) { rng.u32(0..most) } else { 0 };
        let mut traits = Self {
            manner: if is_odd(rng) {
                Manner::draw(rng)
            } else {
                Manner::Honest
            },
            latency: Duration::from_millis(rng.u64(10..3_000)),
            slow_start: is_odd(rng),
            absent: some(rng, 60),
            loses: some(rng, 60),
            flaky: some(rng, 400),
            drips: Drips::default(),
            requests: 3,
        };
        // By itself, so that what else is drawn stays as it is in seeds that are remembered.
        let own = traits.latency.as_micros().try_into();
        let mut own = Rng::with_seed(own.unwrap_or_default());
        if own.u32(0..100) < odd {
            traits.drips = Drips::draw(&mut own);
            traits.requests = own.u32(1..9);
        }
        traits
    }

    /// How long we are at work on what came from it.
    pub(crate) fn work(&self) -> Duration {
        match self.manner {
            Manner::Large(_) => WORK,
            _ => Duration::ZERO,
        }
    }

    /// It gives what it has to whoever asks often enough.
    pub(crate) fn is_honest(&self) -> bool {
        matches!(self.manner, Manner::Honest | Manner::Large(_)) && self.drips.keeps_pace()
    }

    /// All that one attempt may wait for it.
    pub(crate) fn longest(&self) -> Duration {
        let once = self.latency * 2 + Duration::from_secs(if self.slow_start { 20 } else { 0 });
        let once = once + self.drips.every * self.drips.parts + self.work();
        match self.manner {
            Manner::Large(parts) => once * (u32::from(parts) + 1),
            Manner::Dead => CONNECT,
            Manner::Tarpit => DEADLINE,
            _ => once,
        }
    }
}

impl Manner {
    fn draw(rng: &mut Rng) -> Self {
        let patience = Duration::from_secs(rng.u64(0..200));
        match rng.u8(0..10) {
            0 | 1 => Manner::Dead,
            2 => Manner::Tarpit,
            3 => Manner::Failing,
            4 => Manner::Truncates,
            5 => Manner::Lies,
            6 => Manner::Inside,
            7 => Manner::Strict(rng.usize(1..6), rng.bool().then_some(patience)),
            _ => Manner::Large(rng.u8(1..6)),
        }
    }

    /// How a fetch ends that never comes to objects, and after how long.
    pub(crate) fn failure(self, rng: &mut Rng, usual: Duration) -> Option<(FetchEnd, Duration)> {
        let end = match self {
            Manner::Honest | Manner::Large(_) | Manner::Strict(..) => return None,
            Manner::Dead if rng.bool() => return Some((FetchEnd::Unreachable, CONNECT)),
            Manner::Tarpit => return Some((FetchEnd::TooSlow, DEADLINE)),
            Manner::Dead => FetchEnd::Unreachable,
            Manner::Failing => FetchEnd::Failed,
            Manner::Truncates if rng.bool() => FetchEnd::Cut { kept: false },
            Manner::Truncates | Manner::Lies => FetchEnd::Spoiled,
            Manner::Inside => FetchEnd::Forbidden,
        };
        Some((end, usual))
    }
}

/// How a fetch may end in a storm, whoever is asked.
pub(crate) fn accident(rng: &mut Rng) -> FetchEnd {
    let patience = rng.bool().then(|| Duration::from_secs(rng.u64(0..120)));
    match rng.u8(0..6) {
        0 => FetchEnd::Unreachable,
        1 => FetchEnd::TooSlow,
        2 => FetchEnd::Failed,
        3 => FetchEnd::Busy(patience),
        4 => FetchEnd::Cut { kept: false },
        _ => FetchEnd::Spoiled,
    }
}

/// How a fetch may end in a storm because of us.
pub(crate) fn own_fault(rng: &mut Rng) -> FetchEnd {
    match rng.u8(0..3) {
        0 => FetchEnd::DiskLow,
        1 => FetchEnd::Full,
        _ => FetchEnd::Ours,
    }
}
