//! Numbers, times and shares as people read them.

/// `12,345`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The nearest unit, with one digit where that says something.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS {
        if value < 1_000.0 {
            break;
        }
        value /= 1_000.0;
        unit = next;
    }
    match unit {
        "B" => format!("{count} B"),
        _ if value < 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// `2026-11-17`, in UTC.
pub fn date(unix: u64) -> String {
    let (year, month, day) = civil(unix / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// `2026-11-17 19:40:04`, in UTC.
pub fn moment(unix: u64) -> String {
    let second = unix % 86_400;
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{} {hour:02}:{minute:02}:{second:02}", date(unix))
}

/// Year, month and day of a day since 1970, by the Gregorian calendar: eras of 400 years that
/// begin in March, so that a leap day is the last of its year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

/// What waits, in one or many.
pub fn kind_words(kind: &'static str, count: usize) -> &'static str {
    match (kind, count) {
        ("announcement", 2..) => "announcements",
        ("state", 2..) => "states",
        ("pull_request", 1) => "pull request",
        ("pull_request", _) => "pull requests",
        ("pull_request_update", 1) => "update of a pull request",
        ("pull_request_update", _) => "updates of pull requests",
        _ => kind,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let all = [0, 999, 1_000, 12_345, 1_234_567];
        let texts = ["0", "999", "1,000", "12,345", "1,234,567"];
        assert_eq!(all.map(grouped), texts);
    }

    #[test]
    fn sizes_have_two_digits_or_so() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234), "1.2 kB");
        assert_eq!(bytes(67_890_000), "68 MB");
        assert_eq!(bytes(u64::MAX), "18447 PB");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(moment(0), "1970-01-01 00:00:00");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(moment(1_794_944_404), "2026-11-17 19:40:04");
        assert_eq!(date(4_107_542_400), "2100-03-01");
    }
}
