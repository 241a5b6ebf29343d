//! Whether disk and store agree: a repository's refs and tips are compared with what is served from
//! it, a few repositories side by side, and each in steps. Strangers decide how many tips and pull
//! requests there are, so that no step looks at all of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::lost::{Found, Promise};
use super::retry::Again;
use super::{Core, Errand, Failed, GitDone, GitTask, Repair};
use crate::event::Kind;
use crate::facts::{Facts, RootCursor, RootPage, RootRow};
use crate::git::{ObjectId, Refs};
use crate::id::{EventId, Pubkey};
use crate::nip34::state::Targets;
use crate::nip34::{PULL_REQUEST, PULL_REQUEST_UPDATE, RepoId, Target};
use crate::purgatory::Early;
use crate::push::Tip;
use crate::registry::Standing;

/// Repositories looked at side by side.
const AT_ONCE: usize = 4;
/// Rows of the store that one step looks at: 256 x 2 us = 0.5 ms.
const STEP_ROWS: usize = 256;
/// Rows that one tip takes: its event, and the pull request that an update belongs to.
const TIP_ROWS: usize = 2;
/// States that one step reads: each takes a millisecond at most, and has 2,500 objects.
const STEP_STATES: usize = 4;

/// How far the check of a repository is.
#[derive(Debug)]
pub enum Check {
    /// Git lists its refs.
    Listing,
    Comparing(Comparison),
}

/// What is still to be compared.
#[derive(Debug)]
pub struct Comparison {
    /// Tips that were listed, without those that were set or removed since.
    tips: BTreeMap<EventId, ObjectId>,
    /// Goes with the first page.
    found: Option<Targets>,
    /// Whose states are served from it.
    authors: Vec<Pubkey>,
    roots: Option<RootsCursor>,
}

impl Comparison {
    fn next_tips(&mut self, left: &mut usize) -> Vec<(EventId, ObjectId)> {
        let mut tips = Vec::new();
        while *left >= TIP_ROWS
            && let Some(tip) = self.tips.pop_first()
        {
            *left -= TIP_ROWS;
            tips.push(tip);
        }
        tips
    }

    fn is_over(&self) -> bool {
        self.tips.is_empty() && self.authors.is_empty() && self.roots.is_none()
    }
}

/// A place in the walk through the pull requests of a repository: first come updates that name the
/// repository themselves, then pull requests, each followed by its updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RootsCursor {
    kind: Kind,
    after: Option<RootCursor>,
    /// Of the pull request `after`, if not all were seen.
    updates_after: Option<RootCursor>,
}

impl RootsCursor {
    pub const START: Self = Self {
        kind: PULL_REQUEST_UPDATE,
        after: None,
        updates_after: None,
    };

    fn at(root: &RootRow) -> RootCursor {
        RootCursor {
            created_at: root.created_at,
            id: root.id,
        }
    }
}

impl Core {
    /// Looks at every repository, whether disk and store agree.
    pub(super) fn check_all(&mut self) {
        let hosted = self.registry.hosted();
        let hosted = hosted.filter(|(_, standing)| *standing >= Standing::Held);
        self.unchecked = hosted.map(|(repo, _)| repo.clone()).collect();
        self.check_next();
    }

    pub(super) fn check(&mut self, repo: RepoId) {
        self.unchecked.insert(repo);
        self.check_next();
    }

    fn check_next(&mut self) {
        while self.checking.len() < AT_ONCE {
            let Some(repo) = self.unchecked.pop_first() else {
                return;
            };
            if !self.registry.is_hosted(&repo) {
                continue;
            }
            if self.checking.contains_key(&repo) {
                self.retry_later(Again::Check(repo));
                continue;
            }
            self.checking.insert(repo.clone(), Check::Listing);
            self.ask_git(&repo, GitTask::Create, Errand::Done);
            self.ask_git(&repo, GitTask::Look, Errand::Checked(repo.clone()));
        }
    }

    /// Whoever was compared with what is gone now has nothing more to learn from it.
    pub(super) fn end_check(&mut self, repo: &RepoId) {
        self.checking.remove(repo);
        self.check_next();
    }

    /// Its check has not begun, or has not learned yet what is there.
    pub(super) fn will_be_checked(&self, repo: &RepoId) -> bool {
        let checking = self.checking.get(repo);
        self.unchecked.contains(repo) || matches!(checking, Some(Check::Listing))
    }

    /// Refs are what the applied state says; tips have their events; then whatever is held.
    pub(super) fn on_checked(
        &mut self,
        repo: &RepoId,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        // Otherwise nobody wants to know any more.
        let Some(check) = self.checking.get_mut(repo) else {
            return;
        };
        match outcome {
            Ok(GitDone::Refs { found, tips }) if self.registry.is_hosted(repo) => {
                let mut authors = self.registry.maintainers(repo).to_vec();
                authors.reverse();
                let refs = found.refs.clone();
                *check = Check::Comparing(Comparison {
                    tips: tips.into_iter().collect(),
                    found: Some(found),
                    authors,
                    roots: Some(RootsCursor::START),
                });
                self.drop_unsigned(repo, &refs, facts);
                self.check_step(repo, facts);
            }
            outcome => {
                // One damaged repository never stops the others. One that is not hosted was put
                // away, or will be as it is.
                if outcome.is_err() && self.registry.is_hosted(repo) {
                    self.retry_later(Again::Check(repo.clone()));
                }
                self.end_check(repo);
            }
        }
    }

    /// They moved, the kill came, and the state that they follow did not live to see it.
    fn drop_unsigned(&mut self, repo: &RepoId, refs: &Refs, facts: &dyn Facts) {
        let applied = self.registry.applied(repo);
        let settling = self.is_settling(repo);
        if applied.is_none()
            && !settling
            && !refs.is_empty()
            && !self.are_expected(repo, refs, facts)
        {
            self.set_refs(repo, Arc::default(), Repair::RefsDropped);
        }
    }

    /// Compares some more: tips first, then a page of what is served from the repository, which goes
    /// on when git has said which of its objects are there.
    pub(super) fn check_step(&mut self, repo: &RepoId, facts: &dyn Facts) {
        let Some(Check::Comparing(comparison)) = self.checking.get_mut(repo) else {
            return;
        };
        if !self.registry.is_hosted(repo) {
            return self.end_check(repo);
        }
        let mut left = STEP_ROWS;
        let tips = comparison.next_tips(&mut left);
        self.check_tips(repo, tips, facts);
        let Some(Check::Comparing(mut comparison)) = self.checking.remove(repo) else {
            return;
        };
        let (events, whole) = self.next_page(repo, &mut comparison, &mut left, facts);
        let is_over = comparison.is_over();
        let check = Check::Comparing(comparison);
        self.checking.insert(repo.clone(), check);
        if whole.is_some() || !events.is_empty() {
            self.ask_for_page(repo, events, whole);
        } else if is_over {
            self.end_check(repo);
        } else {
            self.retry_after(Duration::ZERO, Again::CheckStep(repo.clone()));
        }
    }

    fn check_tips(&mut self, repo: &RepoId, tips: Vec<(EventId, ObjectId)>, facts: &dyn Facts) {
        let until = self.believed().saturating_add(self.policy.limits.tip_for);
        let mut wrong = Vec::new();
        for (id, tip) in tips {
            let said = self.said_by(&id, facts);
            self.tips.insert(id, repo, said.author);
            let is_it = said.tip == Tip::At(tip);
            // It is being set to what it should be, perhaps.
            let landing = self.landing.get(&id);
            if landing.is_some_and(|landing| landing.touches(repo)) {
                if !is_it {
                    self.retry_later(Again::Check(repo.clone()));
                }
                continue;
            }
            if !is_it && said.tip != Tip::Unknown {
                wrong.push(id);
                continue;
            }
            let is_known = self.early_tips.contains(repo, &id)
                || is_it && self.is_place_of(repo, said.says, facts);
            if !is_known {
                let early = Early {
                    repo: repo.clone(),
                    tip,
                    until,
                    network: None,
                };
                self.early_tips.insert(id, early);
            }
        }
        for _ in &wrong {
            self.note_repair(repo, Repair::TipRemoved);
        }
        if !wrong.is_empty() {
            self.remove_tips(repo, wrong);
        }
    }

    /// Somebody sets or removes tips: what was listed of them says nothing any more.
    pub(super) fn outdate_listed(&mut self, repo: &RepoId, ids: impl Iterator<Item = EventId>) {
        if let Some(Check::Comparing(comparison)) = self.checking.get_mut(repo) {
            for id in ids {
                comparison.tips.remove(&id);
            }
        }
    }

    /// Some of what is served from a repository; with the first page the state that it has, and what
    /// was listed.
    fn next_page(
        &self,
        repo: &RepoId,
        comparison: &mut Comparison,
        left: &mut usize,
        facts: &dyn Facts,
    ) -> (Vec<Promise>, Option<Found>) {
        let mut events = Vec::new();
        if !comparison.tips.is_empty() || *left == 0 {
            return (events, None);
        }
        let found = comparison.found.take();
        let whole = found.map(|found| (self.registry.applied(repo), found));
        if whole.is_some() {
            let own = self.applied_state(repo, facts);
            events.extend(own.map(Promise::of_state));
        }
        while *left > 0
            && events.len() < STEP_STATES
            && let Some(author) = comparison.authors.pop()
        {
            *left -= 1;
            let of = RepoId::new(author, repo.identifier.clone());
            let rank = self.stored_rank(&of, facts);
            let rank = rank.filter(|rank| events.iter().all(|event| event.id != rank.id));
            let state = rank.and_then(|rank| self.stored_state(&rank.id, facts));
            events.extend(state.map(Promise::of_state));
        }
        if comparison.authors.is_empty()
            && let Some(cursor) = comparison.roots
        {
            let (rows, next) = next_roots(repo, cursor, left, facts);
            events.extend(promises(rows, facts));
            comparison.roots = next;
        }
        (events, whole)
    }

    /// Where else that is looked for which was served from a repository that is gone, some at a time.
    pub(super) fn check_gone(&mut self, repo: RepoId, from: RootsCursor, facts: &dyn Facts) {
        let mut left = STEP_ROWS;
        let (rows, next) = next_roots(&repo, from, &mut left, facts);
        for event in promises(rows, facts) {
            for place in self.served_from(&event, facts) {
                self.retry_later(Again::Check(place));
            }
        }
        if let Some(next) = next {
            self.retry_after(Duration::ZERO, Again::CheckGone(repo, next));
        }
    }
}

fn promises(rows: Vec<RootRow>, facts: &dyn Facts) -> impl Iterator<Item = Promise> {
    rows.into_iter().filter_map(|root| {
        let row = facts.pull_request(&root.id)?;
        Some(Promise::of_pull_request(root.id, row))
    })
}

/// As many pull requests and updates as `left` allows, with one row for each list that is opened and
/// for each of them what it says; and where to go on.
fn next_roots(
    repo: &RepoId,
    mut cursor: RootsCursor,
    left: &mut usize,
    facts: &dyn Facts,
) -> (Vec<RootRow>, Option<RootsCursor>) {
    let address = Target::Address(repo.address(Kind::ANNOUNCEMENT));
    let mut found = Vec::new();
    while *left > 0 {
        if let (Some(root), Some(_)) = (cursor.after, cursor.updates_after) {
            let page = updates_of(&root.id, cursor.updates_after, left, facts);
            cursor.updates_after = page.next;
            found.extend(page.rows);
            continue;
        }
        // Each pull request takes two rows more.
        let most = left.div_ceil(3);
        let page = page_of(&address, cursor.kind, cursor.after, most, left, facts);
        let mut rows = page.rows.into_iter();
        for root in rows.by_ref() {
            *left = left.saturating_sub(1);
            cursor.after = Some(RootsCursor::at(&root));
            let has_updates = root.kind == PULL_REQUEST;
            found.push(root);
            if has_updates {
                let page = updates_of(&root.id, None, left, facts);
                cursor.updates_after = page.next;
                found.extend(page.rows);
            }
            if *left == 0 || cursor.updates_after.is_some() {
                break;
            }
        }
        if rows.len() > 0 || cursor.updates_after.is_some() {
            continue;
        }
        match page.next {
            Some(next) => cursor.after = Some(next),
            None if cursor.kind == PULL_REQUEST => return (found, None),
            None => {
                cursor.kind = PULL_REQUEST;
                cursor.after = None;
            }
        }
    }
    (found, Some(cursor))
}

fn updates_of(
    root: &EventId,
    after: Option<RootCursor>,
    left: &mut usize,
    facts: &dyn Facts,
) -> RootPage {
    let target = Target::Event(*root);
    let most = left.div_ceil(2);
    let page = page_of(&target, PULL_REQUEST_UPDATE, after, most, left, facts);
    *left = left.saturating_sub(page.rows.len());
    page
}

/// At least one row, so that every walk comes to its end.
fn page_of(
    target: &Target,
    kind: Kind,
    after: Option<RootCursor>,
    most: usize,
    left: &mut usize,
    facts: &dyn Facts,
) -> RootPage {
    let most = most.max(1);
    let mut unseen = most;
    let page = facts.naming(target, kind, after, &mut unseen);
    *left = left.saturating_sub(1 + most - unseen);
    page
}
