//! What happened before, by comparison or page by page (E9, E11, E12).

use std::sync::Arc;

use grasp_core::sync::io::{Complaint, End, FromRelay, ToRelay};
use grasp_core::sync::{Fate, Note, Outcome};
use grasp_core::{EventId, Filter, SubNo, SyncLimits, Timestamp};
use grasp_sim::forge;

use super::peers::{EPOCH, HOUR, MINUTE, Peers, SECOND, note, repo, root};

const ONE: &str = "wss://one.example";
const TWO: &str = "wss://two.example";

fn letter(filter: &grasp_core::Filter) -> Option<char> {
    let (letter, _) = filter.tags.first()?;
    Some(char::from(*letter))
}

#[test]
fn layers_are_compared_letter_after_letter() {
    let mut peers = Peers::connected(ONE);
    let mut seen = Vec::new();
    loop {
        let compared = peers.compared(ONE);
        if compared.is_empty() {
            break;
        }
        for (sub, filter) in compared {
            seen.push(letter(&filter));
            peers.reconciled(ONE, sub);
        }
    }
    assert_eq!(seen, [None, Some('A'), Some('a'), Some('q')]);
}

#[test]
fn a_comparison_goes_back_window_after_window() {
    let mut peers = Peers::connected(ONE);
    let (sub, filter) = peers.compared(ONE).remove(0);
    assert_eq!((filter.since, filter.until), (None, None));
    let word = FromRelay::Reconciled {
        sub,
        from: Timestamp(1_000),
        compared: 20_000,
        lacks: 0,
        some: Vec::new(),
    };
    peers.say(ONE, word);
    let (_, filter) = peers.compared(ONE).remove(0);
    assert_eq!(filter.until, Some(Timestamp(999)));
}

/// A comparison that finds nothing for a while goes on; that it does proves nothing of the line.
#[test]
fn a_long_comparison_goes_on_while_it_is_said_to() {
    let mut peers = Peers::connected(ONE);
    let (sub, _) = peers.compared(ONE).remove(0);
    for _ in 0..5 {
        peers.pass(20 * SECOND);
        peers.needs(ONE, sub, &[]);
        let ended = peers.asked(ONE).contains(&ToRelay::EndReconcile(sub));
        assert!(!ended, "it is said to go on");
    }
    peers.pass(2 * MINUTE);
    assert!(!peers.link(ONE).is_up(), "nobody has heard of it");
}

#[test]
fn a_window_with_too_much_in_it_is_halved_and_a_second_goes_by_pages() {
    let mut peers = Peers::connected(ONE);
    let mut halvings = 0;
    loop {
        let asked = peers.asked(ONE);
        let compare = asked.iter().find_map(|what| match what {
            ToRelay::Reconcile { sub, .. } => Some(*sub),
            _ => None,
        });
        let Some(sub) = compare else {
            let pages = asked.iter().any(|what| {
                matches!(what, ToRelay::Subscribe { filters, .. }
                    if filters.len() == 1 && filters[0].until.is_some())
            });
            assert!(pages, "{asked:?}");
            break;
        };
        let why = Complaint::TooManyEvents;
        peers.say(ONE, FromRelay::Unreconciled { sub, why });
        halvings += 1;
        assert!(halvings < 40);
    }
    let no = |note: &Note| matches!(note, Note::NoNegentropy { .. });
    assert!(!peers.notes.iter().any(no), "it does compare");
}

#[test]
fn an_event_is_asked_of_one_relay_at_a_time() {
    let mut peers = Peers::both(ONE, TWO);
    let (one, _) = peers.compared(ONE).remove(0);
    assert_eq!(peers.compared(TWO), [], "the first leads, the other waits");
    let event = note(1, EPOCH);
    peers.needs(ONE, one, &[event.id]);
    peers.reconciled(ONE, one);
    let (fetch, filters) = peers.subscribed(ONE).remove(0);
    assert_eq!(filters[0].ids, Some(vec![event.id]));
    assert_eq!(peers.compared(ONE), [], "the next letter waits for it");
    peers.bring(ONE, fetch, &event);
    peers.eose(ONE, fetch, 1);
    assert_eq!(peers.compared(ONE).len(), 1);
}

/// Some relays answer a request for ids with EOSE and end the subscription at once, while its
/// events are still being verified here.
#[test]
fn a_request_that_the_relay_ends_after_its_eose_is_answered_and_not_refused() {
    let mut peers = Peers::connected(ONE);
    let (compare, _) = peers.compared(ONE).remove(0);
    let (first, second) = (note(1, EPOCH), note(2, EPOCH));
    peers.needs(ONE, compare, &[first.id, second.id]);
    peers.reconciled(ONE, compare);
    let (fetch, _) = peers.subscribed(ONE).remove(0);
    let tickets = [&first, &second].map(|event| peers.deliver(ONE, fetch, event));
    peers.eose(ONE, fetch, 2);
    peers.close(ONE, fetch, Complaint::Other);
    for ticket in tickets {
        peers.judge(ticket, Outcome::New);
    }
    assert_eq!(
        peers.compared(ONE).len(),
        1,
        "the next letter follows at once"
    );
    let refused = |note: &Note| matches!(note, Note::Refused { .. });
    assert!(!peers.notes.iter().any(refused), "{:?}", peers.notes);
}

/// The same for a page and for what was missed while the connection was down.
#[test]
fn pages_that_the_relay_ends_after_their_eose_go_on() {
    let (mut peers, page) = Peers::paged(ONE);
    let events: Vec<_> = (1..=3).map(|n| note(n, EPOCH + u64::from(n))).collect();
    let tickets: Vec<_> = events
        .iter()
        .map(|event| peers.deliver(ONE, page, event))
        .collect();
    peers.eose(ONE, page, 3);
    peers.close(ONE, page, Complaint::Other);
    for ticket in tickets {
        peers.judge(ticket, Outcome::New);
    }
    assert_eq!(peers.subscribed(ONE).len(), 1, "the next page or letter");
    let refused = |note: &Note| matches!(note, Note::Refused { .. });
    assert!(!peers.notes.iter().any(refused), "{:?}", peers.notes);
}

#[test]
fn a_relay_that_leads_and_brings_nothing_keeps_nobody_waiting() {
    for refuses in [true, false] {
        let mut peers = Peers::both(ONE, TWO);
        let (sub, _) = peers.compared(ONE).remove(0);
        assert_eq!(peers.compared(TWO), []);
        if refuses {
            let why = Complaint::RateLimited;
            peers.say(ONE, FromRelay::Unreconciled { sub, why });
        } else {
            peers.pass(5 * SECOND);
        }
        assert_eq!(peers.compared(TWO).len(), 1, "{refuses}");
    }
}

/// Two relays that know everything, at the moment when both compare all again.
fn both_compare() -> (Peers, SubNo, SubNo) {
    let limits = SyncLimits {
        full_min: 24 * HOUR,
        full_max: 24 * HOUR,
        ..SyncLimits::default()
    };
    let mut peers = Peers::with(limits, &[]);
    peers.announce(&repo(1), &[ONE, TWO]);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Up);
    peers.answer_all(ONE);
    peers.say(TWO, FromRelay::Up);
    peers.answer_all(TWO);
    loop {
        peers.pass(SECOND);
        peers.say(ONE, FromRelay::Heard);
        peers.say(TWO, FromRelay::Heard);
        if let (Some((one, _)), Some((two, _))) =
            (peers.compared(ONE).pop(), peers.compared(TWO).pop())
        {
            return (peers, one, two);
        }
    }
}

/// What is not asked for again is one list for all relays, and what is wanted again is not in it.
#[test]
fn relays_share_the_list_of_what_is_set_aside() {
    let mut peers = Peers::in_step(ONE);
    let state = forge::state(forge::key(5), "tool", EPOCH, &[]);
    let fate = Fate::Early(vec![7]);
    let ticket = peers.deliver(ONE, SubNo(0), &state);
    peers.judge(ticket, Outcome::Dismissed(fate));
    let (three, four) = ("wss://three.example", "wss://four.example");
    peers.announce(&repo(2), &[TWO, three, four]);
    // A list may be so old.
    peers.pass(10 * SECOND);
    let aside = |peers: &mut Peers, name: &str| {
        peers.say(name, FromRelay::Up);
        let asked = peers.asked(name).into_iter();
        let mut aside = asked.filter_map(|what| match what {
            ToRelay::Reconcile { aside, .. } => Some(aside),
            _ => None,
        });
        aside.next().unwrap()
    };
    let one = aside(&mut peers, TWO);
    assert_eq!(*one, [(Timestamp(EPOCH), state.id)]);
    let same = aside(&mut peers, three);
    assert!(Arc::ptr_eq(&one, &same), "not a copy for each relay");
    peers.sync.look_again(&[7], peers.clock());
    assert_eq!(*aside(&mut peers, four), []);
}

#[test]
fn what_one_relay_fails_to_deliver_the_next_is_asked_for() {
    let (mut peers, one, two) = both_compare();
    let event = note(1, EPOCH);
    peers.needs(ONE, one, &[event.id]);
    peers.needs(TWO, two, &[event.id]);
    let (fetch, _) = peers.subscribed(ONE).remove(0);
    assert_eq!(peers.subscribed(TWO), [], "one at a time");
    peers.eose(ONE, fetch, 0);
    let (fetch, filters) = peers.subscribed(TWO).remove(0);
    assert_eq!(filters[0].ids, Some(vec![event.id]));
    peers.bring(TWO, fetch, &event);
    let daily = |note: &&Note| matches!(note, Note::Found { gap: true, .. });
    assert_eq!(peers.notes.iter().filter(daily).count(), 1, "E11, E17");
}

#[test]
fn a_lost_line_hands_its_events_to_the_next() {
    let (mut peers, one, two) = both_compare();
    let id = EventId([5; 32]);
    peers.needs(ONE, one, &[id]);
    peers.needs(TWO, two, &[id]);
    assert_eq!(peers.subscribed(ONE).len(), 1);
    peers.say(ONE, FromRelay::Down(End::Closed));
    assert_eq!(peers.subscribed(TWO).len(), 1);
}

#[test]
fn a_disconnect_forgets_what_was_pending() {
    let mut peers = Peers::connected(ONE);
    let relay = peers.relay(ONE);
    let sets = |peers: &Peers| {
        let known = peers.sync.targets().relays.get(relay).unwrap();
        (known.pending.len(), known.missing().len())
    };
    assert_eq!(sets(&peers), (2, 0));
    peers.say(ONE, FromRelay::Down(End::Closed));
    assert_eq!(sets(&peers), (0, 2), "E9");
}

/// E17: what was read stays read, whatever becomes of the line.
#[test]
fn a_lost_line_and_the_daily_comparison_take_nothing_away() {
    let mut peers = Peers::connected(ONE);
    let relay = peers.relay(ONE);
    let sets = |peers: &Peers| {
        let known = peers.sync.targets().relays.get(relay).unwrap();
        (known.read.len(), known.confirmed.len())
    };
    assert_eq!(sets(&peers), (0, 0));
    peers.answer_all(ONE);
    assert_eq!(sets(&peers), (2, 2));
    peers.pass_with(ONE, 26 * HOUR);
    assert_eq!(sets(&peers), (2, 0), "compared again");
    peers.say(ONE, FromRelay::Down(End::Closed));
    assert_eq!(sets(&peers), (2, 0));
}

#[test]
fn without_nip77_pages_are_asked_and_one_warning_given() {
    let mut peers = Peers::connected(ONE);
    let (sub, _) = peers.compared(ONE).remove(0);
    let why = Complaint::Unsupported;
    peers.say(ONE, FromRelay::Unreconciled { sub, why });
    let (page, filters) = peers.subscribed(ONE).remove(0);
    assert_eq!(filters[0].limit, Some(500));
    // A full second first, then what is older.
    for n in 0..3 {
        peers.bring(ONE, page, &note(n, EPOCH - 10 - u64::from(n)));
    }
    peers.eose(ONE, page, 3);
    let (page, filters) = peers.subscribed(ONE).remove(0);
    assert_eq!(filters[0].until, Some(Timestamp(EPOCH - 12)));
    peers.eose(ONE, page, 0);
    peers.answer_all(ONE);
    let no = |note: &&Note| matches!(note, Note::NoNegentropy { .. });
    assert_eq!(peers.notes.iter().filter(no).count(), 1, "one warning");
    // The next day it is tried again.
    peers.pass_with(ONE, 26 * HOUR);
    assert_eq!(peers.compared(ONE).len(), 1);
}

#[test]
fn silence_is_how_some_answer_a_comparison() {
    let mut peers = Peers::connected(ONE);
    let (sub, _) = peers.compared(ONE).remove(0);
    peers.pass(29 * SECOND);
    peers.say(ONE, FromRelay::Heard);
    peers.pass(2 * SECOND);
    let asked = peers.asked(ONE);
    assert!(asked.contains(&ToRelay::EndReconcile(sub)), "{asked:?}");
    let pages = |what: &ToRelay| matches!(what, ToRelay::Subscribe { filters, .. } if filters[0].until.is_some());
    assert!(asked.iter().any(pages));
}

#[test]
fn a_relay_that_says_eose_is_never_taken_at_its_silence() {
    let (mut peers, page) = Peers::paged(ONE);
    peers.eose(ONE, SubNo(0), 0);
    peers.bring(ONE, page, &note(1, EPOCH));
    for _ in 0..12 {
        peers.pass(10 * SECOND);
        peers.say(ONE, FromRelay::Heard);
    }
    let known = peers.sync.targets().relays.get(peers.relay(ONE)).unwrap();
    assert!(known.confirmed.is_empty(), "a slow moment is no answer");
}

#[test]
fn an_answer_without_eose_may_always_have_been_cut() {
    let (mut peers, page) = Peers::paged(ONE);
    peers.bring(ONE, page, &note(1, EPOCH));
    for _ in 0..4 {
        peers.pass(10 * SECOND);
        peers.say(ONE, FromRelay::Heard);
    }
    let until: Vec<_> = peers
        .subscribed(ONE)
        .iter()
        .map(|(_, f)| f[0].until)
        .collect();
    assert!(until.contains(&Some(Timestamp(EPOCH))), "{until:?}");
}

#[test]
fn what_waits_for_a_leader_is_watched_meanwhile() {
    let mut peers = Peers::both(ONE, TWO);
    assert_eq!(peers.compared(ONE).len(), 1);
    let subs = peers.subscribed(TWO);
    assert_eq!(subs.len(), 1, "announcements and the repository");
    assert_eq!(subs[0].1.len(), 4);
}

#[test]
fn a_leader_that_brings_little_is_followed_after_half_a_minute() {
    let mut peers = Peers::both(ONE, TWO);
    let (sub, _) = peers.compared(ONE).remove(0);
    for n in 0..10 {
        peers.pass(4 * SECOND);
        peers.needs(ONE, sub, &[EventId([n; 32])]);
    }
    assert!(!peers.compared(TWO).is_empty());
}

#[test]
fn eose_twice_late_or_never() {
    let (mut peers, _) = Peers::paged(ONE);
    // Not one EOSE: it is taken at its silence.
    for _ in 0..60 {
        peers.pass(10 * SECOND);
        peers.say(ONE, FromRelay::Heard);
    }
    let relay = peers.relay(ONE);
    let known = peers.sync.targets().relays.get(relay).unwrap();
    assert_eq!((known.missing().len(), known.pending.len()), (0, 0));
    // Late and twice: nothing happens.
    for n in 0..9 {
        peers.eose(ONE, SubNo(n), 7);
        peers.eose(ONE, SubNo(n), 7);
    }
}

#[test]
fn a_small_answer_to_a_relay_that_gave_more_is_the_end() {
    let mut peers = Peers::in_step(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    let (sub, _) = peers.subscribed(ONE).remove(0);
    for n in 0..5 {
        peers.bring(ONE, sub, &note(n, EPOCH + u64::from(n)));
    }
    peers.eose(ONE, sub, 5);
    let pages = peers.subscribed(ONE);
    assert_eq!(pages.len(), 1, "it may have been cut: {pages:?}");
}

#[test]
fn events_that_come_twice_do_not_prove_a_larger_page() {
    let mut peers = Peers::connected(ONE);
    let (sub, _) = peers.compared(ONE).remove(0);
    let two = [note(1, EPOCH), note(2, EPOCH)];
    peers.needs(ONE, sub, &two.each_ref().map(|event| event.id));
    let (fetch, _) = peers.subscribed(ONE).remove(0);
    for event in two.iter().chain(&two) {
        peers.bring(ONE, fetch, event);
    }
    peers.eose(ONE, fetch, 4);
    peers.reconciled(ONE, sub);
    peers.answer_all(ONE);
    peers.subscribed(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    let (sub, _) = peers.subscribed(ONE).remove(0);
    for n in 3..6 {
        peers.bring(ONE, sub, &note(n, EPOCH));
    }
    peers.eose(ONE, sub, 3);
    let pages = peers.subscribed(ONE);
    assert_eq!(pages.len(), 1, "it may have been cut: {pages:?}");
}

#[test]
fn what_was_refused_for_good_is_not_asked_for_again() {
    let (mut peers, one, two) = both_compare();
    let event = note(1, EPOCH);
    peers.needs(ONE, one, &[event.id]);
    let (fetch, _) = peers.subscribed(ONE).remove(0);
    let ticket = peers.deliver(ONE, fetch, &event);
    let fate = Fate::ForGood;
    peers.judge(ticket, Outcome::Dismissed(fate));
    peers.needs(TWO, two, &[event.id]);
    assert_eq!(peers.subscribed(TWO), [], "not again");
}

#[test]
fn what_could_not_be_taken_for_now_is_asked_for_again() {
    let (mut peers, one, _) = both_compare();
    let event = note(1, EPOCH);
    peers.needs(ONE, one, &[event.id]);
    let (fetch, _) = peers.subscribed(ONE).remove(0);
    let ticket = peers.deliver(ONE, fetch, &event);
    peers.judge(ticket, Outcome::NotNow);
    peers.eose(ONE, fetch, 1);
    peers.asked(ONE);
    peers.pass(60 * SECOND);
    let subs = peers.subscribed(ONE);
    let ids: Vec<_> = subs.iter().filter_map(|(_, f)| f[0].ids.clone()).collect();
    assert_eq!(ids, [vec![event.id]], "a full disk loses nothing");
}

#[test]
fn an_early_event_is_asked_for_when_what_it_waits_for_has_come() {
    let mut peers = Peers::in_step(ONE);
    let event = note(1, EPOCH);
    let ticket = peers.deliver(ONE, SubNo(0), &event);
    let fate = Fate::Early(vec![77]);
    peers.judge(ticket, Outcome::Dismissed(fate));
    peers.pass_with(ONE, 5 * HOUR);
    peers.asked(ONE);
    let now = peers.clock();
    peers.sync.accepted(&EventId([8; 32]), &[77], &[], now);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Heard);
    let subs = peers.subscribed(ONE);
    let ids: Vec<_> = subs.iter().filter_map(|(_, f)| f[0].ids.clone()).collect();
    assert_eq!(ids, [vec![event.id]], "hours later");
}

#[test]
fn a_state_that_its_relay_no_longer_has_is_looked_for_everywhere() {
    let mut peers = Peers::in_step(ONE);
    let event = forge::state(forge::key(1), "x", EPOCH, &[]);
    let ticket = peers.deliver(ONE, SubNo(0), &event);
    peers.judge(ticket, Outcome::Dismissed(Fate::Early(vec![77])));
    peers.pass_with(ONE, HOUR);
    peers.asked(ONE);
    let now = peers.clock();
    peers.sync.accepted(&EventId([8; 32]), &[77], &[], now);
    peers.pass(SECOND);
    peers.say(ONE, FromRelay::Heard);
    let (fetch, filters) = peers.subscribed(ONE).remove(0);
    assert_eq!(filters[0].ids, Some(vec![event.id]));
    peers.eose(ONE, fetch, 0);
    peers.pass_with(ONE, MINUTE);
    let compared = peers.compared(ONE);
    let states = |filter: &Filter| filter.kinds.as_ref().is_some_and(|all| !all.is_empty());
    assert!(
        compared.iter().any(|(_, filter)| states(filter)),
        "{compared:?}"
    );
}

#[test]
fn pages_go_on_where_the_relay_lost_patience() {
    let (mut peers, page) = Peers::paged(ONE);
    for n in 0..5 {
        peers.bring(ONE, page, &note(n, EPOCH - u64::from(n)));
    }
    peers.eose(ONE, page, 5);
    let (page, filters) = peers.subscribed(ONE).remove(0);
    assert_eq!(filters[0].until, Some(Timestamp(EPOCH - 4)));
    peers.close(ONE, page, Complaint::RateLimited);
    peers.pass_with(ONE, 90 * SECOND);
    let again = peers.subscribed(ONE);
    let until: Vec<_> = again.iter().map(|(_, filters)| filters[0].until).collect();
    assert!(
        until.contains(&Some(Timestamp(EPOCH - 4))),
        "it lets us ask so often and would never come to an end: {until:?}"
    );
}

#[test]
fn a_second_that_pages_cannot_show_is_compared() {
    let mut peers = Peers::in_step(ONE);
    peers.news(root(9, &[repo(1)]));
    peers.pass(SECOND);
    let mut compared = Vec::new();
    for _ in 0..20 {
        for what in peers.asked(ONE) {
            match what {
                ToRelay::Subscribe { sub, filters, .. } => {
                    let asked = |f: &Filter| letter(f) == Some('E');
                    let some = filters.iter().any(asked);
                    // Never more than three, however high the limit.
                    for n in 0..3 * u8::from(some) {
                        peers.bring(ONE, sub, &note(n, EPOCH));
                    }
                    peers.eose(ONE, sub, 3 * u32::from(some));
                }
                ToRelay::Reconcile { sub, filter, .. } => {
                    compared.push((filter.since, filter.until));
                    peers.reconciled(ONE, sub);
                }
                _ => {}
            }
        }
    }
    let second = Some(Timestamp(EPOCH));
    assert_eq!(compared, [(second, second)]);
}

/// E18: how reliable a relay is, in sums.
#[test]
fn what_a_relay_is_worth_is_counted() {
    let mut peers = Peers::new();
    peers.announce(&repo(1), &[ONE]);
    peers.pass(SECOND);
    peers.fail(ONE);
    peers.pass(5 * SECOND);
    peers.fail(ONE);
    peers.pass(10 * SECOND);
    peers.say(ONE, FromRelay::Up);
    let asked = peers.asked(ONE);
    let live = asked.iter().find_map(|what| match what {
        ToRelay::Subscribe { sub, .. } => Some(*sub),
        _ => None,
    });
    let compared = asked.iter().find_map(|what| match what {
        ToRelay::Reconcile { sub, .. } => Some(*sub),
        _ => None,
    });
    let (live, sub) = (live.unwrap(), compared.unwrap());
    peers.say(
        ONE,
        FromRelay::Reconciled {
            sub,
            from: Timestamp(0),
            compared: 10,
            lacks: 4,
            some: vec![EventId([9; 32])],
        },
    );
    peers.answer_all(ONE);
    peers.eose(ONE, live, 0);
    peers.pass_with(ONE, 5 * MINUTE);
    let new = peers.clock().unix.0;
    peers.bring(ONE, live, &note(1, new));
    let status = peers.sync.status(peers.clock());
    let relay = status.relays.first().unwrap();
    let record = relay.record;
    assert_eq!((record.attempts, record.failures), (3, 2));
    assert_eq!((record.live, record.catch_up, record.daily), (1, 0, 0));
    assert_eq!((record.compared, record.lacks), (10, 4));
    assert_eq!(relay.coverage, Some(0.6), "the share of ours that it has");
    let uptime = relay.uptime.unwrap();
    let expected = 300.0 / 316.0;
    assert!((uptime - expected).abs() < 0.01, "{uptime}");
    let lacks = peers.notes.iter().filter_map(|note| match note {
        Note::Lacks { count, .. } => Some(*count),
        _ => None,
    });
    assert_eq!(lacks.sum::<u32>(), 4, "and it is told");
}
