//! The accept loop. It is never the one to fail: out of file descriptors it waits, out of places
//! it says so.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use grasp_core::Network;
use http_body_util::Limited;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::gate::{Full, Slot};
use super::patient::Patient;
use super::{Site, Transport, respond, router};
use crate::config::Config;
use crate::phase::{Phase, reached};

/// One request head. Longer ones are answered 431.
const MAX_HEAD: usize = 64 * 1024;
/// Pause after a failed accept: the descriptors that we ran out of must first come back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A dropped connection needs no more than its tasks' next turn.
const CUT: Duration = Duration::from_secs(1);

pub struct Server {
    accepting: JoinHandle<()>,
    /// Closes when the last connection is gone.
    connections: mpsc::Receiver<()>,
}

impl Server {
    pub fn start(
        listener: TcpListener,
        site: Arc<Site>,
        config: &Config,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let (alive, connections) = mpsc::channel(1);
        let accept = Accept {
            router: router(Arc::clone(&site)),
            site,
            max_body: config.limits().http_body_bytes as u64,
            phase,
            alive,
        };
        Self {
            accepting: tokio::spawn(accept.run(listener)),
            connections,
        }
    }

    /// Stops taking connections, waits until every one has ended, and cuts those that hold out.
    pub async fn finish(mut self, phase: &watch::Sender<Phase>, patience: Duration) {
        phase.send_replace(Phase::Stopping);
        let _ = self.accepting.await;
        if timeout(patience, self.connections.recv()).await.is_err() {
            tracing::warn!("some connections did not end in time and are cut");
            phase.send_replace(Phase::Cut);
            let _ = timeout(CUT, self.connections.recv()).await;
        }
    }
}

#[derive(Clone)]
struct Accept {
    router: Router,
    site: Arc<Site>,
    max_body: u64,
    phase: watch::Receiver<Phase>,
    alive: mpsc::Sender<()>,
}

impl Accept {
    async fn run(mut self, listener: TcpListener) {
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = reached(&mut self.phase, Phase::Stopping) => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    failing = false;
                    self.admit(stream, peer);
                }
                Err(error) => {
                    // One line for one shortage, however long it lasts.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(%error, "cannot accept connections, trying again");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let network = self.site.limited(peer.ip()).map(Network::of);
        match self.site.gate.enter(network) {
            Ok(slot) => {
                tokio::spawn(self.clone().serve(stream, peer, slot));
            }
            Err(full) => {
                let (status, reason) = match full {
                    Full::InAll => ("503 Service Unavailable", "full"),
                    Full::PerNetwork => ("429 Too Many Requests", "per_ip"),
                };
                self.site.relay.metrics.connection_refused(reason);
                tokio::spawn(turn_away(stream, status));
            }
        }
    }

    async fn serve(self, stream: TcpStream, peer: SocketAddr, slot: Slot) {
        // Answers are small and somebody waits for them.
        let _ = stream.set_nodelay(true);
        let limits = self.site.relay.limits.clone();
        let metrics = Arc::clone(&self.site.relay.metrics);
        // A websocket has the same bound and a word for it: it comes first.
        let patience = limits.write_timeout.saturating_mul(2);
        let eviction = slot.eviction().clone();
        let transport = Transport {
            peer,
            slot: Arc::new(slot),
            _alive: self.alive.clone(),
        };
        let first_request = Arc::new(Notify::new());
        let service = {
            let (router, first_request) = (self.router.clone(), Arc::clone(&first_request));
            service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                first_request.notify_one();
                // A body of unknown length ends with an error at the bound.
                let git = self.site.git.max_body(request.uri().path());
                let most = git.unwrap_or(self.max_body);
                let limit = usize::try_from(most).unwrap_or(usize::MAX);
                let mut request = request.map(|body| Body::new(Limited::new(body, limit)));
                request.extensions_mut().insert(transport.clone());
                let response = respond(router.clone(), request, most);
                async move { Ok::<_, std::convert::Infallible>(response.await) }
            })
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // hyper's timer also runs between requests: it is the idle timeout.
            .header_read_timeout(limits.http_idle)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(Patient::new(stream, patience)), service)
            .with_upgrades();
        let mut connection = std::pin::pin!(connection);
        let (mut stopping, mut cut) = (self.phase.clone(), self.phase.clone());
        let first = async {
            tokio::select! {
                _ = connection.as_mut() => false,
                () = first_request.notified() => true,
                () = reached(&mut stopping, Phase::Stopping) => false,
                _ = eviction.evicted() => false,
            }
        };
        if !timeout(limits.header_timeout, first).await.unwrap_or(false) {
            return;
        }
        tokio::select! {
            _ = connection.as_mut() => {}
            _ = eviction.evicted() => metrics.connection_refused("evicted"),
            () = reached(&mut stopping, Phase::Stopping) => {
                connection.as_mut().graceful_shutdown();
                tokio::select! {
                    _ = connection => {}
                    () = reached(&mut cut, Phase::Cut) => {}
                }
            }
        }
    }
}

async fn turn_away(mut stream: TcpStream, status: &str) {
    let body = "too many connections, try again later\n";
    let cors: String = super::CORS
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nRetry-After: 30\r\n\
         {cors}Connection: close\r\n\r\n{body}",
        body.len()
    );
    let write = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await
    };
    let _ = timeout(Duration::from_secs(1), write).await;
}
