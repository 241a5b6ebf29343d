//! The store against the naive model: the same random events, the same verdicts; the same
//! random filters, the same answers in the same order. A failure names its seed.

use grasp_core::{Event, EventId, StoreOutcome, Timestamp};
use grasp_store::{Budget, Completeness, Store, Want};
use testkit::random::Events;
use testkit::{Model, Value, Verdict};

use crate::support::*;

const ROUNDS: usize = 4;
const FILTERS_PER_ROUND: usize = 12;
const MAXES: [usize; 4] = [1, 7, 50, 10_000];

#[test]
fn the_store_in_memory_agrees_with_the_model() {
    for seed in 0..600 {
        World::new(seed, Store::in_memory()).live();
    }
}

#[test]
fn the_store_on_disk_agrees_with_the_model() {
    for seed in 10_000..10_250 {
        let dir = tempfile::tempdir().unwrap();
        World::new(seed, Store::open(dir.path()).unwrap()).live();
    }
}

/// One seed: store and model side by side.
struct World {
    seed: u64,
    events: Events,
    store: Store,
    model: Model,
}

impl World {
    fn new(seed: u64, store: Store) -> Self {
        Self {
            seed,
            events: Events::new(seed),
            store,
            model: Model::new(),
        }
    }

    fn live(mut self) {
        for _ in 0..ROUNDS {
            for _ in 0..3 {
                self.submit_a_batch();
            }
            if self.events.rng().bool() {
                self.sweep();
            }
            for _ in 0..FILTERS_PER_ROUND {
                self.compare_one_filter();
            }
            for _ in 0..FILTERS_PER_ROUND / 3 {
                self.compare_several_filters();
            }
        }
    }

    fn submit_a_batch(&mut self) {
        let size = self.events.rng().usize(1..20);
        let batch: Vec<Event> = self.events.by_ref().take(size).collect();
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
        let stored = self.store.stats().unwrap().events;
        assert_eq!(stored, self.model.len() as u64, "seed {}", self.seed);
    }

    /// In steps of a random size, which must not matter.
    fn sweep(&mut self) {
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
    }

    fn compare_one_filter(&mut self) {
        let filter = self.events.some_filter();
        let (now, max) = (self.events.moment(), self.max());
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
        let (now, max) = (self.events.moment(), self.max());
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
