//! A store and the naive model side by side: the same random events, the same verdicts; the same
//! random filters, the same answers in the same order. A failure names its seed.

use grasp_core::{Event, EventId, Facts as _, Seq, StoreOutcome, Timestamp};
use grasp_store::{Budget, Completeness, Found, Progress, Store, Want};
use testkit::random::Events;
use testkit::{Model, Value, Verdict, json};

use crate::support::*;

const ROUNDS: usize = 4;
const FILTERS_PER_ROUND: usize = 12;
const FACTS_PER_ROUND: usize = 30;
const MAXES: [usize; 4] = [1, 7, 50, 10_000];

pub struct World {
    seed: u64,
    pub events: Events,
    pub store: Store,
    model: Model,
    submitted: Vec<Event>,
    swept: u64,
    /// A crash may undo a sweep; readers must not notice at a later moment.
    after_sweep: u64,
    /// Dice of its own, for what must not matter.
    steps: fastrand::Rng,
}

impl World {
    pub fn new(seed: u64, store: Store) -> Self {
        Self {
            seed,
            events: Events::new(seed),
            store,
            model: Model::new(),
            submitted: Vec::new(),
            swept: 0,
            after_sweep: 0,
            steps: fastrand::Rng::with_seed(seed),
        }
    }

    /// A store that somebody else has filled with what this generator gave out.
    pub fn of_another(seed: u64, events: Events, store: Store) -> Self {
        Self {
            events,
            ..Self::new(seed, store)
        }
    }

    pub fn live(mut self) {
        for _ in 0..ROUNDS {
            for _ in 0..3 {
                self.submit_a_batch();
                self.sweep_a_step_or_not();
            }
            if self.events.rng().bool() {
                self.sweep();
            }
            self.compare();
        }
    }

    pub fn submit_a_batch(&mut self) {
        let size = self.events.rng().usize(1..20);
        let batch: Vec<Event> = self.events.by_ref().take(size).collect();
        self.submit(batch);
    }

    /// Whatever was refused, replaced or deleted is so again.
    pub fn submit_everything_again(&mut self) {
        let batch = std::mem::take(&mut self.submitted);
        self.submit(batch);
    }

    fn submit(&mut self, batch: Vec<Event>) {
        let outcomes = self.store.apply(&batch).unwrap();
        for (event, outcome) in batch.iter().zip(outcomes) {
            let verdict = self.model.submit(&event.json().parse().unwrap());
            assert_eq!(
                verdict_of(outcome),
                verdict,
                "seed {}: {event:?}",
                self.seed
            );
        }
        self.submitted.extend(batch);
        self.compare_size();
    }

    /// What the store's own history had; says how many events were stored.
    pub fn catch_up(&mut self, batch: &[Event]) -> usize {
        self.submitted.extend_from_slice(batch);
        let verdicts = batch
            .iter()
            .map(|event| self.model.submit(&event.json().parse().unwrap()));
        verdicts
            .filter(|verdict| *verdict == Verdict::Stored)
            .count()
    }

    pub fn catch_up_with_sweep(&mut self, until: u64) {
        self.model.sweep(until);
        self.swept = self.swept.max(until);
    }

    /// Goes on with what was deleted; nothing expires as early as that.
    pub fn sweep_a_step_or_not(&mut self) {
        if self.steps.bool() {
            return;
        }
        let swept = self.store.sweep(EARLY, 1).unwrap();
        assert_eq!(swept.removed, 0, "seed {}", self.seed);
    }

    /// In steps of a random size, which must not matter.
    pub fn sweep(&mut self) {
        let until = self.events.moment();
        let step = self.events.rng().usize(1..4);
        let mut removed = 0;
        for _ in 0..PLENTY {
            let swept = self.store.sweep(Timestamp(until), step).unwrap();
            removed += swept.removed;
            if !swept.more {
                break;
            }
        }
        let expected = self.model.sweep(until);
        assert_eq!(removed, expected, "seed {}: sweep {until}", self.seed);
        self.swept = self.swept.max(until);
        let left = self.store.stats().unwrap();
        assert_eq!((left.garbage, left.vanishing), (0, 0), "seed {}", self.seed);
        self.compare_size();
    }

    /// Looks as a crash may have left it: what was swept may be back, unseen.
    pub fn expect_unswept(&mut self) {
        self.after_sweep = self.swept;
    }

    pub fn sweep_again(&mut self) {
        for _ in 0..PLENTY {
            let swept = self.store.sweep(Timestamp(self.swept), PLENTY).unwrap();
            if !swept.more {
                break;
            }
        }
        self.model.sweep(self.swept);
        self.after_sweep = 0;
    }

    /// Every event that no sweep could have taken, with its number.
    pub fn numbered(&self) -> Vec<(EventId, Seq)> {
        let mut query = query(&[json!({})], PLENTY, Want::Json);
        let mut found = Vec::new();
        let visit = |event: Found<'_>| found.push((event.id, event.seq));
        let all = Budget(usize::MAX);
        let progress = self
            .store
            .advance(&mut query, all, Timestamp(self.swept), visit);
        assert_eq!(progress.unwrap(), Progress::Done);
        found
    }

    pub fn compare_size(&self) {
        let stats = self.store.stats().unwrap();
        let (stored, expected) = (stats.events, self.model.len() as u64);
        match stats.vanishing {
            0 => assert_eq!(stored, expected, "seed {}", self.seed),
            _ => assert!(stored >= expected, "seed {}", self.seed),
        }
    }

    pub fn compare(&mut self) {
        for _ in 0..FILTERS_PER_ROUND {
            self.compare_one_filter();
        }
        for _ in 0..FILTERS_PER_ROUND / 3 {
            self.compare_several_filters();
        }
        self.compare_facts();
    }

    /// What the rules ask about single events.
    fn compare_facts(&self) {
        for event in self.submitted.iter().rev().take(FACTS_PER_ROUND) {
            let id = event.id.to_string();
            let here = |filter| self.model.query(&filter, self.after_sweep, 1);
            let stored = !here(json!({"ids": [id]})).is_empty();
            // After a crash what had expired may be back for the rules.
            if self.after_sweep > 0 && !stored {
                continue;
            }
            let case = format!("seed {}: {event:?}", self.seed);
            assert_eq!(self.store.contains(&event.id).unwrap(), stored, "{case}");
            let kind = stored.then_some(event.kind);
            assert_eq!(self.store.kind_of(&event.id), kind, "{case}");
            assert_eq!(self.store.event(&event.id).is_some(), stored, "{case}");
            let Some(address) = event.address() else {
                continue;
            };
            let newest = self.store.newest(&address).map(|event| event.id);
            let (kind, author) = (address.kind.0, address.pubkey.to_string());
            let versions = here(json!({"kinds": [kind], "authors": [author]}));
            assert!(newest.is_none() || !versions.is_empty(), "{case}");
            assert_eq!(newest == Some(event.id), stored, "{case}");
        }
    }

    fn compare_one_filter(&mut self) {
        let filter = self.events.some_filter();
        let (now, max) = (self.moment(), self.max());
        let case = format!("seed {}, now {now}, max {max}: {filter}", self.seed);
        let expected = self.model.query(&filter, now, max);
        let filters = [filter];
        let (found, completeness) = self.ask(&filters, now, max, Want::Json);
        assert_eq!(found, expected, "{case}");
        if let Some(expected) = self.completeness(&filters[0], now, max) {
            assert_eq!(completeness, expected, "{case}");
        }
    }

    fn compare_several_filters(&mut self) {
        let count = self.events.rng().usize(0..5);
        let filters = self.events.some_filters(count);
        let (now, max) = (self.moment(), self.max());
        let case = format!("seed {}, now {now}, max {max}: {filters:?}", self.seed);
        let expected = self.model.query_all(&filters, now, max);
        let (found, _) = self.ask(&filters, now, max, Want::Json);
        assert_eq!(found, expected, "{case}");
        let (counted, _) = self.ask(&filters, now, max, Want::Ids);
        let expected = self.model.count(&filters, now, max);
        assert_eq!(counted.len(), expected, "{case}");
    }

    /// Asks in slices of a random size, which must not matter either.
    fn ask(
        &mut self,
        filters: &[Value],
        now: u64,
        max: usize,
        want: Want,
    ) -> (Vec<String>, Completeness) {
        let slice = Budget(1 << self.events.rng().u32(0..12));
        let mut query = query(filters, max, want);
        let found = run(&self.store, &mut query, slice, Timestamp(now));
        let found = found.iter().map(EventId::to_string).collect();
        (found, query.completeness())
    }

    /// What the store must say about one filter. A limit of nothing leaves it a choice.
    fn completeness(&self, filter: &Value, now: u64, max: usize) -> Option<Completeness> {
        let mut unlimited = filter.clone();
        let limit = unlimited.as_object_mut().unwrap().remove("limit");
        let limit = limit.map_or(max, |limit| limit.as_u64().unwrap() as usize);
        let all = self.model.query(&unlimited, now, usize::MAX).len();
        match limit.min(max) {
            0 => None,
            limit if all > limit => Some(Completeness::More),
            _ => Some(Completeness::Finish),
        }
    }

    fn moment(&mut self) -> u64 {
        self.events.moment().max(self.after_sweep)
    }

    fn max(&mut self) -> usize {
        let index = self.events.rng().usize(0..MAXES.len());
        MAXES[index]
    }
}

fn verdict_of(outcome: StoreOutcome) -> Verdict {
    match outcome {
        StoreOutcome::Stored(_) => Verdict::Stored,
        StoreOutcome::Duplicate => Verdict::Duplicate,
        StoreOutcome::Replaced => Verdict::Replaced,
        StoreOutcome::Deleted => Verdict::Deleted,
        StoreOutcome::Vanished => Verdict::Vanished,
        StoreOutcome::Failed => panic!("the store failed"),
    }
}
