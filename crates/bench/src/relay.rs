//! The relay's figures: ingest, queries, fan-out, reconciliation, memory, start.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Instant;

use grasp_core::Event;
use grasp_core::id::{hex_to_vec, to_hex};
use negentropy::{Id, Negentropy, NegentropyStorageVector};
use serde_json::{Value, json};
use testkit::Server;
use tokio::runtime::Runtime;

use crate::load::Wire;
use crate::process::{build_server, cpu_seconds, fill, memory_mb, start, verification_us};
use crate::report::{Report, percentile};
use crate::synth::Synth;

/// Events measured at each size of the store and each number of connections: two rounds of what
/// the store gathers before it brings it into its indexes.
const MEASURED: usize = 32_768;

pub fn run(scale: usize) -> Report {
    let runtime = Runtime::new().expect("a runtime");
    let bin = build_server();
    let mut report = Report::default();
    ingest(&runtime, &bin, &mut report, scale);
    queries(&runtime, &bin, &mut report, scale);
    fan_out(&runtime, &bin, &mut report, scale);
    reconciliation(&runtime, &bin, &mut report, scale);
    report
}

fn ingest(runtime: &Runtime, bin: &Path, report: &mut Report, scale: usize) {
    let mut synth = Synth::new(1);
    let measured = MEASURED / scale;
    // Four measurements, and a tail for the crash that stays below its bound.
    let count = 4 * measured + 16_000 / scale;
    eprintln!("signing {count} events");
    let mut signed: Vec<Event> = (0..count).map(|_| synth.signed()).collect();
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let sample: Vec<Event> = signed.iter().take(4_000).cloned().collect();
    let alone = verification_us(&sample, 1);
    report.note("one signature check, alone", alone, "us");

    let mut server = start(bin);
    server.terminate();
    let mut stored = 0;
    let mut costs = Vec::new();
    for size in [10_000 / scale, 500_000 / scale] {
        eprintln!("store of {size} events");
        fill(&data(&server), (stored..size).map(|_| synth.unsigned()));
        stored = size;
        server.restart();
        for connections in [1, 16] {
            let batch: Vec<Event> = signed.drain(..measured).collect();
            let name = format!("ingest, {size} stored, {connections} connection(s)");
            // The server checks on all cores at once: that is what its CPU time is compared with,
            // measured right before and after, because the machine's speed changes.
            let before = verification_us(&sample, cores);
            let (rate, cpu) = publish(runtime, &server, &batch, connections);
            let verify = (before + verification_us(&sample, cores)) / 2.0;
            report.note(&name, rate, "events/s");
            report.note(format!("{name}: one check, all cores busy"), verify, "us");
            report.at_most(format!("{name}: CPU"), cpu / verify, "checks", 2.0);
            costs.push(cpu / verify);
            stored += measured;
        }
        memory(report, &format!("after ingest at {size}"), &server);
        server.terminate();
    }
    let growth = (costs[2] + costs[3]) / (costs[0] + costs[1]);
    report.at_most(
        "ingest: CPU on the large store over the small",
        growth,
        "times",
        1.25,
    );
    let per_event = disk_per_event(&data(&server), stored);
    report.note("disk per event", per_event, "bytes");
    start_after_crash(runtime, &mut server, &signed, report);
}

/// What was not yet in the indexes when the process died is made again before the first answer.
fn start_after_crash(
    runtime: &Runtime,
    server: &mut Server,
    events: &[Event],
    report: &mut Report,
) {
    server.restart();
    publish(runtime, server, events, 4);
    server.kill9();
    let started = Instant::now();
    server.restart();
    first_answer(runtime, server);
    let name = format!(
        "start to first answer after kill -9, {} events to index",
        events.len()
    );
    report.at_most(name, started.elapsed().as_secs_f64() * 1e3, "ms", 1000.0);
    server.terminate();
}

fn first_answer(runtime: &Runtime, server: &Server) {
    let probe = json!({"kinds": [1621], "limit": 1});
    let found =
        runtime.block_on(async { Wire::connect(&server.ws_url()).await.query(&probe).await.1 });
    assert_eq!(found, 1);
}

/// All that is mapped, the store's file included, and what is the process's own.
fn memory(report: &mut Report, when: &str, server: &Server) {
    report.note(
        format!("RSS {when}"),
        memory_mb(server.pid(), "VmRSS"),
        "MB",
    );
    report.note(
        format!("own memory {when}"),
        memory_mb(server.pid(), "RssAnon"),
        "MB",
    );
}

/// Events per second, and the server's CPU microseconds per event.
fn publish(runtime: &Runtime, server: &Server, events: &[Event], connections: usize) -> (f64, f64) {
    let frame = |event: &Event| format!(r#"["EVENT",{}]"#, event.json());
    let shares: Vec<Vec<String>> = events
        .chunks(events.len().div_ceil(connections))
        .map(|share| share.iter().map(frame).collect())
        .collect();
    let cpu = cpu_seconds(server.pid());
    let started = Instant::now();
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for share in shares {
            let url = server.ws_url();
            tasks.spawn(async move { Wire::connect(&url).await.publish(share).await });
        }
        tasks.join_all().await;
    });
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds(server.pid()) - cpu;
    let count = events.len() as f64;
    (count / seconds, cpu * 1e6 / count)
}

fn data(server: &Server) -> PathBuf {
    server.data_dir().join("relay")
}

fn disk_per_event(data_dir: &Path, events: usize) -> f64 {
    let bytes = std::fs::metadata(data_dir.join("data.mdb"))
        .expect("the data file")
        .len();
    bytes as f64 / events as f64
}

fn queries(runtime: &Runtime, bin: &Path, report: &mut Report, scale: usize) {
    let size = 200_000 / scale;
    eprintln!("queries on {size} events");
    let mut synth = Synth::new(2);
    let mut server = start(bin);
    server.terminate();
    let mut ids = Vec::new();
    let events = (0..size).map(|_| {
        let event = synth.unsigned();
        ids.push(event.id.to_string());
        event
    });
    fill(&data(&server), events);

    let started = Instant::now();
    server.restart();
    first_answer(runtime, &server);
    let name = format!("start to first answer on {size} events");
    report.at_most(name, started.elapsed().as_secs_f64() * 1e3, "ms", 1000.0);
    memory(report, "idle", &server);

    let filters = sync_filters(&synth, &ids);
    let rounds = 1_000 / scale;
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); filters.len()];
    let mut control = Vec::new();
    let mut asked = Control::start();
    // One thread for the one client, as it has at home: what is measured is the server.
    let client = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    client.expect("a runtime").block_on(async {
        let mut wire = Wire::connect(&server.ws_url()).await;
        // Interleaved, so that every row sees the same weather.
        for round in 0..rounds {
            for ((name, make), samples) in filters.iter().zip(&mut samples) {
                let (milliseconds, found) = wire.query(&make(round)).await;
                assert!(found == 500 || scale > 1, "{name} found {found}");
                samples.push(milliseconds);
            }
            control.push(asked.ask());
        }
    });
    for ((name, _), samples) in filters.iter().zip(&mut samples) {
        for (label, share) in [("p50", 0.5), ("p99", 0.99)] {
            let value = percentile(samples, share);
            report.at_most(format!("REQ {name}, {label}"), value, "ms", 5.0);
        }
    }
    for (label, share) in [("p50", 0.5), ("p99", 0.99)] {
        let value = percentile(&mut control, share);
        report.note(
            format!("control: as many bytes from an idle thread, {label}"),
            value,
            "ms",
        );
    }
    memory(report, "after queries", &server);
}

/// A server that only works for a while and then sends as many bytes as 500 events have. How far
/// its p99 lies over its p50 is what two processes' worth of threads on this machine cost anybody.
struct Control(TcpStream);

impl Control {
    const ANSWER: usize = 900_000;

    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let answer = vec![0; Self::ANSWER];
            while stream.read_exact(&mut [0]).is_ok() {
                let sum = (0..500_000_u64).fold(0, |sum: u64, n| {
                    std::hint::black_box(sum.wrapping_mul(31).wrapping_add(n))
                });
                std::hint::black_box(sum);
                stream.write_all(&answer).expect("a reader");
            }
        });
        Self(TcpStream::connect(address).expect("the control server"))
    }

    /// Milliseconds of one round.
    fn ask(&mut self) -> f64 {
        let mut answer = vec![0; Self::ANSWER];
        let started = Instant::now();
        self.0.write_all(&[0]).expect("the control server reads");
        self.0.read_exact(&mut answer).expect("an answer");
        started.elapsed().as_secs_f64() * 1e3
    }
}

type MakeFilter<'a> = Box<dyn Fn(usize) -> Value + 'a>;

/// The shapes that sync asks for, with other values each time.
fn sync_filters<'a>(synth: &'a Synth, ids: &'a [String]) -> Vec<(&'static str, MakeFilter<'a>)> {
    let window = |list: &[String], round: usize, count: usize| -> Vec<String> {
        // The newest have no answers yet.
        let start = round * 37 % (list.len() - 2 * count).max(1);
        list[start..start + count].to_vec()
    };
    vec![
        (
            "kinds only",
            Box::new(|_| json!({"kinds": [1621, 1617], "limit": 500})),
        ),
        (
            "#a x 100",
            Box::new(move |round| json!({"#a": window(synth.repos(), round, 100), "limit": 500})),
        ),
        (
            "#e x 100",
            Box::new(
                move |round| json!({"#e": window(synth.busy_roots(), round, 100), "limit": 500}),
            ),
        ),
        (
            "ids x 500",
            Box::new(move |round| json!({"ids": window(ids, round, 500), "limit": 500})),
        ),
    ]
}

fn fan_out(runtime: &Runtime, bin: &Path, report: &mut Report, scale: usize) {
    const CONNECTIONS: usize = 50;
    const SUBS: usize = 20;
    const FILTERS: usize = 10;
    let count = 2_000 / scale;
    eprintln!("fan-out to {} subscriptions", CONNECTIONS * SUBS);
    let mut synth = Synth::new(3);
    let repos = synth.repos().to_vec();
    let events: Vec<Event> = (0..count).map(|_| synth.signed()).collect();
    let subscriptions: Vec<Vec<Value>> = (0..CONNECTIONS * SUBS)
        .map(|sub| {
            (0..FILTERS)
                .map(|n| repo_filter(&repos, sub * FILTERS + n))
                .collect()
        })
        .collect();
    let expected = expected_deliveries(&subscriptions, &events);

    let server = start(bin);
    let (seconds, cpu) = runtime.block_on(async {
        let url = server.ws_url();
        let mut readers = tokio::task::JoinSet::new();
        for (subs, expected) in subscriptions.chunks(SUBS).zip(expected.chunks(SUBS)) {
            let mut wire = Wire::connect(&url).await;
            for (n, filters) in subs.iter().enumerate() {
                let filters: Vec<String> = filters.iter().map(Value::to_string).collect();
                wire.send(format!(r#"["REQ","{n}",{}]"#, filters.join(",")))
                    .await;
                wire.next_of("EOSE").await;
            }
            let expected: usize = expected.iter().sum();
            readers.spawn(async move {
                for _ in 0..expected {
                    wire.next().await;
                }
            });
        }
        let frames = events
            .iter()
            .map(|event| format!(r#"["EVENT",{}]"#, event.json()))
            .collect();
        let cpu = cpu_seconds(server.pid());
        let started = Instant::now();
        Wire::connect(&url).await.publish(frames).await;
        readers.join_all().await;
        (
            started.elapsed().as_secs_f64(),
            cpu_seconds(server.pid()) - cpu,
        )
    });
    let deliveries: usize = expected.iter().sum();
    report.note(
        "fan-out deliveries per event",
        deliveries as f64 / count as f64,
        "",
    );
    report.note("fan-out", deliveries as f64 / seconds, "del./s");
    report.note(
        "fan-out: CPU per delivery",
        cpu * 1e6 / deliveries as f64,
        "us",
    );
    memory(report, "with 1,000 subscriptions", &server);
}

fn repo_filter(repos: &[String], n: usize) -> Value {
    let some: Vec<&String> = (0..20)
        .map(|k| &repos[(n * 13 + k * 29) % repos.len()])
        .collect();
    json!({"#a": some, "since": 1})
}

fn expected_deliveries(subscriptions: &[Vec<Value>], events: &[Event]) -> Vec<usize> {
    let parse = |filter: &Value| grasp_core::Filter::parse(&filter.to_string()).expect("a filter");
    subscriptions
        .iter()
        .map(|filters| {
            let filters: Vec<_> = filters.iter().map(parse).collect();
            let wanted = |event: &&Event| filters.iter().any(|filter| filter.matches(event));
            events.iter().filter(wanted).count()
        })
        .collect()
}

fn reconciliation(runtime: &Runtime, bin: &Path, report: &mut Report, scale: usize) {
    let size = 100_000 / scale;
    let missing = size / 1_000;
    eprintln!("reconciliation of {size} events");
    let mut synth = Synth::new(4);
    let mut server = start(bin);
    server.terminate();
    let mut ours = NegentropyStorageVector::new();
    let events = (0..size).map(|n| {
        let event = synth.unsigned();
        if n % (size / missing) != 0 {
            ours.insert(event.created_at.0, Id::from_byte_array(event.id.0))
                .expect("a new item");
        }
        event
    });
    fill(&data(&server), events);
    ours.seal().expect("sealed once");
    server.restart();

    let (seconds, bytes, found) = runtime.block_on(async {
        let mut wire = Wire::connect(&server.ws_url()).await;
        let started = Instant::now();
        let mut client = Negentropy::borrowed(&ours, 60_000).expect("a frame size");
        let mut frame = client.initiate().expect("the first frame");
        let mut opening = Some(());
        let (mut have, mut need) = (Vec::new(), Vec::new());
        loop {
            let hex = to_hex(&frame);
            wire.send(match opening.take() {
                Some(()) => format!(r#"["NEG-OPEN","n",{{}},"{hex}"]"#),
                None => format!(r#"["NEG-MSG","n","{hex}"]"#),
            })
            .await;
            let reply = wire.next_of("NEG-MSG").await;
            let reply = hex_to_vec(reply[2].as_str().expect("hex")).expect("hex");
            match client
                .reconcile_with_ids(&reply, &mut have, &mut need)
                .expect("a valid frame")
            {
                Some(next) => frame = next,
                None => break,
            }
        }
        (
            started.elapsed().as_secs_f64(),
            wire.sent + wire.received,
            need.len(),
        )
    });
    assert_eq!(found, missing);
    report.note(
        format!("NIP-77 of {size} events, 0.1 % missing"),
        seconds * 1e3,
        "ms",
    );
    report.note(
        format!("NIP-77 of {size} events: traffic"),
        bytes as f64 / 1024.0,
        "KiB",
    );
    memory(report, "after reconciliation", &server);
}
