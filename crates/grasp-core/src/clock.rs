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
