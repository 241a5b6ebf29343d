//! What outlives a restart (E14).

use grasp_core::sync::io::{End, FromRelay};
use grasp_core::sync::{Health, News, Stage};
use grasp_core::{Seq, SyncLimits};

use super::peers::{HOUR, MINUTE, Peers, SECOND, repo, root, url};

const ONE: &str = "wss://one.example";

fn announced(n: u8) -> News {
    News::Announced {
        repo: repo(n),
        relays: vec![url(ONE)],
        stage: Stage::Served,
    }
}

/// A new life that remembers the old one, `later` than it.
fn restarted(mut before: Peers, news: &[(News, u64)], later: std::time::Duration) -> Peers {
    before.sync.wind_down(before.clock());
    let mut memories = before.memories.clone();
    while let Some(effect) = before.sync.poll_effect() {
        if let grasp_core::sync::SyncEffect::Remember(memory) = effect {
            memories.push(memory);
        }
    }
    let mut peers = Peers::unstarted(SyncLimits::default());
    peers.now = before.now + later;
    for (news, seq) in news {
        peers.sync.restore(news.clone(), Seq(*seq));
    }
    if let Some(memory) = memories.pop() {
        peers.sync.restore_relay(memory);
    }
    peers.start(&[]);
    peers
}

fn in_step_with_a_root() -> Peers {
    let mut peers = Peers::in_step(ONE);
    peers.sync.stored(Seq(1));
    peers.sync.stored(Seq(2));
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    peers.answer_all(ONE);
    peers.pass_with(ONE, 2 * MINUTE);
    peers
}

#[test]
fn a_restart_asks_only_for_what_is_new() {
    let before = in_step_with_a_root();
    let since = before.clock().unix.0 - 900;
    let news = [
        (announced(1), 1),
        (root(9, &[repo(1)]), 2),
        (root(10, &[repo(1)]), 3),
    ];
    let mut peers = restarted(before, &news, 5 * SECOND);
    peers.say(ONE, FromRelay::Up);
    let subs = peers.subscribed(ONE);
    let missed: Vec<_> = subs
        .iter()
        .filter(|(_, f)| f.iter().all(|f| f.since.is_some()))
        .collect();
    assert_eq!(missed.len(), 1);
    for filter in &missed[0].1 {
        assert!(
            filter
                .since
                .is_some_and(|at| at.0 <= since && at.0 + 60 > since)
        );
    }
    assert_eq!(
        missed[0].1.len(),
        7,
        "announcements, the repository, the old root"
    );
    let fresh = subs
        .iter()
        .filter(|(_, f)| f.iter().all(|f| f.limit == Some(500) && f.since.is_none()));
    assert_eq!(fresh.count(), 1, "the new root from its beginning");
}

#[test]
fn a_long_stop_compares_everything() {
    let news = [(announced(1), 1), (root(9, &[repo(1)]), 2)];
    let mut peers = restarted(in_step_with_a_root(), &news, 2 * HOUR);
    peers.say(ONE, FromRelay::Up);
    let compared = peers.compared(ONE);
    assert!(!compared.is_empty() && compared.iter().all(|(_, f)| f.since.is_none()));
}

#[test]
fn health_survives_a_restart() {
    let mut before = Peers::connected(ONE);
    before.say(ONE, FromRelay::Down(End::Closed));
    for _ in 0..6 {
        before.pass(5 * MINUTE);
        if before.link(ONE).conn().is_some() {
            before.fail(ONE);
        }
    }
    let failures = before.sync.health(before.relay(ONE)).unwrap().failures;
    assert!(failures > 5);
    let mut peers = restarted(before, &[(announced(1), 1)], SECOND);
    assert_eq!(peers.dialled(), [""; 0], "it is not time yet");
    let health = peers.sync.health(peers.relay(ONE)).unwrap();
    assert_eq!(
        (health.health, health.failures),
        (Health::Degraded, failures)
    );
}

#[test]
fn what_nobody_names_any_more_is_forgotten() {
    let mut peers = restarted(in_step_with_a_root(), &[], SECOND);
    assert_eq!(peers.dialled(), [""; 0]);
    assert!(peers.sync.targets().relays.is_empty());
}
