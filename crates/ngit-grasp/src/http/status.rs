//! How the server stands, over HTTP: the page, its stream of updates, and JSON.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{Html, IntoResponse};
use futures_util::{Stream, stream};
use grasp_core::Network;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use super::gate::{Gate, Slot};
use super::{Site, Transport, not_found};
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
pub(crate) const STATUS_STREAMS: usize = 64;
pub(crate) const STATUS_STREAMS_PER_NETWORK: usize = 4;
const MOST_OPERATORS: usize = 16;

/// A page that runs the one script of ours, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'self'; connect-src 'self'; \
                      style-src 'self'; img-src 'self' data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

pub(super) struct StatusSite {
    lookout: Arc<Lookout>,
    strangers: Arc<Gate>,
    operators: Arc<Gate>,
    name: String,
}

impl StatusSite {
    pub(super) fn new(config: &Config, lookout: Arc<Lookout>) -> Self {
        Self {
            lookout,
            strangers: Gate::new(STATUS_STREAMS, STATUS_STREAMS_PER_NETWORK),
            operators: Gate::new(MOST_OPERATORS, MOST_OPERATORS),
            name: config.relay_name.clone(),
        }
    }

    /// A place among those who listen.
    fn listen(&self, audience: Audience, counted: Option<IpAddr>) -> Option<Slot> {
        match audience {
            Audience::Operator => self.operators.enter(None).ok(),
            Audience::Public => self.strangers.enter(counted.map(Network::of)).ok(),
        }
    }
}

/// A request, if anything is told here: whom it is from, and what there is to tell.
pub(super) struct Visit {
    site: Arc<Site>,
    status: Arc<StatusSite>,
    audience: Audience,
    /// Whose streams are counted; those of this machine and of proxies are not.
    counted: Option<IpAddr>,
}

impl FromRequestParts<Arc<Site>> for Visit {
    type Rejection = Response<Body>;

    async fn from_request_parts(
        parts: &mut Parts,
        site: &Arc<Site>,
    ) -> Result<Self, Self::Rejection> {
        let (Some(status), Some(transport)) = (&site.status, parts.extensions.get::<Transport>())
        else {
            return Err(not_found().await.into_response());
        };
        Ok(Self {
            status: Arc::clone(status),
            audience: site.operator.audience(transport.peer.ip(), &parts.headers),
            counted: site.counted(transport, &parts.headers),
            site: Arc::clone(site),
        })
    }
}

/// One of the operator; others are turned away.
pub(super) struct OperatorVisit(Visit);

impl FromRequestParts<Arc<Site>> for OperatorVisit {
    type Rejection = Response<Body>;

    async fn from_request_parts(
        parts: &mut Parts,
        site: &Arc<Site>,
    ) -> Result<Self, Self::Rejection> {
        let visit = Visit::from_request_parts(parts, site).await?;
        match visit.audience {
            Audience::Operator => Ok(Self(visit)),
            Audience::Public => Err(turn_away(site.operator.has_token())),
        }
    }
}

/// A browser that is asked shows its user a field for the token.
fn turn_away(has_token: bool) -> Response<Body> {
    if !has_token {
        return (StatusCode::FORBIDDEN, Html(web::not_told())).into_response();
    }
    let ask = [(
        header::WWW_AUTHENTICATE,
        r#"Basic realm="the operator's token is the password", charset="UTF-8""#,
    )];
    (StatusCode::UNAUTHORIZED, ask, Html(web::not_told())).into_response()
}

/// On this machine everything, elsewhere the summary.
pub(super) async fn page(visit: Visit) -> Response<Body> {
    tell(&visit).await
}

/// Everything, or a question for the token.
pub(super) async fn details(OperatorVisit(visit): OperatorVisit) -> Response<Body> {
    tell(&visit).await
}

async fn tell(visit: &Visit) -> Response<Body> {
    let Some(snapshot) = visit.status.lookout.snapshot(visit.audience).await else {
        return no_answer();
    };
    let page = web::status_page(&visit.status.name, &snapshot, visit.audience);
    let headers = [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, Html(page)).into_response()
}

/// As `page`, for programs.
pub(super) async fn json(visit: Visit) -> Response<Body> {
    tell_json(&visit).await
}

/// As `details`, for programs.
pub(super) async fn detailed_json(OperatorVisit(visit): OperatorVisit) -> Response<Body> {
    tell_json(&visit).await
}

async fn tell_json(visit: &Visit) -> Response<Body> {
    let Some(snapshot) = visit.status.lookout.snapshot(visit.audience).await else {
        return no_answer();
    };
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, snapshot.json(visit.audience).to_string()).into_response()
}

fn no_answer() -> Response<Body> {
    (StatusCode::SERVICE_UNAVAILABLE, "no answer\n").into_response()
}

/// The summary, again and again.
pub(super) async fn events(visit: Visit) -> Response<Body> {
    follow(&visit, Audience::Public)
}

/// Everything, again and again.
pub(super) async fn detailed_events(OperatorVisit(visit): OperatorVisit) -> Response<Body> {
    follow(&visit, Audience::Operator)
}

fn follow(visit: &Visit, audience: Audience) -> Response<Body> {
    let Some(slot) = visit.status.listen(audience, visit.counted) else {
        let later = [(header::RETRY_AFTER, "60")];
        let text = "too many are watching, try again later\n";
        return (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response();
    };
    let updates = Updates {
        lookout: Arc::clone(&visit.status.lookout),
        audience,
        ticks: ticks(),
        until: Instant::now() + LONGEST,
        phase: visit.site.relay.phase.clone(),
        slot,
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
    slot: Slot,
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

    /// `None` when the server stops, when others need the slot, and after a while.
    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            () = reached(&mut self.phase, Phase::Stopping) => return None,
            () = sleep_until(self.until) => return None,
            _ = self.slot.eviction().evicted() => return None,
            _ = self.ticks.tick() => {}
        }
        let snapshot = tokio::select! {
            () = reached(&mut self.phase, Phase::Stopping) => return None,
            snapshot = self.lookout.snapshot(self.audience) => snapshot,
        };
        Some(match snapshot {
            Some(snapshot) => {
                let html = web::status_part(&snapshot, self.audience);
                // In JSON what a stranger wrote cannot end a line of the stream.
                let line = serde_json::to_string(&*html).unwrap_or_default();
                Event::default().event("status").data(line)
            }
            None => Event::default().event("silence").data(""),
        })
    }
}
