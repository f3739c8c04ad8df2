//! The two plain listeners: metrics and health.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{StatusCode, header};
use mortise_webhooks::Counters;

use super::exposition::{self, CONTENT_TYPE};
use crate::service_state::ServiceState;

pub(super) fn metrics(shared: Arc<ServiceState>, calls: Arc<Counters>) -> Router {
    Router::new()
        .route("/metrics", get(page))
        .with_state((shared, calls))
}

async fn page(State((shared, calls)): State<(Arc<ServiceState>, Arc<Counters>)>) -> Response {
    match exposition::render(&shared, &calls.snapshot()) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

pub(super) fn health(shared: Arc<ServiceState>) -> Router {
    Router::new()
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(shared)
}

/// Alive = the event loop turns. A process with a stalled loop should be restarted.
async fn alive(State(shared): State<Arc<ServiceState>>) -> Response {
    // Reading large lists at start is no stall: the loop turns meanwhile.
    let stuck = shared.snapshot().synced
        && shared.health.time_since_turn() >= 6 * crate::service_state::LOOP_STALL;
    if stuck {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "the event loop is stalled\n",
        )
            .into_response()
    } else {
        "ok\n".into_response()
    }
}

async fn ready(State(shared): State<Arc<ServiceState>>) -> Response {
    let missing = shared.health.unready_reasons(shared.snapshot().synced);
    if missing.is_empty() {
        return "ok\n".into_response();
    }
    (
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{}\n", missing.join("\n")),
    )
        .into_response()
}
