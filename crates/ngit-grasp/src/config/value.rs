//! The types a setting can have: how each reads its text, how it is shown, and what to tell
//! an operator whose text it refuses. Hosts and addresses are in `net`, words of the domain in
//! `choice`.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// A type that a setting can have. `parse` gets trimmed text, and empty text only where a
/// default is empty; its error completes a line that starts with the setting's name.
pub trait Setting: Sized {
    const SHAPE: Shape = Shape::One;
    const SECRET: bool = false;

    /// Completes "must be ...".
    fn expects(rules: &Rules) -> String;
    fn parse(text: &str, rules: &Rules) -> Result<Self, String>;
    /// Text that `parse` reads back as the same value, except for secrets.
    fn show(&self, rules: &Rules) -> String;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    One,
    /// Comma-separated; its flag may be repeated.
    List,
    /// Its flag may stand alone and then means true.
    Switch,
}

/// What a declaration adds to the type of its setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    unit: Unit,
    range: Option<RangeInclusive<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Seconds,
    Milliseconds,
}

impl Rules {
    /// The unit of a duration is the ending of its variable's name.
    pub fn of(env: &str) -> Self {
        let unit = if env.ends_with("_MS") {
            Unit::Milliseconds
        } else {
            Unit::Seconds
        };
        Self { unit, range: None }
    }

    pub fn within(mut self, range: RangeInclusive<u64>) -> Self {
        self.range = Some(range);
        self
    }

    fn allow(&self, number: u64) -> bool {
        self.range
            .as_ref()
            .is_none_or(|range| range.contains(&number))
    }

    fn bounds(&self, show: impl Fn(u64) -> String) -> String {
        match &self.range {
            Some(range) => format!(" from {} to {}", show(*range.start()), show(*range.end())),
            None => String::new(),
        }
    }
}

pub(super) fn refusal<T: Setting>(text: &str, rules: &Rules) -> String {
    format!("must be {}, not {}", T::expects(rules), quoted(text))
}

/// Escaped and cut, so that an error stays one line of bearable length.
pub(super) fn quoted(text: &str) -> String {
    const LONGEST: usize = 80;
    let mut start: String = text.chars().take(LONGEST).collect();
    if start.len() < text.len() {
        start.push('…');
    }
    format!("{start:?}")
}

fn whole_number<T: TryFrom<u64> + Setting>(text: &str, rules: &Rules) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| rules.allow(*number));
    number
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| refusal::<T>(text, rules))
}

macro_rules! whole_number_settings {
    ($($type:ty),+) => {$(
        impl Setting for $type {
            fn expects(rules: &Rules) -> String {
                format!("a whole number{}", rules.bounds(|bound| bound.to_string()))
            }

            fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
                whole_number(text, rules)
            }

            fn show(&self, _: &Rules) -> String {
                self.to_string()
            }
        }
    )+};
}

whole_number_settings!(u32, u64, usize);

impl Setting for bool {
    const SHAPE: Shape = Shape::Switch;

    fn expects(_: &Rules) -> String {
        "true or false".into()
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(true),
            "false" | "0" | "no" | "off" => Ok(false),
            _ => Err(refusal::<Self>(text, rules)),
        }
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

impl Setting for Duration {
    fn expects(rules: &Rules) -> String {
        let unit = match rules.unit {
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
        };
        format!(
            "a whole number of {unit}{}",
            rules.bounds(|bound| bound.to_string())
        )
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        match text.parse() {
            Ok(number) if rules.allow(number) => Ok(match rules.unit {
                Unit::Seconds => Self::from_secs(number),
                Unit::Milliseconds => Self::from_millis(number),
            }),
            _ => Err(refusal::<Self>(text, rules)),
        }
    }

    fn show(&self, rules: &Rules) -> String {
        match rules.unit {
            Unit::Seconds => self.as_secs().to_string(),
            Unit::Milliseconds => self.as_millis().to_string(),
        }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const SIZE_UNITS: [(&str, u64); 8] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

impl ByteSize {
    pub fn as_u64(self) -> u64 {
        self.0
    }

    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }

    fn read(text: &str) -> Option<Self> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let unit = unit.trim_start();
        let factor = match unit {
            "" | "B" => 1,
            _ => {
                SIZE_UNITS
                    .iter()
                    .find(|(name, _)| unit.eq_ignore_ascii_case(name))?
                    .1
            }
        };
        number.parse::<u64>().ok()?.checked_mul(factor).map(Self)
    }
}

/// The shortest exact text, with a unit where that is no longer.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = SIZE_UNITS
            .iter()
            .filter(|(_, factor)| self.0 > 0 && self.0.is_multiple_of(*factor));
        let texts = exact.map(|(name, factor)| format!("{}{name}", self.0 / factor));
        let shortest = texts.chain([self.0.to_string()]).min_by_key(String::len);
        f.write_str(&shortest.unwrap_or_default())
    }
}

impl Setting for ByteSize {
    fn expects(rules: &Rules) -> String {
        let bounds = rules.bounds(|bound| Self(bound).to_string());
        format!("a size{bounds}, written like 512KiB, 2MB or 1000000")
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let size = Self::read(text).filter(|size| rules.allow(size.0));
        size.ok_or_else(|| refusal::<Self>(text, rules))
    }

    fn show(&self, _: &Rules) -> String {
        self.to_string()
    }
}

impl Setting for PathBuf {
    fn expects(_: &Rules) -> String {
        "a path".into()
    }

    fn parse(text: &str, _: &Rules) -> Result<Self, String> {
        if text == "~" || text.starts_with("~/") {
            return Err(format!(
                "~ is not expanded here, give the whole path, not {}",
                quoted(text)
            ));
        }
        Ok(Self::from(text))
    }

    fn show(&self, _: &Rules) -> String {
        self.display().to_string()
    }
}

impl Setting for String {
    fn expects(_: &Rules) -> String {
        "text".into()
    }

    fn parse(text: &str, _: &Rules) -> Result<Self, String> {
        Ok(text.into())
    }

    fn show(&self, _: &Rules) -> String {
        self.clone()
    }
}

impl<T: Setting> Setting for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const SECRET: bool = T::SECRET;

    fn expects(rules: &Rules) -> String {
        T::expects(rules)
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        if text.is_empty() {
            Ok(None)
        } else {
            T::parse(text, rules).map(Some)
        }
    }

    fn show(&self, rules: &Rules) -> String {
        self.as_ref()
            .map(|value| value.show(rules))
            .unwrap_or_default()
    }
}

impl<T: Setting> Setting for Vec<T> {
    const SHAPE: Shape = Shape::List;
    const SECRET: bool = T::SECRET;

    fn expects(rules: &Rules) -> String {
        format!("a comma-separated list, each {}", T::expects(rules))
    }

    fn parse(text: &str, rules: &Rules) -> Result<Self, String> {
        let items = text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty());
        items.map(|item| T::parse(item, rules)).collect()
    }

    fn show(&self, rules: &Rules) -> String {
        let items: Vec<String> = self.iter().map(|item| item.show(rules)).collect();
        items.join(",")
    }
}

/// Text that is never shown. Its type keeps a setting off the command line.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

pub const MASK: &str = "********";

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({MASK})")
    }
}

impl Setting for Secret {
    const SECRET: bool = true;

    fn expects(_: &Rules) -> String {
        "a secret text".into()
    }

    fn parse(text: &str, _: &Rules) -> Result<Self, String> {
        Ok(Self(text.into()))
    }

    fn show(&self, _: &Rules) -> String {
        MASK.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules::of("NGIT_TEST_SECS")
    }

    fn read<T: Setting>(text: &str) -> Result<T, String> {
        T::parse(text, &rules())
    }

    fn shown<T: Setting>(text: &str) -> String {
        read::<T>(text).map_or_else(|error| error, |value| value.show(&rules()))
    }

    #[test]
    fn a_number_outside_its_range_is_told_the_range() {
        let rules = rules().within(1..=10);
        assert_eq!(u32::parse("10", &rules), Ok(10));
        for text in ["0", "11", "-1", "1.5", "abc", "99999999999999999999"] {
            let expected = format!("must be a whole number from 1 to 10, not {text:?}");
            assert_eq!(usize::parse(text, &rules), Err(expected));
        }
        assert!(u32::parse("4294967296", &Rules::of("NGIT_TEST")).is_err());
    }

    #[test]
    fn a_switch_reads_the_usual_words() {
        for text in ["true", "1", "yes", "ON"] {
            assert_eq!(read(text), Ok(true));
        }
        for text in ["false", "0", "no", "Off"] {
            assert_eq!(read(text), Ok(false));
        }
        assert_eq!(
            read::<bool>("maybe"),
            Err("must be true or false, not \"maybe\"".into())
        );
    }

    #[test]
    fn the_ending_of_the_name_is_the_unit_of_a_duration() {
        let millis = Rules::of("NGIT_TEST_MS");
        assert_eq!(
            Duration::parse("1500", &millis),
            Ok(Duration::from_millis(1500))
        );
        assert_eq!(Duration::from_millis(1500).show(&millis), "1500");
        assert_eq!(read("90"), Ok(Duration::from_secs(90)));
        let error = Duration::parse("90s", &rules().within(1..=100));
        assert_eq!(
            error,
            Err("must be a whole number of seconds from 1 to 100, not \"90s\"".into())
        );
    }

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        let cases = [
            ("512KiB", 524_288),
            ("64 MiB", 67_108_864),
            ("1000000", 1_000_000),
            ("2GB", 2_000_000_000),
            ("2gb", 2_000_000_000),
            ("10 B", 10),
            ("0", 0),
        ];
        for (text, bytes) in cases {
            assert_eq!(read(text), Ok(ByteSize(bytes)), "{text}");
        }
        for text in [
            "64M",
            "KiB",
            "1.5GiB",
            "-1",
            "99999999999TiB",
            "1 KiB x",
            "٣",
        ] {
            assert!(read::<ByteSize>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_short_and_exact() {
        let cases = [
            (524_288, "512KiB"),
            (2_000_000_000, "2GB"),
            (1 << 20, "1MiB"),
            (1_234_567, "1234567"),
            (1_000, "1kB"),
            (0, "0"),
        ];
        for (bytes, text) in cases {
            assert_eq!(ByteSize(bytes).to_string(), text);
            assert_eq!(read(text), Ok(ByteSize(bytes)));
        }
    }

    #[test]
    fn a_list_skips_empty_items_and_names_its_bad_one() {
        assert_eq!(shown::<Vec<u32>>("1, 02,"), "1,2");
        assert_eq!(read::<Vec<u32>>(""), Ok(vec![]));
        assert!(read::<Vec<u32>>("1,x").unwrap_err().ends_with("not \"x\""));
    }

    #[test]
    fn a_secret_is_never_printed() {
        let secret: Secret = read("nsec1hidden").unwrap();
        assert_eq!(secret.reveal(), "nsec1hidden");
        assert!(!format!("{secret:?}{}", secret.show(&rules())).contains("hidden"));
    }

    #[test]
    fn a_refused_text_cannot_break_or_flood_the_line() {
        let error = read::<bool>(&format!("a\nb{}", "x".repeat(500))).unwrap_err();
        assert!(!error.contains('\n') && error.len() < 200, "{error}");
    }

    #[test]
    fn a_tilde_is_not_taken_for_a_directory_name() {
        assert!(read::<PathBuf>("~/data").is_err());
        assert_eq!(shown::<PathBuf>("./data/git"), "./data/git");
    }
}
