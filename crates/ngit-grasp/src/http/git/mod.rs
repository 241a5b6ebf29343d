//! Git over smart HTTP. Fetches see the disk only; a push asks the core before its pack is read,
//! and its refs move by the core's word alone.

mod body;
mod busy;
mod fetch;
mod fetch_slots;
mod push;
mod push_slots;
mod route;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{self, HeaderMap, HeaderValue};
use axum::http::{Method, Request, Response, StatusCode};
use axum::response::IntoResponse;
use grasp_core::{Network, RepoId};
use grasp_git::{GitError, Protocol, Repo, Service, advertise};

use self::body::Patience;
use self::busy::{Busy, Places, Turn, Turnstile};
pub use self::route::{Endpoint, Route};
use crate::config::Config;
use crate::driver;
use crate::hosting::Repositories;
use crate::hosting::room::Rooms;
use crate::metrics::Metrics;

/// Commands of a push, and what a fetch says it has, before any pack. 64 MiB are a million `have`
/// lines.
const MAX_REQUEST: u64 = 64 * 1024 * 1024;

/// Lists of refs at once for each fetch or push: they take milliseconds. With the
/// default of 64 that is half of the threads that may wait for the disk.
pub const LISTS_OF_REFS: usize = 4;

/// What the git endpoints share.
pub struct GitSite {
    pub repositories: Arc<Repositories>,
    driver: driver::Handle,
    metrics: Arc<Metrics>,
    /// Fetches and pushes.
    work: Arc<Turnstile>,
    /// Lists of refs.
    looks: Arc<Turnstile>,
    rooms: Arc<Rooms>,
    limits: GitLimits,
}

#[derive(Debug, Clone, Copy)]
pub struct GitLimits {
    pub push_bytes: u64,
    pub timeout: Duration,
    pub patience: Patience,
}

/// Where a request comes from, as far as it is counted.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// `None` is not counted.
    pub network: Option<Network>,
}

impl GitSite {
    pub fn new(
        config: &Config,
        repositories: Arc<Repositories>,
        rooms: Arc<Rooms>,
        driver: driver::Handle,
        metrics: Arc<Metrics>,
    ) -> Self {
        let places = Places {
            in_all: config.git_concurrent,
            per_repo: config.git_concurrent_per_repository,
            per_network: config.git_concurrent_per_ip,
        };
        Self {
            repositories,
            driver,
            work: Turnstile::new(places, metrics.git_running.clone()),
            looks: Turnstile::new(places.times(LISTS_OF_REFS), metrics.git_looking.clone()),
            metrics,
            rooms,
            limits: GitLimits {
                push_bytes: config.max_push_bytes.as_u64(),
                timeout: config.git_timeout,
                patience: Patience {
                    idle: config.git_idle,
                    grace: config.git_slow_grace,
                    bytes_per_second: config.git_min_pace.as_u64(),
                },
            },
        }
    }

    /// The largest body that a request to that path may have.
    pub fn max_body(&self, path: &str) -> Option<u64> {
        match Route::parse(path)?.endpoint {
            Endpoint::UploadPack => Some(MAX_REQUEST),
            Endpoint::ReceivePack => Some(MAX_REQUEST.saturating_add(self.limits.push_bytes)),
            _ => None,
        }
    }

    /// Answers a request below a repository's URL; pages are not its business.
    pub async fn serve(
        self: &Arc<Self>,
        route: Route,
        client: Client,
        request: Request<Body>,
    ) -> Response<Body> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let is_post = *request.method() == Method::POST;
        let turn = match self.enter(&route, client, is_post) {
            Ok(turn) => turn,
            Err(busy) => {
                body::discard(request.into_body(), self.limits.patience).await;
                return busy.into_response();
            }
        };
        let repo = match self.open(&route.repo, &turn).await {
            Ok(repo) => repo,
            Err(response) => return response,
        };
        match route.endpoint {
            Endpoint::InfoRefs if is_read => {
                let query = request.uri().query().unwrap_or_default().to_owned();
                let protocol = protocol(request.headers());
                drop(request);
                self.info_refs(&repo, &turn, &query, protocol).await
            }
            Endpoint::UploadPack if is_post => self.fetch(&repo, turn, request).await,
            Endpoint::ReceivePack if is_post => {
                self.push(route.repo, repo, turn, client.network, request)
                    .await
            }
            Endpoint::InfoRefs | Endpoint::UploadPack | Endpoint::ReceivePack => {
                let text = "this address takes another method\n";
                (StatusCode::METHOD_NOT_ALLOWED, text).into_response()
            }
            Endpoint::Page | Endpoint::Other => {
                let text = "only git's smart protocol is served here\n";
                (StatusCode::NOT_FOUND, text).into_response()
            }
        }
    }

    fn enter(&self, route: &Route, client: Client, is_post: bool) -> Result<Turn, Busy> {
        match route.endpoint {
            Endpoint::UploadPack if is_post => self.work.enter_fetch(&route.repo, client.network),
            Endpoint::ReceivePack if is_post => self.work.enter_push(&route.repo, client.network),
            _ => self.look(&route.repo, client),
        }
    }

    /// A place for something that only reads refs.
    pub fn look(&self, repo: &RepoId, client: Client) -> Result<Turn, Busy> {
        self.looks.enter(repo, client.network)
    }

    async fn open(&self, id: &RepoId, turn: &Turn) -> Result<Repo, Response<Body>> {
        let open = || {
            let (repositories, repo) = (Arc::clone(&self.repositories), id.clone());
            off_the_loop(turn, move || repositories.open(&repo))
        };
        let mut opened = open().await;
        // Its announcement may be answered already.
        if matches!(&opened, Err(error) if error.is_not_found())
            && self.repositories.wait_until_made(id).await
        {
            opened = open().await;
        }
        opened.map_err(|error| match error.is_not_found() {
            true => {
                let text = format!("there is no repository {id} here\n");
                (StatusCode::NOT_FOUND, text).into_response()
            }
            false => failed(id, &error),
        })
    }

    async fn info_refs(
        &self,
        repo: &Repo,
        turn: &Turn,
        query: &str,
        protocol: Protocol,
    ) -> Response<Body> {
        let service = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("service="))
            .and_then(Service::from_name);
        let Some(service) = service else {
            let text = "only git's smart protocol is served here: ask with ?service=\n";
            return (StatusCode::FORBIDDEN, text).into_response();
        };
        let opened = repo.clone();
        let advert = move || Ok(advertise(service, protocol, &opened.refs()?));
        let body = match off_the_loop(turn, advert).await {
            Ok(body) => body,
            Err(error) => return failed(&repo.dir().display(), &error),
        };
        let kind = format!("application/x-{}-advertisement", service.name());
        git_response(&kind, Body::from(body))
    }
}

/// Runs what waits for the disk where it keeps nobody else waiting. It goes on when nobody waits
/// for it any more, and keeps its place until then.
fn off_the_loop<T, W>(
    turn: &Turn,
    work: W,
) -> impl Future<Output = Result<T, GitError>> + Send + use<T, W>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T, GitError> + Send + 'static,
{
    let turn = turn.clone();
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(turn);
        done
    });
    async {
        let ended = |_| Err(GitError::Unexpected("a thread ended".to_owned()));
        done.await.unwrap_or_else(ended)
    }
}

fn protocol(headers: &HeaderMap) -> Protocol {
    let value = headers.get("git-protocol");
    let value = value.and_then(|value| value.to_str().ok());
    value.map_or(Protocol::V0, Protocol::from_header)
}

/// What git says is never to be kept by anybody on the way.
fn git_response(kind: &str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, max-age=0, must-revalidate"),
    );
    response
}

fn failed(repo: &dyn std::fmt::Display, error: &GitError) -> Response<Body> {
    tracing::error!(%repo, %error, "a repository cannot be served");
    let text = "this repository cannot be read at the moment\n";
    (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use grasp_core::{Identifier, Pubkey};
    use prometheus::IntGauge;

    use super::*;

    #[tokio::test]
    async fn whoever_leaves_keeps_its_place_until_the_work_is_done() {
        let places = Places {
            in_all: 1,
            per_repo: 1,
            per_network: 1,
        };
        let gauge = IntGauge::new("g", "g").unwrap();
        let turnstile = Turnstile::new(places, gauge.clone());
        let repo = RepoId::new(Pubkey([7; 32]), Identifier::parse("r").unwrap());
        let turn = turnstile.enter(&repo, None).ok().unwrap();
        let (release, held) = mpsc::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let work = off_the_loop(&turn, move || {
            let _ = held.recv();
            drop(end);
            Ok(())
        });
        drop((work, turn));
        assert_eq!(turnstile.enter(&repo, None).err(), Some(Busy::Server));
        drop(release);
        let _ = ended.await;
        while gauge.get() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(turnstile.enter(&repo, None).is_ok());
    }
}
