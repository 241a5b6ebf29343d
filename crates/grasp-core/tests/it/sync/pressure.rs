//! What relays refuse, and what they do wrong.

use grasp_core::sync::io::{Complaint, Description, Fault, FromRelay, ToRelay};
use grasp_core::sync::{Fate, Link, Note, Outcome};
use grasp_core::{EventId, Filter, SubNo, SyncLimits};

use super::peers::{EPOCH, MINUTE, Peers, SECOND, note, repo, root};

const ONE: &str = "wss://one.example";
const TWO: &str = "wss://two.example";

#[test]
fn a_rate_limited_relay_delays_only_itself() {
    let mut peers = Peers::both(ONE, TWO);
    let (sub, _) = peers.compared(ONE).remove(0);
    let why = Complaint::RateLimited;
    peers.say(ONE, FromRelay::Unreconciled { sub, why });
    assert_eq!(peers.asked(ONE), []);
    peers.pass(29 * SECOND);
    assert_eq!(peers.asked(ONE), [], "within a minute, not at once");
    peers.pass(2 * SECOND);
    assert_eq!(peers.compared(ONE).len(), 1);
    // Refused again: longer.
    let (sub, _) = (SubNo(2), ());
    peers.say(ONE, FromRelay::Unreconciled { sub, why });
    peers.say(TWO, FromRelay::Heard);
    peers.pass(55 * SECOND);
    assert_eq!(peers.asked(ONE), []);
}

/// Our own lack of room says nothing about the relay.
#[test]
fn a_comparison_for_which_we_have_no_room_is_made_later_and_held_against_nobody() {
    let mut peers = Peers::connected(ONE);
    let (sub, _) = peers.compared(ONE).remove(0);
    let why = Complaint::Ours;
    peers.say(ONE, FromRelay::Unreconciled { sub, why });
    peers.answer_all(ONE);
    let status = peers.sync.status(peers.clock());
    let relay = status.relays.first().unwrap();
    assert_eq!(relay.record.refused, 0);
    assert!(relay.missing > 0, "not everything was compared");
    let blames = |note: &Note| matches!(note, Note::NoNegentropy { .. } | Note::Refused { .. });
    assert!(!peers.notes.iter().any(blames), "{:?}", peers.notes);
    peers.pass(20 * SECOND);
    assert_eq!(peers.asked(ONE), [], "not at once");
    peers.pass(20 * SECOND);
    assert!(!peers.compared(ONE).is_empty(), "by comparison, as before");
    assert_eq!(peers.subscribed(ONE), []);
}

#[test]
fn a_few_roots_that_cannot_be_compared_now_are_read_page_by_page() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    let said = Description {
        subscriptions: Some(1),
        ..Description::default()
    };
    peers.say(ONE, FromRelay::Described(Some(said)));
    peers.answer_all(ONE);
    peers.news(root(1, &[repo(1)]));
    peers.pass(SECOND);
    let (sub, _) = peers.compared(ONE).remove(0);
    let why = Complaint::Ours;
    peers.say(ONE, FromRelay::Unreconciled { sub, why });
    assert_eq!(peers.subscribed(ONE).len(), 1);
}

#[test]
fn limits_of_the_document_are_kept() {
    let mut peers = Peers::new();
    for n in 1..=9 {
        peers.announce(&repo(n), &[ONE]);
    }
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    let said = Description {
        subscriptions: Some(3),
        filters: Some(3),
        ..Description::default()
    };
    peers.say(ONE, FromRelay::Described(Some(said)));
    peers.answer_all(ONE);
    for n in 0..40 {
        peers.news(root(n, &[repo(1)]));
        peers.pass_with(ONE, 30 * SECOND);
        let mut open = 0;
        for what in peers.asked(ONE) {
            match what {
                ToRelay::Subscribe { sub, filters, .. } => {
                    assert!(filters.len() <= 3, "{filters:?}");
                    open += 1;
                    peers.eose(ONE, sub, 0);
                }
                ToRelay::Reconcile { sub, .. } => peers.reconciled(ONE, sub),
                _ => {}
            }
        }
        assert!(open <= 3);
    }
}

#[test]
fn more_roots_than_live_room_are_compared_in_turn() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    let said = Description {
        subscriptions: Some(1),
        ..Description::default()
    };
    peers.say(ONE, FromRelay::Described(Some(said)));
    peers.answer_all(ONE);
    peers.news(root(1, &[repo(1)]));
    peers.pass(SECOND);
    peers.answer_all(ONE);
    let status = peers.sync.status(peers.clock());
    let relay = status.relays.first().unwrap();
    assert!(relay.not_live > 0, "the operator sees how many");
    peers.pass_with(ONE, 11 * MINUTE);
    let compared = peers.compared(ONE);
    assert!(compared.iter().all(|(_, filter)| filter.since.is_some()));
    assert!(!compared.is_empty(), "in turn");
}

#[test]
fn a_notice_without_a_name_means_the_newest_request() {
    let mut peers = Peers::in_step(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    assert_eq!(peers.subscribed(ONE).len(), 1);
    peers.say(ONE, FromRelay::Notice(Complaint::Other));
    assert_eq!(peers.asked(ONE), [], "small talk");
    peers.say(ONE, FromRelay::Notice(Complaint::TooManySubscriptions));
    let status = peers.sync.status(peers.clock());
    let learned = status.relays.first().unwrap().capabilities.subscriptions;
    assert_eq!(learned, 1, "two were too many");
}

#[test]
fn too_many_filters_are_those_of_the_widest_request() {
    let mut peers = Peers::connected(ONE);
    let asked = peers.subscribed(ONE);
    let widest = asked.iter().max_by_key(|(_, filters)| filters.len());
    let (watch, filters) = widest.expect("a watch").clone();
    assert!(filters.len() > 1);
    peers.say(ONE, FromRelay::Notice(Complaint::TooManyFilters));
    let ended = peers.asked(ONE);
    assert!(ended.contains(&ToRelay::Unsubscribe(watch)), "{ended:?}");
    assert!(
        !ended
            .iter()
            .any(|what| matches!(what, ToRelay::EndReconcile(_))),
        "a comparison has one filter"
    );
}

#[test]
fn a_relay_that_names_what_it_does_not_have_is_left_in_the_end() {
    let limits = SyncLimits {
        fetch_ids: 1,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[]);
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    let named: Vec<EventId> = (0..150).map(|n| EventId([n; 32])).collect();
    let mut asked = 0;
    while peers.link(ONE).is_up() {
        for what in peers.asked(ONE) {
            match what {
                ToRelay::Subscribe { sub, .. } => peers.eose(ONE, sub, 0),
                ToRelay::Reconcile { sub, .. } => {
                    peers.needs(ONE, sub, &named);
                    peers.reconciled(ONE, sub);
                }
                _ => {}
            }
        }
        asked += 1;
        assert!(asked < 1_000, "it is asked without end");
    }
    let hollow =
        |note: &&Note| matches!(note, Note::Misbehaved { fault, .. } if *fault == Fault::Hollow);
    assert_eq!(
        peers.notes.iter().filter(hollow).count(),
        1,
        "and it is said"
    );
}

#[test]
fn who_we_are_is_shown_only_when_it_is_asked_for_and_once() {
    let mut peers = Peers::connected(ONE);
    peers.say(ONE, FromRelay::Challenge("abc".to_owned()));
    let auth = |what: &ToRelay| matches!(what, ToRelay::Authenticate { .. });
    let asked = peers.asked(ONE);
    assert!(!asked.iter().any(auth), "nothing was refused");
    let subs = asked.iter().filter_map(|what| match what {
        ToRelay::Subscribe { sub, .. } => Some(*sub),
        _ => None,
    });
    for sub in subs {
        peers.close(ONE, sub, Complaint::AuthRequired);
        peers.say(ONE, FromRelay::Notice(Complaint::AuthRequired));
    }
    let asked = peers.asked(ONE);
    assert_eq!(asked.iter().filter(|what| auth(what)).count(), 1);
    peers.say(ONE, FromRelay::Authenticated(true));
    let watches = |what: &ToRelay| matches!(what, ToRelay::Subscribe { .. });
    assert!(
        peers.asked(ONE).iter().any(watches),
        "and what was refused is asked again"
    );
}

#[test]
fn misbehaviour_is_told_and_ends_the_line() {
    let mut peers = Peers::in_step(ONE);
    let bad = |fault| FromRelay::Bad {
        sub: Some(SubNo(0)),
        id: None,
        fault,
    };
    for _ in 0..19 {
        peers.say(ONE, bad(Fault::WrongSignature));
    }
    assert!(peers.link(ONE).is_up());
    peers.say(ONE, bad(Fault::WrongSignature));
    assert!(!peers.link(ONE).is_up());
    let told = |note: &&Note| matches!(note, Note::Misbehaved { .. });
    assert_eq!(
        peers.notes.iter().filter(told).count(),
        1,
        "once, not twenty times"
    );
    assert!(
        peers
            .notes
            .iter()
            .any(|note| matches!(note, Note::Shunned { .. }))
    );
    let Link::Down {
        retry: Some(at), ..
    } = peers.link(ONE)
    else {
        panic!("it is tried again");
    };
    assert!(at.0 - peers.now >= 5 * MINUTE);
}

#[test]
fn a_flood_ends_a_request_and_what_it_brought_counts() {
    let (mut peers, page) = Peers::paged(ONE);
    let word = FromRelay::Bad {
        sub: Some(page),
        id: None,
        fault: Fault::Flood,
    };
    peers.say(ONE, word);
    let asked = peers.asked(ONE);
    assert!(asked.contains(&ToRelay::Unsubscribe(page)), "{asked:?}");
}

#[test]
fn a_watch_that_floods_is_not_taken_for_one() {
    let mut peers = Peers::in_step(ONE);
    let word = FromRelay::Bad {
        sub: Some(SubNo(0)),
        id: None,
        fault: Fault::Flood,
    };
    peers.say(ONE, word);
    peers.pass_with(ONE, MINUTE);
    assert!(!peers.subscribed(ONE).is_empty(), "it is opened again");
}

#[test]
fn a_silent_relay_is_watched_all_the_same() {
    let (mut peers, _) = Peers::paged(ONE);
    peers.pass(31 * SECOND);
    peers.asked(ONE);
    peers.announce(&repo(2), &[ONE]);
    peers.pass(6 * SECOND);
    let subs = peers.subscribed(ONE);
    let values: Vec<_> = subs.iter().flat_map(|(_, filters)| filters).collect();
    let named = |filter: &&grasp_core::Filter| format!("{filter:?}").contains(":tool");
    assert!(values.iter().any(named), "{values:?}");
    let pages = subs
        .iter()
        .filter(|(_, filters)| filters[0].until.is_some());
    assert_eq!(pages.count(), 0, "and asked for nothing else");
}

/// What the relay was asked for by id.
fn ids_asked(peers: &mut Peers) -> Vec<(SubNo, usize)> {
    let subs = peers.subscribed(ONE).into_iter();
    let ids = |filter: &Filter| Some(filter.ids.as_ref()?.len());
    let asked = subs.filter_map(|(sub, filters)| Some((sub, filters.first().and_then(ids)?)));
    asked.collect()
}

#[test]
fn a_relay_that_takes_fewer_ids_at_once_is_asked_for_fewer() {
    let mut peers = Peers::connected(ONE);
    let (compare, _) = peers.compared(ONE).remove(0);
    let ids: Vec<EventId> = (0..40).map(|n| EventId([n; 32])).collect();
    peers.needs(ONE, compare, &ids);
    let mut asked = ids_asked(&mut peers);
    assert_eq!(asked.first().map(|(_, count)| *count), Some(40));
    while let Some((sub, count)) = asked.pop().filter(|(_, count)| *count > 5) {
        peers.close(ONE, sub, Complaint::Invalid);
        asked = ids_asked(&mut peers);
        let fewer = asked.iter().all(|(_, next)| *next <= count / 2);
        assert!(fewer && !asked.is_empty(), "{count}: {asked:?}");
    }
    assert!(peers.link(ONE).is_up());
}

fn is_flood(note: &&Note) -> bool {
    matches!(note, Note::Misbehaved { fault, .. } if *fault == Fault::Flood)
}

/// As many live events that are not taken, each another.
fn refuse_live(peers: &mut Peers, count: u64) {
    for n in 0..count {
        let ticket = peers.deliver(ONE, SubNo(0), &note(1, EPOCH - n));
        peers.judge(ticket, Outcome::Dismissed(Fate::ForGood));
    }
}

/// They are verified, judged and written down, and nobody asked for them.
#[test]
fn live_events_that_are_not_taken_are_a_flood_when_they_are_too_many() {
    let mut peers = Peers::in_step(ONE);
    for _ in 0..3 {
        refuse_live(&mut peers, 6_000);
        peers.pass_with(ONE, MINUTE);
    }
    assert_eq!(peers.notes.iter().filter(is_flood).count(), 0, "in minutes");
    peers.asked(ONE);
    refuse_live(&mut peers, 6_256);
    assert_eq!(peers.notes.iter().filter(is_flood).count(), 1);
    let asked = peers.asked(ONE);
    assert!(asked.contains(&ToRelay::Unsubscribe(SubNo(0))), "{asked:?}");
    assert!(
        peers.link(ONE).is_up(),
        "what was on its way is no other flood"
    );
    peers.pass_with(ONE, MINUTE);
    assert!(!peers.subscribed(ONE).is_empty(), "it is opened again");
}

#[test]
fn one_event_that_was_dismissed_is_no_less_a_flood() {
    let mut peers = Peers::in_step(ONE);
    refuse_live(&mut peers, 1);
    for _ in 0..6_000 {
        let ticket = peers.deliver(ONE, SubNo(0), &note(1, EPOCH));
        peers.judge(ticket, Outcome::Known);
    }
    assert_eq!(peers.notes.iter().filter(is_flood).count(), 1);
}

#[test]
fn events_that_are_taken_or_known_are_no_flood() {
    let mut peers = Peers::in_step(ONE);
    for n in 0..7_000 {
        let ticket = peers.deliver(ONE, SubNo(0), &note(1, EPOCH - n));
        peers.judge(ticket, Outcome::New);
        let ticket = peers.deliver(ONE, SubNo(0), &note(1, EPOCH - n));
        peers.judge(ticket, Outcome::Known);
    }
    assert_eq!(peers.notes.iter().filter(is_flood).count(), 0);
}
