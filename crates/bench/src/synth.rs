//! Synthetic NIP-34 events of the sizes and shares seen on a live network: some 2,500
//! repositories of 743 owners, mostly issues, patches, comments and status events.

use fastrand::Rng;
use grasp_core::{Event, Pubkey};
use testkit::Author;

pub const REPOS: usize = 2_500;
const OWNERS: u64 = 743;
const SIGNERS: u64 = 64;
const START: u64 = 1_700_000_000;

pub struct Synth {
    rng: Rng,
    owners: Vec<Pubkey>,
    signers: Vec<Author>,
    repos: Vec<String>,
    /// One issue in twenty draws most of the comments.
    busy: Vec<String>,
    roots: Vec<String>,
    clock: u64,
}

struct Draft {
    kind: u16,
    tags: Vec<Vec<String>>,
    content: String,
}

impl Synth {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let owners: Vec<Pubkey> = (0..OWNERS)
            .map(|n| Author::new(10_000 + n).pubkey())
            .collect();
        let repo = |n| format!("30617:{}:repository-{n}", owners[rng.usize(..owners.len())]);
        let repos = (0..REPOS).map(repo).collect();
        Self {
            signers: (0..SIGNERS).map(|n| Author::new(20_000 + n)).collect(),
            busy: Vec::new(),
            roots: Vec::new(),
            clock: START,
            owners,
            repos,
            rng,
        }
    }

    pub fn repos(&self) -> &[String] {
        &self.repos
    }

    pub fn busy_roots(&self) -> &[String] {
        &self.busy
    }

    /// For stores that are filled directly: everything but the signature is real.
    pub fn unsigned(&mut self) -> Event {
        let draft = self.draft();
        let author = self.owners[self.rng.usize(..self.owners.len())];
        let event = testkit::author::unsigned_tags(
            author,
            draft.kind,
            self.clock,
            draft.tags,
            &draft.content,
        );
        self.remember(&event);
        event
    }

    pub fn signed(&mut self) -> Event {
        let draft = self.draft();
        let author = self.rng.usize(..self.signers.len());
        let event =
            self.signers[author].event_tags(draft.kind, self.clock, draft.tags, &draft.content);
        self.remember(&event);
        event
    }

    fn remember(&mut self, event: &Event) {
        if event.kind.0 != 1111 && event.kind.0 != 1630 {
            self.roots.push(event.id.to_string());
            if self.roots.len().is_multiple_of(20) {
                self.busy.push(event.id.to_string());
            }
        }
    }

    fn draft(&mut self) -> Draft {
        self.clock += self.rng.u64(0..=3);
        let repo = self.popular_repo();
        let owner = repo.split(':').nth(1).unwrap_or_default().to_owned();
        let tag = |parts: &[&str]| {
            parts
                .iter()
                .map(|part| (*part).to_owned())
                .collect::<Vec<_>>()
        };
        let content = self.text();
        let kind = match self.rng.u8(0..100) {
            0..25 => 1621,
            25..50 => 1617,
            50..60 => 1630,
            _ => 1111,
        };
        let root = self.commented_root();
        let mut tags = vec![tag(&["p", &owner])];
        match (kind, root) {
            (1111, Some(root)) => {
                tags.push(tag(&["E", &root, "", &owner]));
                tags.push(tag(&["K", "1621"]));
                tags.push(tag(&["P", &owner]));
                tags.push(tag(&["e", &root, "", &owner]));
                tags.push(tag(&["k", "1621"]));
            }
            (1630, Some(root)) => {
                tags.push(tag(&["e", &root, "", "root"]));
                tags.push(tag(&["a", &repo]));
            }
            _ => {
                tags.push(tag(&["a", &repo]));
                tags.push(tag(&["subject", "something is not as it should be"]));
                tags.push(tag(&["t", "bug"]));
                tags.push(tag(&["r", &format!("{:040x}", self.rng.u128(..))]));
            }
        }
        Draft {
            kind,
            tags,
            content,
        }
    }

    fn commented_root(&mut self) -> Option<String> {
        let busy = self.rng.u8(0..10) < 7 && !self.busy.is_empty();
        let (list, recent) = if busy {
            (&self.busy, 50)
        } else {
            (&self.roots, 500)
        };
        let last = list.len().checked_sub(1)?;
        Some(list[last - self.rng.usize(..list.len().min(recent))].clone())
    }

    /// A tenth of the repositories sees most of the traffic.
    fn popular_repo(&mut self) -> String {
        let range = if self.rng.u8(0..10) < 7 {
            REPOS / 10
        } else {
            REPOS
        };
        self.repos[self.rng.usize(..range)].clone()
    }

    pub fn text(&mut self) -> String {
        const WORDS: [&str; 8] = [
            "the",
            "branch",
            "does",
            "not",
            "build",
            "on",
            "my",
            "machine\n",
        ];
        let mut text = String::new();
        let length = self.rng.usize(200..2_000);
        while text.len() < length {
            text.push_str(WORDS[self.rng.usize(..WORDS.len())]);
            text.push(' ');
        }
        text
    }
}
