//! A few networks hold all that there is of something; somebody at another address is served all the
//! same, because whoever holds most makes way.

use std::time::Duration;

use testkit::{Author, Bystander, Client, FROM_ELSEWHERE, json, now};

use crate::hosted::grasp_with;
use crate::support::metric;

const LONGEST: Duration = Duration::from_secs(5);

fn crowd(n: usize) -> String {
    format!("203.0.113.{n}")
}

/// A turn of everything that a bystander does, while the crowd holds what it holds.
async fn served(bystander: &mut Bystander) {
    let ((), waits) = bystander.during(std::future::ready(())).await;
    assert!(waits.longest() < LONGEST, "{waits:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_of_a_few_networks_keep_nobody_out() {
    let server = grasp_with(&[
        FROM_ELSEWHERE,
        ("NGIT_MAX_CONNECTIONS", "32"),
        ("NGIT_MAX_CONNECTIONS_PER_IP", "8"),
    ]);
    let mut bystander = Bystander::settle(&server).await;
    let mut idle = Vec::new();
    for n in 0..31 {
        idle.push(Client::connect_from(&server.ws_url(), &crowd(n % 4)).await);
    }
    served(&mut bystander).await;
    let evicted = metric(
        &server,
        "ngit_connections_refused_total{reason=\"evicted\"}",
    );
    assert!((1.0..=8.0).contains(&evicted), "{evicted}");
    for client in idle {
        client.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_values_of_a_few_networks_keep_nobody_from_asking() {
    let server = grasp_with(&[FROM_ELSEWHERE, ("NGIT_MAX_FILTER_VALUES_TOTAL", "16000")]);
    let mut bystander = Bystander::settle(&server).await;
    let mut greedy = Client::connect_from(&server.ws_url(), &crowd(0)).await;
    for sub in 0..8 {
        let values: Vec<String> = (0..2_000).map(|value| format!("{sub}-{value}")).collect();
        let (name, filter) = (sub.to_string(), json!({"#t": values}));
        assert!(greedy.request(&name, &[filter]).await.is_empty());
    }
    served(&mut bystander).await;
    let (code, reason) = greedy.disconnected().await.expect("a reason");
    assert_eq!(code, 1008);
    assert!(reason.contains("filter values"), "{reason}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neg_sessions_of_a_few_networks_keep_nobody_from_comparing() {
    let server = grasp_with(&[FROM_ELSEWHERE, ("NGIT_MAX_NEG_ITEMS_TOTAL", "720")]);
    let mut bystander = Bystander::settle(&server).await;
    let mut publisher = Client::connect(&server.ws_url()).await;
    let author = Author::new(1);
    for n in 0..90 {
        let issue = author.event(1621, now() - n, &[&["a", &bystander.address()]], "");
        let (accepted, text) = publisher.publish(&issue).await;
        assert!(accepted, "{text}");
    }
    let open = |kind: u16| json!(["NEG-OPEN", "neg", {"kinds": [kind]}, "6100000200"]);
    let mut crowd_of = Vec::new();
    for n in 0..8 {
        let mut client = Client::connect_from(&server.ws_url(), &crowd(n)).await;
        client.send(&open(1621)).await;
        assert_eq!(client.next().await[0], "NEG-MSG");
        crowd_of.push(client);
    }
    let mut newcomer = Client::connect_from(&server.ws_url(), "198.51.100.9").await;
    newcomer.send(&open(30617)).await;
    let answer = newcomer.next().await;
    assert_eq!(answer[0], "NEG-MSG", "{answer}");
    served(&mut bystander).await;
}
