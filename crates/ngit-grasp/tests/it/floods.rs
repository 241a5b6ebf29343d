//! What one address can do at its ordinary rates, and somebody at another who works meanwhile.

use std::time::Duration;

use testkit::{Author, Bystander, Client, FROM_ELSEWHERE, Project, Server, Waits, now};

use crate::hosted::grasp_with;

const STRANGER: &str = "203.0.113.7";
const LONGEST: Duration = Duration::from_secs(5);

async fn scene() -> (Server, Bystander, Client) {
    let server = grasp_with(&[FROM_ELSEWHERE]);
    let bystander = Bystander::settle(&server).await;
    let stranger = Client::connect_from(&server.ws_url(), STRANGER).await;
    (server, bystander, stranger)
}

fn in_time(waits: &Waits) {
    assert!(waits.longest() < LONGEST, "{waits:?}");
}

/// A1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_of_many_large_events_holds_up_nobody() {
    let (_server, mut bystander, mut stranger) = scene().await;
    let author = Author::new(1);
    let mut targets = Vec::new();
    for n in 0..200 {
        let mut tags = vec![vec!["a".to_owned(), bystander.address()]];
        tags.extend((0..2_400).map(|tag| vec!["t".to_owned(), format!("{n}-{tag}")]));
        let comment = author.event_tags(1111, now() - n, tags, "");
        let (accepted, text) = stranger.publish(&comment).await;
        assert!(accepted, "{text}");
        targets.push(vec!["e".to_owned(), comment.id.to_string()]);
    }
    let deletion = author.event_tags(5, now(), targets, "");
    let attack = async {
        let (accepted, text) = stranger.publish(&deletion).await;
        assert!(accepted, "{text}");
        let by_author = testkit::json!({"authors": [author.pubkey()], "kinds": [1111]});
        stranger.request("gone", &[by_author]).await.len()
    };
    let (left, waits) = bystander.during(attack).await;
    assert_eq!(left, 0, "hidden at once");
    in_time(&waits);
}

/// A2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_that_name_many_large_ones_hold_up_nobody() {
    let (_server, mut bystander, mut stranger) = scene().await;
    let text = "x".repeat(180 * 1024);
    let mut named = Vec::new();
    for n in 0..64 {
        let author = Author::new(100 + n);
        let list = author.event(10317, now(), &[&["g", "wss://a.example"]], &text);
        assert!(stranger.publish(&list).await.0);
        named.push(vec!["a".to_owned(), format!("10317:{}:", author.pubkey())]);
    }
    let author = Author::new(2);
    let orphans: Vec<_> = (0..400)
        .map(|n| author.event_tags(1111, now() - n, named.clone(), ""))
        .collect();
    let attack = async {
        for orphan in &orphans {
            stranger.publish(orphan).await;
        }
    };
    let ((), waits) = bystander.during(attack).await;
    in_time(&waits);
}

/// A9.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announcements_of_one_address_keep_no_newcomer_from_announcing() {
    // A sixteenth of it is less than the address may send.
    let server = grasp_with(&[FROM_ELSEWHERE, ("NGIT_PURGATORY_MAX_EVENTS", "400")]);
    let mut bystander = Bystander::settle(&server).await;
    let mut stranger = Client::connect_from(&server.ws_url(), STRANGER).await;
    let announcements: Vec<_> = (0..400)
        .map(|n| {
            let owner = Author::new(1_000 + n % 12);
            Project::new(&owner, &format!("r{n}")).announcement(now())
        })
        .collect();
    let attack = async {
        let mut held = 0;
        for announcement in &announcements {
            held += usize::from(stranger.publish(announcement).await.0);
        }
        held
    };
    let (held, waits) = bystander.during(attack).await;
    assert!(held < 400, "{held}");
    in_time(&waits);
    let mut newcomer = Client::connect_from(&server.ws_url(), "198.51.100.3").await;
    let announcement = Project::new(&Author::new(7), "new").announcement(now());
    let (accepted, text) = newcomer.publish(&announcement).await;
    assert!(accepted, "{text}");
}
