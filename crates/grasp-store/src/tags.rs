//! The tags of a stored event, read from its JSON without a look at what follows them. The text is
//! our own serialisation, so that a value is compared in its written form and nothing is copied.

use crate::error::StoreError;

/// `{"id":"…","pubkey":"…","created_at":`, where both texts have 64 digits.
const BEFORE_TIME: usize = 7 + 64 + 12 + 64 + 15;
/// Time and kind have 20 and 5 digits at most, with `,"kind":` between them.
const LONGEST_NUMBERS: usize = 20 + 8 + 5;
const BEFORE_TAGS: &[u8] = b",\"tags\":";

/// Yields name and first value of each tag of a single letter, as they are written.
#[derive(Debug)]
pub(crate) struct Tags<'a> {
    text: &'a [u8],
    at: usize,
}

/// Name and first value, without quotes, escaped as in the text.
pub(crate) type LetterTag<'a> = (u8, &'a [u8]);

impl<'a> Tags<'a> {
    pub(crate) fn of(json: &'a [u8]) -> Result<Self, StoreError> {
        let longest = BEFORE_TIME + LONGEST_NUMBERS + BEFORE_TAGS.len();
        let head = json.get(BEFORE_TIME..longest.min(json.len()));
        let mut places = head.unwrap_or_default().windows(BEFORE_TAGS.len());
        let place = places.position(|bytes| bytes == BEFORE_TAGS);
        let mut tags = Self {
            text: json,
            at: BEFORE_TIME + place.ok_or_else(damaged)? + BEFORE_TAGS.len(),
        };
        tags.expect(b'[')?;
        Ok(tags)
    }

    /// How much of the text has been read.
    pub(crate) fn bytes_read(&self) -> usize {
        self.at
    }

    /// `None` at the end of the tags; it must not be called after that.
    pub(crate) fn next(&mut self) -> Result<Option<LetterTag<'a>>, StoreError> {
        while self.goes_on()? {
            self.expect(b'[')?;
            let name = self.text_in_list()?;
            let value = match name {
                Some(_) => self.text_in_list()?,
                None => None,
            };
            if value.is_some() {
                while self.text_in_list()?.is_some() {}
            }
            if let (Some([letter]), Some(value)) = (name, value)
                && letter.is_ascii_alphabetic()
            {
                return Ok(Some((*letter, value)));
            }
        }
        Ok(None)
    }

    /// The next text of the list that is open, or its end.
    fn text_in_list(&mut self) -> Result<Option<&'a [u8]>, StoreError> {
        if self.goes_on()? {
            self.quoted().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Whether the list goes on; takes the comma before its next entry, or the bracket at its end.
    fn goes_on(&mut self) -> Result<bool, StoreError> {
        match self.text.get(self.at) {
            Some(b']') => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Ok(true),
            None => Err(damaged()),
        }
    }

    fn quoted(&mut self) -> Result<&'a [u8], StoreError> {
        self.expect(b'"')?;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let mut length = 0;
        loop {
            let next = rest.get(length..).unwrap_or_default();
            let plain = next.iter().position(|byte| matches!(byte, b'"' | b'\\'));
            length += plain.ok_or_else(damaged)?;
            if rest.get(length) == Some(&b'"') {
                break;
            }
            // A backslash and what it escapes.
            length += 2;
        }
        self.at += length + 1;
        rest.get(..length).ok_or_else(damaged)
    }

    fn expect(&mut self, byte: u8) -> Result<(), StoreError> {
        if self.text.get(self.at) != Some(&byte) {
            return Err(damaged());
        }
        self.at += 1;
        Ok(())
    }
}

/// What a filter asks of tags, ready to be held against many events.
#[derive(Debug)]
pub(crate) struct TagFilter {
    /// Letter and values as they are written in JSON, both sorted.
    wanted: Vec<(u8, Vec<Box<[u8]>>)>,
}

/// What holding a filter against an event took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TagMatch {
    pub(crate) matches: bool,
    pub(crate) bytes_read: usize,
    /// Values searched for in the filter's lists.
    pub(crate) lookups: usize,
}

impl TagFilter {
    pub(crate) fn new(tags: &[(u8, Vec<String>)]) -> Result<Self, StoreError> {
        let mut wanted = Vec::with_capacity(tags.len());
        for (letter, values) in tags {
            let values: Result<Vec<Box<[u8]>>, StoreError> =
                values.iter().map(|value| written(value)).collect();
            let mut values = values?;
            values.sort_unstable();
            wanted.push((*letter, values));
        }
        wanted.sort_unstable();
        Ok(Self { wanted })
    }

    /// One pass over the tags, whatever the number of letters; it ends when each has been found.
    pub(crate) fn check(&self, mut tags: Tags<'_>) -> Result<TagMatch, StoreError> {
        let mut missing: Vec<&(u8, Vec<Box<[u8]>>)> = self.wanted.iter().collect();
        let mut lookups = 0;
        while !missing.is_empty()
            && let Some((letter, value)) = tags.next()?
        {
            let Ok(place) = missing.binary_search_by_key(&letter, |(letter, _)| *letter) else {
                continue;
            };
            lookups += 1;
            let is_wanted = |(_, values): &&(u8, Vec<Box<[u8]>>)| {
                let found = values.binary_search_by(|wanted| (**wanted).cmp(value));
                found.is_ok()
            };
            if missing.get(place).is_some_and(is_wanted) {
                missing.remove(place);
            }
        }
        Ok(TagMatch {
            matches: missing.is_empty(),
            bytes_read: tags.bytes_read(),
            lookups,
        })
    }
}

/// The value as [`grasp_core::Event::json`] writes it, without quotes.
fn written(value: &str) -> Result<Box<[u8]>, StoreError> {
    let json = serde_json::to_vec(value).map_err(|error| StoreError::Damaged(error.to_string()))?;
    let inner = json.get(1..json.len().saturating_sub(1));
    Ok(inner.unwrap_or_default().into())
}

fn damaged() -> StoreError {
    StoreError::Damaged("a stored event is not in our own form".to_owned())
}

#[cfg(test)]
mod tests {
    use grasp_core::{Event, Filter, Pubkey};
    use testkit::unsigned;

    use super::*;

    const PIECES: [&str; 12] = [
        "",
        "a",
        "t",
        "E",
        "é",
        "\"",
        "\\",
        "\u{1}",
        "\n",
        "],[",
        "\u{2028}",
        "long text",
    ];

    fn text(rng: &mut fastrand::Rng) -> String {
        let pieces = rng.usize(0..4);
        (0..pieces)
            .map(|_| PIECES[rng.usize(0..PIECES.len())])
            .collect()
    }

    fn random_event(rng: &mut fastrand::Rng) -> Event {
        let mut tags: Vec<Vec<String>> = (0..rng.usize(0..8))
            .map(|_| (0..rng.usize(0..4)).map(|_| text(rng)).collect())
            .collect();
        for name in tags.iter_mut().filter_map(|tag| tag.first_mut()) {
            if rng.bool() {
                *name = ["a", "t", "E"][rng.usize(0..3)].to_owned();
            }
        }
        let tags: Vec<Vec<&str>> = tags
            .iter()
            .map(|tag| tag.iter().map(String::as_str).collect())
            .collect();
        let tags: Vec<&[&str]> = tags.iter().map(Vec::as_slice).collect();
        let time = [0, 1_700_000_000, u64::MAX][rng.usize(0..3)];
        let content = r#","tags":[["t","not a tag"]]"#;
        unsigned(Pubkey([7; 32]), rng.u16(..), time, &tags, content)
    }

    fn read(event: &Event) -> Vec<(u8, Vec<u8>)> {
        let mut tags = Tags::of(event.json().as_bytes()).unwrap();
        let mut found = Vec::new();
        while let Some((letter, value)) = tags.next().unwrap() {
            found.push((letter, value.to_vec()));
        }
        found
    }

    #[test]
    fn the_tags_read_are_those_of_the_parsed_event() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut seen = 0;
        for _ in 0..2_000 {
            let event = random_event(&mut rng);
            let expected: Vec<(u8, Vec<u8>)> = event
                .indexed_tags()
                .map(|(letter, value)| (letter, written(value).unwrap().into()))
                .collect();
            seen += expected.len();
            assert_eq!(read(&event), expected, "{event:?}");
        }
        assert!(seen > 200, "{seen} tags of one letter");
    }

    #[test]
    fn a_filter_matches_the_tags_as_it_matches_the_parsed_event() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut matched = 0;
        for _ in 0..4_000 {
            let event = random_event(&mut rng);
            let mut filter = Filter::default();
            for letter in [b'E', b'a', b't'] {
                if rng.bool() {
                    let mut values: Vec<String> =
                        (0..rng.usize(1..20)).map(|_| text(&mut rng)).collect();
                    values.sort_unstable();
                    values.dedup();
                    filter.tags.push((letter, values));
                }
            }
            let tags = Tags::of(event.json().as_bytes()).unwrap();
            let checked = TagFilter::new(&filter.tags).unwrap().check(tags).unwrap();
            assert_eq!(
                checked.matches,
                filter.matches(&event),
                "{filter:?} {event:?}"
            );
            matched += usize::from(checked.matches && !filter.tags.is_empty());
        }
        assert!(matched > 50, "{matched} matches");
    }

    #[test]
    fn each_tag_is_searched_for_once_whatever_the_number_of_letters() {
        let many: Vec<[&str; 2]> = vec![["t", "value"]; 1_000];
        let tags: Vec<&[&str]> = many.iter().map(<[&str; 2]>::as_slice).collect();
        let event = unsigned(Pubkey([7; 32]), 1, 10, &tags, "");
        let letters = (b'a'..=b'z').map(|letter| (letter, vec!["other".to_owned()]));
        let filter = TagFilter::new(&letters.collect::<Vec<_>>()).unwrap();
        let tags = Tags::of(event.json().as_bytes()).unwrap();
        let checked = filter.check(tags).unwrap();
        assert_eq!((checked.matches, checked.lookups), (false, 1_000));
        assert!(checked.bytes_read < event.json().len());
    }

    #[test]
    fn a_text_that_is_not_ours_is_damage() {
        let event = unsigned(Pubkey([7; 32]), 1, 10, &[&["t", "x"]], "");
        let json = event.json().as_bytes();
        for end in 0..json.len() {
            if let Ok(mut tags) = Tags::of(&json[..end]) {
                while let Ok(Some(_)) = tags.next() {}
            }
        }
        assert!(Tags::of(br#"{"tags":[["t","x"]]}"#).is_err());
    }
}
