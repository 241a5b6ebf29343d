//! The pages as people see them, in a real browser without a window. One test drives one browser
//! through all of them; what it saw is kept in `target/screenshots`.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use testkit::browser::{Browser, Page};
use testkit::grasp::DOMAIN;
use testkit::{Author, Client, GitFault, GitHost, Project, Proxy, Rogue, Server, WorkTree, now};

use crate::hosted::{grasp_with, held, hosted};
use crate::support::author;

const SIZES: [(u32, u32); 2] = [(360, 780), (1440, 900)];
const TOKEN: &str = "correct horse battery staple";

/// What is wider than the window or than its own box. A phone's window grows with its content, so
/// its own width says nothing.
fn too_wide(width: u32) -> String {
    format!(
        "[document.documentElement.scrollWidth > {width} && 'the page',\
          ...[...document.querySelectorAll('main, main *')]\
            .filter(e => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1)\
            .filter(e => !e.closest('.cut, .unseen, svg, input'))\
            .map(e => e.outerHTML.slice(0, 200))].filter(Boolean).join()"
    )
}

fn screenshots() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/screenshots")
}

/// Everything that there is to see: relays that are well, failing and silent, events that wait, a
/// git server that fails, a repository with a past.
struct Scene {
    server: Server,
    project: Project,
    client: Client,
    failing: Proxy,
    _relays: [Rogue; 4],
    _silent: Proxy,
    _git: GitHost,
}

impl Scene {
    async fn set() -> Self {
        let relays = [(); 4].map(|()| Rogue::honest());
        let [a, b, c, d] = relays;
        let relays = [a.await, b.await, c.await, d.await];
        let failing = Proxy::start(relays[3].addr()).await;
        let silent = Proxy::to_nowhere().await;
        silent.part();
        let git = GitHost::start(&[GitFault::Status(500)]).await;
        let named: Vec<String> = [relays[0].ws_url(), relays[1].ws_url(), relays[2].ws_url()]
            .into_iter()
            .chain([failing.ws_url(), silent.ws_url()])
            .collect();
        let bootstrap = named.join(",");
        let domain = git.addr().to_string();
        let server = grasp_with(&[
            ("NGIT_RELAY_NAME", "Example Forge"),
            ("NGIT_SYNC_BOOTSTRAP_RELAY_URL", &bootstrap),
            // The second failure in a row is silence: a while remains to see the first.
            ("NGIT_SYNC_BASE_BACKOFF_SECS", "8"),
            ("NGIT_SYNC_DEAD_AFTER_SECS", "3"),
            ("NGIT_HUNT_TRUSTED_DOMAINS", &domain),
            ("NGIT_HUNT_USER_DELAY_SECS", "1"),
            ("NGIT_STATUS_TOKEN", TOKEN),
        ]);
        let (project, tree) = (Project::new(&author(), "garden planner"), WorkTree::new());
        let mut client = hosted(&server, &project, &tree).await;
        Self::give_a_past(&mut client, &server, &project, &tree).await;
        let announced = project.announcement_at(now(), &[DOMAIN.to_owned()], &named);
        assert!(client.publish(&announced).await.0);
        for (relay, count) in [(&relays[0], 40), (&relays[1], 5)] {
            for _ in 0..count {
                let address = project.address();
                let issue = author().event(1621, now(), &[&["a", &address]], "");
                relay.publish(&issue);
            }
        }
        Self::let_wait(&mut client, &domain).await;
        Self {
            server,
            project,
            client,
            failing,
            _relays: relays,
            _silent: silent,
            _git: git,
        }
    }

    /// Commits, branches, a tag, issues and a pull request.
    async fn give_a_past(client: &mut Client, server: &Server, project: &Project, tree: &WorkTree) {
        let words = [
            "beds",
            "seeds",
            "watering",
            "compost",
            "frost dates",
            "harvest",
        ];
        let mut last = String::new();
        for word in words {
            last = tree.commit(word, format!("all about {word}").as_bytes());
        }
        tree.git(&["tag", "v1.0", "main"]);
        tree.git(&["branch", "greenhouse", "main~2"]);
        let branch = tree
            .git(&["rev-parse", "greenhouse"])
            .stdout
            .trim()
            .to_owned();
        let refs = [
            ("refs/heads/main", last.as_str()),
            ("refs/heads/greenhouse", branch.as_str()),
            ("refs/tags/v1.0", last.as_str()),
        ];
        let state = project.state(&project.owner, now() - 50, &refs);
        held(client, &state).await;
        let url = project.url(server);
        tree.git(&["push", "-q", &url, "main", "greenhouse", "v1.0"]);
        let address = project.address();
        for subject in ["Slugs eat the lettuce", "Frost dates are a week off"] {
            let tags: &[&[&str]] = &[&["a", &address], &["subject", subject]];
            let issue = author().event(1621, now() - 40, tags, "");
            assert!(client.publish(&issue).await.0);
        }
        let request = project.pull_request(&author(), &last);
        assert!(client.publish(&request).await.0);
    }

    /// Repositories whose git data is nowhere to be had.
    async fn let_wait(client: &mut Client, domain: &str) {
        let long = "beehive".repeat(14);
        for (name, commit) in [("orchard", "1"), (&long, "2"), ("<b>bold</b>", "3")] {
            let project = Project::new(&Author::new(7_000 + now() % 1_000), name);
            let hosts = [DOMAIN.to_owned(), domain.to_owned()];
            held(client, &project.announcement_at(now(), &hosts, &[])).await;
            let commit = commit.repeat(40);
            let state = project.state(&project.owner, now(), &[("refs/heads/main", &commit)]);
            held(client, &state).await;
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.http_url())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_work_in_a_real_browser() {
    let Some(chromium) = Browser::find() else {
        // Past the harness, which keeps to itself what tests that pass have printed.
        let said = "skipped: pages_work_in_a_real_browser, chromium is not installed";
        writeln!(std::io::stderr(), "{said}").expect("stderr");
        return;
    };
    let _ = std::fs::remove_dir_all(screenshots());
    std::fs::create_dir_all(screenshots()).expect("a place for screenshots");
    let mut scene = Scene::set().await;
    let browser = Browser::start(&chromium).await;
    let page = browser.page().await;
    landing_page(&page, &scene).await;
    repository_page(&page, &scene).await;
    status_page(&page, &scene).await;
    every_number_says_what_it_means(&page).await;
    updates_arrive(&page, &mut scene).await;
    what_strangers_see(&page, &scene).await;
    the_policy_holds(&page, &scene).await;
    without_scripts(&page, &scene).await;
    what_people_write_fits(&page, &mut scene).await;
}

/// Both sizes, light and dark, without a complaint.
async fn photograph(page: &Page, name: &str) {
    for dark in [false, true] {
        page.prefer_dark(dark).await;
        let mode = if dark { "dark" } else { "light" };
        let paper = "getComputedStyle(document.body).backgroundColor";
        let paper = page.eval(paper).await.to_string();
        assert_eq!(paper.contains("22, 22, 26"), dark, "{name}: {paper}");
        for (width, height) in SIZES {
            page.resize(width, height).await;
            assert_eq!(page.eval(&too_wide(width)).await, "", "{name} at {width}");
            let file = format!("{name}-{width}-{mode}.png");
            page.photograph(&screenshots().join(file)).await;
        }
    }
    assert_eq!(page.complaints(), Vec::<String>::new(), "{name}");
}

async fn landing_page(page: &Page, scene: &Scene) {
    page.open(&scene.url("/")).await;
    let title = page.eval("document.querySelector('h1').textContent").await;
    assert_eq!(title, "Example Forge");
    page.resize(360, 780).await;
    let widen = "document.querySelector('main').append(Object.assign(\
        document.createElement('pre'), {textContent: 'x'.repeat(200), className: 'wide'}));\
        document.querySelector('pre.wide').style.whiteSpace = 'pre'";
    page.eval(widen).await;
    assert_ne!(
        page.eval(&too_wide(360)).await,
        "",
        "what is too wide is seen"
    );
    page.open(&scene.url("/")).await;
    photograph(page, "landing").await;
    let status = "document.querySelector('footer a[href=\"/status\"]') !== null";
    assert_eq!(page.eval(status).await, true);
}

async fn repository_page(page: &Page, scene: &Scene) {
    page.open(&scene.project.url(&scene.server)).await;
    let text = page.eval("document.querySelector('main').innerText").await;
    let text = text.as_str().expect("text");
    for wanted in [
        "change harvest",
        "greenhouse",
        "v1.0",
        "Open issues",
        "git clone",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let shown = "[...document.querySelectorAll('.panel')].map(p => p.offsetHeight > 0).join()";
    assert_eq!(page.eval(shown).await, "true,false");
    page.eval("document.getElementById('with-ngit').click()")
        .await;
    assert_eq!(page.eval(shown).await, "false,true");
    page.eval("document.getElementById('with-git').click()")
        .await;
    photograph(page, "repository").await;
}

/// The browser asks for a password; the token is it, and goes with the stream too.
async fn status_page(page: &Page, scene: &Scene) {
    let with_password = scene
        .url("/status/details")
        .replace("://", &format!("://me:{}@", TOKEN.replace(' ', "%20")));
    page.open(&with_password).await;
    page.until("document.querySelector('.picture g.dead') !== null")
        .await;
    page.until("document.querySelector('.hunt progress') !== null")
        .await;
    // All that answer have told all, and what the silent keep to themselves does not count.
    let coverage = "document.querySelector('[href=\"#m-coverage\"]')\
        .closest('div').querySelector('dd').textContent";
    page.until(&format!("{coverage} === '100 %'")).await;
    page.until("document.querySelector('caption a[href=\"#m-budget\"]') !== null")
        .await;
    scene.failing.part();
    page.until("document.querySelector('.picture g.failing') !== null")
        .await;
    photograph(page, "status").await;
    let labelled = "[...document.querySelectorAll('section')]\
        .every(s => document.getElementById(s.getAttribute('aria-labelledby')))";
    assert_eq!(page.eval(labelled).await, true);
    let bold = "document.querySelector('#status b') === null\
        && document.querySelector('#status').innerText.includes('<b>bold</b>')";
    assert_eq!(page.eval(bold).await, true, "what a stranger wrote is text");
}

/// Columns and tiles with numbers lead to words, and the words are there.
async fn every_number_says_what_it_means(page: &Page) {
    let mute = "[...document.querySelectorAll('#status dt, #status thead th')]\
        .filter(e => !e.querySelector('a[href^=\"#m-\"]')).map(e => e.textContent).join()";
    let names = "Relay,Event,Kind,Repository,Server";
    assert_eq!(page.eval(mute).await, names, "these are no numbers");
    let astray = "[...document.querySelectorAll('a[href^=\"#\"]')]\
        .filter(a => !document.getElementById(a.hash.slice(1))).map(a => a.hash).join()";
    assert_eq!(page.eval(astray).await, "");
}

async fn updates_arrive(page: &Page, scene: &mut Scene) {
    page.open(&scene.url("/status/details")).await;
    // What stays is what it was: the same node, with the focus on it.
    page.eval("window.kept = document.querySelector('[href=\"#m-relays\"]'); kept.focus()")
        .await;
    let events = "Number(document.querySelector('[href=\"#m-events\"]')\
        .closest('div').querySelector('dd').textContent)";
    let before = page.eval(events).await.as_u64().expect("a number");
    let address = scene.project.address();
    let issue = author().event(1621, now(), &[&["a", &address]], "");
    assert!(scene.client.publish(&issue).await.0);
    page.until(&format!("{events} > {before}")).await;
    page.until("document.getElementById('live').textContent.includes('by itself')")
        .await;
    assert_eq!(
        page.eval("document.activeElement === window.kept").await,
        true
    );
    page.press_tab(1).await;
    let next = "document.activeElement !== window.kept && document.activeElement.hash.length > 1";
    assert_eq!(page.eval(next).await, true, "the next link by keyboard");
    assert_eq!(page.complaints(), Vec::<String>::new());
}

/// From elsewhere, and with nothing here at all.
async fn what_strangers_see(page: &Page, scene: &Scene) {
    page.send_headers(&[("X-Forwarded-For", "203.0.113.9")])
        .await;
    page.open(&scene.url("/status")).await;
    page.until("document.getElementById('live').textContent.includes('by itself')")
        .await;
    let text = page.eval("document.querySelector('main').innerText").await;
    let text = text.as_str().expect("text").to_lowercase();
    for told in ["in step", "sync coverage", "a minute", "for the operator"] {
        assert!(text.contains(told), "{told}: {text}");
    }
    for hidden in ["127.0.0.1", "orchard", "ws://", "event store"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    photograph(page, "status-public").await;
    for (path, name) in [("/nothing/here.git", "not-found"), ("/no", "not-found")] {
        page.open(&scene.url(path)).await;
        page.forgive();
        photograph(page, name).await;
    }
    page.send_headers(&[]).await;
    let empty = grasp_with(&[]);
    page.open(&format!("{}/status", empty.http_url())).await;
    photograph(page, "status-empty").await;
}

async fn the_policy_holds(page: &Page, scene: &Scene) {
    let repository = scene.project.url(&scene.server);
    for path in [&scene.url("/status"), &scene.url("/"), &repository] {
        page.open(path).await;
        let inject = "(() => { const s = document.createElement('script');\
            s.textContent = 'window.ran = true'; document.body.append(s); })()";
        page.eval(inject).await;
        assert_eq!(page.eval("window.ran === undefined").await, true, "{path}");
        let complaints = page.complaints().join("\n");
        assert!(
            complaints.contains("Content Security Policy"),
            "{complaints}"
        );
        page.forgive();
    }
}

async fn without_scripts(page: &Page, scene: &Scene) {
    page.scripts(false).await;
    page.open(&scene.url("/status/details")).await;
    let text = page.eval("document.querySelector('main').innerText").await;
    let text = text.as_str().expect("text");
    for wanted in [
        "This is a snapshot",
        "At a glance",
        "Sync coverage",
        "orchard",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    photograph(page, "status-without-scripts").await;
    page.open(&scene.project.url(&scene.server)).await;
    photograph(page, "repository-without-scripts").await;
}

/// However long the words are that people choose.
async fn what_people_write_fits(page: &Page, scene: &mut Scene) {
    let announced = scene
        .project
        .announcement_at(now() + 1, &[DOMAIN.to_owned()], &[]);
    let long = "x".repeat(300);
    let more = [
        ("name", long.clone()),
        ("description", long.clone()),
        ("web", format!("https://example.org/{long}")),
    ];
    let more = more.map(|(name, value)| vec![name.to_owned(), value]);
    let old = announced
        .tags
        .iter()
        .filter(|tag| tag.first().is_none_or(|name| name != "name"));
    let tags: Vec<Vec<String>> = old.cloned().chain(more).collect();
    let tags: Vec<Vec<&str>> = tags
        .iter()
        .map(|tag| tag.iter().map(String::as_str).collect())
        .collect();
    let tags: Vec<&[&str]> = tags.iter().map(Vec::as_slice).collect();
    let event = scene.project.owner.event(30617, now() + 2, &tags, "");
    assert!(scene.client.publish(&event).await.0);
    page.open(&scene.project.url(&scene.server)).await;
    let shown = "document.querySelector('h1').textContent.length";
    assert_eq!(page.eval(shown).await, 300);
    photograph(page, "repository-long-words").await;
}
