//! The values that the filters of one connection name, in subscriptions and in COUNTs that wait:
//! what they cost to keep.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use grasp_core::{Filter, Limits};

use crate::evicting_quota::{QuotaMember, QuotaPermit};
use crate::relay::too_many;

pub(super) struct Values {
    held: Arc<AtomicUsize>,
    limits: Limits,
    part: Arc<QuotaMember>,
}

/// Values that are named until this is dropped.
#[derive(Debug)]
pub(super) struct Named {
    values: usize,
    held: Arc<AtomicUsize>,
    /// Outlives this in the index, which forgets the values later.
    in_all: Option<QuotaPermit>,
}

impl Named {
    /// What is given back when whoever takes it has forgotten the values.
    pub(super) fn in_all(&mut self) -> Option<QuotaPermit> {
        self.in_all.take()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.held.fetch_sub(self.values, Ordering::Relaxed);
    }
}

impl Values {
    pub(super) fn new(limits: &Limits, part: Arc<QuotaMember>) -> Self {
        Self {
            held: Arc::default(),
            limits: limits.clone(),
            part,
        }
    }

    /// Or the reason why they are too many.
    pub(super) fn take(&self, filters: &[Filter]) -> Result<Named, String> {
        let values = filters.iter().map(|filter| filter.value_count().max(1));
        let values: usize = values.sum();
        let most = self.limits.connection_values;
        if self.held.load(Ordering::Relaxed) + values > most {
            return Err(format!(
                "blocked: more than {most} filter values in all subscriptions"
            ));
        }
        let shares = self.limits.filter_value_shares();
        let in_all = self.part.take(values);
        let in_all = in_all.map_err(|exceeded| too_many(exceeded, shares, "filter values"))?;
        self.held.fetch_add(values, Ordering::Relaxed);
        Ok(Named {
            values,
            held: Arc::clone(&self.held),
            in_all: Some(in_all),
        })
    }
}
