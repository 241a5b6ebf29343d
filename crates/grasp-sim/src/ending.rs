//! What must be true when the calm is over, worked out from disk and git alone, with the registry
//! for who maintains what.

use std::collections::BTreeSet;
use std::sync::Arc;

use grasp_core::git::{ObjectId, ObjectKind};
use grasp_core::nip34::{PullRequest, State, targets};
use grasp_core::registry::Standing;
use grasp_core::{Event, Facts as _, Kind, RepoId};

use crate::checkers::View;
use crate::disk::Row;
use crate::forge::kind_of;
use crate::git::Repo;

/// Refs are those of the applied state, and nothing better waits.
pub(crate) fn compare(view: &View<'_>) -> Result<(), String> {
    let registry = view.core.registry();
    let mut hosted: Vec<(&RepoId, Standing)> = registry.hosted().collect();
    hosted.sort();
    for (repo, standing) in &hosted {
        if *standing >= Standing::Held {
            refs_follow(repo, view)?;
            nothing_newer_waits(repo, *standing, view)?;
        }
    }
    for row in view.disk.held.values() {
        waits_for_a_reason(row, view)?;
    }
    for event in view.disk.stored() {
        is_served_if_complete(event, view)?;
    }
    registry_agrees(view)?;
    tips_have_events(view)?;
    no_stray_repositories(view)
}

fn refs_follow(repo: &RepoId, view: &View<'_>) -> Result<(), String> {
    let Some(found) = view.git.get(repo) else {
        return Err(format!("{repo:?} is hosted and has no repository"));
    };
    let applied = view.disk.applied.get(repo);
    if view.core.registry().applied(repo) != applied.copied() {
        return Err(format!("{repo:?}: core and disk disagree on its state"));
    }
    let state = applied.and_then(|rank| view.states.get(&rank.id));
    let refs = state.and_then(|state| state.refs.as_ref().ok());
    let refs = refs.map(|targets| targets.refs.clone()).unwrap_or_default();
    // A retired repository that came back begins empty, and may wait for its objects.
    let may_not = |state: &State| {
        let registry = view.core.registry();
        !registry.is_maintainer(repo, &state.author) || !view.disk.is_stored(&state.rank.id)
    };
    let mut present = found.refs.iter();
    let lost = present.all(|(name, id)| refs.get(name) == Some(id) && found.objects.contains(id))
        && (found.refs.is_empty() && state.is_none_or(may_not)
            || !refs.values().all(|id| found.objects.contains(id)));
    // A kill came between refs and note, or some were lost, and the events were deleted before
    // all of it could be set again.
    let is_part_of = |state: &State| {
        let targets = state.refs.as_ref();
        state.identifier == repo.identifier
            && targets.is_ok_and(|targets| {
                let mut refs = found.refs.iter();
                refs.all(|(name, id)| targets.refs.get(name) == Some(id))
            })
    };
    let deleted = applied.is_some_and(|rank| !view.disk.is_stored(&rank.id))
        && view.states.values().any(is_part_of);
    if found.refs == refs || lost || deleted {
        return Ok(());
    }
    Err(format!("{repo:?} does not have the refs of its state"))
}

/// The objects of every repository that this author may speak for.
fn reach(author: &grasp_core::Pubkey, state: &State, view: &View<'_>) -> BTreeSet<ObjectId> {
    let registry = view.core.registry();
    let repos = registry.maintained_by(author, &state.identifier);
    let hosted = repos.iter().filter(|repo| registry.is_hosted(repo));
    let found = hosted.filter_map(|repo| view.git.get(repo));
    found
        .flat_map(|repo| repo.objects.iter().copied())
        .collect()
}

fn is_here(state: &State, view: &View<'_>) -> bool {
    has_all(&reach(&state.author, state, view), state)
}

fn has_all(objects: &BTreeSet<ObjectId>, state: &State) -> bool {
    state.refs.as_ref().is_ok_and(|targets| {
        targets.refs.iter().all(|(name, id)| {
            let fits = !name.is_branch() || kind_of(id) == ObjectKind::Commit;
            fits && objects.contains(id)
        })
    })
}

fn nothing_newer_waits(repo: &RepoId, standing: Standing, view: &View<'_>) -> Result<(), String> {
    let registry = view.core.registry();
    let applied = registry.applied(repo);
    let since = registry.refs_since(repo);
    let had_refs = |state: &State| since.is_some_and(|since| since < state.rank.created_at);
    let held = view.disk.held.values().map(|row| &row.event);
    let known = held.chain(view.disk.stored());
    let states = known.filter(|event| event.kind == Kind::STATE);
    for state in states.filter_map(|event| State::read(event).ok()) {
        let empties = state.refs.as_ref().is_ok_and(|to| to.refs.is_empty());
        let better = state.identifier == repo.identifier
            && Some(state.rank) > applied
            && registry.is_maintainer(repo, &state.author)
            && (!empties || standing == Standing::Served && had_refs(&state))
            && is_here(&state, view);
        if better {
            return Err(format!("{repo:?} should have state {}", state.rank.id));
        }
    }
    Ok(())
}

/// What is held could not be served.
fn waits_for_a_reason(row: &Row, view: &View<'_>) -> Result<(), String> {
    let (event, registry) = (&row.event, view.core.registry());
    let served = |repo: &RepoId| registry.hosting(repo) == Some(Standing::Served);
    let ready = match event.kind {
        Kind::STATE => State::read(event).is_ok_and(|state| {
            let repos = registry.maintained_by(&state.author, &state.identifier);
            repos.iter().any(|repo| {
                let found = view.git.get(repo);
                served(repo)
                    && registry.applied(repo) >= Some(state.rank)
                    && found.is_some_and(|found| has_all(&found.objects, &state))
            })
        }),
        Kind(1618 | 1619) => PullRequest::read(event).is_some_and(|read| {
            let has = |repo: &&RepoId| {
                let found = view.git.get(repo);
                found.is_some_and(|found| read.tip.is_some_and(|tip| found.objects.contains(&tip)))
            };
            let is_commit = read
                .tip
                .is_some_and(|tip| kind_of(&tip) == ObjectKind::Commit);
            is_commit && read.repos.iter().filter(has).any(served)
        }),
        Kind::ANNOUNCEMENT => {
            let repo = event.address().as_ref().and_then(RepoId::of_address);
            repo.is_some_and(|repo| served(&repo))
        }
        _ => targets(event).any(|target| match target {
            grasp_core::nip34::Target::Event(id) => view
                .disk
                .kind_of(&id)
                .is_some_and(|kind| !grasp_core::admit::is_free(kind)),
            grasp_core::nip34::Target::Address(address) => view.disk.newest(&address).is_some(),
        }),
    };
    let known = view.core.purgatory().get(&event.id).is_some();
    if !known {
        return Err(format!("{} has a row and nobody knows of it", event.id));
    }
    if ready && view.disk.foresee(event).is_none() {
        return Err(format!("{} could be served and is still held", event.id));
    }
    Ok(())
}

/// Hosted repositories each of which is enough to serve an event, and what it needs there.
pub(crate) fn places_of(event: &Event, view: &View<'_>) -> Option<(Vec<RepoId>, Vec<ObjectId>)> {
    let registry = view.core.registry();
    let (mut places, objects) = match event.kind {
        Kind::STATE => {
            let state = State::read(event).ok()?;
            let places = registry.maintained_by(&state.author, &state.identifier);
            (places, state.refs.ok()?.objects())
        }
        Kind(1618 | 1619) => {
            let read = PullRequest::read(event)?;
            let places = pull_request_places(&read, view);
            (places, read.tip.into_iter().collect())
        }
        _ => return None,
    };
    places.retain(|repo| registry.is_hosted(repo));
    Some((places, objects))
}

/// What is served has its objects in a repository that may serve it; what is hidden has not.
fn is_served_if_complete(event: &Arc<Event>, view: &View<'_>) -> Result<(), String> {
    let has = |repo: &RepoId, objects: &[ObjectId]| {
        let found = view.git.get(repo);
        found.is_some_and(|found| objects.iter().all(|id| found.objects.contains(id)))
    };
    let Some((places, objects)) = places_of(event, view) else {
        return Ok(());
    };
    let complete = places.is_empty() || places.iter().any(|repo| has(repo, &objects));
    let served = view.disk.is_served(&event.id);
    match (served, complete) {
        (true, false) => Err(format!("{} is served and its objects are lost", event.id)),
        (false, true) if !places.is_empty() => {
            Err(format!("{} is hidden and its objects are here", event.id))
        }
        _ => Ok(()),
    }
}

fn pull_request_places(read: &PullRequest, view: &View<'_>) -> Vec<RepoId> {
    let root = read.root.and_then(|id| view.disk.event(&id));
    let root = root.and_then(|root| PullRequest::read(&root));
    let named = read.repos.iter().cloned();
    named
        .chain(root.into_iter().flat_map(|root| root.repos))
        .collect()
}

/// What is stored is known, and what is known is stored or held.
fn registry_agrees(view: &View<'_>) -> Result<(), String> {
    let registry = view.core.registry();
    let announced = view.disk.stored();
    for event in announced.filter(|event| event.kind == Kind::ANNOUNCEMENT) {
        let repo = event.address().as_ref().and_then(RepoId::of_address);
        let known = repo.as_ref().and_then(|repo| registry.announcement(repo));
        if known.is_none_or(|known| known.rank < grasp_core::nip34::Rank::of(event)) {
            return Err(format!("{} is served and not known", event.id));
        }
    }
    for (repo, _) in registry.hosted() {
        let known = registry.announcement(repo).map(|known| known.rank.id);
        let here =
            known.is_some_and(|id| view.disk.is_stored(&id) || view.disk.held.contains_key(&id));
        if !here {
            return Err(format!("{repo:?} stands on an event that is nowhere"));
        }
    }
    Ok(())
}

fn tips_have_events(view: &View<'_>) -> Result<(), String> {
    let hosted = view.git.repos();
    let hosted = hosted.filter(|(repo, _)| view.core.registry().is_hosted(repo));
    for (repo, found) in hosted {
        for (id, tip) in &found.tips {
            let held = view.core.purgatory().get(id).map(|held| held.event.clone());
            let event = view.disk.event(id).or(held);
            let said = event.and_then(|event| PullRequest::read(&event)?.tip);
            if said != Some(*tip) {
                return Err(format!("{repo:?}: tip of {id} has no event"));
            }
        }
    }
    Ok(())
}

/// What a kill may leave behind, the next start takes away; unless there are objects in it, which
/// came before the announcement was written and are left to a person. Refs are never there.
fn no_stray_repositories(view: &View<'_>) -> Result<(), String> {
    for (repo, found) in view.git.repos() {
        let stray = !found.refs.is_empty() || view.restarted && *found == Repo::default();
        if !view.core.registry().is_hosted(repo) && stray {
            return Err(format!("{repo:?} is there and nobody hosts it"));
        }
    }
    Ok(())
}
