//! Other git servers: what is brought there, what is fetched from them, and how it ends.

use std::time::Duration;

use grasp_core::hunt::io::{FetchAsk, FetchEnd, Fetched};
use grasp_core::{FetchNo, HuntLimits, Input, Mono};

use super::{Happening, LAG, World};
use crate::hosts::Flow;
use crate::hunt_model::Scene;

/// How often it is asked whether something could be had and does not come.
const LOOK: Duration = Duration::from_secs(60);

/// A fetch under way.
pub(super) struct Fetching {
    ask: FetchAsk,
    end: FetchEnd,
}

impl World<'_> {
    pub(super) fn begin_hosting(&mut self) {
        let told: Vec<String> = self.hosts.iter().enumerate().map(told).collect();
        for line in told {
            self.note(format_args!("{line}"));
        }
        if !self.hosts.is_empty() {
            let limits = self.policy.limits.hunt.clone();
            self.note(format_args!("{limits:?}"));
            self.after(self.climate.storm + LOOK, Happening::Look);
        }
        self.move_later();
    }

    fn move_later(&mut self) {
        if !self.places.moves.is_zero() && !self.calm {
            let pause = self.places.moves;
            self.after(pause, Happening::Move);
        }
    }

    pub(super) fn move_one(&mut self) {
        if !self.calm {
            let moved = self.hosts.move_one(self.now);
            self.note(format_args!("{}", moved.unwrap_or_default()));
            self.move_later();
        }
    }

    pub(super) fn upload(
        &mut self,
        host: usize,
        path: &str,
        objects: &[grasp_core::git::ObjectId],
    ) {
        self.note(format_args!("to server {host} at {path}: {objects:?}"));
        self.hosts.put(host, path, objects, self.now);
    }

    pub(super) fn fetch(&mut self, fetch: FetchNo, ask: FetchAsk) -> Result<(), String> {
        self.note(format_args!("{fetch:?}: {ask:?}"));
        let quiet = self.calm && self.company.relays.is_empty();
        let when = (self.now, quiet);
        self.hunt_checks.ordered(fetch, &ask, when, &self.git)?;
        self.summary.fetches += 1;
        let course = self.hosts.ask(&ask, self.now, self.calm);
        let (life, end) = (self.life, course.end);
        self.fetching.insert(fetch, Fetching { ask, end });
        for (at, flow) in course.flows {
            self.after(at, Happening::Flow { life, fetch, flow });
        }
        self.after(course.ends, Happening::FetchEnds { life, fetch });
        Ok(())
    }

    /// It ends soon, one way or the other.
    pub(super) fn stop_fetch(&mut self, fetch: FetchNo) -> Result<(), String> {
        self.note(format_args!("stop {fetch:?}"));
        self.hunt_checks.stopped(fetch)?;
        if let Some(fetching) = self.fetching.get_mut(&fetch) {
            fetching.end = FetchEnd::Stopped;
            let life = self.life;
            let soon = Duration::from_millis(self.hosts.draw().u64(0..2_000));
            self.after(soon, Happening::FetchEnds { life, fetch });
        }
        Ok(())
    }

    pub(super) fn flow(&mut self, fetch: FetchNo, flow: Flow) -> Result<(), String> {
        if !self.fetching.contains_key(&fetch) {
            return Ok(());
        }
        self.note(format_args!("{fetch:?} flows: {flow:?}"));
        self.feed(match flow {
            Flow::Came(bytes) => Input::Flowing { fetch, bytes },
            Flow::Whole => Input::Arrived(fetch),
        })
    }

    /// The objects are in our repository from now on; the core hears of it a little later.
    pub(super) fn fetch_ends(&mut self, fetch: FetchNo) {
        let Some(Fetching { ask, end }) = self.fetching.remove(&fetch) else {
            return;
        };
        let fetched = self.bring(&ask, end);
        let life = self.life;
        self.unheard += 1;
        let heard = Happening::Fetched {
            life,
            fetch,
            fetched,
        };
        let lag = self.hosts.draw().u64(0..=50);
        self.after(LAG.min(Duration::from_millis(lag)), heard);
    }

    fn bring(&mut self, ask: &FetchAsk, end: FetchEnd) -> Fetched {
        let Some(found) = self.git.get(&ask.repo) else {
            return nothing(FetchEnd::Ours);
        };
        let fetched = self.hosts.answer(ask, end, &found.objects, self.now);
        self.git.take(&ask.repo, fetched.got.iter().copied());
        fetched
    }

    pub(super) fn fetched(&mut self, fetch: FetchNo, fetched: Fetched) -> Result<(), String> {
        self.note(format_args!("{fetch:?} ends: {fetched:?}"));
        self.unheard -= 1;
        self.summary.fetched += fetched.got.len() as u64;
        self.hunt_checks.answered(fetch, &fetched);
        self.feed(Input::Fetched { fetch, fetched })
    }

    /// The process dies; what was on its way is here or is not.
    pub(super) fn lose_fetches(&mut self) {
        for Fetching { ask, end } in std::mem::take(&mut self.fetching).into_values() {
            if self.hosts.draw().u8(0..4) == 0 {
                self.bring(&ask, end);
            }
        }
        self.unheard = 0;
        self.hosts.forget_us();
        self.hunt_checks = self.new_hunt_checks();
        self.hunt_model = Default::default();
    }

    /// What is on disk has been seen before.
    pub(super) fn new_hunt_checks(&self) -> crate::hunt_checks::HuntChecks {
        let limits = self.policy.limits.hunt.clone();
        let mut checks = crate::hunt_checks::HuntChecks::new(limits);
        let held = self.disk.held.values().map(|row| &row.event);
        self.disk
            .stored()
            .chain(held)
            .for_each(|event| checks.shown(event));
        checks
    }

    pub(super) fn hunt_is_sound(&self) -> Result<(), String> {
        self.core.hunt().audit(Mono(self.now))
    }

    /// In the calm: does whatever could be had come?
    pub(super) fn look_at_hunt(&mut self) -> Result<(), String> {
        self.after(LOOK, Happening::Look);
        // Where little may be asked, everybody has a long way to his turn.
        if self.policy.limits.hunt != HuntLimits::default() {
            return Ok(());
        }
        let mut model = std::mem::take(&mut self.hunt_model);
        let looked = model.look(&Scene {
            view: &self.view(),
            hosts: &self.hosts,
            now: self.now,
            seeks_lost: self.now < self.born + self.climate.held_for,
        });
        self.hunt_model = model;
        looked
    }
}

fn told((n, host): (usize, &crate::hosts::Host)) -> String {
    format!("server {n} is {}: {:?}", host.name, host.traits)
}

fn nothing(end: FetchEnd) -> Fetched {
    Fetched {
        got: Vec::new(),
        here: Vec::new(),
        lacking: Vec::new(),
        bytes: 0,
        requests: 1,
        end,
        problem: None,
    }
}
