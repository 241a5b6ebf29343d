//! The simulator keeps its own promises: a seed tells one story, and every seed comes right.

use grasp_sim::{Company, Summary, Trace, run};

/// Seeds that failed once stay here for ever.
const REMEMBERED: &[u64] = &[
    1, 10, 42, 57, 61, 65, 67, 95, 96, 113, 125, 132, 145, 148, 154, 168, 170, 179, 180, 182, 187,
    188, 190, 192, 199, 208, 210, 223, 225, 238, 240, 247, 256, 257, 260, 261, 291, 308, 323, 325,
    340, 390, 398, 429, 441, 472, 474, 512, 525, 564, 575, 578, 601, 634, 709, 728, 743, 745, 747,
    783, 793, 798, 841, 883, 933, 1236, 1379, 1457, 1470, 1537, 2155, 2264, 2321, 2365, 2629, 2702,
    2722, 3134, 3221, 3358, 3748, 3755, 4034, 4223, 5215, 5241, 5957, 6043, 6254, 6477, 6515, 6763,
    7577, 7887, 8071, 8499, 8721, 9008, 10278, 10917, 11882, 14013, 19261,
];

/// The same with other relays about.
const REMEMBERED_IN_COMPANY: &[u64] = &[
    1001, 1003, 1005, 1009, 1011, 1012, 1018, 1020, 1022, 1030, 1037, 1043, 1048, 1087, 1104, 1105,
    1118, 1135, 1141, 1160, 1164, 1181, 2168, 2204, 2221, 2270, 2283, 3293, 3313, 3431, 4012, 4228,
    4258, 4380, 4471, 4528, 5054, 5397, 5645, 5907, 5990, 6179, 7144, 7349, 8310, 8867, 10241,
    10319, 10483, 11467, 11486,
];

/// The same with other git servers and no other relays.
const REMEMBERED_WITH_HOSTS: &[u64] = &[3, 17, 22, 62, 65, 117, 311, 486, 536, 837, 1185];

/// The same among hostile clients.
const REMEMBERED_AMONG_HOSTILE: &[u64] =
    &[35, 40, 42, 44, 47, 51, 56, 57, 79, 132, 139, 228, 254, 1092];

#[test]
fn every_seed_comes_right() {
    come_right(Company::Alone, (0..40).chain(REMEMBERED.iter().copied()));
}

#[test]
fn every_seed_comes_right_among_other_relays() {
    let remembered = REMEMBERED_IN_COMPANY.iter().copied();
    come_right(Company::Relays, (0..30).chain(remembered));
}

#[test]
fn every_seed_comes_right_with_other_git_servers() {
    let remembered = REMEMBERED_WITH_HOSTS.iter().copied();
    come_right(Company::Hosts, (0..40).chain(remembered));
}

/// A newcomer at another address is served, whatever hostile clients do.
#[test]
fn every_seed_comes_right_among_hostile_clients() {
    let remembered = REMEMBERED_AMONG_HOSTILE.iter().copied();
    come_right(Company::Hostile, (0..30).chain(remembered));
}

fn come_right(company: Company, seeds: impl Iterator<Item = u64>) {
    let seeds: Vec<u64> = seeds.collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for part in seeds.chunks(seeds.len().div_ceil(threads)) {
            scope.spawn(move || {
                for seed in part {
                    let result = run(*seed, company, &mut Trace::default());
                    assert!(result.is_ok(), "seed {seed}: {result:?}");
                }
            });
        }
    });
}

#[test]
fn the_same_seed_tells_the_same_story() {
    for company in [
        Company::Alone,
        Company::Hosts,
        Company::Relays,
        Company::Hostile,
    ] {
        for seed in 0..10 {
            let (mut first, mut second) = (Trace::default(), Trace::readable());
            let same = run(seed, company, &mut first) == run(seed, company, &mut second);
            assert!(same, "seed {seed}");
            assert_eq!(first.fingerprint(), second.fingerprint());
            assert!(!second.lines().is_empty());
        }
    }
}

#[test]
fn other_git_servers_bring_what_nobody_pushes() {
    let run = |seed| run(seed, Company::Hosts, &mut Trace::default()).unwrap();
    let summaries: Vec<_> = (0..20).map(run).collect();
    let brought = summaries.iter().filter(|summary| summary.fetched > 5);
    assert!(brought.count() >= 10, "{summaries:?}");
}

#[test]
fn the_weather_differs() {
    let summaries: Vec<_> = (0..20)
        .map(|seed| run(seed, Company::Alone, &mut Trace::default()).unwrap())
        .collect();
    assert!(summaries.iter().any(|summary| summary.crashes > 0));
    assert!(summaries.iter().any(|summary| summary.crashes == 0));
    assert!(summaries.iter().all(|summary| summary.published > 0));
    let enough = |count: fn(&Summary) -> bool| {
        summaries.iter().filter(|summary| count(summary)).count() >= 10
    };
    assert!(enough(|summary| summary.stored > 10));
    assert!(enough(|summary| summary.pushed > 0));
    assert!(enough(|summary| summary.hosted > 0));
}
