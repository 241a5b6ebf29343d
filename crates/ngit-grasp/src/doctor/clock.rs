//! Whether the clock is right: what others say, and else what the machine says of itself.

use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use axum::http::header::DATE;
use tokio::time::timeout;

use super::outside::{PATIENCE, resolve};
use super::{Finding, Verdict};
use crate::config::Config;
use crate::remote::dial::Dialer;
use crate::remote::guard::Target;
use crate::remote::http::{Page, get};
use crate::remote::nip11;

/// Clients and relays refuse what is dated further ahead.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// Against the first bootstrap relay that tells the time. Our own address may have this very clock:
/// it can show that something is wrong, and not that all is well.
pub async fn examine(dialer: &Dialer, config: &Config, own: Option<&Page>) -> Finding {
    for relay in &config.sync_bootstrap_relays {
        let Some(target) = Target::parse(relay.as_str()) else {
            continue;
        };
        let Ok(addresses) = resolve(&target).await else {
            continue;
        };
        let page = get(dialer, &target, &addresses, nip11::TYPE, nip11::MAX_BYTES).await;
        if let Some(there) = page.as_ref().and_then(time_of) {
            return compared(relay.as_str(), there, SystemTime::now());
        }
    }
    let own = own.and_then(time_of);
    let own = own.map(|there| compared("the public address", there, SystemTime::now()));
    match own {
        Some(apart) if apart.verdict == Verdict::Fail => apart,
        _ => kept_by_the_machine(synchronised().await),
    }
}

/// What the machine says of its own clock, if it has systemd.
async fn synchronised() -> Option<bool> {
    let asked = tokio::task::spawn_blocking(|| {
        let mut command = Command::new("timedatectl");
        command.args(["show", "--property=NTPSynchronized", "--value"]);
        command.stdin(Stdio::null()).output().ok()
    });
    let said = timeout(PATIENCE, asked).await.ok()?.ok()??;
    match String::from_utf8_lossy(&said.stdout).trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn kept_by_the_machine(synchronised: Option<bool>) -> Finding {
    match synchronised {
        Some(true) => Finding::ok("clock", "the machine keeps it by NTP"),
        Some(false) => Finding::warn(
            "clock",
            "the machine does not keep it by NTP, and nobody else tells the time",
            "timedatectl set-ntp true",
        ),
        None => Finding::warn(
            "clock",
            "nobody tells the time to compare it with",
            "see that the machine keeps its time (timedatectl); a bootstrap relay would tell it",
        ),
    }
}

fn time_of(page: &Page) -> Option<SystemTime> {
    let date = page.headers.get(DATE)?.to_str().ok()?;
    httpdate::parse_http_date(date).ok()
}

fn compared(with: &str, there: SystemTime, here: SystemTime) -> Finding {
    let apart = there
        .duration_since(here)
        .or_else(|_| here.duration_since(there));
    let apart = apart.unwrap_or_default();
    if apart > MAX_SKEW {
        return Finding::fail(
            "clock",
            format!("{} s apart from {with}", apart.as_secs()),
            "have the machine keep its time (timedatectl set-ntp true)",
        );
    }
    Finding::ok("clock", format!("less than a minute apart from {with}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_difference_is_no_more_than_a_slow_answer() {
        let there = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let verdict = |here| compared("x", there, here).verdict;
        assert_eq!(verdict(there + MAX_SKEW), Verdict::Ok);
        assert_eq!(verdict(there - MAX_SKEW), Verdict::Ok);
        assert_eq!(verdict(there + 2 * MAX_SKEW), Verdict::Fail);
        assert_eq!(verdict(there - 2 * MAX_SKEW), Verdict::Fail);
    }

    #[test]
    fn a_clock_that_is_compared_with_itself_is_not_called_right() {
        assert_eq!(kept_by_the_machine(None).verdict, Verdict::Warn);
        assert_eq!(kept_by_the_machine(Some(false)).verdict, Verdict::Warn);
        assert_eq!(kept_by_the_machine(Some(true)).verdict, Verdict::Ok);
    }
}
