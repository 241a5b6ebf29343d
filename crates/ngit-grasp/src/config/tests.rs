//! Where values come from, which are refused, and how they are shown.

use super::*;

const NO_FILE: &str = "/nonexistent/.env";
const KEY: &str = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa";

/// A settings file that is removed at the end of its test.
struct DotEnv(PathBuf, #[expect(dead_code)] tempfile::TempDir);

impl DotEnv {
    fn new(name: &str, text: impl AsRef<[u8]>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("{name}.env"));
        std::fs::write(&path, text).unwrap();
        Self(path, dir)
    }
}

fn matches(flags: &[&str]) -> ArgMatches {
    let argv = std::iter::once("test").chain(flags.iter().copied());
    clap::Command::new("test")
        .args(args())
        .get_matches_from(argv)
}

fn try_load(flags: &[&str], env: &[(&str, &str)], dotenv: &Path) -> Result<Loaded, Vec<String>> {
    let env = env
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)));
    load(&matches(flags), env, dotenv).map_err(|errors| errors.lines)
}

pub fn from_env(env: &[(&str, &str)]) -> Config {
    try_load(&[], env, Path::new(NO_FILE)).unwrap().config
}

fn errors_from_env(env: &[(&str, &str)]) -> Vec<String> {
    try_load(&[], env, Path::new(NO_FILE)).unwrap_err()
}

#[test]
fn with_nothing_set_the_limits_are_the_defaults() {
    let loaded = try_load(&[], &[], Path::new(NO_FILE)).unwrap();
    assert_eq!(loaded.config.limits(), Limits::default());
    assert_eq!(loaded.warnings, [""; 0]);
    assert!(
        loaded
            .describe()
            .iter()
            .all(|row| row.source == Source::Default)
    );
}

#[test]
fn defaults_are_written_as_they_are_shown() {
    let shown = from_env(&[]).shown();
    let defaults: Vec<&str> = specs().iter().map(|spec| spec.default).collect();
    assert_eq!(shown, defaults);
}

#[test]
fn a_flag_beats_the_environment_beats_dotenv_beats_the_default() {
    let file = DotEnv::new(
        "layers",
        "NGIT_DOMAIN=file.example\nNGIT_RELAY_NAME=file\nexport NGIT_RELAY_CONTACT='file # 1'",
    );
    let env = [("NGIT_DOMAIN", "env.example"), ("NGIT_RELAY_NAME", "env")];
    let loaded = try_load(&["--domain", "flag.example"], &env, &file.0).unwrap();
    assert_eq!(loaded.config.domain(), "flag.example");
    assert_eq!(loaded.config.relay_name, "env");
    assert_eq!(loaded.config.relay_contact.as_deref(), Some("file # 1"));
    let source = |name| {
        loaded
            .describe()
            .into_iter()
            .find(|row| row.name == name)
            .unwrap()
            .source
    };
    assert_eq!(source("domain"), Source::Flag);
    assert_eq!(source("relay-name"), Source::Environment);
    let name = "layers.env".to_owned();
    assert_eq!(source("relay-contact"), Source::File(name));
    assert!(render_table(&loaded.describe()).contains("  layers.env   file # 1\n"));
    assert_eq!(source("log-level"), Source::Default);
}

#[test]
fn an_empty_value_counts_as_not_set() {
    let file = DotEnv::new("empty", "NGIT_RELAY_NAME=file\nNGIT_MAX_FILTERS=");
    let env = [
        ("NGIT_RELAY_NAME", " "),
        ("NGIT_DOMAIN", ""),
        ("NGIT_METRICS_ENABLED", ""),
    ];
    let loaded = try_load(&["--log-level="], &env, &file.0).unwrap();
    assert_eq!(loaded.config.relay_name, "file");
    assert_eq!(loaded.config.max_filters, 64);
    assert!(loaded.config.domain.is_none());
    assert!(loaded.config.metrics_enabled);
    assert_eq!(loaded.config.log_level.as_str(), "info");
}

/// E21: by environment; the flags are tested below.
#[test]
fn every_setting_is_read_from_its_own_variable() {
    for spec in specs() {
        let text = match spec.env {
            "NGIT_TRUSTED_PROXIES" | "NGIT_DENY_NETWORKS" => "::1",
            "NGIT_STATUS_TOKEN" => "correct horse battery staple",
            "NGIT_RELAY_OWNER_NSEC" => KEY,
            "NGIT_SYNC_BOOTSTRAP_RELAY_URL" => "wss://relay.example",
            "NGIT_SYNC_DOMAIN_OVERRIDES" => "github.com:10,60",
            "NGIT_EVENT_BLACKLIST" => {
                "npub180cvv07tjdrrgpa0j7j7tmnyl2yr6yr7l8j4s3evf6u64th6gkwsyjh6w6"
            }
            _ if spec.default.is_empty() => "text",
            _ => spec.default,
        };
        let loaded = try_load(&[], &[(spec.env, text)], Path::new(NO_FILE));
        let rows = loaded.unwrap().describe();
        let set = rows.iter().filter(|row| row.source != Source::Default);
        assert_eq!(set.map(|row| row.env).collect::<Vec<_>>(), [spec.env]);
    }
    assert_eq!(from_env(&[("NGIT_MAX_NEG_ITEMS", "7")]).max_neg_items, 7);
}

#[test]
fn every_wrong_value_gets_one_line() {
    let file = DotEnv::new("wrong", "NGIT_DOMAIN=https://example.com");
    let env = [
        ("NGIT_MAX_CONNECTIONS", "abc"),
        ("NGIT_WRITE_TIMEOUT_SECS", "0"),
    ];
    let errors = try_load(&["--max-event-bytes=1TB"], &env, &file.0).unwrap_err();
    let expected = [
        "NGIT_DOMAIN (wrong.env): give only the host, without https://, not \"https://example.com\"",
        "--max-event-bytes (flag): must be a size from 4KiB to 32MiB, written like 512KiB, 2MB or \
         1000000, not \"1TB\"",
        "NGIT_MAX_CONNECTIONS (environment): must be a whole number from 1 to 1000000, not \"abc\"",
        "NGIT_WRITE_TIMEOUT_SECS (environment): must be a whole number of seconds from 1 to 3600, \
         not \"0\"",
    ];
    assert_eq!(errors, expected);
    assert_eq!(
        ConfigErrors { lines: errors }.to_string(),
        expected.join("\n")
    );
}

#[test]
fn values_that_contradict_each_other_stop_the_start() {
    let env = [
        ("NGIT_MAX_MESSAGE_BYTES", "64KiB"),
        ("NGIT_MAX_EVENT_BYTES", "64KiB"),
        ("NGIT_PING_INTERVAL_SECS", "90"),
    ];
    let expected = [
        "NGIT_MAX_EVENT_BYTES (64KiB) must be at least 1KiB less than NGIT_MAX_MESSAGE_BYTES (64KiB)",
        "NGIT_MAX_CONTENT_BYTES (192KiB) must not be more than NGIT_MAX_EVENT_BYTES (64KiB)",
        "NGIT_PING_INTERVAL_SECS (90) must be less than NGIT_WEBSOCKET_IDLE_SECS (90)",
    ];
    assert_eq!(errors_from_env(&env), expected);
    let small_window = errors_from_env(&[("NGIT_QUERY_WINDOW_BYTES", "256KiB")]);
    assert!(
        small_window[0].ends_with("less than NGIT_QUERY_WINDOW_BYTES (256KiB)"),
        "{small_window:?}"
    );
    let guessable = errors_from_env(&[("NGIT_STATUS_TOKEN", "fifteen letters")]);
    assert!(
        guessable[0].starts_with("NGIT_STATUS_TOKEN must have at least 16"),
        "{guessable:?}"
    );
    assert!(!guessable[0].contains("fifteen"));
}

#[test]
fn unreadable_dotenv_lines_stop_the_start() {
    let file = DotEnv::new("unreadable", "# fine\nNGIT_DOMAIN");
    let errors = try_load(&[], &[], &file.0).unwrap_err();
    assert_eq!(
        errors,
        [format!("{} line 2: expected KEY=VALUE", file.0.display())]
    );
    assert!(try_load(&[], &[], &std::env::temp_dir()).is_err());
    assert!(try_load(&[], &[], &DotEnv::new("bytes", b"A=\xff").0).is_err());
}

#[test]
fn unknown_variables_are_warned_of_and_ignored() {
    let file = DotEnv::new("unknown", "NGIT_DOMIAN=example.com\nOTHER=1");
    let env = [("NGIT_WITHOUT_MEANING", "100"), ("PATH", "/bin")];
    let loaded = try_load(&[], &env, &file.0).unwrap();
    let expected = [
        "NGIT_DOMIAN (unknown.env): no setting of this version, ignored; did you mean NGIT_DOMAIN?",
        "NGIT_WITHOUT_MEANING (environment): no setting of this version, ignored",
    ];
    assert_eq!(loaded.warnings, expected);
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf8_stops_the_start() {
    use std::os::unix::ffi::OsStringExt;
    let odd = || OsString::from_vec(vec![0xff]);
    let env = [
        ("NGIT_DOMAIN".into(), odd()),
        ("OTHER".into(), odd()),
        (odd(), odd()),
    ];
    let errors = load(&matches(&[]), env, Path::new(NO_FILE)).unwrap_err();
    assert_eq!(
        errors.lines,
        ["NGIT_DOMAIN (environment): must be UTF-8 text"]
    );
}

#[test]
fn a_switch_flag_alone_means_true_and_can_say_false() {
    let file = Path::new(NO_FILE);
    let off = [("NGIT_METRICS_ENABLED", "off")];
    assert!(
        try_load(&["--metrics-enabled"], &off, file)
            .unwrap()
            .config
            .metrics_enabled
    );
    assert!(
        !try_load(&["--metrics-enabled=false"], &[], file)
            .unwrap()
            .config
            .metrics_enabled
    );
}

#[test]
fn a_list_flag_may_be_repeated() {
    let flags = [
        "--trusted-proxies",
        "10.0.0.0/8,::1",
        "--trusted-proxies",
        "192.0.2.7",
    ];
    let config = try_load(&flags, &[], Path::new(NO_FILE)).unwrap().config;
    assert_eq!(config.trusted_proxies.len(), 3);
    assert!(
        config
            .trusted_proxies
            .iter()
            .any(|net| net.contains("192.0.2.7".parse().unwrap()))
    );
}

#[test]
fn a_secret_on_the_command_line_is_refused_and_not_repeated() {
    let forms: [&[&str]; 4] = [
        &["--relay-owner-nsec", "nsec1hidden"],
        &["--relay-owner-nsec=nsec1hidden"],
        &["--relay-owner-nsec"],
        &[
            "--relay-owner-nsec=nsec1hidden",
            "--relay-owner-nsec=nsec1hidden",
        ],
    ];
    for flags in forms {
        let errors = try_load(flags, &[], Path::new(NO_FILE)).unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].starts_with("--relay-owner-nsec (flag): other users"),
            "{errors:?}"
        );
        assert!(!errors[0].contains("hidden"));
    }
}

#[test]
fn a_secret_is_usable_but_masked_wherever_it_is_shown() {
    let env = [("NGIT_RELAY_OWNER_NSEC", KEY)];
    let loaded = try_load(&[], &env, Path::new(NO_FILE)).unwrap();
    let rows = loaded.describe();
    let shown = format!("{loaded:?}{}{}", render_table(&rows), rows_as_json(&rows));
    assert!(!shown.contains(KEY));
    let table = render_table(&rows);
    let line = table
        .lines()
        .find(|line| line.starts_with("NGIT_RELAY_OWNER_NSEC "));
    assert!(line.unwrap().ends_with(" environment  ********"));
    assert_eq!(loaded.config.relay_owner_nsec.unwrap().reveal(), KEY);
}

#[test]
fn a_secret_that_is_no_key_is_refused_and_not_repeated() {
    for text in ["nsec1hidden", "hidden", &"0".repeat(64)] {
        let errors = errors_from_env(&[("NGIT_RELAY_OWNER_NSEC", text)]);
        let line = "NGIT_RELAY_OWNER_NSEC must be a secret key, an nsec or 64 hex characters";
        assert_eq!(errors, [line], "{text}");
    }
}

#[test]
fn a_name_that_other_servers_use_is_taken_and_ours_wins() {
    let (theirs, ours) = ("NGIT_HUNT_SYNC_DELAY_MS", "NGIT_HUNT_SYNCED_DELAY_MS");
    let delay = |env: &[(&str, &str)]| from_env(env).hunt_synced_delay.as_millis();
    assert_eq!(delay(&[(theirs, "7")]), 7);
    assert_eq!(delay(&[(theirs, "7"), (ours, "8")]), 8);
    assert_eq!(delay(&[(ours, "8"), (theirs, "7")]), 8);
    let file = DotEnv::new("alias", "NGIT_HUNT_SYNCED_DELAY_MS=9");
    let read = |flags: &[&str], env: &[(&str, &str)]| try_load(flags, env, &file.0).unwrap();
    let in_environment = read(&[], &[(theirs, "7")]);
    assert_eq!(in_environment.config.hunt_synced_delay.as_millis(), 7);
    assert_eq!(in_environment.warnings, [""; 0]);
    let as_flag = read(&["--hunt-sync-delay-ms", "6"], &[]);
    assert_eq!(as_flag.config.hunt_synced_delay.as_millis(), 6);
}

#[test]
fn the_domain_defaults_to_localhost_at_the_bound_port() {
    let config = from_env(&[("NGIT_BIND_ADDRESS", ":8080")]);
    assert_eq!(config.domain(), "localhost:8080");
    assert_eq!(config.public_ws_url(), "ws://localhost:8080");
    assert_eq!(config.public_http_url(), "http://localhost:8080");
}

#[test]
fn a_public_domain_has_tls() {
    let config = from_env(&[("NGIT_DOMAIN", "Git.Example.com:8443")]);
    assert_eq!(config.public_ws_url(), "wss://git.example.com:8443");
    assert_eq!(config.public_http_url(), "https://git.example.com:8443");
}

#[test]
fn the_table_has_a_line_for_every_setting() {
    let rows = try_load(&[], &[("NGIT_RELAY_NAME", "a\nb")], Path::new(NO_FILE))
        .unwrap()
        .describe();
    let table = render_table(&rows);
    assert_eq!(table.lines().count(), specs().len() + 1);
    let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("NGIT_DOMAIN ").ends_with("default      localhost:7334"));
    assert!(line("NGIT_RELAY_CONTACT ").ends_with("default      -"));
    assert!(line("NGIT_RELAY_NAME ").ends_with("environment  a b"));
}

#[test]
fn json_has_null_for_what_is_not_set() {
    let rows = try_load(&[], &[], Path::new(NO_FILE)).unwrap().describe();
    let json = rows_as_json(&rows);
    let row = json
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "relay-contact")
        .unwrap();
    assert_eq!(row["env"], "NGIT_RELAY_CONTACT");
    assert_eq!(row["value"], serde_json::Value::Null);
    assert_eq!(row["source"], "default");
}
