//! RelaySyncIndex: every relay that we know, and what is to be synced with it.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use rustc_hash::FxHashMap;

use super::items::Items;
use crate::id::Pubkey;
use crate::relay_url::RelayUrl;
use crate::ticket::RelayNo;

#[derive(Debug)]
pub struct Relay {
    pub url: RelayUrl,
    /// The same with or without encryption, if somebody names it so; tried when the first fails.
    pub other_url: Option<RelayUrl>,
    /// The operator named it: it is never left.
    pub bootstrap: bool,
    /// Repositories that name it.
    pub listed_by: RoaringBitmap,
    /// How many repositories of each owner name it.
    pub owners: FxHashMap<Pubkey, u32>,
    pub target: Items,
    /// Its history is being fetched.
    pub pending: Items,
    /// Its history is here.
    pub confirmed: Items,
    /// Its history was here once. A doubt is no loss: what we have, we have.
    pub read: Items,
    /// `target - pending - confirmed`, kept up with them: a new root costs one bit, not a
    /// comparison of everything.
    missing: Items,
}

#[derive(Debug, Default)]
pub struct RelaySyncIndex {
    by_key: FxHashMap<Box<str>, RelayNo>,
    relays: BTreeMap<RelayNo, Relay>,
    /// Numbers are never used again: events on their way still name them.
    next: u32,
}

impl RelaySyncIndex {
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    pub fn find(&self, url: &RelayUrl) -> Option<RelayNo> {
        self.by_key.get(url.key()).copied()
    }

    pub fn get(&self, relay: RelayNo) -> Option<&Relay> {
        self.relays.get(&relay)
    }

    pub fn get_mut(&mut self, relay: RelayNo) -> Option<&mut Relay> {
        self.relays.get_mut(&relay)
    }

    pub fn iter(&self) -> impl Iterator<Item = (RelayNo, &Relay)> {
        self.relays.iter().map(|(no, relay)| (*no, relay))
    }

    /// The relay's number, a new one if it is new. Where two spellings differ in encryption, the
    /// encrypted one is dialled first.
    pub fn enter(&mut self, url: &RelayUrl) -> RelayNo {
        if let Some(no) = self.find(url) {
            if let Some(relay) = self.get_mut(no).filter(|relay| relay.url != *url) {
                relay.other_url = Some(url.clone());
                // Nothing was said to it yet: encrypted first.
                if url.is_tls() && !relay.bootstrap && relay.confirmed.is_empty() {
                    relay.try_other_url();
                }
            }
            return no;
        }
        let relay = Relay {
            url: url.clone(),
            other_url: None,
            bootstrap: false,
            listed_by: RoaringBitmap::new(),
            owners: FxHashMap::default(),
            target: Items::announcements(),
            pending: Items::default(),
            confirmed: Items::default(),
            read: Items::default(),
            missing: Items::announcements(),
        };
        let no = RelayNo(self.next);
        self.next += 1;
        self.relays.insert(no, relay);
        self.by_key.insert(url.key().into(), no);
        no
    }

    pub fn leave(&mut self, no: RelayNo) -> Option<Relay> {
        let relay = self.relays.remove(&no)?;
        self.by_key.remove(relay.url.key());
        Some(relay)
    }
}

impl Relay {
    /// No repository names it, and the operator neither.
    pub fn is_empty(&self) -> bool {
        self.listed_by.is_empty() && !self.bootstrap
    }

    pub fn try_other_url(&mut self) {
        if let Some(other) = self.other_url.take() {
            self.other_url = Some(std::mem::replace(&mut self.url, other));
        }
    }

    /// The only owner whose repositories name it.
    pub fn sole_owner(&self) -> Option<Pubkey> {
        let owner = self.owners.keys().next().copied();
        owner.filter(|_| self.owners.len() == 1 && !self.bootstrap)
    }

    pub fn missing(&self) -> &Items {
        &self.missing
    }

    pub fn add_target(&mut self, items: &Items) {
        let mut new = items.without(&self.target);
        self.target.add(items);
        new.remove(&self.pending);
        new.remove(&self.confirmed);
        self.missing.add(&new);
    }

    pub fn drop_target(&mut self, items: &Items) {
        for set in [
            &mut self.target,
            &mut self.pending,
            &mut self.confirmed,
            &mut self.read,
            &mut self.missing,
        ] {
            set.remove(items);
        }
    }

    /// The history of these is asked for. What is not wanted any more is left out.
    pub fn begin(&mut self, items: &Items) {
        let mut items = items.clone();
        items.keep(&self.target);
        self.missing.remove(&items);
        self.confirmed.remove(&items);
        self.pending.add(&items);
    }

    /// It came to nothing.
    pub fn give_back(&mut self, items: &Items) {
        let mut items = items.clone();
        items.keep(&self.pending);
        self.pending.remove(&items);
        self.missing.add(&items);
    }

    /// It is here.
    pub fn confirm(&mut self, items: &Items) {
        let mut items = items.clone();
        items.keep(&self.pending);
        self.pending.remove(&items);
        self.confirmed.add(&items);
        self.read.add(&items);
    }

    /// These are to be looked at again. Those of them that were confirmed.
    pub fn doubt(&mut self, items: &Items) -> Items {
        let mut items = items.clone();
        items.keep(&self.confirmed);
        self.confirmed.remove(&items);
        self.missing.add(&items);
        items
    }

    /// Their history was here when we stopped.
    pub fn restore(&mut self, items: &Items) {
        self.begin(items);
        self.confirm(items);
    }

    /// What the sums should be, made anew.
    pub fn audit(&self) -> Result<(), String> {
        let mut missing = self.target.without(&self.pending);
        missing.remove(&self.confirmed);
        let stray = [&self.pending, &self.confirmed, &self.read]
            .iter()
            .any(|set| !set.without(&self.target).is_empty())
            || !self.confirmed.without(&self.read).is_empty();
        if missing != self.missing || stray || self.pending.overlaps(&self.confirmed) {
            return Err(format!("the sets of {} do not add up", self.url));
        }
        Ok(())
    }
}
