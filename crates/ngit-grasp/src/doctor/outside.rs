//! What others see: the name, the public address, who answers there, and what strangers are told.

use std::net::SocketAddr;
use std::time::Duration;

use grasp_core::Pubkey;
use grasp_core::sync::io::End;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Finding, clock};
use crate::config::Config;
use crate::remote::dial::Dialer;
use crate::remote::guard::{Guard, Reach, Target, is_public};
use crate::remote::http::{Page, get};
use crate::remote::nip11;
use crate::status::reachable;

pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Of the status and of metrics, with every relay and domain.
const MAX_PAGE: usize = 16 * 1024 * 1024;

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
    match reach(&dialer, &target, &addresses).await {
        Ok((alive, dead)) => {
            // A server of this machine only may listen on one of its two addresses.
            if is_public_name(config) {
                findings.extend(dead.into_iter().map(dead_address));
            }
            findings.extend(visit(&dialer, config, &target, &alive, us).await);
        }
        Err(end) => findings.push(unreachable(&url, end, is_public_name(config))),
    }
    findings
}

/// Where somebody answers.
async fn visit(
    dialer: &Dialer,
    config: &Config,
    target: &Target,
    addresses: &[SocketAddr],
    us: Option<&str>,
) -> Vec<Finding> {
    let url = config.public_http_url();
    let page = get(dialer, target, addresses, nip11::TYPE, nip11::MAX_BYTES).await;
    let mut findings = vec![
        identity(&url, page.as_ref(), us),
        websocket(dialer, config, addresses).await,
    ];
    if is_public_name(config) {
        findings.extend(strangers(dialer, &url, addresses).await);
    }
    findings.push(clock::examine(dialer, config, page.as_ref()).await);
    findings
}

fn is_public_name(config: &Config) -> bool {
    config.domain.as_ref().is_some_and(|of| !of.is_loopback())
}

/// Each address by itself: of several, clients take any, and a dead one costs them time at least.
/// Those that answer, and the others with what happened; an error if none does.
async fn reach(
    dialer: &Dialer,
    target: &Target,
    addresses: &[SocketAddr],
) -> Result<(Vec<SocketAddr>, Vec<(SocketAddr, End)>), End> {
    let (mut alive, mut dead) = (Vec::new(), Vec::new());
    for address in addresses {
        match dialer.connect(target, &[*address]).await {
            Ok(_) => alive.push(*address),
            Err(end) => dead.push((*address, end)),
        }
    }
    match dead.first() {
        Some((_, end)) if alive.is_empty() => Err(*end),
        _ => Ok((alive, dead)),
    }
}

fn dead_address((address, end): (SocketAddr, End)) -> Finding {
    let record = if address.is_ipv6() { "AAAA" } else { "A" };
    Finding::warn(
        "address",
        format!("{}: {}", address.ip(), words(end)),
        format!(
            "have the proxy listen there, too, or take the {record} record out; if this machine \
             cannot reach that address at all, try it from another"
        ),
    )
}

/// For people.
fn words(end: End) -> String {
    match end {
        End::Refused => "nobody listens there".to_owned(),
        End::TimedOut | End::Silent => "no answer in time".to_owned(),
        End::NoSuchHost => "there is no such name".to_owned(),
        End::Tls => "its certificate is not valid for that name, or there is no TLS".to_owned(),
        End::Http(status) => format!("it answers with the status {status}"),
        End::Closed => "the connection was closed".to_owned(),
        End::TooLarge => "the answer is too large".to_owned(),
        End::Blocked | End::Ourselves | End::Failed => "it cannot be reached".to_owned(),
    }
}

/// What somebody elsewhere is told, who has no token; nothing if nobody answers.
async fn strangers(dialer: &Dialer, url: &str, addresses: &[SocketAddr]) -> Option<Finding> {
    let mut pages = Vec::new();
    for path in ["/api/status", "/metrics"] {
        let Some(target) = Target::parse(&format!("{url}{path}")) else {
            continue;
        };
        if let Some(page) = get(dialer, &target, addresses, "*/*", MAX_PAGE).await {
            pages.push((path, page));
        }
    }
    let leaks = pages.iter().filter(|(_, page)| names_others(page));
    let leaks: Vec<&str> = leaks.map(|(path, _)| *path).collect();
    (!pages.is_empty()).then(|| told_to_strangers(&leaks))
}

/// The operator's page, or the operator's metrics.
fn names_others(page: &Page) -> bool {
    let report: Option<Value> = serde_json::from_slice(&page.body).ok();
    let metrics = String::from_utf8_lossy(&page.body);
    let is_details = match report {
        Some(report) => report.pointer("/sync/relays").is_some_and(Value::is_array),
        None => metrics.contains("relay=\"") || metrics.contains("domain=\""),
    };
    page.status == 200 && is_details
}

fn told_to_strangers(leaks: &[&str]) -> Finding {
    match leaks {
        [] => Finding::ok("strangers", "are told no names of other servers"),
        leaks => Finding::fail(
            "strangers",
            format!(
                "are told what is for the operator, at {}",
                leaks.join(" and ")
            ),
            "they look as if they were on this machine: have the proxy send X-Forwarded-For and \
             Host, and name it in NGIT_TRUSTED_PROXIES, or set NGIT_STATUS_TOKEN",
        ),
    }
}

/// Whatever the operator named may be dialled.
pub(super) async fn resolve(target: &Target) -> Result<Vec<SocketAddr>, End> {
    let found = timeout(PATIENCE, async {
        let guard = Guard::new(Reach::default());
        guard.resolve(target, true).await
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
    if is_public_name(config) && !addresses.iter().any(|of| is_public(of.ip())) {
        return Finding::warn(
            "dns",
            format!("{found}, which only this network can reach"),
            "fine in a closed network; else point the name at the public address",
        );
    }
    Finding::ok("dns", found)
}

fn unreachable(url: &str, end: End, public: bool) -> Finding {
    let advice = match end {
        _ if !public => "start the server",
        End::Refused => "start the proxy, or open the port; the server itself speaks no TLS",
        End::TimedOut => "open the port in the firewall, and forward it to this machine",
        End::Tls => "have the proxy get a certificate for that name (Caddy does so by itself)",
        _ => "look at the log of the proxy",
    };
    Finding::fail("address", format!("{url}: {}", words(end)), advice)
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
            format!("{url} does not open: {}", words(end)),
            "have the proxy pass websockets on (in nginx: the Upgrade and Connection headers)",
        ),
    }
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
    fn the_operators_words_are_known_from_those_to_strangers() {
        let is_for_operators = |text: &str| names_others(&page(200, text));
        assert!(is_for_operators(r#"{"sync":{"relays":[]}}"#));
        assert!(!is_for_operators(r#"{"sync":{"relays_tracked":3}}"#));
        assert!(is_for_operators("a_total{relay=\"wss://a.example\"} 1\n"));
        assert!(!is_for_operators("a_total{kind=\"state\"} 1\n"));
        assert!(!names_others(&page(403, r#"{"sync":{"relays":[]}}"#)));
        let told = told_to_strangers(&["/api/status", "/metrics"]);
        assert_eq!(told.verdict, Verdict::Fail);
        assert!(told.found.ends_with("at /api/status and /metrics"));
        assert_eq!(told_to_strangers(&[]).verdict, Verdict::Ok);
    }

    #[tokio::test]
    async fn a_dead_address_beside_one_that_answers_is_seen() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = gone.local_addr().unwrap();
        drop(gone);
        let dialer = Dialer::new(PATIENCE).unwrap();
        let target = Target::parse("http://server.example").unwrap();
        let reached = reach(&dialer, &target, &[dead, alive]).await;
        assert_eq!(reached, Ok((vec![alive], vec![(dead, End::Refused)])));
        let reached = reach(&dialer, &target, &[dead]).await;
        assert_eq!(reached, Err(End::Refused));
        let finding = dead_address(("[2001:db8::1]:443".parse().unwrap(), End::TimedOut));
        assert_eq!(finding.found, "2001:db8::1: no answer in time");
        assert!(finding.advice.contains("AAAA record"));
    }

    #[test]
    fn every_way_to_be_unreachable_says_what_to_do() {
        for end in [End::Refused, End::TimedOut, End::Tls, End::Closed] {
            let finding = unreachable("https://x", end, true);
            assert_eq!(finding.verdict, Verdict::Fail);
            assert!(!finding.advice.is_empty());
        }
    }
}
