//! From submission to answer: acknowledged means durable.

use grasp_core::admit::Refusal;
use grasp_core::{Answer, Effect, Origin, Seq, StoreOutcome, Ticket};

use crate::stage::{ALICE, NOON, Stage, event, note};

#[test]
fn an_event_is_answered_and_announced_only_after_its_commit() {
    let mut stage = Stage::new();
    let event = note(ALICE, NOON);
    let ticket = Ticket(0);
    assert_eq!(
        stage.submit(&event),
        [Effect::Store {
            ticket,
            event: event.clone()
        }]
    );
    assert_eq!(stage.core.under_way(), 1);
    assert_eq!(
        stage.commit(0, StoreOutcome::Stored(Seq(5))),
        [
            Effect::Answer {
                ticket,
                answer: Answer::Accepted
            },
            Effect::Announce {
                event,
                seq: Some(Seq(5))
            },
        ]
    );
    assert_eq!(stage.core.under_way(), 0);
}

#[test]
fn what_the_store_refuses_is_answered_and_never_announced() {
    for (outcome, answer) in [
        (StoreOutcome::Duplicate, Answer::Duplicate),
        (StoreOutcome::Replaced, Answer::Refused(Refusal::Replaced)),
        (StoreOutcome::Deleted, Answer::Refused(Refusal::Deleted)),
        (StoreOutcome::Vanished, Answer::Refused(Refusal::Vanished)),
        (StoreOutcome::Failed, Answer::Refused(Refusal::StoreFailed)),
    ] {
        let mut stage = Stage::new();
        stage.submit(&note(ALICE, NOON));
        let ticket = Ticket(0);
        assert_eq!(
            stage.commit(0, outcome),
            [Effect::Answer { ticket, answer }]
        );
    }
}

#[test]
fn a_second_word_on_a_commit_is_not_heard() {
    let mut stage = Stage::new();
    stage.submit(&note(ALICE, NOON));
    stage.commit(0, StoreOutcome::Stored(Seq(0)));
    assert_eq!(stage.commit(0, StoreOutcome::Failed), []);
    assert_eq!(stage.commit(99, StoreOutcome::Stored(Seq(1))), []);
}

#[test]
fn two_submissions_of_one_event_get_two_answers_and_one_announcement() {
    let mut stage = Stage::new();
    let event = note(ALICE, NOON);
    stage.submit(&event);
    stage.submit(&event);
    assert_eq!(stage.commit(0, StoreOutcome::Stored(Seq(0))).len(), 2);
    assert_eq!(
        stage.commit(1, StoreOutcome::Duplicate),
        [Effect::Answer {
            ticket: Ticket(1),
            answer: Answer::Duplicate
        }]
    );
}

#[test]
fn an_ephemeral_event_is_announced_and_never_stored() {
    let mut stage = Stage::new();
    let event = event(ALICE, 20_001, NOON, &[]);
    assert_eq!(
        stage.submit_from(&event, Origin::anonymous()),
        [
            Effect::Answer {
                ticket: Ticket(0),
                answer: Answer::Accepted
            },
            Effect::Announce { event, seq: None },
        ]
    );
}
