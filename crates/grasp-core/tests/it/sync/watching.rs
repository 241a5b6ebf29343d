//! What is watched live, and what a lost line means for it (E3, E5, E6, E8, E10, E13).

use grasp_core::sync::io::{End, FromRelay, ToRelay};
use grasp_core::sync::{News, Note, Outcome, Source};
use grasp_core::{EventId, Filter, Kind, SubNo, SyncLimits, Timestamp};

use super::peers::{EPOCH, HOUR, MINUTE, Peers, SECOND, note, repo, root, url};

const ONE: &str = "wss://one.example";

fn tags(filter: &Filter) -> (char, Vec<String>) {
    let first = filter.tags.first().cloned();
    let (letter, values) = first.unwrap_or_default();
    (char::from(letter), values)
}

fn letters(filters: &[Filter]) -> String {
    filters.iter().map(|filter| tags(filter).0).collect()
}

#[test]
fn a_first_connect_watches_all_layers_before_it_asks_for_history() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    let asked = peers.asked(ONE);
    let position = |wanted: fn(&ToRelay) -> bool| asked.iter().position(wanted).unwrap();
    let watch = position(|what| matches!(what, ToRelay::Subscribe { .. }));
    let history = position(|what| matches!(what, ToRelay::Reconcile { .. }));
    assert!(watch < history, "E13: nothing falls between them");
    let Some(ToRelay::Subscribe { filters, .. }) = asked.get(watch) else {
        panic!("no subscription");
    };
    assert_eq!(filters.len(), 7, "E6: one, three and three filters");
    let first = filters.first().unwrap();
    assert_eq!(first.kinds, Some(vec![Kind(30617), Kind(30618)]));
    assert_eq!(letters(&filters[1..]), "AaqEeq");
    let address = format!("30617:{}:tool", "01".repeat(32));
    assert_eq!(tags(&filters[1]).1, [address]);
    assert_eq!(tags(&filters[4]).1, [EventId([9; 32]).to_string()]);
    for filter in filters.iter() {
        assert_eq!((filter.since, filter.limit), (None, Some(1)));
    }
}

#[test]
fn a_lone_issue_is_watched_after_100_ms_in_one_request() {
    let mut peers = Peers::in_step(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND / 20);
    assert_eq!(peers.subscribed(ONE), [], "E3: not yet");
    peers.pass(SECOND / 20);
    let subs = peers.subscribed(ONE);
    let [(sub, filters)] = subs.as_slice() else {
        panic!("one request: {subs:?}");
    };
    assert_eq!(letters(filters), "Eeq");
    assert!(
        filters
            .iter()
            .all(|f| f.limit == Some(500) && f.since.is_none())
    );
    // What is stored there comes with it, and what comes later too.
    peers.bring(ONE, *sub, &note(1, EPOCH));
    peers.eose(ONE, *sub, 1);
    peers.answer_all(ONE);
    peers.bring(ONE, *sub, &note(2, EPOCH));
    let sources: Vec<Source> = found(&peers).map(|(source, _)| source).collect();
    assert_eq!(sources, [Source::CatchUp, Source::Live]);
}

fn found(peers: &Peers) -> impl Iterator<Item = (Source, bool)> {
    peers.notes.iter().filter_map(|note| match note {
        Note::Found { source, gap, .. } => Some((*source, *gap)),
        _ => None,
    })
}

#[test]
fn the_window_starts_with_the_first_event_and_is_never_reset() {
    let mut peers = Peers::in_step(ONE);
    for n in 0..60 {
        peers.news(root(n, &[repo(1)]));
        peers.pass(SECOND * 9 / 100);
        if !peers.subscribed(ONE).is_empty() {
            assert_eq!(n, 55, "E3: five seconds after the first");
            return;
        }
    }
    panic!("the window never ended");
}

#[test]
fn history_in_flight_keeps_the_window_open() {
    let mut peers = Peers::connected(ONE);
    peers.asked(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(4 * SECOND);
    assert_eq!(peers.subscribed(ONE), []);
    peers.pass(SECOND);
    assert_eq!(peers.subscribed(ONE).len(), 1, "and no longer than that");
}

#[test]
fn what_is_pending_or_here_is_not_asked_for_again() {
    let mut peers = Peers::in_step(ONE);
    peers.announce(&repo(1), &[ONE]);
    peers.pass(MINUTE);
    assert_eq!(peers.asked(ONE), [], "E5");
    peers.announce(&repo(2), &[ONE]);
    peers.pass(SECOND);
    let subs = peers.subscribed(ONE);
    let values: Vec<String> = subs.iter().flat_map(|(_, f)| tags(&f[0]).1).collect();
    assert_eq!(values, [format!("30617:{}:tool", "02".repeat(32))]);
}

#[test]
fn a_quick_reconnect_asks_from_what_was_covered() {
    let mut peers = Peers::in_step(ONE);
    peers.pass_with(ONE, 30 * MINUTE);
    let covered = peers.clock().unix;
    peers.pass(20 * SECOND);
    peers.say(ONE, FromRelay::Down(End::Closed));
    peers.pass(10 * SECOND);
    peers.say(ONE, FromRelay::Up);
    let subs = peers.subscribed(ONE);
    let [(_, live), (sub, missed)] = subs.as_slice() else {
        panic!("one to watch, one to catch up: {subs:?}");
    };
    assert!(live.iter().all(|filter| filter.since.is_none()));
    // E8: a quarter of an hour before the last word, not before the last connect.
    let since = Some(Timestamp(covered.0 - 900));
    assert!(missed.iter().all(|filter| filter.since == since));
    assert_eq!(missed.len(), 4);
    // What it finds is a gap of that relay.
    peers.bring(ONE, *sub, &note(1, EPOCH));
    let gaps: Vec<_> = found(&peers).collect();
    assert_eq!(gaps, [(Source::CatchUp, true)]);
}

#[test]
fn a_stale_reconnect_begins_anew() {
    let mut peers = Peers::in_step(ONE);
    peers.say(ONE, FromRelay::Down(End::Closed));
    while peers.now < 20 * MINUTE || peers.link(ONE).conn().is_none() {
        peers.pass(SECOND);
        if peers.link(ONE).conn().is_some() && peers.now < 20 * MINUTE {
            peers.fail(ONE);
        }
    }
    peers.asked(ONE);
    peers.say(ONE, FromRelay::Up);
    let stale = |note: &Note| *note == Note::Stale { relay: url(ONE) };
    assert!(peers.notes.iter().any(stale));
    let compared = peers.compared(ONE);
    assert!(!compared.is_empty());
    assert!(compared.iter().all(|(_, filter)| filter.since.is_none()));
}

#[test]
fn what_is_not_judged_yet_is_not_covered() {
    let mut peers = Peers::in_step(ONE);
    peers.pass_with(ONE, 30 * MINUTE);
    let early = peers.clock().unix;
    peers.deliver(ONE, SubNo(0), &note(1, EPOCH));
    peers.pass_with(ONE, 10 * MINUTE);
    peers.say(ONE, FromRelay::Down(End::Closed));
    peers.pass(10 * SECOND);
    peers.say(ONE, FromRelay::Up);
    let subs = peers.subscribed(ONE);
    let since = subs.last().and_then(|(_, filters)| filters[0].since);
    assert_eq!(since, Some(Timestamp(early.0 - 900)));
}

#[test]
fn a_batch_is_over_when_all_of_it_has_settled() {
    let mut peers = Peers::in_step(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    let (sub, _) = peers.subscribed(ONE).remove(0);
    let ticket = peers.deliver(ONE, sub, &note(1, EPOCH));
    peers.eose(ONE, sub, 1);
    let relay = peers.relay(ONE);
    let confirmed = |peers: &Peers| {
        let known = peers.sync.targets().relays.get(relay).unwrap();
        known.confirmed.roots.len()
    };
    assert_eq!(confirmed(&peers), 0, "EOSE overtakes the event");
    peers.judge(ticket, Outcome::New);
    peers.answer_all(ONE);
    assert_eq!(confirmed(&peers), 1);
}

#[test]
fn a_watch_that_the_relay_ends_is_opened_again_and_the_gap_caught_up_with() {
    let mut peers = Peers::in_step(ONE);
    peers.pass_with(ONE, HOUR);
    let at = peers.clock().unix;
    peers.close(ONE, SubNo(0), grasp_core::sync::io::Complaint::RateLimited);
    assert_eq!(peers.subscribed(ONE), [], "it is left alone for a moment");
    peers.pass(MINUTE);
    let subs = peers.subscribed(ONE);
    assert_eq!(subs.len(), 2, "{subs:?}");
    let since = subs[1].1.iter().map(|filter| filter.since);
    assert!(
        since
            .into_iter()
            .all(|since| since == Some(Timestamp(at.0 - 900)))
    );
}

#[test]
fn a_repository_that_goes_leaves_no_trace_in_the_one_that_comes() {
    let mut peers = Peers::in_step(ONE);
    peers.announce(&repo(2), &[ONE]);
    peers.pass(SECOND);
    peers.answer_all(ONE);
    peers.news(News::Gone(repo(2)));
    peers.announce(&repo(3), &[ONE]);
    peers.pass(SECOND);
    let subs = peers.subscribed(ONE);
    let values: Vec<String> = subs.iter().flat_map(|(_, f)| tags(&f[0]).1).collect();
    assert!(values.contains(&format!("30617:{}:tool", "03".repeat(32))));
}

#[test]
fn many_requests_to_watch_become_few() {
    let limits = SyncLimits {
        consolidate_at: 12,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[]);
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    peers.answer_all(ONE);
    for n in 0..20 {
        peers.news(root(n, &[repo(1)]));
        peers.pass_with(ONE, 30 * SECOND);
        let asked = peers.asked(ONE);
        let opened = asked.iter().find_map(|what| match what {
            ToRelay::Subscribe { sub, filters, .. } if filters.len() > 3 => Some(*sub),
            _ => None,
        });
        if let Some(opened) = opened {
            let closes = |what: &ToRelay| matches!(what, ToRelay::Unsubscribe(_));
            assert!(
                !asked.iter().any(closes),
                "E10: what is on its way for the old ones comes nowhere else"
            );
            peers.eose(ONE, opened, 0);
            assert!(peers.asked(ONE).iter().any(closes));
            let noted = |note: &&Note| matches!(note, Note::Consolidating { .. });
            assert_eq!(peers.notes.iter().filter(noted).count(), 1);
            return;
        }
        for what in asked {
            match what {
                ToRelay::Subscribe { sub, .. } => peers.eose(ONE, sub, 0),
                ToRelay::Reconcile { sub, .. } => peers.reconciled(ONE, sub),
                _ => {}
            }
        }
    }
    panic!("they were never packed");
}
