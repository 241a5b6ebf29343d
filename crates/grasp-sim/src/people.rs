//! People with repositories: they announce, invite, sign states, push more or less what they
//! signed, send pull requests, talk and delete. Some of it is mischief.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use grasp_core::git::{ObjectId, RefName, Refs};
use grasp_core::nip34::State;
use grasp_core::push::Command;
use grasp_core::{Event, Kind, Pubkey, RepoId};

use crate::climate::Climate;
use crate::crowd::Crowd;
use crate::forge;
use crate::mirrors::Mirrors;

const IDENTIFIERS: [&str; 2] = ["tool", "site"];
const NAMES: [&str; 5] = [
    "refs/heads/main",
    "refs/heads/dev",
    "refs/heads/feature/x",
    "refs/tags/v1",
    "refs/tags/v2",
];

/// Something that a person does, at its time.
pub(crate) enum Deed {
    Publish(Arc<Event>),
    /// Post it at other relays only.
    Spread(Arc<Event>),
    /// Push what a state says, as far as the person gets it right.
    Push {
        repo: RepoId,
        state: Arc<Event>,
        how: How,
    },
    PushTip {
        repo: RepoId,
        event: grasp_core::EventId,
        tip: ObjectId,
    },
    /// Bring objects to another git server.
    Upload {
        host: usize,
        path: String,
        objects: Vec<ObjectId>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    Complete,
    Partial,
    Wrong,
    NoOp,
}

pub(crate) struct People {
    keys: Vec<Pubkey>,
    mischief: u32,
    /// Everything they have signed, sent or not.
    signed: Vec<Arc<Event>>,
    commits: u32,
    pub(crate) crowd: Crowd,
    pub(crate) mirrors: Mirrors,
}

impl People {
    pub(crate) fn new(climate: &Climate, crowd: Crowd, mirrors: Mirrors) -> Self {
        Self {
            crowd,
            mirrors,
            keys: (0..climate.people).map(|n| forge::key(100 + n)).collect(),
            mischief: climate.mischief,
            signed: Vec::new(),
            commits: 0,
        }
    }

    pub(crate) fn keys(&self) -> Vec<Pubkey> {
        self.keys.clone()
    }

    pub(crate) fn has_signed(&mut self, event: &Arc<Event>) {
        self.signed.push(Arc::clone(event));
    }

    pub(crate) fn repos(&self) -> Vec<RepoId> {
        let owned = |owner: &Pubkey| IDENTIFIERS.map(|identifier| forge::repo(*owner, identifier));
        self.keys.iter().flat_map(owned).collect()
    }

    /// What a person does next, and after which pause.
    pub(crate) fn draw(&mut self, rng: &mut Rng, who: usize, now: u64) -> Vec<(Duration, Deed)> {
        let Some(me) = self.keys.get(who).copied() else {
            return Vec::new();
        };
        let identifier = *rng.choice(&IDENTIFIERS).unwrap_or(&"tool");
        match rng.u32(0..100) {
            0..15 => self.announce(rng, me, identifier, now),
            15..45 => self.sign_state(rng, me, identifier, now),
            45..60 => self.push_again(rng),
            60..72 => self.send_pull_request(rng, me, identifier, now),
            72..78 => self.update_pull_request(rng, me, now),
            78..92 => self.talk(rng, me, now),
            92..99 => self.delete(rng, me, now),
            _ => self.vanish(rng, me, now),
        }
    }

    fn is_mischief(&self, rng: &mut Rng) -> bool {
        rng.u32(0..100) < self.mischief
    }

    fn publish(&mut self, rng: &mut Rng, event: Arc<Event>) -> (Duration, Deed) {
        self.has_signed(&event);
        let late = if rng.u8(0..4) == 0 { 60_000 } else { 500 };
        (pause(rng, late), Deed::Publish(event))
    }

    fn announce(&mut self, rng: &mut Rng, me: Pubkey, d: &str, now: u64) -> Vec<(Duration, Deed)> {
        let others: Vec<Pubkey> = self.keys.iter().copied().filter(|key| *key != me).collect();
        let listed: Vec<Pubkey> = others.into_iter().filter(|_| rng.bool()).collect();
        let here = rng.u8(0..6) != 0;
        let at = self.date(rng, now);
        let repo = forge::repo(me, d);
        let relays = self.crowd.list(&repo);
        let event = forge::announcement_at(&repo, at, here, &listed, relays);
        let event = forge::with_clones(&event, &self.mirrors.list(&repo));
        vec![self.publish(rng, event)]
    }

    /// Mostly now; sometimes a little in the past, so that things overtake each other.
    fn date(&self, rng: &mut Rng, now: u64) -> u64 {
        if self.is_mischief(rng) {
            now.saturating_sub(rng.u64(0..300))
        } else {
            now + rng.u64(0..3)
        }
    }

    fn sign_state(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        d: &str,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let refs = self.draw_refs(rng);
        let refs: Vec<(&str, &str)> = refs.iter().map(|(n, v)| (*n, v.as_str())).collect();
        let event = forge::state(me, d, self.date(rng, now), &refs);
        let mut deeds = vec![self.publish(rng, Arc::clone(&event))];
        let repos = self.repos();
        let mut repos: Vec<RepoId> = repos
            .into_iter()
            .filter(|repo| repo.identifier.as_str() == d && (repo.owner == me || rng.bool()))
            .collect();
        repos.truncate(3);
        for repo in repos {
            let how = self.draw_how(rng);
            let state = Arc::clone(&event);
            deeds.push((pause(rng, 30_000), Deed::Push { repo, state, how }));
        }
        let (instead, brought) = self.bring_state(&event);
        deeds.retain(|(_, deed)| !instead || !matches!(deed, Deed::Push { .. }));
        deeds.extend(brought);
        deeds
    }

    fn draw_how(&self, rng: &mut Rng) -> How {
        if !self.is_mischief(rng) {
            return How::Complete;
        }
        *rng.choice(&[How::Partial, How::Wrong, How::NoOp])
            .unwrap_or(&How::NoOp)
    }

    /// Names and values as they stand in a state.
    fn draw_refs(&mut self, rng: &mut Rng) -> Vec<(&'static str, String)> {
        let mut refs = Vec::new();
        if self.is_mischief(rng) && rng.u8(0..3) == 0 {
            return refs;
        }
        for name in NAMES {
            if rng.bool() || name.ends_with("main") {
                refs.push((name, self.draw_object(rng, name).to_string()));
            }
        }
        refs.push(("HEAD", "ref: refs/heads/main".to_owned()));
        if self.is_mischief(rng) {
            let bad = [
                ("refs/heads/../x", forge::commit(1).to_string()),
                ("refs/heads/short", "1234".to_owned()),
                ("refs/heads/main/below", forge::commit(1).to_string()),
                ("refs/heads/tree", forge::tree(1).to_string()),
                ("refs/notes/x", forge::commit(1).to_string()),
            ];
            refs.extend(rng.choice(bad));
        }
        refs
    }

    /// A new object, or one that may be here already.
    fn draw_object(&mut self, rng: &mut Rng, name: &str) -> ObjectId {
        if rng.bool() {
            self.commits += 1;
        }
        let n = self.commits.saturating_sub(rng.u32(0..4));
        if name.ends_with("v2") {
            forge::tag_object(n)
        } else {
            forge::commit(n)
        }
    }

    pub(crate) fn new_commit(&mut self) -> ObjectId {
        self.commits += 1;
        forge::commit(self.commits)
    }

    fn push_again(&mut self, rng: &mut Rng) -> Vec<(Duration, Deed)> {
        let Some(state) = self.pick(rng, |event| event.kind == Kind::STATE) else {
            return Vec::new();
        };
        let Ok(read) = State::read(&state) else {
            return Vec::new();
        };
        let repos = self.repos().into_iter();
        let repos = repos.filter(|repo| repo.identifier == read.identifier);
        let Some(repo) = rng.choice(repos.collect::<Vec<_>>()) else {
            return Vec::new();
        };
        let how = self.draw_how(rng);
        vec![(pause(rng, 5_000), Deed::Push { repo, state, how })]
    }

    fn send_pull_request(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        d: &str,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let repos = self.repos().into_iter();
        let mut repos: Vec<RepoId> = repos
            .filter(|repo| repo.identifier.as_str() == d && rng.bool())
            .collect();
        repos.truncate(2);
        let tip = self.draw_object(rng, "tip");
        let said = if self.is_mischief(rng) {
            "--upload-pack=x".to_owned()
        } else {
            tip.to_string()
        };
        let event = forge::pull_request(me, now + rng.u64(0..3), &repos, &said);
        self.with_tip(rng, event, tip, repos)
    }

    fn update_pull_request(
        &mut self,
        rng: &mut Rng,
        me: Pubkey,
        now: u64,
    ) -> Vec<(Duration, Deed)> {
        let Some(root) = self.pick(rng, |event| event.kind == Kind(1618)) else {
            return Vec::new();
        };
        let tip = self.draw_object(rng, "tip");
        let event = forge::update(me, now + rng.u64(0..3), &root.id, &tip.to_string());
        let repos = self.repos();
        let repos = rng.choice(repos).into_iter().collect();
        self.with_tip(rng, event, tip, repos)
    }

    /// The event, and the commit before or after it, or another commit, or none.
    fn with_tip(
        &mut self,
        rng: &mut Rng,
        event: Arc<Event>,
        tip: ObjectId,
        repos: Vec<RepoId>,
    ) -> Vec<(Duration, Deed)> {
        let (event, instead, brought) = self.with_fork(event, tip);
        let id = event.id;
        let mut deeds = vec![self.publish(rng, event)];
        for repo in repos {
            let wrong = self.is_mischief(rng);
            let tip = if wrong { forge::commit(9_999) } else { tip };
            if rng.u8(0..5) != 0 {
                let event = id;
                deeds.push((pause(rng, 60_000), Deed::PushTip { repo, event, tip }));
            }
        }
        deeds.retain(|(_, deed)| !instead || !matches!(deed, Deed::PushTip { .. }));
        deeds.extend(brought);
        deeds
    }

    fn talk(&mut self, rng: &mut Rng, me: Pubkey, now: u64) -> Vec<(Duration, Deed)> {
        let kind = *rng.choice(&[1111, 1621, 1630, 1617]).unwrap_or(&1111);
        let at = now + rng.u64(0..3);
        let repos = self.repos();
        let event = match (rng.bool(), self.pick(rng, |_| true)) {
            (true, Some(other)) => {
                let name = *rng.choice(&["e", "E", "q"]).unwrap_or(&"e");
                forge::about(me, kind, at, name, &other.id.to_string())
            }
            _ => match rng.choice(repos) {
                Some(repo) => {
                    let address = forge::address(Kind::ANNOUNCEMENT, &repo);
                    forge::about(me, kind, at, "a", &address)
                }
                None => return Vec::new(),
            },
        };
        vec![self.publish(rng, event)]
    }

    fn delete(&mut self, rng: &mut Rng, me: Pubkey, now: u64) -> Vec<(Duration, Deed)> {
        let mischief = self.is_mischief(rng);
        let Some(victim) = self.pick(rng, |event| mischief || event.pubkey == me) else {
            return Vec::new();
        };
        let at = self.date(rng, now);
        let event = match victim.address() {
            Some(address) if rng.bool() => {
                let address = format!("{}:{}:{}", address.kind, address.pubkey, address.d);
                forge::deletion(me, at, "a", &address)
            }
            _ => forge::deletion(me, at, "e", &victim.id.to_string()),
        };
        vec![self.publish(rng, event)]
    }

    fn vanish(&mut self, rng: &mut Rng, me: Pubkey, now: u64) -> Vec<(Duration, Deed)> {
        if rng.u8(0..3) != 0 {
            return Vec::new();
        }
        let at = now.saturating_sub(rng.u64(0..100));
        let event = forge::about(me, 62, at, "relay", "ALL_RELAYS");
        vec![self.publish(rng, event)]
    }

    /// One of the last things that were signed.
    pub(crate) fn pick(&self, rng: &mut Rng, fits: impl Fn(&Event) -> bool) -> Option<Arc<Event>> {
        let recent = self.signed.iter().rev().filter(|event| fits(event));
        let recent: Vec<_> = recent.take(12).collect();
        rng.choice(recent).cloned()
    }
}

/// The commands of a push that shall make `present` what the state says.
pub(crate) fn commands(rng: &mut Rng, present: &Refs, state: &Event, how: How) -> Vec<Command> {
    let targets = State::read(state).ok().and_then(|state| state.refs.ok());
    let wanted = targets
        .map(|targets| targets.refs.clone())
        .unwrap_or_default();
    let command = |name: &RefName, new: Option<ObjectId>| Command {
        name: name.clone(),
        new,
    };
    if how == How::NoOp {
        return present
            .iter()
            .map(|(name, id)| command(name, Some(*id)))
            .collect();
    }
    let set = wanted
        .iter()
        .filter(|(name, id)| present.get(*name) != Some(*id))
        .map(|(name, id)| command(name, Some(*id)));
    let gone = present.keys().filter(|name| !wanted.contains_key(*name));
    let mut commands: Vec<Command> = set.chain(gone.map(|name| command(name, None))).collect();
    match how {
        How::Partial => commands.retain(|_| rng.bool()),
        How::Wrong => {
            if let Some(first) = commands.first_mut() {
                first.new = Some(forge::commit(8_888));
            }
        }
        How::Complete | How::NoOp => {}
    }
    commands
}

fn pause(rng: &mut Rng, most_millis: u64) -> Duration {
    Duration::from_millis(rng.u64(0..=most_millis))
}
