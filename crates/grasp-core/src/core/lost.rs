//! Objects that a disk has lost. An event whose objects no repository here has any more is hidden
//! until they are back, and refs that point at nothing are taken down.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::checking::RootsCursor;
use super::lacking::Wanted;
use super::retry::Again;
use super::{Change, Core, Effect, Errand, Failed, GitDone, GitTask, Repair};
use crate::admit::Known as _;
use crate::event::{Event, Kind};
use crate::facts::{Facts, PullRequestRow, RootRow};
use crate::git::{ObjectId, Refs};
use crate::id::{EventId, Pubkey};
use crate::nip34::state::Targets;
use crate::nip34::{self, Identifier, PullRequest, Rank, RepoId, State};
use crate::push::Backing;
use crate::registry::MAX_MEMBERS;
use crate::service::Service;

/// Events whose objects no repository is known to have, about 600 bytes each, and 20 for each
/// object: 60 MB and more.
const MAX_LOST: usize = 100_000;

/// Pull requests that are read whole in one comparison, for the servers that they name: 16 ms if all
/// of them are as large as can be.
const MAX_READ: usize = 16;

/// Keys that gain or lose a word in one change, and are asked what else they maintain: as many as
/// four sets have members.
const MAX_ASKED: usize = 4 * MAX_MEMBERS;

/// What is not found, and where not.
#[derive(Debug, Default)]
pub struct Lost {
    missing_in: FxHashMap<EventId, BTreeSet<RepoId>>,
    /// Objects that were missing when somebody looked last.
    events: FxHashMap<RepoId, BTreeMap<EventId, Wanted>>,
}

impl Lost {
    /// True if that was not known.
    fn add(&mut self, id: EventId, repo: &RepoId, missing: Wanted) -> bool {
        if self.missing_in.len() >= MAX_LOST && !self.missing_in.contains_key(&id) {
            return false;
        }
        let events = self.events.entry(repo.clone()).or_default();
        events.insert(id, missing);
        self.missing_in.entry(id).or_default().insert(repo.clone())
    }

    fn forget(&mut self, id: &EventId) {
        for repo in self.missing_in.get(id).cloned().unwrap_or_default() {
            self.forget_in(id, &repo);
        }
    }

    /// It is not looked for in this repository any more.
    fn forget_in(&mut self, id: &EventId, repo: &RepoId) {
        if let Some(repos) = self.missing_in.get_mut(id) {
            repos.remove(repo);
            if repos.is_empty() {
                self.missing_in.remove(id);
            }
        }
        if let Some(events) = self.events.get_mut(repo) {
            events.remove(id);
            if events.is_empty() {
                self.events.remove(repo);
            }
        }
    }

    fn is_missing_in(&self, id: &EventId, repo: &RepoId) -> bool {
        let repos = self.missing_in.get(id);
        repos.is_some_and(|repos| repos.contains(repo))
    }

    fn get(&self, repo: &RepoId, id: &EventId) -> Option<&Wanted> {
        self.events.get(repo)?.get(id)
    }

    pub fn in_repo(&self, repo: &RepoId) -> impl Iterator<Item = (&EventId, &Wanted)> {
        self.events.get(repo).into_iter().flatten()
    }
}

/// A stored event, as far as its objects matter.
#[derive(Debug, Clone)]
pub struct Promise {
    pub id: EventId,
    pub author: Pubkey,
    about: About,
    pub objects: Vec<ObjectId>,
}

/// Where the objects of an event belong.
#[derive(Debug, Clone)]
enum About {
    PullRequest(PullRequest),
    /// To what its author maintains under that name.
    State(Identifier),
}

impl Promise {
    pub fn of_pull_request(id: EventId, row: PullRequestRow) -> Self {
        Self {
            id,
            author: row.author,
            objects: row.says.tip.into_iter().collect(),
            about: About::PullRequest(row.says),
        }
    }

    pub fn of_state(state: State) -> Self {
        Self {
            id: state.rank.id,
            author: state.author,
            objects: state.refs.map_or_else(|_| Vec::new(), |to| to.objects()),
            about: About::State(state.identifier),
        }
    }

    /// `None` for events of other kinds.
    fn of(event: &Event) -> Option<Self> {
        match PullRequest::read(event) {
            Some(says) => {
                let author = event.pubkey;
                Some(Self::of_pull_request(
                    event.id,
                    PullRequestRow { author, says },
                ))
            }
            None if event.kind == Kind::STATE => Some(Self::of_state(State::read(event).ok()?)),
            None => None,
        }
    }

    fn backing(&self) -> Backing {
        match self.about {
            About::PullRequest(_) => Backing::PullRequests,
            About::State(_) => Backing::State,
        }
    }
}

/// What a repository should have, at the time when it was asked.
#[derive(Debug)]
pub struct Promises {
    events: Vec<Promise>,
    /// All of their objects and those of the refs, sorted, each once.
    objects: Arc<[ObjectId]>,
    /// With the first page of a check.
    whole: Option<Found>,
    /// The check goes on with the next page.
    is_page: bool,
}

/// The state of a repository when it was listed, and the heads, tags and HEAD that it was found with.
pub type Found = (Option<Rank>, Targets);

/// Hosted repositories and those who may sign for them.
pub type Reach = BTreeMap<RepoId, Arc<[Pubkey]>>;

impl Core {
    /// Asks whether the objects of some of what is served from this repository are there.
    pub(super) fn ask_for_page(
        &mut self,
        repo: &RepoId,
        events: Vec<Promise>,
        whole: Option<Found>,
    ) {
        self.ask_for(repo, events, whole, true);
    }

    /// What is served from a repository, and the state that it has; of many pull requests the newest.
    pub(super) fn promised(&self, repo: &RepoId, facts: &dyn Facts) -> Vec<Promise> {
        let members = self.registry.maintainers(repo);
        let states = members.iter().filter_map(|member| {
            let of = RepoId::new(*member, repo.identifier.clone());
            self.stored_state(&self.stored_rank(&of, facts)?.id, facts)
        });
        let own = self.applied_state(repo, facts);
        let states = states.chain(own).map(Promise::of_state);
        states.chain(self.promised_tips(repo, facts)).collect()
    }

    fn promised_tips(&self, repo: &RepoId, facts: &dyn Facts) -> Vec<Promise> {
        let roots = facts.roots(repo, &nip34::PULL_REQUESTS).into_iter();
        let promise = |root: RootRow| {
            let row = facts.pull_request(&root.id)?;
            Some(Promise::of_pull_request(root.id, row))
        };
        roots.filter_map(promise).collect()
    }

    fn promise(&self, id: &EventId, facts: &dyn Facts) -> Option<Promise> {
        match facts.pull_request(id) {
            Some(row) => Some(Promise::of_pull_request(*id, row)),
            None => self.stored_state(id, facts).map(Promise::of_state),
        }
    }

    /// New objects are in a repository: perhaps those that were lost.
    pub(super) fn look_for_lost(&mut self, repo: &RepoId, facts: &dyn Facts) {
        let ids = self.lost.in_repo(repo);
        let events: Vec<Promise> = ids.filter_map(|(id, _)| self.promise(id, facts)).collect();
        if !events.is_empty() {
            self.ask_for(repo, events, None, false);
        }
    }

    fn ask_for(
        &mut self,
        repo: &RepoId,
        events: Vec<Promise>,
        whole: Option<Found>,
        is_page: bool,
    ) {
        let promised = events.iter().flat_map(|event| &event.objects);
        let pointed_at = whole.iter().flat_map(|(_, found)| found.refs.values());
        let objects: BTreeSet<ObjectId> = promised.chain(pointed_at).copied().collect();
        let objects: Arc<[ObjectId]> = objects.into_iter().collect();
        let task = GitTask::Probe(Arc::clone(&objects));
        let promises = Arc::new(Promises {
            events,
            objects,
            whole,
            is_page,
        });
        self.ask_git(repo, task, Errand::Verified(repo.clone(), promises));
    }

    pub(super) fn on_verified(
        &mut self,
        repo: &RepoId,
        promises: &Promises,
        outcome: Result<GitDone, Failed>,
        facts: &dyn Facts,
    ) {
        let Ok(GitDone::Probed(kinds)) = outcome else {
            self.retry_later(Again::Check(repo.clone()));
            if promises.is_page {
                self.end_check(repo);
            }
            return;
        };
        if self.registry.is_hosted(repo) {
            let missing = promises.objects.iter().zip(kinds);
            let missing = missing.filter(|(_, kind)| kind.is_none());
            let missing: BTreeSet<ObjectId> = missing.map(|(id, _)| *id).collect();
            self.compare(repo, promises, &missing, facts);
            if let Some(found) = &promises.whole {
                self.compare_refs(repo, found, &missing, facts);
            }
        }
        if promises.is_page {
            self.check_step(repo, facts);
        }
    }

    fn compare_refs(
        &mut self,
        repo: &RepoId,
        (applied, found): &Found,
        missing: &BTreeSet<ObjectId>,
        facts: &dyn Facts,
    ) {
        if self.is_settling(repo) {
            // Its refs may be moving.
            let waiting = self.check_settled.entry(repo.identifier.clone());
            waiting.or_default().insert(repo.clone());
            return self.look_for_tips(repo);
        }
        if self.registry.applied(repo) != *applied {
            // Once this check has ended.
            return self.retry_after(Duration::ZERO, Again::Check(repo.clone()));
        }
        self.checked.insert(repo.clone());
        self.plan_prune(repo);
        self.mend_refs(repo, found, missing, facts);
        self.objects_came(repo, facts);
    }

    /// Whether each event has its objects here; tips follow, in one change each way.
    fn compare(
        &mut self,
        repo: &RepoId,
        promises: &Promises,
        missing: &BTreeSet<ObjectId>,
        facts: &dyn Facts,
    ) {
        let (mut gone, mut found) = (Vec::new(), Vec::new());
        let mut reads = MAX_READ;
        for event in &promises.events {
            // Its author may have lost the word here.
            if !self.served_from(event, facts).contains(repo) {
                self.lost.forget_in(&event.id, repo);
                continue;
            }
            let has_tip = self.tips.is_at(&event.id, repo);
            let lacking = event.objects.iter().filter(|id| missing.contains(id));
            let lacking: Arc<[ObjectId]> = lacking.copied().collect();
            if !lacking.is_empty() {
                gone.extend(has_tip.then_some(event.id));
                self.on_missing(repo, event, lacking, &mut reads, facts);
            } else {
                found.extend((!has_tip).then_some(event.id));
                self.on_found(repo, event);
            }
        }
        if !gone.is_empty() {
            self.note_repair(repo, Repair::TipRemoved);
            self.remove_tips(repo, gone);
        }
        self.set_tips_again(repo, found, facts);
        if reads == 0 {
            // There may be more, whose servers are read next time.
            self.retry_later(Again::Check(repo.clone()));
        }
    }

    /// What is looked for because an event lacks it here. The servers that a pull request names are
    /// in the event itself; of many, some are read each time that somebody looks.
    fn wanted(
        &self,
        repo: &RepoId,
        event: &Promise,
        lacking: Arc<[ObjectId]>,
        reads: &mut usize,
        facts: &dyn Facts,
    ) -> Wanted {
        let known = self.lost.get(repo, &event.id);
        let known = known.or_else(|| self.sought.get(repo, &event.id));
        let mut wanted = Wanted::new(lacking, event.author, event.backing());
        wanted.servers = known.and_then(|known| known.servers.clone());
        if wanted.servers.is_none() && event.backing() == Backing::State {
            wanted.servers = Some(Arc::default());
        }
        if wanted.servers.is_none() && *reads > 0 && !self.sought.is_full() {
            *reads -= 1;
            let event = facts.event(&event.id);
            let servers = event.map(|event| PullRequest::clones(&event, &self.policy.service));
            wanted.servers = servers.map(Arc::from);
        }
        wanted
    }

    fn on_missing(
        &mut self,
        repo: &RepoId,
        event: &Promise,
        lacking: Arc<[ObjectId]>,
        reads: &mut usize,
        facts: &dyn Facts,
    ) {
        let id = event.id;
        if facts.kind_of(&id).is_none() {
            self.hidden.remove(&id);
            return self.lost.forget(&id);
        }
        let places = self.served_from(event, facts);
        let has_tip = |place: &RepoId| self.tips.is_at(&id, place);
        let elsewhere = places.iter().any(|place| place != repo && has_tip(place));
        let wanted = self.wanted(repo, event, lacking, reads, facts);
        if elsewhere {
            return self.seek_tip(repo, id, wanted);
        }
        let is_news = self.lost.add(id, repo, wanted);
        let (missing, others): (Vec<RepoId>, Vec<RepoId>) = places
            .into_iter()
            .partition(|place| self.lost.is_missing_in(&id, place));
        let nowhere = others.is_empty() && !missing.is_empty();
        let hides = nowhere && self.hidden.insert(id);
        // The last place that had it, or where it was looked for, may be gone.
        let sought = missing.iter().any(|place| self.sought.was_sought(place));
        if nowhere && (is_news || hides || !sought) {
            self.seek(repo);
        }
        if hides {
            self.note_repair(repo, Repair::Hidden);
            self.commit(vec![Change::Hide(id)], Errand::Hidden(id));
        }
        // They may have lost it, too, since they were looked at.
        for other in others.into_iter().filter(|_| is_news) {
            if !self.will_be_checked(&other) {
                self.retry_later(Again::Check(other));
            }
        }
    }

    fn on_found(&mut self, repo: &RepoId, event: &Promise) {
        let id = event.id;
        self.lost.forget(&id);
        if self.hidden.remove(&id) {
            self.note_repair(repo, Repair::Shown);
            self.commit(vec![Change::Show(id)], Errand::Shown(id));
        }
    }

    pub(super) fn on_hidden(&mut self, id: EventId, hidden: bool, facts: &dyn Facts) {
        if !hidden {
            self.hidden.remove(&id);
            self.check_places(self.promise(&id, facts), facts);
        }
    }

    pub(super) fn on_shown(&mut self, id: EventId, shown: bool, facts: &dyn Facts) {
        if facts.kind_of(&id).is_none() || shown && self.hidden.contains(&id) {
            return;
        }
        if !shown {
            self.hidden.insert(id);
            self.check_places(self.promise(&id, facts), facts);
        } else if let Some(event) = facts.event(&id) {
            // To those who asked while it was hidden, it is new.
            self.effects
                .push_back(Effect::Announce { event, seq: None });
        }
    }

    fn check_places(&mut self, event: Option<Promise>, facts: &dyn Facts) {
        let places = event.map(|event| self.served_from(&event, facts));
        for repo in places.unwrap_or_default() {
            self.retry_later(Again::Check(repo));
        }
    }

    /// Refs and HEAD are those of the applied state, as far as their objects are there.
    fn mend_refs(
        &mut self,
        repo: &RepoId,
        found: &Targets,
        missing: &BTreeSet<ObjectId>,
        facts: &dyn Facts,
    ) {
        let refs = &found.refs;
        let applied = self.registry.applied(repo);
        let state = self.applied_state(repo, facts);
        let targets = state.and_then(|state| state.refs.ok());
        let wanted = targets.as_ref().map_or(refs, |targets| &targets.refs);
        let lacking = wanted.values().any(|id| missing.contains(id));
        if lacking || wanted != refs {
            self.out_of_step.insert(repo.clone());
        }
        let awaited = self.are_expected(repo, refs, facts);
        if applied.is_none() && !awaited {
            // They are nobody's, and dropped as a whole.
            return;
        }
        // Also when its author maintains nothing any more: others would be nobody's refs.
        let expected = wanted == refs || awaited;
        let mut kept = if expected {
            refs.clone()
        } else {
            wanted.clone()
        };
        kept.retain(|_, id| !missing.contains(id));
        let head = targets.as_ref().and_then(|targets| targets.head.clone());
        // A state that waits moves HEAD itself.
        let head_moved = wanted == refs && head.is_some() && head != found.head;
        if kept == *refs && !head_moved {
            return;
        }
        let repair = match expected && !head_moved {
            true => Repair::RefsDropped,
            false => Repair::RefsSetBack,
        };
        let targets = Arc::new(Targets { refs: kept, head });
        self.set_refs(repo, targets, repair);
    }

    pub(super) fn set_refs(&mut self, repo: &RepoId, targets: Arc<Targets>, repair: Repair) {
        self.note_repair(repo, repair);
        let errand = Errand::Mended(repo.clone());
        self.ask_git(repo, GitTask::Apply(targets), errand);
    }

    /// A state that waits, or the one in the store that is not applied yet, says so.
    pub(super) fn are_expected(&self, repo: &RepoId, refs: &Refs, facts: &dyn Facts) -> bool {
        let states = self.expected_states(repo, facts);
        let is_it = |state: &State| state.refs.as_ref().is_ok_and(|to| to.refs == *refs);
        states.iter().any(is_it)
    }

    /// Hosted repositories each of which is enough to serve this event.
    pub(super) fn served_from(&self, event: &Promise, facts: &dyn Facts) -> Vec<RepoId> {
        let mut repos = match &event.about {
            About::PullRequest(says) => self.named_by(says.clone(), facts),
            About::State(identifier) => self.registry.maintained_by(&event.author, identifier),
        };
        repos.retain(|repo| self.registry.is_hosted(repo));
        repos
    }

    /// The same, for an event that is at hand.
    pub(super) fn served_from_of(&self, event: &Event, facts: &dyn Facts) -> Vec<RepoId> {
        let promise = Promise::of(event);
        promise.map_or_else(Vec::new, |promise| self.served_from(&promise, facts))
    }

    /// Who may sign for which hosted repository, as far as the announcement of this one has a
    /// word in it.
    pub(super) fn reach(&self, repo: &RepoId) -> Reach {
        let mut repos = self.registry.maintained_by(&repo.owner, &repo.identifier);
        repos.retain(|repo| self.registry.is_hosted(repo));
        let with_members = repos.into_iter().map(|repo| {
            let members = self.registry.maintainers(&repo);
            (repo, members)
        });
        with_members.collect()
    }

    /// What was served from a repository that is not one of its places any more may have no
    /// other that has its objects.
    pub(super) fn check_reach(&mut self, repo: &RepoId, before: &Reach, facts: &dyn Facts) {
        let after = self.reach(repo);
        if after == *before {
            return;
        }
        let repos = before.keys().chain(after.keys());
        let changed = repos.filter(|repo| before.get(*repo) != after.get(*repo));
        let mut places: BTreeSet<RepoId> = changed.cloned().collect();
        for author in changed_members(before, &after, &places) {
            places.extend(self.registry.maintained_by(&author, &repo.identifier));
        }
        for gone in before.keys() {
            if !self.registry.is_hosted(gone) {
                self.check_gone(gone.clone(), RootsCursor::START, facts);
            }
        }
        // Each at most once in a while, however often somebody changes his mind.
        for place in places {
            self.retry_later(Again::Check(place));
        }
    }

    fn named_by(&self, pull_request: PullRequest, facts: &dyn Facts) -> Vec<RepoId> {
        let root = pull_request.root;
        let root = root.and_then(|id| self.known(facts).pull_request(&id));
        let mut repos = pull_request.repos;
        repos.extend(root.into_iter().flat_map(|root| root.repos));
        repos
    }

    pub(super) fn note_repair(&mut self, repo: &RepoId, what: Repair) {
        let repo = repo.clone();
        self.effects.push_back(Effect::Repaired { repo, what });
    }
}

/// Whoever may sign for one of these and could not before, or the other way round; the first few.
fn changed_members(before: &Reach, after: &Reach, repos: &BTreeSet<RepoId>) -> BTreeSet<Pubkey> {
    let members = |reach: &Reach, repo: &RepoId| -> BTreeSet<Pubkey> {
        let members = reach.get(repo).into_iter();
        members
            .flat_map(|members| members.iter().copied())
            .collect()
    };
    let changed = repos
        .iter()
        .map(|repo| &members(before, repo) ^ &members(after, repo));
    let changed: BTreeSet<Pubkey> = changed.flatten().collect();
    changed.into_iter().take(MAX_ASKED).collect()
}

/// What an event that is at hand needs here.
pub(super) fn wanted_by(event: &Event, us: &Service) -> Option<Wanted> {
    let promise = Promise::of(event)?;
    let backing = promise.backing();
    let mut wanted = Wanted::new(promise.objects.into(), promise.author, backing);
    wanted.servers = Some(PullRequest::clones(event, us).into());
    Some(wanted)
}
