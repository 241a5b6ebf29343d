//! What there is to sync, as sets of small numbers: a repository or a root event is one bit.

use roaring::RoaringBitmap;

/// The number of a repository. Used again once nothing names it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoIx(pub u32);

/// The number of an issue, a patch or a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootIx(pub u32);

/// Things to watch and to fetch at one relay: announcements and states, what names these
/// repositories, what names these roots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Items {
    pub announcements: bool,
    pub repos: RoaringBitmap,
    pub roots: RoaringBitmap,
}

impl Items {
    pub fn announcements() -> Self {
        Self {
            announcements: true,
            ..Self::default()
        }
    }

    pub fn is_empty(&self) -> bool {
        !self.announcements && self.repos.is_empty() && self.roots.is_empty()
    }

    pub fn len(&self) -> u64 {
        u64::from(self.announcements) + self.repos.len() + self.roots.len()
    }

    pub fn add(&mut self, other: &Items) {
        self.announcements |= other.announcements;
        add(&mut self.repos, &other.repos);
        add(&mut self.roots, &other.roots);
    }

    pub fn remove(&mut self, other: &Items) {
        self.announcements &= !other.announcements;
        remove(&mut self.repos, &other.repos);
        remove(&mut self.roots, &other.roots);
    }

    pub fn keep(&mut self, other: &Items) {
        self.announcements &= other.announcements;
        self.repos &= &other.repos;
        self.roots &= &other.roots;
    }

    /// How many are in both.
    pub fn shared(&self, other: &Items) -> u64 {
        u64::from(self.announcements && other.announcements)
            + self.repos.intersection_len(&other.repos)
            + self.roots.intersection_len(&other.roots)
    }

    #[must_use]
    pub fn without(&self, other: &Items) -> Items {
        let mut items = self.clone();
        items.remove(other);
        items
    }

    pub fn overlaps(&self, other: &Items) -> bool {
        self.announcements && other.announcements
            || !self.repos.is_disjoint(&other.repos)
            || !self.roots.is_disjoint(&other.roots)
    }

    /// Takes at most `most` out of it: announcements first, then repositories, then roots.
    pub fn take(&mut self, most: usize) -> Items {
        let mut taken = Items {
            announcements: self.announcements && most > 0,
            ..Items::default()
        };
        let left = most - usize::from(taken.announcements);
        taken.repos = self.repos.iter().take(left).collect();
        let left = left - usize::try_from(taken.repos.len()).unwrap_or(left);
        taken.roots = self.roots.iter().take(left).collect();
        self.remove(&taken);
        taken
    }
}

/// A few bits are set one by one: a union would copy everything.
const FEW: u64 = 32;

fn add(set: &mut RoaringBitmap, other: &RoaringBitmap) {
    if other.len() <= FEW {
        set.extend(other);
    } else {
        *set |= other;
    }
}

fn remove(set: &mut RoaringBitmap, other: &RoaringBitmap) {
    if other.len() <= FEW {
        for bit in other {
            set.remove(bit);
        }
    } else {
        *set -= other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_is_counted_as_if_the_rest_were_dropped() {
        let items = |announcements, repos: [u32; 2], roots: [u32; 2]| Items {
            announcements,
            repos: repos.into_iter().collect(),
            roots: roots.into_iter().collect(),
        };
        let one = items(true, [1, 2], [3, 70_000]);
        for other in [
            items(true, [2, 3], [4, 5]),
            items(false, [8, 9], [3, 70_000]),
            Items::default(),
        ] {
            let mut kept = one.clone();
            kept.keep(&other);
            assert_eq!(one.shared(&other), kept.len());
        }
    }
}
