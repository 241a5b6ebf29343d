//! Attacks by ordinary clients at a few addresses, each on a server of its own with default limits,
//! while a bystander at another address publishes, asks, pushes and clones. The bystander's waits and
//! the server's memory stand next to those of a server that is left in peace.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, join_all};
use grasp_core::Event;
use serde_json::{Value, json};
use testkit::bystander::percentile;
use testkit::grasp::DOMAIN;
use testkit::{Author, Bystander, Client, FROM_ELSEWHERE, Project, Server, Waits, now};
use tokio::runtime::Runtime;

use crate::process::{build_server, memory_mb};
use crate::report::Report;

/// An attack goes on for so long at most.
const SIEGE: Duration = Duration::from_secs(15);
/// Under attack nobody waits longer: a push is two commits, some git processes and their disk.
const MOST_MS: f64 = 2_000.0;
/// Above what the server in peace takes.
const MOST_MB: f64 = 250.0;
/// Tags of a large event; the limit is 2,500.
const TAGS: usize = 2_400;

/// What is attacked.
#[derive(Clone)]
struct Target {
    ws_url: String,
    addr: SocketAddr,
    /// The bystander's repository: its address, and its path.
    address: String,
    path: String,
}

/// The part of an attack that others feel, after what prepares it.
struct Strike(BoxFuture<'static, ()>);
type Attack = fn(Target) -> BoxFuture<'static, Strike>;

const ATTACKS: [(&str, Attack); 10] = [
    ("one deletion of large events", deletion),
    ("events that name large ones", naming),
    ("announcements with many keys", announcements),
    ("heavy queries", queries),
    ("a subscription opened again and again", reopening),
    ("many filters of one value", filters),
    ("queued COUNTs", counts),
    ("readers who do not read", deaf),
    ("dripping pushes", drips),
    ("pages", pages),
];

pub fn run(scale: usize) -> Report {
    let (bin, runtime) = (build_server(), Runtime::new().expect("a runtime"));
    let siege = SIEGE / u32::try_from(scale).unwrap_or(1);
    let mut report = Report::default();
    let idle = runtime.block_on(besiege(&bin, siege, None));
    show(&mut report, "in peace", &idle, None);
    for (name, attack) in ATTACKS {
        eprintln!("{name}");
        let found = runtime.block_on(besiege(&bin, siege, Some(attack)));
        show(&mut report, name, &found, Some(&idle));
    }
    report
}

struct Found {
    waits: Waits,
    memory_mb: f64,
}

async fn besiege(bin: &Path, siege: Duration, attack: Option<Attack>) -> Found {
    let env = [
        ("NGIT_DOMAIN", DOMAIN),
        ("NGIT_ACCEPT_UNRELATED_EVENTS", "false"),
        FROM_ELSEWHERE,
    ];
    let server = Server::start(bin, &env);
    let mut bystander = Bystander::settle(&server).await;
    let target = Target {
        ws_url: server.ws_url(),
        addr: server.addr(),
        address: bystander.address(),
        path: bystander.path(),
    };
    let Strike(strike) = match attack {
        Some(attack) => attack(target).await,
        None => Strike(Box::pin(tokio::time::sleep(siege))),
    };
    let attack = tokio::spawn(tokio::time::timeout(siege, strike));
    let mut most = 0.0;
    let watched = async {
        tokio::select! {
            _ = attack => {}
            () = watch_memory(server.pid(), &mut most) => {}
        }
    };
    let ((), waits) = bystander.during(watched).await;
    let memory_mb = most;
    Found { waits, memory_mb }
}

/// Its own memory: pages of the store that are mapped are the system's to take back.
async fn watch_memory(pid: u32, most: &mut f64) {
    loop {
        *most = memory_mb(pid, "RssAnon").max(*most);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn show(report: &mut Report, name: &str, found: &Found, idle: Option<&Found>) {
    let Waits {
        publish,
        request,
        push,
        clone,
    } = &found.waits;
    let ms = |waits: &[Duration], percent| percentile(waits, percent).as_secs_f64() * 1e3;
    for (what, waits) in [
        ("publish", publish),
        ("REQ", request),
        ("push", push),
        ("clone", clone),
    ] {
        report.note(format!("{name}: {what} p50"), ms(waits, 50), "ms");
        let (what, p99) = (format!("{name}: {what} p99"), ms(waits, 99));
        match idle {
            Some(_) => report.at_most(what, p99, "ms", MOST_MS),
            None => report.note(what, p99, "ms"),
        }
    }
    let memory = format!("{name}: memory at most");
    match idle {
        Some(idle) => report.at_most(memory, found.memory_mb, "MB", idle.memory_mb + MOST_MB),
        None => report.note(memory, found.memory_mb, "MB"),
    }
}

/// An attacker's address.
fn address(n: usize) -> String {
    format!("203.0.113.{}", n % 250)
}

async fn connect(target: &Target, n: usize) -> Client {
    Client::connect_from(&target.ws_url, &address(n)).await
}

/// Comments on the bystander's repository with as many indexed tags as are allowed.
fn large(target: &Target, author: &Author, count: usize) -> Vec<Event> {
    let make = |n: usize| {
        let mut tags = vec![vec!["a".to_owned(), target.address.clone()]];
        tags.extend(
            (0..TAGS).map(|tag| vec!["t".to_owned(), format!("{n}-{tag}-{}", "x".repeat(60))]),
        );
        author.event_tags(1111, now() - n as u64, tags, "")
    };
    (0..count).map(make).collect()
}

async fn publish_all(client: &mut Client, events: &[Event]) {
    for event in events {
        let (taken, why) = client.publish(event).await;
        assert!(taken, "an attack cannot be prepared: {why}");
    }
}

/// A1: everything that one author has stored goes with one request.
fn deletion(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let author = Author::new(1);
        let events = large(&target, &author, 500);
        let mut client = connect(&target, 1).await;
        publish_all(&mut client, &events).await;
        let tags = events
            .iter()
            .map(|event| vec!["e".to_owned(), event.id.to_string()]);
        let deletion = author.event_tags(5, now(), tags.collect(), "");
        Strike(Box::pin(async move {
            client.publish(&deletion).await;
            tokio::time::sleep(SIEGE).await;
        }))
    })
}

/// A2: each refused event asks for the presence of many large ones.
fn naming(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let mut client = connect(&target, 1).await;
        let text = "x".repeat(180 * 1024);
        let mut named = Vec::new();
        for n in 0..64 {
            let author = Author::new(100 + n);
            let event = author.event(10317, now(), &[&["g", "wss://a.example"]], &text);
            client.publish(&event).await;
            named.push(vec!["a".to_owned(), format!("10317:{}:", author.pubkey())]);
        }
        let author = Author::new(2);
        let event = |n: u64| author.event_tags(1111, now() - n, named.clone(), "");
        let events: Vec<Event> = (0..500).map(event).collect();
        Strike(Box::pin(async move {
            for event in &events {
                client.publish(event).await;
            }
        }))
    })
}

/// A3, A9: one address announces as much as it can.
fn announcements(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let announce = |n: u64| {
            Project::new(&Author::new(1_000 + n % 12), &format!("r{n}")).announcement(now())
        };
        let events: Vec<Event> = (0..580).map(announce).collect();
        Strike(Box::pin(async move {
            let mut client = connect(&target, 1).await;
            for event in &events {
                client.publish(event).await;
            }
        }))
    })
}

/// A5: queries that read many large events and match none.
fn queries(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let events = large(&target, &Author::new(1), 300);
        publish_all(&mut connect(&target, 1).await, &events).await;
        let filter = json!({"#a": [target.address], "#t": ["nothing"], "limit": 500});
        Strike(Box::pin(async move {
            let ask = |n: usize| {
                let (target, filter) = (target.clone(), filter.clone());
                async move {
                    let mut client = connect(&target, 1).await;
                    loop {
                        client
                            .request(&format!("q{n}"), std::slice::from_ref(&filter))
                            .await;
                    }
                }
            };
            join_all((0..48).map(ask)).await;
        }))
    })
}

/// A17: a query is left behind by its own subscription.
fn reopening(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let events = large(&target, &Author::new(1), 300);
        publish_all(&mut connect(&target, 1).await, &events).await;
        let request =
            json!(["REQ", "same", {"#a": [target.address], "#t": ["nothing"], "limit": 500}]);
        Strike(Box::pin(async move {
            let open = |_| {
                let (target, request) = (target.clone(), request.clone());
                async move {
                    let mut client = connect(&target, 1).await;
                    for _ in 0..20_000 {
                        client.send(&request).await;
                        tokio::task::yield_now().await;
                    }
                }
            };
            join_all((0..8).map(open)).await;
        }))
    })
}

/// A6: every event of the bystander meets all of these.
fn filters(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let filter =
            |n: usize| json!({"#a": [target.address], "#t": [format!("t{n}")], "limit": 0});
        let mut clients = Vec::new();
        for _ in 0..30 {
            let mut client = connect(&target, 1).await;
            for sub in 0..63 {
                let filters: Vec<Value> = (0..63).map(filter).collect();
                let mut request = vec![json!("REQ"), json!(format!("s{sub}"))];
                request.extend(filters);
                client.send(&Value::Array(request)).await;
                while !matches!(client.next().await[0].as_str(), Some("EOSE" | "CLOSED")) {}
            }
            clients.push(client);
        }
        Strike(Box::pin(async move {
            tokio::time::sleep(SIEGE).await;
            drop(clients);
        }))
    })
}

/// A13: more questions wait than are answered.
fn counts(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let values: Vec<String> = (0..1_900).map(|n| format!("{n:064x}")).collect();
        let filters: Vec<Value> = (0..2).map(|_| json!({"#e": values})).collect();
        Strike(Box::pin(async move {
            let ask = |_| {
                let (target, filters) = (target.clone(), filters.clone());
                async move {
                    let mut client = connect(&target, 1).await;
                    for n in 0..2_000 {
                        let mut request = vec![json!("COUNT"), json!(format!("c{n}"))];
                        request.extend(filters.clone());
                        client.send(&Value::Array(request)).await;
                    }
                }
            };
            join_all((0..8).map(ask)).await;
        }))
    })
}

/// A18: answers pile up for those who never read them.
fn deaf(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let events = large(&target, &Author::new(1), 100);
        publish_all(&mut connect(&target, 1).await, &events).await;
        let filter = json!({"#a": [target.address], "limit": 500});
        Strike(Box::pin(async move {
            let mut clients = Vec::new();
            for n in 0..60 {
                let mut client = connect(&target, n / 60).await;
                for sub in 0..4 {
                    client
                        .send(&json!(["REQ", format!("s{sub}"), filter]))
                        .await;
                }
                clients.push(client);
            }
            tokio::time::sleep(SIEGE).await;
        }))
    })
}

/// A11: pushes that bring a byte now and then.
fn drips(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        Strike(Box::pin(async move {
            let drip = move || {
                let mut streams: Vec<TcpStream> = (0..40)
                    .filter_map(|n| half_push(&target, &address(n / 8)).ok())
                    .collect();
                let began = Instant::now();
                while began.elapsed() < SIEGE {
                    streams.retain_mut(|stream| stream.write_all(b"0").is_ok());
                    std::thread::sleep(Duration::from_millis(200));
                }
            };
            let _ = tokio::task::spawn_blocking(drip).await;
        }))
    })
}

fn half_push(target: &Target, from: &str) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(target.addr)?;
    let head = format!(
        "POST {}/git-receive-pack HTTP/1.1\r\nHost: {DOMAIN}\r\nX-Forwarded-For: {from}\r\n\
         Content-Type: application/x-git-receive-pack-request\r\nContent-Length: 100000\r\n\r\n0",
        target.path
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

/// A12: the costliest thing that a browser can ask for.
fn pages(target: Target) -> BoxFuture<'static, Strike> {
    Box::pin(async move {
        let events = large(&target, &Author::new(1), 300);
        publish_all(&mut connect(&target, 1).await, &events).await;
        Strike(Box::pin(async move {
            let ask = |_| {
                let target = target.clone();
                tokio::task::spawn_blocking(move || {
                    let began = Instant::now();
                    while began.elapsed() < SIEGE {
                        let _ = page(&target);
                    }
                })
            };
            join_all((0..16).map(ask)).await;
        }))
    })
}

fn page(target: &Target) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(target.addr)?;
    stream.set_read_timeout(Some(SIEGE))?;
    let head = format!(
        "GET {} HTTP/1.1\r\nHost: {DOMAIN}\r\nX-Forwarded-For: {}\r\nConnection: close\r\n\r\n",
        target.path,
        address(1)
    );
    stream.write_all(head.as_bytes())?;
    std::io::copy(&mut stream, &mut std::io::sink())
}
