//! From values to the filters that name them. Each filter is filed under the values of one of its
//! lists; a look-up goes through an event's own values and asks each filter that it meets there
//! once. How many one reader may have under a value is bounded, so that an event costs what it
//! matches, and little more.

use grasp_core::limits::{FILED_PER_CONNECTION, FILED_PER_NETWORK};
use rustc_hash::FxHashMap;

use super::bucket::{Bucket, FEW, Holder};
use super::prepared::{Prepared, Probe};

/// A subscription's place in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubRef(usize);

/// Each list of a filter has a value under which this reader has as many as it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "blocked: more than {FILED_PER_CONNECTION} filters of one connection, or {FILED_PER_NETWORK} of one \
     address, with the same values"
)]
pub struct Crowded;

#[derive(Debug)]
struct Sub<T> {
    owner: T,
    filters: Vec<u32>,
    /// The last look-up that found this subscription, so that it is found once.
    found_in: u64,
}

#[derive(Debug)]
struct Filed {
    filter: Prepared,
    /// Under which of its lists.
    list: usize,
    sub: usize,
    holder: Holder,
}

impl Filed {
    fn keys(&self) -> &[u64] {
        self.filter.lists().nth(self.list).unwrap_or_default()
    }
}

#[derive(Debug)]
pub struct Index<T> {
    subs: Vec<Option<Sub<T>>>,
    free_subs: Vec<usize>,
    filters: Vec<Option<Filed>>,
    free_filters: Vec<u32>,
    /// The last look-up that met a filter. Apart from the filters, so that one with many values
    /// that are all met is passed over quickly.
    met_in: Vec<u64>,
    buckets: FxHashMap<u64, Bucket>,
    look_ups: u64,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self {
            subs: Vec::new(),
            free_subs: Vec::new(),
            filters: Vec::new(),
            free_filters: Vec::new(),
            met_in: Vec::new(),
            buckets: FxHashMap::default(),
            look_ups: 0,
        }
    }
}

/// The answer to a look-up.
#[derive(Debug)]
pub struct Found<'a, T> {
    /// Of the subscriptions that want the event, each once.
    pub owners: Vec<&'a T>,
    /// Filters that were compared with the event.
    pub compared: usize,
}

impl<T> Index<T> {
    /// All filters of a subscription, or nothing of it.
    pub fn insert(
        &mut self,
        owner: T,
        holder: Holder,
        filters: Vec<Prepared>,
    ) -> Result<SubRef, Crowded> {
        let place = self.free_subs.pop().unwrap_or(self.subs.len());
        let mut filed = Ok(());
        let mut numbers = Vec::with_capacity(filters.len());
        for filter in filters {
            match self.file(filter, place, holder) {
                Ok(number) => numbers.push(number),
                Err(crowded) => {
                    filed = Err(crowded);
                    break;
                }
            }
        }
        let sub = Some(Sub {
            owner,
            filters: numbers,
            found_in: 0,
        });
        match self.subs.get_mut(place) {
            Some(slot) => *slot = sub,
            None => self.subs.push(sub),
        }
        if let Err(crowded) = filed {
            self.remove(SubRef(place));
            return Err(crowded);
        }
        Ok(SubRef(place))
    }

    pub fn remove(&mut self, place: SubRef) {
        let Some(gone) = self.subs.get_mut(place.0).and_then(Option::take) else {
            return;
        };
        for number in gone.filters {
            self.take_out(number);
        }
        self.free_subs.push(place.0);
    }

    pub fn matches(&mut self, probe: &Probe<'_>) -> Found<'_, T> {
        self.look_ups += 1;
        let mut found = Vec::new();
        let mut compared = 0;
        for key in probe.keys() {
            let met = self.buckets.get(&key).into_iter();
            for number in met.flat_map(Bucket::filters) {
                let number = number as usize;
                match self.met_in.get_mut(number) {
                    Some(met_in) if *met_in != self.look_ups => *met_in = self.look_ups,
                    _ => continue,
                }
                let Some(Some(filed)) = self.filters.get(number) else {
                    continue;
                };
                let Some(Some(sub)) = self.subs.get_mut(filed.sub) else {
                    continue;
                };
                if sub.found_in == self.look_ups {
                    continue;
                }
                compared += 1;
                if filed.filter.matches(probe) {
                    sub.found_in = self.look_ups;
                    found.push(filed.sub);
                }
            }
        }
        let owner = |place: usize| Some(&self.subs.get(place)?.as_ref()?.owner);
        let owners = found.into_iter().filter_map(owner).collect();
        Found { owners, compared }
    }

    fn file(&mut self, filter: Prepared, sub: usize, holder: Holder) -> Result<u32, Crowded> {
        let list = self.list_for(&filter, holder)?;
        let next = u32::try_from(self.filters.len()).map_err(|_| Crowded)?;
        let number = self.free_filters.pop().unwrap_or(next);
        let filed = Filed {
            filter,
            list,
            sub,
            holder,
        };
        let filters = &self.filters;
        let holder_of = |other: u32| Some(filters.get(other as usize)?.as_ref()?.holder);
        for key in filed.keys() {
            let bucket = self.buckets.entry(*key).or_default();
            bucket.insert(number, holder, holder_of);
        }
        match self.filters.get_mut(number as usize) {
            Some(slot) => *slot = Some(filed),
            None => {
                self.filters.push(Some(filed));
                self.met_in.push(0);
            }
        }
        Ok(number)
    }

    /// The first list under whose values this reader has only few filters, or else the one under
    /// which it has fewest: whoever repeats one value has it ignored while another is left that
    /// tells the filters apart.
    fn list_for(&self, filter: &Prepared, holder: Holder) -> Result<usize, Crowded> {
        let mut least = None;
        for (list, keys) in filter.lists().enumerate() {
            let buckets = keys.iter().filter_map(|key| self.buckets.get(key));
            let load = buckets.map(|bucket| bucket.load(holder)).max().unwrap_or(0);
            if (load as usize) < FEW {
                return Ok(list);
            }
            if least.is_none_or(|(best, _)| load < best) {
                least = Some((load, list));
            }
        }
        match least {
            None => Ok(0),
            Some((load, list)) if load < FILED_PER_CONNECTION => Ok(list),
            Some(_) => Err(Crowded),
        }
    }

    fn take_out(&mut self, number: u32) {
        let slot = self.filters.get_mut(number as usize);
        let Some(gone) = slot.and_then(Option::take) else {
            return;
        };
        for key in gone.keys() {
            if let Some(bucket) = self.buckets.get_mut(key) {
                bucket.remove(number, gone.holder);
                if bucket.is_empty() {
                    self.buckets.remove(key);
                }
            }
        }
        self.free_filters.push(number);
    }
}

#[cfg(test)]
mod tests;
