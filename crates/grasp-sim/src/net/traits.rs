//! What a relay is like: drawn once, combined freely. Most are plain.

use std::time::Duration;

use fastrand::Rng;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Traits {
    /// Events of one answer to one filter, whatever was asked for.
    pub(crate) cap: Option<usize>,
    pub(crate) compares: Compares,
    pub(crate) document: Document,
    pub(crate) bounds: Bounds,
    /// A refusal says which request it means.
    pub(crate) names_refused: bool,
    /// Requests in a minute.
    pub(crate) rate: Option<usize>,
    pub(crate) auth: Auth,
    pub(crate) eose: Eose,
    pub(crate) shuffles: bool,
    pub(crate) repeats: bool,
    /// Of 100 live events, how many it does not send.
    pub(crate) drops: u32,
    /// Keeps only the newest version of what is replaced.
    pub(crate) tidy: bool,
    pub(crate) lie: Option<Lie>,
    /// One way, on average.
    pub(crate) latency: Duration,
    /// Of 1,000 frames in a storm, after how many the line breaks.
    pub(crate) flaky: u32,
}

/// NIP-77.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compares {
    Yes,
    /// Not more events than this at once.
    Most(usize),
    /// Says no by NEG-ERR.
    Refuses,
    /// Complains about the message.
    Complains,
    /// Says nothing.
    Ignores,
}

/// NIP-11.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    None,
    True,
    /// Promises more than it keeps.
    Wrong,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) subscriptions: Option<usize>,
    pub(crate) filters: Option<usize>,
    pub(crate) bytes: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Auth {
    Unasked,
    /// Before anything is answered.
    First,
    /// For comparisons only.
    Comparing,
    /// Asks, and trusts nobody.
    InVain,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eose {
    Plain,
    Twice,
    /// So many seconds after the events.
    Late(u64),
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    OffFilter,
    /// A forged copy beside each event, or in place of it.
    Forged,
    TooLarge,
    /// Every answer goes on and on.
    Endless,
    /// Names events that it does not deliver.
    Hollow,
    /// Speaks of subscriptions that nobody opened.
    Confused,
    /// Says that it has sent everything, and then sends it.
    Hasty,
}

impl Traits {
    pub(crate) fn plain(rng: &mut Rng) -> Self {
        Self {
            cap: None,
            compares: Compares::Yes,
            document: Document::True,
            bounds: Bounds::default(),
            names_refused: true,
            rate: None,
            auth: Auth::Unasked,
            eose: Eose::Plain,
            shuffles: false,
            repeats: false,
            drops: 0,
            tidy: rng.bool(),
            lie: None,
            latency: Duration::from_millis(rng.u64(1..200)),
            flaky: 0,
        }
    }

    /// `odd`: of 100 traits, how many are out of the ordinary.
    pub(crate) fn draw(rng: &mut Rng, odd: u32) -> Self {
        let is_odd = |rng: &mut Rng| rng.u32(0..100) < odd;
        let mut traits = Self::plain(rng);
        if is_odd(rng) {
            traits.cap = Some(rng.usize(3..40));
        }
        if is_odd(rng) {
            traits.compares = match rng.u8(0..5) {
                0 | 1 => Compares::Most(rng.usize(1..30)),
                2 => Compares::Refuses,
                3 => Compares::Complains,
                _ => Compares::Ignores,
            };
        }
        if is_odd(rng) {
            traits.document = if rng.bool() {
                Document::None
            } else {
                Document::Wrong
            };
        }
        if is_odd(rng) {
            traits.bounds = Bounds::draw(rng);
            traits.names_refused = rng.bool();
        }
        if is_odd(rng) {
            traits.rate = Some(rng.usize(4..60));
        }
        if is_odd(rng) {
            traits.auth = *rng
                .choice(&[Auth::First, Auth::First, Auth::Comparing, Auth::InVain])
                .unwrap_or(&Auth::First);
        }
        if is_odd(rng) {
            traits.eose = match rng.u8(0..6) {
                0 | 1 => Eose::Twice,
                2..5 => Eose::Late(rng.u64(1..20)),
                _ => Eose::Never,
            };
        }
        traits.shuffles = is_odd(rng);
        traits.repeats = is_odd(rng);
        if is_odd(rng) {
            traits.drops = rng.u32(1..50);
        }
        if is_odd(rng) && is_odd(rng) {
            traits.lie = Some(Lie::draw(rng));
        }
        if is_odd(rng) {
            traits.latency = Duration::from_millis(rng.u64(200..5_000));
        }
        if is_odd(rng) {
            traits.flaky = rng.u32(1..100);
        }
        traits
    }

    /// It gives what it has to whoever asks properly.
    pub(crate) fn is_honest(&self) -> bool {
        self.lie.is_none() && self.eose != Eose::Never && self.auth != Auth::InVain
    }

    /// And it does so at once: what it has can be here within hours, not only after the day on
    /// which everything is compared.
    pub(crate) fn is_prompt(&self) -> bool {
        self.is_honest() && self.drops == 0 && self.rate.is_none()
    }

    pub(crate) fn compares_so_many(&self, events: usize) -> bool {
        match self.compares {
            Compares::Most(most) => events <= most,
            _ => self.compares_sets(),
        }
    }

    pub(crate) fn compares_sets(&self) -> bool {
        matches!(self.compares, Compares::Yes | Compares::Most(_))
    }
}

impl Bounds {
    fn draw(rng: &mut Rng) -> Self {
        let maybe = |rng: &mut Rng, from, to| rng.bool().then(|| rng.usize(from..to));
        Self {
            subscriptions: maybe(rng, 3, 12),
            filters: maybe(rng, 1, 10),
            bytes: maybe(rng, 5_000, 20_000),
        }
    }
}

impl Lie {
    fn draw(rng: &mut Rng) -> Self {
        const ALL: [Lie; 7] = [
            Lie::OffFilter,
            Lie::Forged,
            Lie::TooLarge,
            Lie::Endless,
            Lie::Hollow,
            Lie::Confused,
            Lie::Hasty,
        ];
        *rng.choice(&ALL).unwrap_or(&Lie::Forged)
    }
}
