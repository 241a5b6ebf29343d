//! How the server stands, over HTTP: the page, its stream of updates, and JSON.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Response, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse};
use futures_util::{Stream, stream};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::gate::{Gate, Slot};
use super::operator::Operator;
use super::{Site, Transport, is_exempt, not_found};
use crate::config::Config;
use crate::phase::{Phase, reached};
use crate::status::{Audience, Lookout};
use crate::web;

/// Between two updates; each is also the sign that the line still stands.
const TICK: Duration = Duration::from_secs(2);
/// After it a browser asks anew, and whoever forgot a window open makes room.
const LONGEST: Duration = Duration::from_secs(10 * 60);
/// Streams at once: of strangers, of one of their addresses, and of operators, who always find
/// room. A summary has 10 kB: 64 of them are 320 kB in a second.
const MOST: usize = 64;
const MOST_PER_ADDRESS: usize = 4;
const MOST_OPERATORS: usize = 16;

/// A page that runs the one script of ours, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                      style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub(super) struct StatusSite {
    pub(super) lookout: Arc<Lookout>,
    operator: Operator,
    strangers: Arc<Gate>,
    operators: Arc<Gate>,
    name: String,
}

impl StatusSite {
    pub(super) fn new(config: &Config, lookout: Arc<Lookout>) -> Self {
        Self {
            lookout,
            operator: Operator::new(config),
            strangers: Gate::new(MOST, MOST_PER_ADDRESS),
            operators: Gate::new(MOST_OPERATORS, MOST_OPERATORS),
            name: config.relay_name.clone(),
        }
    }

    /// A place among those who listen.
    fn listen(&self, audience: Audience, counted: Option<IpAddr>) -> Option<Slot> {
        match audience {
            Audience::Operator => self.operators.enter(None).ok(),
            Audience::Public => self.strangers.enter(counted).ok(),
        }
    }
}

/// Everything that one request needs: whom it is from, and what there is to tell.
struct Visit<'s> {
    status: &'s StatusSite,
    audience: Audience,
}

impl<'s> Visit<'s> {
    /// `None` when the operator does not want anything told.
    fn of(site: &'s Site, transport: &Transport, headers: &HeaderMap) -> Option<Self> {
        let status = site.status.as_ref()?;
        let audience = status.operator.audience(transport.peer.ip(), headers);
        Some(Self { status, audience })
    }

    /// What an address that tells everything says to others.
    fn turn_away(&self) -> Response<Body> {
        if !self.status.operator.has_token() {
            return (StatusCode::FORBIDDEN, Html(web::not_told())).into_response();
        }
        let ask = [(
            header::WWW_AUTHENTICATE,
            r#"Basic realm="the operator's token is the password", charset="UTF-8""#,
        )];
        (StatusCode::UNAUTHORIZED, ask, Html(web::not_told())).into_response()
    }
}

/// On this machine everything, elsewhere the summary.
pub(super) async fn page(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    match Visit::of(&site, &transport, &headers) {
        Some(visit) => tell(&visit).await,
        None => not_found().await.into_response(),
    }
}

/// Everything, or a question for the token.
pub(super) async fn details(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    match Visit::of(&site, &transport, &headers) {
        Some(visit) if visit.audience == Audience::Operator => tell(&visit).await,
        Some(visit) => visit.turn_away(),
        None => not_found().await.into_response(),
    }
}

async fn tell(visit: &Visit<'_>) -> Response<Body> {
    let Some(snapshot) = visit.status.lookout.snapshot().await else {
        return no_answer();
    };
    let page = web::status_page(&visit.status.name, &snapshot, visit.audience);
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, Html(page)).into_response()
}

pub(super) async fn json(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    let Some(visit) = Visit::of(&site, &transport, &headers) else {
        return not_found().await.into_response();
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    match visit.status.lookout.snapshot().await {
        Some(snapshot) => {
            let json = snapshot.json(visit.audience);
            (headers, json.to_string()).into_response()
        }
        None => no_answer(),
    }
}

fn no_answer() -> Response<Body> {
    (StatusCode::SERVICE_UNAVAILABLE, "no answer\n").into_response()
}

/// The summary, again and again.
pub(super) async fn events(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    match Visit::of(&site, &transport, &headers) {
        Some(_) => follow(&site, &transport, &headers, Audience::Public),
        None => not_found().await.into_response(),
    }
}

/// Everything, again and again.
pub(super) async fn detailed_events(
    State(site): State<Arc<Site>>,
    Extension(transport): Extension<Transport>,
    headers: HeaderMap,
) -> Response<Body> {
    match Visit::of(&site, &transport, &headers) {
        Some(visit) if visit.audience == Audience::Operator => {
            follow(&site, &transport, &headers, Audience::Operator)
        }
        Some(visit) => visit.turn_away(),
        None => not_found().await.into_response(),
    }
}

fn follow(
    site: &Arc<Site>,
    transport: &Transport,
    headers: &HeaderMap,
    audience: Audience,
) -> Response<Body> {
    let Some(status) = &site.status else {
        return no_answer();
    };
    let ip = site.client_ip.of(transport.peer.ip(), headers);
    let Some(slot) = status.listen(audience, (!is_exempt(ip)).then_some(ip)) else {
        let later = [(header::RETRY_AFTER, "60")];
        let text = "too many are watching, try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response();
    };
    let updates = Updates {
        lookout: Arc::clone(&status.lookout),
        audience,
        ticks: ticks(),
        until: Instant::now() + LONGEST,
        phase: site.relay.phase.clone(),
        _slot: slot,
    };
    let mut response = Sse::new(updates.stream()).into_response();
    // Proxies that gather an answer before they pass it on would pass on nothing.
    let unbuffered = HeaderName::from_static("x-accel-buffering");
    let headers = response.headers_mut();
    headers.insert(unbuffered, HeaderValue::from_static("no"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// One listener. It asks for a snapshot when its turn has come: all who listen share one, and when
/// nobody listens there is none.
struct Updates {
    lookout: Arc<Lookout>,
    audience: Audience,
    ticks: Interval,
    until: Instant,
    phase: watch::Receiver<Phase>,
    _slot: Slot,
}

fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

impl Updates {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, |mut updates| async move {
            let event = updates.next().await?;
            Some((Ok(event), updates))
        })
    }

    /// `None` when the server stops, and after a while.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            () = reached(&mut self.phase, Phase::Stopping) => return None,
            () = sleep_until(self.until) => return None,
            _ = self.ticks.tick() => {}
        }
        let snapshot = tokio::select! {
            () = reached(&mut self.phase, Phase::Stopping) => return None,
            snapshot = self.lookout.snapshot() => snapshot,
        };
        Some(match snapshot {
            Some(snapshot) => {
                let html = web::status_part(&snapshot, self.audience);
                // In JSON what a stranger wrote cannot end a line of the stream.
                let line = serde_json::to_string(&*html).unwrap_or_default();
                Event::default().event("status").data(line)
            }
            None => Event::default().comment("no answer"),
        })
    }
}
