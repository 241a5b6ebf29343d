//! Fetches from other git servers, as the world answers them.

use std::time::Duration;

use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::{FetchNo, Input};

use super::{Happening, World};

impl World<'_> {
    /// Nobody has anything yet.
    pub(super) fn fetch(&mut self, fetch: FetchNo, ask: FetchAsk) {
        let _ = ask;
        self.answer_fetch(fetch, FetchEnd::Absent);
    }

    pub(super) fn stop_fetch(&mut self, fetch: FetchNo) {
        let _ = fetch;
    }

    fn answer_fetch(&mut self, fetch: FetchNo, end: FetchEnd) {
        let fetched = Fetched {
            got: Vec::new(),
            lacking: Vec::new(),
            bytes: 0,
            end,
        };
        let life = self.life;
        let input = Input::Fetched { fetch, fetched };
        self.after(Duration::from_secs(1), Happening::Hear { life, input });
    }
}
