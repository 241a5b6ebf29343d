//! Where sync meets the rest: it hears of repositories and roots, and what it asks for becomes
//! effects.

use super::{Core, Effect};
use crate::admit;
use crate::event::Event;
use crate::facts::{Facts, Seq};
use crate::nip34::{self, PullRequest, RepoId, Target, targets};
use crate::registry::Standing;
use crate::sync::io::FromRelay;
use crate::sync::{News, Stage, SyncEffect};
use crate::ticket::{ConnNo, RelayNo};

impl Core {
    pub(super) fn on_remote(
        &mut self,
        relay: RelayNo,
        conn: ConnNo,
        word: FromRelay,
        _facts: &dyn Facts,
    ) {
        self.sync.handle(relay, conn, word, self.now);
    }

    /// After every turn: sync hears what has changed, and its wishes become effects.
    pub(super) fn keep_in_step(&mut self) {
        for repo in self.registry.take_changed() {
            let news = self.standing_of(repo);
            self.sync.news(news, self.now.mono);
        }
        while let Some(effect) = self.sync.poll_effect() {
            self.effects.push_back(match effect {
                SyncEffect::Ask { relay, asked } => Effect::Remote {
                    relay,
                    conn: asked.conn,
                    ask: asked.what,
                },
                SyncEffect::Note(note) => Effect::Noted(note),
            });
        }
    }

    fn standing_of(&self, repo: RepoId) -> News {
        let stage = match self.registry.hosting(&repo) {
            Some(Standing::Served) => Stage::Served,
            Some(Standing::Held) => Stage::Announced,
            Some(Standing::Remembered) | None => return News::Gone(repo),
        };
        let announcement = self.registry.announcement(&repo);
        News::Announced {
            relays: announcement.map_or_else(Vec::new, |found| found.relays.clone()),
            repo,
            stage,
        }
    }

    /// An issue, a patch or a pull request is stored: what is said about it is wanted.
    pub(super) fn watch_root(&mut self, event: &Event, facts: &dyn Facts) {
        if let Some(news) = self.root(event, facts) {
            self.sync.news(news, self.now.mono);
        }
    }

    pub(super) fn restore_repository(&mut self, repo: RepoId, seq: Seq) {
        let news = self.standing_of(repo);
        self.sync.restore(news, seq);
    }

    pub(super) fn start_sync(&mut self) {
        self.keep_in_step();
        self.sync.start(&self.policy.bootstrap, self.now);
    }

    pub(super) fn restore_root(&mut self, event: &Event, seq: Seq, facts: &dyn Facts) {
        if let Some(news) = self.root(event, facts) {
            self.sync.restore(news, seq);
        }
    }

    fn root(&self, event: &Event, facts: &dyn Facts) -> Option<News> {
        let repos = match event.kind {
            nip34::PULL_REQUEST | nip34::PULL_REQUEST_UPDATE => {
                self.places(PullRequest::read(event)?, facts)
            }
            nip34::PATCH | nip34::ISSUE => {
                let named = targets(event).filter_map(|target| match target {
                    Target::Address(address) => RepoId::of_address(&address),
                    Target::Event(_) => None,
                });
                admit::hosted_here(named, &self.registry)
            }
            _ => return None,
        };
        Some(News::Root {
            id: event.id,
            repos,
            at: event.created_at,
        })
    }
}
