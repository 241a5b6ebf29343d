//! Pages that strangers and robots ask for take nothing from those who use git and the relay.

use std::time::Duration;

use testkit::{Author, Bystander, Client, FROM_ELSEWHERE, Project, Server, WorkTree, now};

use crate::hosted::{hosted, path};
use crate::support::{Reply, get, request};

const ROBOTS: usize = 24;
const REQUESTS: usize = 12;

/// One of many that read all pages over and over; each has an address of its own or they share one.
fn crawl(server: &Server, pages: &[String], address: String) -> Vec<Reply> {
    let from = [("X-Forwarded-For", address.as_str())];
    let asked = pages.iter().cycle().take(REQUESTS);
    asked
        .map(|page| request(server.addr(), "GET", page, &from))
        .collect()
}

/// A12.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_robots_keeps_nobody_from_cloning_and_pushing() {
    // As few places for git as there can be, and robots that would take them all.
    let few = [FROM_ELSEWHERE, ("NGIT_GIT_CONCURRENT", "1")];
    let server = std::sync::Arc::new(crate::hosted::grasp_with(&few));
    let mut pages = Vec::new();
    for n in 0..3 {
        let project = Project::new(&Author::new(100 + n), "crawled");
        let mut client = hosted(&server, &project, &WorkTree::new()).await;
        publish_issues(&mut client, &project).await;
        pages.push(path(&server, &project));
    }
    let mut bystander = Bystander::settle(&server).await;
    for shared in [true, false] {
        let crawling = (0..ROBOTS).map(|robot| {
            let (server, pages) = (std::sync::Arc::clone(&server), pages.clone());
            let address = format!("192.0.2.{}", if shared { 1 } else { robot + 1 });
            tokio::task::spawn_blocking(move || crawl(&server, &pages, address))
        });
        let crawling: Vec<_> = crawling.collect();
        let (replies, waits) = bystander
            .during(async move {
                let mut replies = Vec::new();
                for robot in crawling {
                    replies.extend(robot.await.unwrap());
                }
                replies
            })
            .await;
        assert!(waits.longest() < Duration::from_secs(5), "{waits:?}");
        let (shown, others): (Vec<_>, Vec<_>) = replies.iter().partition(|of| of.status == 200);
        assert!(!shown.is_empty());
        for reply in others {
            assert_eq!(reply.status, 503, "{reply:?}");
            assert!(reply.header("retry-after").is_some(), "{reply:?}");
        }
    }
}

async fn publish_issues(client: &mut Client, project: &Project) {
    let address = project.address();
    for n in 0..40 {
        let text = format!("{n} {}", "x".repeat(20_000));
        let issue = project.owner.event(1621, now(), &[&["a", &address]], &text);
        assert!(client.publish(&issue).await.0);
    }
}

#[test]
fn robots_are_told_what_is_not_for_them() {
    let server = crate::support::start(&[]);
    let robots = get(server.addr(), "/robots.txt");
    assert_eq!(robots.status, 200);
    for line in [
        "User-agent: *",
        "Disallow: /status",
        "Disallow: /*/info/refs",
    ] {
        assert!(robots.body.lines().any(|told| told == line), "{line}");
    }
    let front = get(server.addr(), "/").body;
    assert!(front.contains(r#"<a href="/status" rel="nofollow">"#));
}
