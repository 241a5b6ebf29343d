//! What others see: the name, the public address, who answers there, and the time that they have.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use axum::http::header::DATE;
use grasp_core::Pubkey;
use grasp_core::sync::io::End;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Finding;
use crate::config::Config;
use crate::remote::dial::Dialer;
use crate::remote::guard::{Guard, Target, is_public};
use crate::remote::http::{Page, get};
use crate::remote::nip11;
use crate::status::reachable;

const PATIENCE: Duration = Duration::from_secs(10);
/// Clients and relays refuse what is dated further ahead.
const MAX_SKEW: Duration = Duration::from_secs(60);

pub async fn examine(config: &Config, us: Option<&str>) -> Vec<Finding> {
    let Ok(dialer) = Dialer::new(PATIENCE) else {
        return vec![Finding::fail("tls", "cannot be set up", "report this")];
    };
    let mut findings = vec![running(config).await];
    let url = config.public_http_url();
    let Some(target) = Target::parse(&url) else {
        return findings;
    };
    let addresses = match resolve(&target).await {
        Ok(addresses) => addresses,
        Err(end) => {
            findings.push(unknown_name(&target.host, end));
            return findings;
        }
    };
    findings.push(name(&target.host, &addresses, config));
    if let Err(end) = dialer.connect(&target, &addresses).await {
        findings.push(unreachable(&url, end));
        return findings;
    }
    let page = get(&dialer, &target, &addresses, nip11::TYPE, nip11::MAX_BYTES).await;
    findings.push(identity(&url, page.as_ref(), us));
    findings.push(websocket(&dialer, config, &addresses).await);
    findings.push(clock(&dialer, config, page.as_ref()).await);
    findings
}

/// Whatever the operator named may be dialled.
async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, End> {
    let found = timeout(PATIENCE, async {
        Guard::new(true).resolve(target, true).await
    });
    found.await.unwrap_or(Err(End::TimedOut))
}

async fn running(config: &Config) -> Finding {
    let address = reachable(config.bind_address);
    match timeout(PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Finding::ok("server", format!("something listens on {address}")),
        _ => Finding::warn(
            "server",
            format!("nothing listens on {address}"),
            "start it, and run doctor again: what others see can be judged only then",
        ),
    }
}

fn unknown_name(host: &str, end: End) -> Finding {
    let found = match end {
        End::TimedOut => format!("the name server does not answer for {host}"),
        _ => format!("{host} has no address"),
    };
    Finding::fail(
        "dns",
        found,
        "add an A or AAAA record with the address of this machine, and wait until it is known",
    )
}

fn name(host: &str, addresses: &[SocketAddr], config: &Config) -> Finding {
    let list: Vec<String> = addresses.iter().map(|of| of.ip().to_string()).collect();
    let found = format!("{host} is {}", list.join(", "));
    let local = config.domain.as_ref().is_none_or(|of| of.is_loopback());
    if !local && !addresses.iter().any(|of| is_public(of.ip())) {
        return Finding::warn(
            "dns",
            format!("{found}, which only this network can reach"),
            "fine in a closed network; else point the name at the public address",
        );
    }
    Finding::ok("dns", found)
}

fn unreachable(url: &str, end: End) -> Finding {
    let (what, advice) = match end {
        End::Refused => (
            "nobody listens there",
            "start the proxy, or open the port; the server itself speaks no TLS",
        ),
        End::TimedOut => (
            "no answer",
            "open the port in the firewall, and forward it to this machine",
        ),
        End::Tls => (
            "its certificate is not valid for that name, or there is no TLS",
            "have the proxy get a certificate for that name (Caddy does so by itself)",
        ),
        _ => ("the connection broke", "look at the log of the proxy"),
    };
    Finding::fail("address", format!("{url}: {what}"), advice)
}

/// Is it us who answer?
fn identity(url: &str, page: Option<&Page>, us: Option<&str>) -> Finding {
    let Some(page) = page else {
        return Finding::fail(
            "address",
            format!("{url} does not answer a request"),
            "is the proxy passing requests on to the server's address?",
        );
    };
    let document: Option<Value> = serde_json::from_slice(&page.body).ok();
    let key = document.as_ref().and_then(|of| of.get("self")?.as_str());
    let found = key.and_then(|key| Pubkey::from_hex(key).ok());
    match (page.status, found.map(|key| key.npub()), us) {
        (200, Some(found), Some(us)) if found == us => {
            Finding::ok("address", format!("{url} answers as {us}"))
        }
        (200, Some(found), None) => Finding::warn(
            "address",
            format!("{url} answers as {found}, and this data directory has no key yet"),
            "run doctor with the settings of the server",
        ),
        (200, Some(found), Some(_)) => Finding::fail(
            "address",
            format!("{url} answers as {found}, which is another server"),
            "correct NGIT_DOMAIN, its DNS record or the proxy",
        ),
        (status, _, _) => Finding::fail(
            "address",
            format!("{url} answers {status} and no relay information document (NIP-11)"),
            "have the proxy pass everything on to the server, with its headers",
        ),
    }
}

async fn websocket(dialer: &Dialer, config: &Config, addresses: &[SocketAddr]) -> Finding {
    let url = config.public_ws_url();
    let Some(target) = Target::parse(&url) else {
        return Finding::fail("websocket", url, "correct NGIT_DOMAIN");
    };
    let opened = timeout(PATIENCE, dialer.websocket(&url, &target, addresses)).await;
    match opened.unwrap_or(Err(End::TimedOut)) {
        Ok(_) => Finding::ok("websocket", format!("{url} opens")),
        Err(end) => Finding::fail(
            "websocket",
            format!("{url} does not open: {end:?}"),
            "have the proxy pass websockets on (in nginx: the Upgrade and Connection headers)",
        ),
    }
}

/// Against the first bootstrap relay that tells the time, else against our own address, whose
/// clock may be this one.
async fn clock(dialer: &Dialer, config: &Config, own: Option<&Page>) -> Finding {
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
    match own.and_then(time_of) {
        Some(there) => compared("the public address", there, SystemTime::now()),
        None => Finding::warn(
            "clock",
            "nobody tells the time to compare it with",
            "see that the machine keeps its time (timedatectl)",
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
    use axum::http::HeaderMap;

    use super::super::Verdict;
    use super::*;

    const US: &str = "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6";

    fn page(status: u16, body: &str) -> Page {
        Page {
            status,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        }
    }

    fn ours() -> Page {
        let key = "3bf0c63fcb93463407af97a5e5ee64fa883d107ef9e558472c4eb9aaaefa459d";
        page(200, &format!(r#"{{"self":"{key}"}}"#))
    }

    #[test]
    fn whoever_answers_must_be_us() {
        let verdict = |page: Option<&Page>, us| identity("https://x", page, us).verdict;
        assert_eq!(verdict(Some(&ours()), Some(US)), Verdict::Ok);
        assert_eq!(verdict(Some(&ours()), None), Verdict::Warn);
        assert_eq!(verdict(Some(&ours()), Some("npub1other")), Verdict::Fail);
        assert_eq!(
            verdict(Some(&page(502, "bad gateway")), Some(US)),
            Verdict::Fail
        );
        assert_eq!(verdict(Some(&page(200, "<html>")), Some(US)), Verdict::Fail);
        assert_eq!(verdict(None, Some(US)), Verdict::Fail);
    }

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
    fn every_way_to_be_unreachable_says_what_to_do() {
        for end in [End::Refused, End::TimedOut, End::Tls, End::Closed] {
            let finding = unreachable("https://x", end);
            assert_eq!(finding.verdict, Verdict::Fail);
            assert!(!finding.advice.is_empty());
        }
    }
}
