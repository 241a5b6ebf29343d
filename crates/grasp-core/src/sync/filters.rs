//! What is asked of another relay, in the three layers of GRASP-02: announcements and states; what
//! names a repository of ours; what names an issue, a patch or a pull request of one.

use roaring::RoaringBitmap;

use super::index::RepoSyncIndex;
use super::items::{Items, RepoIx, RootIx};
use crate::clock::Timestamp;
use crate::event::Kind;
use crate::filter::Filter;

/// Bytes of values in one filter: relays refuse longer fields.
const MAX_VALUE_BYTES: usize = 32 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Announcements and states, whoever signed them.
    Announcements,
    /// Everything that names a repository.
    Repositories,
    /// Everything that names a root event.
    Roots,
}

impl Layer {
    /// Through which tags. The upper case comes first: comments name their root by it, so that it
    /// finds most, and the others then find little that is new.
    pub fn letters(self) -> &'static [u8] {
        match self {
            Layer::Announcements => &[],
            Layer::Repositories => b"Aaq",
            Layer::Roots => b"Eeq",
        }
    }
}

/// As much of one layer as fits one filter of each letter.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    pub layer: Layer,
    pub members: RoaringBitmap,
}

impl Chunk {
    pub fn is_of_repositories(&self) -> bool {
        self.layer == Layer::Repositories
    }

    /// Two halves; none when there is nothing to split.
    pub fn halves(&self) -> Option<[Chunk; 2]> {
        let half = self.members.len() / 2;
        let part = |members| Chunk {
            layer: self.layer,
            members,
        };
        (half > 0).then(|| {
            let some = self.members.iter().take(half as usize).collect();
            let rest = &self.members - &some;
            [part(some), part(rest)]
        })
    }

    pub fn items(&self) -> Items {
        let mut items = Items::default();
        match self.layer {
            Layer::Announcements => items.announcements = true,
            Layer::Repositories => items.repos = self.members.clone(),
            Layer::Roots => items.roots = self.members.clone(),
        }
        items
    }

    /// One filter for each letter of the layer.
    pub fn filters(&self, index: &RepoSyncIndex, since: Option<Timestamp>) -> Vec<Filter> {
        match self.layer {
            Layer::Announcements => vec![announcements(since)],
            layer => layer
                .letters()
                .iter()
                .map(|letter| self.filter(*letter, index, since))
                .collect(),
        }
    }

    /// The filter of one letter.
    pub fn filter(&self, letter: u8, index: &RepoSyncIndex, since: Option<Timestamp>) -> Filter {
        if self.layer == Layer::Announcements {
            return announcements(since);
        }
        let mut values: Vec<String> = self.values(index).collect();
        values.sort_unstable();
        Filter {
            tags: vec![(letter, values)],
            since,
            ..Filter::default()
        }
    }

    fn values<'a>(&'a self, index: &'a RepoSyncIndex) -> impl Iterator<Item = String> + 'a {
        let layer = self.layer;
        let value = move |member| value(layer, member, index);
        self.members.iter().filter_map(value)
    }
}

/// How much goes into one filter.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    pub values: usize,
    pub bytes: usize,
}

impl Cut {
    pub fn values(values: usize) -> Self {
        Self {
            values,
            bytes: MAX_VALUE_BYTES,
        }
    }
}

/// Cuts the items into chunks of at most so many values.
pub fn chunks(items: &Items, index: &RepoSyncIndex, most: Cut) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    if items.announcements {
        chunks.push(Chunk {
            layer: Layer::Announcements,
            members: RoaringBitmap::new(),
        });
    }
    let layers = [
        (Layer::Repositories, &items.repos),
        (Layer::Roots, &items.roots),
    ];
    for (layer, members) in layers {
        cut(layer, members, index, most, &mut chunks);
    }
    chunks
}

fn cut(
    layer: Layer,
    members: &RoaringBitmap,
    index: &RepoSyncIndex,
    most: Cut,
    chunks: &mut Vec<Chunk>,
) {
    let empty = || Chunk {
        layer,
        members: RoaringBitmap::new(),
    };
    let (mut chunk, mut bytes) = (empty(), 0);
    for member in members {
        let size = value(layer, member, index).map_or(0, |value| value.len() + 3);
        let full = chunk.members.len() as usize >= most.values
            || bytes + size > most.bytes.min(MAX_VALUE_BYTES);
        if full && !chunk.members.is_empty() {
            chunks.push(std::mem::replace(&mut chunk, empty()));
            bytes = 0;
        }
        chunk.members.insert(member);
        bytes += size;
    }
    if !chunk.members.is_empty() {
        chunks.push(chunk);
    }
}

fn value(layer: Layer, member: u32, index: &RepoSyncIndex) -> Option<String> {
    match layer {
        Layer::Announcements => None,
        Layer::Repositories => {
            let repo = &index.get(RepoIx(member))?.repo;
            let kind = Kind::ANNOUNCEMENT;
            Some(format!("{kind}:{}:{}", repo.owner, repo.identifier))
        }
        Layer::Roots => Some(index.root(RootIx(member))?.to_string()),
    }
}

fn announcements(since: Option<Timestamp>) -> Filter {
    Filter {
        kinds: Some(vec![Kind::ANNOUNCEMENT, Kind::STATE]),
        since,
        ..Filter::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{EventId, Pubkey};
    use crate::nip34::{Identifier, RepoId};

    fn index(repos: usize, roots: u32, name: &str) -> (RepoSyncIndex, Items) {
        let mut index = RepoSyncIndex::default();
        let mut items = Items::announcements();
        for n in 0..repos {
            let identifier = Identifier::parse(&format!("{name}{n}")).unwrap();
            let ix = index.enter(&RepoId::new(Pubkey([7; 32]), identifier));
            items.repos.insert(ix.0);
        }
        for n in 0..roots {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            items
                .roots
                .insert(index.enter_root(EventId(id), Timestamp(0)).0);
        }
        (index, items)
    }

    /// E6: the three layers as they go over the wire.
    #[test]
    fn the_three_layers_as_they_go_over_the_wire() {
        let (index, items) = index(1, 1, "r");
        let filters: Vec<String> = chunks(&items, &index, Cut::values(100))
            .iter()
            .flat_map(|chunk| chunk.filters(&index, Some(Timestamp(5))))
            .map(|filter| serde_json::to_string(&filter).unwrap())
            .collect();
        let address = format!("30617:{}:r0", "07".repeat(32));
        let root = "00".repeat(32);
        let expected = [
            r##"{"kinds":[30617,30618],"since":5}"##.to_owned(),
            format!(r##"{{"#A":["{address}"],"since":5}}"##),
            format!(r##"{{"#a":["{address}"],"since":5}}"##),
            format!(r##"{{"#q":["{address}"],"since":5}}"##),
            format!(r##"{{"#E":["{root}"],"since":5}}"##),
            format!(r##"{{"#e":["{root}"],"since":5}}"##),
            format!(r##"{{"#q":["{root}"],"since":5}}"##),
        ];
        assert_eq!(filters, expected);
    }

    #[test]
    fn a_hundred_values_fill_a_filter_and_one_more_begins_the_next() {
        let sizes = |repos, roots| -> Vec<(Layer, u64)> {
            let (index, mut items) = index(repos, roots, "r");
            items.announcements = false;
            let chunks = chunks(&items, &index, Cut::values(100));
            chunks.iter().map(|c| (c.layer, c.members.len())).collect()
        };
        assert_eq!(sizes(100, 0), [(Layer::Repositories, 100)]);
        let two = [(Layer::Repositories, 100), (Layer::Repositories, 1)];
        assert_eq!(sizes(101, 0), two);
        let roots = [(Layer::Roots, 100), (Layer::Roots, 100), (Layer::Roots, 50)];
        assert_eq!(sizes(0, 250), roots);
        assert_eq!(sizes(0, 0), []);
    }

    #[test]
    fn long_names_make_smaller_chunks_and_nothing_is_left_out() {
        let (index, items) = index(600, 0, &"long".repeat(15));
        let chunks = chunks(&items, &index, Cut::values(1_000));
        assert!(chunks.len() > 2);
        let mut all = Items::default();
        for chunk in &chunks {
            let bytes: usize = chunk.values(&index).map(|value| value.len() + 3).sum();
            assert!(bytes <= MAX_VALUE_BYTES);
            all.add(&chunk.items());
        }
        assert_eq!(all, items);
    }
}
