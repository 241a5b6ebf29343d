//! How much of a repository nobody reaches, and whether dropping it is worth a new pack.

/// Less than both stays: a prune writes all that is reached once more, and what a repository had
/// in common with others it then has for itself.
const WORTH_BYTES: u64 = 64 * 1024 * 1024;
const WORTH_PERCENT: u64 = 10;

/// Bytes of objects as they lie on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight {
    pub whole: u64,
    pub reached: u64,
}

impl Weight {
    pub fn is_worth_a_prune(self) -> bool {
        // An object that is here twice is garbage once.
        let garbage = self.whole.saturating_sub(self.reached);
        let worth = self.whole / 100 * WORTH_PERCENT;
        garbage > 0 && (garbage >= WORTH_BYTES || garbage >= worth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prune_is_worth_a_tenth_or_many_bytes() {
        let mib = 1024 * 1024;
        for (whole, reached, expected) in [
            (0, 0, false),
            (1_000, 1_000, false),
            (1_000, 901, false),
            (1_000, 900, true),
            (1_000, 0, true),
            (100, 200, false),
            (5_000 * mib, 4_937 * mib, false),
            (5_000 * mib, 4_936 * mib, true),
        ] {
            let weight = Weight { whole, reached };
            assert_eq!(weight.is_worth_a_prune(), expected, "{weight:?}");
        }
    }
}
