//! Who is next when a fetch may begin: repositories that are tried, and domains for which
//! repositories wait. Each stands in line once.

use std::collections::VecDeque;

use rustc_hash::FxHashSet;

use crate::clone_url::Domain;
use crate::nip34::RepoId;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Turn {
    Repo(RepoId),
    Domain(Domain),
}

#[derive(Debug, Default)]
pub struct Line {
    order: VecDeque<Turn>,
    standing: FxHashSet<Turn>,
}

impl Line {
    pub fn join(&mut self, turn: Turn) {
        if self.standing.insert(turn.clone()) {
            self.order.push_back(turn);
        }
    }

    pub fn next(&mut self) -> Option<Turn> {
        let turn = self.order.pop_front()?;
        self.standing.remove(&turn);
        Some(turn)
    }

    pub fn has(&self, turn: &Turn) -> bool {
        self.standing.contains(turn)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Turn> {
        self.order.iter()
    }

    pub fn len(&self) -> usize {
        self.order.len()
    }
}
