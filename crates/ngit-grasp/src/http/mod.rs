//! One HTTP stack on one port: websocket, NIP-11 and pages at `/`, metrics, status and health
//! beside.

mod client_ip;
mod gate;
pub mod git;
mod large;
mod nip11;
mod operator;
mod pages;
mod patient;
mod server;
mod status;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{Extension, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use grasp_core::id::to_hex;
use grasp_core::{MaintainerRule, Network, RepoId};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tower::ServiceExt as _;

use self::client_ip::ClientIp;
use self::gate::{Gate, Slot};
pub(crate) use self::git::LISTS_OF_REFS;
use self::git::{Client, Endpoint, GitSite, Route};
use self::operator::Operator;
pub(crate) use self::pages::{PER_NETWORK as PAGES_PER_NETWORK, SLOTS as PAGE_SLOTS};
use self::pages::{PageError, PageSlot, Pages};
pub use self::server::Server;
use self::status::StatusSite;
pub(crate) use self::status::{STATUS_STREAMS, STATUS_STREAMS_PER_NETWORK};
use crate::clock::unix_now;
use crate::config::Config;
use crate::driver;
use crate::hosting::budget::ReadBudget;
use crate::hosting::conversation::Conversation;
use crate::hosting::overview::Overview;
use crate::identity::Identity;
use crate::phase::{Phase, reached};
use crate::relay::Relay;
use crate::relay::connection::{Connection, Peer};
use crate::status::{Audience, Lookout};
use crate::web;

/// For events that a page counts, and for commits that it names: 8 MiB of events are parsed in about
/// 30 ms, and 210 commits have 64 KiB at most.
const PAGE_EVENT_BYTES: u64 = 8 * 1024 * 1024;
const PAGE_OBJECT_BYTES: u64 = 4 * 1024 * 1024;
/// For each of the two, on a machine that is slow or has other things to do.
const PAGE_READS: Duration = Duration::from_millis(500);
/// What is not made by then is not waited for: a disk that does not answer.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);
/// A page is made without what the core knows rather than late.
const SYNC_PATIENCE: Duration = Duration::from_secs(1);
/// A websocket's read buffer. The default is 128 KiB for each idle connection.
const READ_BUFFER: usize = 4 * 1024;

/// What the handlers share.
pub struct Site {
    relay: Arc<Relay>,
    git: Arc<GitSite>,
    gate: Arc<Gate>,
    pages: Pages,
    client_ip: ClientIp,
    nip11: String,
    landing: String,
    http_url: String,
    domain: String,
    driver: driver::Handle,
    rule: MaintainerRule,
    metrics_enabled: bool,
    operator: Operator,
    /// `None` when the operator does not want it told.
    status: Option<Arc<StatusSite>>,
}

impl Site {
    pub fn new(
        config: &Config,
        identity: &Identity,
        instance: &str,
        relay: Arc<Relay>,
        git: Arc<GitSite>,
        driver: driver::Handle,
        lookout: Arc<Lookout>,
    ) -> Self {
        let limits = &relay.limits;
        let owner = identity.pubkey;
        let support = web::Support {
            nips: nip11::SUPPORTED_NIPS,
            grasps: nip11::SUPPORTED_GRASPS,
            acceptance: nip11::acceptance(config),
        };
        Self {
            gate: Gate::new(limits.connections, limits.connections_per_ip),
            pages: Pages::default(),
            client_ip: ClientIp::new(config.trusted_proxies.clone()),
            nip11: nip11::document(config, owner, instance, limits).to_string(),
            landing: web::landing(config, owner, limits, support),
            http_url: config.public_http_url(),
            domain: config.domain(),
            driver,
            rule: config.maintainer_rule,
            metrics_enabled: config.metrics_enabled,
            operator: Operator::new(config, identity.pass()),
            status: config
                .status_enabled
                .then(|| Arc::new(StatusSite::new(config, lookout))),
            relay,
            git,
        }
    }

    /// Where a request comes from, if limits per address hold there.
    fn counted(&self, transport: &Transport, headers: &HeaderMap) -> Option<IpAddr> {
        self.limited(self.client_ip.of(transport.peer.ip(), headers))
    }

    /// Not this machine, and not a proxy that does not say whom it speaks for.
    fn limited(&self, ip: IpAddr) -> Option<IpAddr> {
        let exempt = ip.to_canonical().is_loopback() || self.client_ip.is_trusted(ip);
        (!exempt).then_some(ip)
    }
}

/// What is known of the TCP connection that a request came on.
#[derive(Clone)]
pub(crate) struct Transport {
    peer: SocketAddr,
    /// Counts the connection until the last user of it is gone.
    slot: Arc<Slot>,
    /// Tells the server, by being dropped, that the connection has ended.
    _alive: mpsc::Sender<()>,
}

fn router(site: Arc<Site>) -> Router {
    Router::new()
        .route("/", get(root))
        .route("/assets/style.css", get(style))
        .route("/metrics", get(metrics))
        .route("/robots.txt", get(robots))
        .route("/assets/status.js", get(script))
        .route("/status", get(status::page))
        .route("/status/events", get(status::events))
        .route("/status/details", get(status::details))
        .route("/status/details/events", get(status::detailed_events))
        .route("/status/details/json", get(status::detailed_json))
        .route("/api/status", get(status::json))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .fallback(repository)
        .with_state(site)
}

/// Every response, errors too, may be read by a page of any origin.
async fn respond(router: Router, mut request: Request<Body>, max_body: u64) -> Response<Body> {
    let mut response = if request.method() == Method::OPTIONS {
        StatusCode::NO_CONTENT.into_response()
    } else if declared_length(request.headers()) > max_body {
        let text = format!("the body is larger than {max_body} bytes\n");
        (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
    } else {
        join_connection_headers(request.headers_mut());
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    };
    add_common_headers(response.headers_mut());
    response
}

const CORS: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Authorization, Accept, Git-Protocol, Content-Encoding, X-Requested-With",
    ),
];

const SAFETY: [(HeaderName, &str); 2] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
];

/// A page that needs another policy has brought it.
fn add_common_headers(headers: &mut HeaderMap) {
    for (name, value) in CORS.into_iter().chain(SAFETY) {
        let entry = headers.entry(name);
        entry.or_insert(HeaderValue::from_static(value));
    }
}

/// `Connection` may come as several headers; what looks at the first alone would miss `Upgrade`.
fn join_connection_headers(headers: &mut HeaderMap) {
    let values: Vec<&[u8]> = headers
        .get_all(header::CONNECTION)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if values.len() > 1
        && let Ok(joined) = HeaderValue::from_bytes(&values.join(&b", "[..]))
    {
        headers.insert(header::CONNECTION, joined);
    }
}

fn declared_length(headers: &HeaderMap) -> u64 {
    let value = headers.get(header::CONTENT_LENGTH);
    value
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .unwrap_or(0)
}

async fn root(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response<Body> {
    if wants_websocket(&headers) {
        return match upgrade {
            Ok(upgrade) => websocket(site, &transport, &headers, upgrade),
            Err(rejection) => rejection.into_response(),
        };
    }
    if accepts(&headers, "application/nostr+json") {
        let headers = [
            (header::CONTENT_TYPE, "application/nostr+json"),
            (header::VARY, "Accept"),
        ];
        return (headers, site.nip11.clone()).into_response();
    }
    ([(header::VARY, "Accept")], Html(site.landing.clone())).into_response()
}

fn websocket(
    site: Arc<Site>,
    transport: &Transport,
    headers: &HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response<Body> {
    let counted = site.counted(transport, headers);
    // A direct peer was counted when it connected; behind a proxy the address is known only now.
    let counted_late = counted.filter(|ip| *ip != transport.peer.ip());
    if let Some(Err(_)) = counted_late.map(|ip| transport.slot.count_for(Network::of(ip))) {
        site.relay.metrics.connection_refused("per_ip");
        return too_many_from(&site);
    }
    let peer = Peer {
        network: counted.map(Network::of),
        eviction: transport.slot.eviction().clone(),
    };
    let counted = transport.clone();
    // Twice the limit reaches us, so that most large messages get an answer and not a cut.
    let most = site.relay.limits.message_bytes.saturating_mul(2);
    upgrade
        .read_buffer_size(READ_BUFFER)
        .max_message_size(most)
        .max_frame_size(most)
        .on_upgrade(move |socket| async move {
            let _counted = counted;
            let mut phase = site.relay.phase.clone();
            let connection = Connection::new(Arc::clone(&site.relay), peer, socket);
            tokio::select! {
                () = connection.run() => {}
                () = reached(&mut phase, Phase::Cut) => {}
            }
        })
}

fn too_many_from(site: &Site) -> Response<Body> {
    let most = site.relay.limits.connections_per_ip;
    let text = format!("more than {most} connections from this address\n");
    (
        StatusCode::TOO_MANY_REQUESTS,
        [(header::RETRY_AFTER, "30")],
        text,
    )
        .into_response()
}

/// Other protocols that a client offers to change to (`h2c`) may be ignored.
fn wants_websocket(headers: &HeaderMap) -> bool {
    let offers = headers
        .get_all(header::UPGRADE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    offers
        .flat_map(|value| value.split(','))
        .any(|name| name.trim().eq_ignore_ascii_case("websocket"))
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|part| {
            part.split(';')
                .next()
                .is_some_and(|name| name.trim().eq_ignore_ascii_case(kind))
        })
}

/// What costs work, changes all the time or is for programs is not for robots. Pages of repositories
/// are: they are kept for a moment, and bounded.
const ROBOTS: &str = "\
User-agent: *
Crawl-delay: 5
Disallow: /status
Disallow: /api/
Disallow: /metrics
Disallow: /healthz
Disallow: /readyz
Disallow: /*/info/refs
Disallow: /*/git-upload-pack
Disallow: /*/git-receive-pack
Allow: /
";

async fn robots() -> &'static str {
    ROBOTS
}

async fn style(headers: HeaderMap) -> Response<Body> {
    asset(&headers, "text/css; charset=utf-8", web::STYLE)
}

async fn script(headers: HeaderMap) -> Response<Body> {
    asset(&headers, "text/javascript; charset=utf-8", web::SCRIPT)
}

/// Asked for anew every time, and sent when it has changed: a new page never runs an old script.
fn asset(asked: &HeaderMap, kind: &'static str, text: &'static str) -> Response<Body> {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let tag = format!("\"{}\"", to_hex(&digest));
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-cache"),
        (header::ETAG, &tag),
    ];
    let known = asked.get(header::IF_NONE_MATCH);
    match known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        true => (StatusCode::NOT_MODIFIED, headers).into_response(),
        false => (headers, text).into_response(),
    }
}

/// To the operator everything, to others what names nobody.
async fn metrics(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    if !site.metrics_enabled {
        return not_found().await.into_response();
    }
    let kind = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    let metrics = &site.relay.metrics;
    let text = match site.operator.audience(transport.peer.ip(), &headers) {
        Audience::Operator => metrics.render(),
        Audience::Public => metrics.summary(),
    };
    (kind, text).into_response()
}

/// Ready while the store answers and nobody asked us to stop.
async fn ready(State(site): State<Arc<Site>>) -> Response<Body> {
    let unavailable = |why: String| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    if *site.relay.phase.borrow() != Phase::Running {
        return unavailable("stopping\n".to_owned());
    }
    match site.relay.store.stats() {
        Ok(stats) => format!("ready: {} events\n", stats.events).into_response(),
        Err(error) => unavailable(format!("{error}\n")),
    }
}

/// Everything below a repository's URL.
async fn repository(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    request: Request<Body>,
) -> Response<Body> {
    let Some(route) = Route::parse(request.uri().path()) else {
        return not_found().await.into_response();
    };
    let counted = site.counted(&transport, request.headers());
    let client = Client {
        network: counted.map(Network::of),
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if route.endpoint == Endpoint::Page && is_read {
        return page(site, route.repo, client).await;
    }
    let response = site.git.serve(route, client, request).await;
    let (outboxes, eviction) = (&site.relay.outboxes, transport.slot.eviction());
    large::counted(response, outboxes, client.network, eviction).await
}

async fn page(site: Arc<Site>, repo: RepoId, client: Client) -> Response<Body> {
    let made = site.pages.get(&repo, client.network, |slot| {
        make_page(Arc::clone(&site), repo.clone(), slot)
    });
    match made.await {
        Ok(page) => pages::shown(page),
        Err(PageError::NotFound) => not_found().await.into_response(),
        Err(error) => error.respond(),
    }
}

/// Reads the store and the disk on a thread that may wait for them. The slot is kept until that is
/// done, also if nobody waits for the page any more.
async fn make_page(site: Arc<Site>, repo: RepoId, slot: PageSlot) -> Result<String, PageError> {
    let asked = site.driver.repository(repo.clone());
    let sync = tokio::time::timeout(SYNC_PATIENCE, asked).await;
    let sync = sync.ok().and_then(Result::ok);
    let rendered = tokio::task::spawn_blocking(move || {
        let _slot = slot;
        let opened = site.git.repositories.open(&repo)?;
        let (store, now) = (&*site.relay.store, unix_now());
        let overview = Overview::of(&repo, store, &site.relay.service, site.rule);
        let mut events = ReadBudget::new(PAGE_EVENT_BYTES, Instant::now() + PAGE_READS);
        let conversation =
            Conversation::of(&repo, &overview.maintainers, store, now, &mut events).ok();
        let found = web::Found {
            id: &repo,
            conversation,
            overview: &overview,
            repo: &opened,
            sync,
            now: now.0,
            objects: ReadBudget::new(PAGE_OBJECT_BYTES, Instant::now() + PAGE_READS),
        };
        web::repository(found, &site.http_url, &site.domain)
    });
    match tokio::time::timeout(PAGE_TIMEOUT, rendered).await {
        Ok(Ok(Ok(page))) => Ok(page),
        Ok(Ok(Err(error))) if error.is_not_found() => Err(PageError::NotFound),
        Ok(Ok(Err(error))) => {
            tracing::error!(%error, "a repository's page cannot be made");
            Err(PageError::Failed)
        }
        Ok(Err(_)) => Err(PageError::Failed),
        Err(_) => Err(PageError::TimedOut),
    }
}

async fn not_found() -> impl IntoResponse {
    (StatusCode::NOT_FOUND, Html(web::not_found()))
}
