//! Answers that are made in memory and are large, such as long lists of refs: what their readers have
//! not taken counts with what is on its way to all readers of the relay, so that a few bytes of a
//! question do not hold megabytes for whoever reads slowly.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use axum::response::IntoResponse as _;
use futures_util::stream;
use grasp_core::Network;
use hyper::body::Body as _;

use crate::evicting_quota::EvictingQuota;
use crate::eviction::Eviction;

/// Smaller ones are in the buffers of the connection at once, and are what is handed to it at a time.
const CHUNK: usize = 64 * 1024;

/// The same answer, counted until it is taken; or that there is no memory for it.
pub(super) async fn counted(
    response: Response<Body>,
    outboxes: &Arc<EvictingQuota>,
    network: Option<Network>,
    eviction: &Eviction,
) -> Response<Body> {
    // What is streamed has no size that is known.
    let size = response.body().size_hint().exact();
    let size = size
        .and_then(|size| usize::try_from(size).ok())
        .unwrap_or(0);
    if size <= CHUNK {
        return response;
    }
    let Ok(permit) = outboxes.join(network, eviction).take(size) else {
        let later = [(header::RETRY_AFTER, "5")];
        let text = "too much is on its way to your address\n";
        return (StatusCode::SERVICE_UNAVAILABLE, later, text).into_response();
    };
    let (parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, size).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let chunks = stream::unfold((bytes, permit), |(mut bytes, permit)| async {
        let size = bytes.len().min(CHUNK);
        let chunk = bytes.split_to(size);
        (size > 0).then_some((
            Ok::<Bytes, std::convert::Infallible>(chunk),
            (bytes, permit),
        ))
    });
    Response::from_parts(parts, Body::from_stream(chunks))
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use grasp_core::shares::ShareLimits;

    use super::*;
    use crate::eviction::Scarce;

    const LIMITS: ShareLimits = ShareLimits {
        in_all: 1024 * 1024,
        per_network: 512 * 1024,
    };

    #[tokio::test]
    async fn an_answer_counts_until_it_is_taken() {
        let quota = EvictingQuota::new(LIMITS, Scarce::Outbox);
        let network = |n: u8| Some(Network::of([203, 0, 113, n].into()));
        let ask = |n, bytes: usize| {
            let response = Response::new(Body::from(vec![7; bytes]));
            let (quota, eviction) = (Arc::clone(&quota), Eviction::default());
            async move { counted(response, &quota, network(n), &eviction).await }
        };
        let first = ask(1, 300 * 1024).await;
        let second = ask(1, 300 * 1024).await;
        assert_eq!(second.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(1, CHUNK).await.status(), StatusCode::OK, "a small one");
        assert_eq!(ask(2, 300 * 1024).await.status(), StatusCode::OK);
        let mut body = first.into_body().into_data_stream();
        let mut taken = 0;
        while let Some(chunk) = body.next().await {
            let chunk = chunk.unwrap();
            assert!(chunk.len() <= CHUNK);
            taken += chunk.len();
        }
        assert_eq!(taken, 300 * 1024);
        drop(body);
        assert_eq!(ask(1, 300 * 1024).await.status(), StatusCode::OK);
    }
}
