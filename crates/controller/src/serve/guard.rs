//! Checks of every request to the HTTPS listener: permission of the caller, timeout of the body, concurrency limit, timeout of
//! the response, and panics.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures::FutureExt as _;
use http::{StatusCode, header};
use mortise_webhooks::router::Trusted;
use mortise_webhooks::routes::{Access, Handler, ROUTES, access, route};
use tokio::sync::Semaphore;

use super::activity::Activity;
use super::auth::{Asker, DebugAccess};
use super::bodies::Bodies;
use super::debug::DEBUG_ROUTES;
use super::http_loop::Remote;
use super::seldom::Seldom;
use crate::service_state::ServiceState;
use crate::tls::{ApiServers, Peer};

/// Concurrent calls of kube-scheduler. It makes one at a time; several replicas make a few.
const EXTENDER: usize = 64;
/// Concurrent admission calls. Any caller is allowed, so this also limits a flood.
const OPEN: usize = 32;
/// Concurrent debug requests, streams included.
const DEBUG: usize = 64;
/// Total bytes of reviews: four of the longest, thousands of the usual ones.
const REVIEW_BYTES: usize = 32 << 20;
/// Total bytes of conversions: two of the longest.
const CONVERSION_BYTES: usize = 64 << 20;
/// Total bytes of callers that have proven their identity.
const KNOWN_BYTES: usize = 64 << 20;
/// Timeout of a response. Streams are exempt: they end by themselves.
const ANSWER: Duration = Duration::from_secs(30);

/// The guard's state.
#[derive(Clone, Debug)]
pub(super) struct RequestGuard {
    shared: Arc<ServiceState>,
    debug: Arc<DebugAccess>,
    clients: Arc<[String]>,
    api_servers: ApiServers,
    room: Arc<ConcurrencyLimits>,
}

#[derive(Debug)]
struct ConcurrencyLimits {
    extender: Semaphore,
    open: Semaphore,
    debug: Semaphore,
    strangers: Seldom,
    reviews: Bodies,
    conversions: Bodies,
    of_known: Bodies,
}

impl ConcurrencyLimits {
    /// The memory for the bodies of a path.
    fn bodies(&self, access: Access, handler: Option<Handler>) -> &Bodies {
        match access {
            Access::Open if handler == Some(Handler::Convert) => &self.conversions,
            Access::Open => &self.reviews,
            Access::ExtenderClient | Access::Debug => &self.of_known,
        }
    }
}

impl RequestGuard {
    pub(super) fn new(
        shared: Arc<ServiceState>,
        debug: Arc<DebugAccess>,
        clients: Arc<[String]>,
        api_servers: ApiServers,
    ) -> Self {
        let room = ConcurrencyLimits {
            extender: Semaphore::new(EXTENDER),
            open: Semaphore::new(OPEN),
            debug: Semaphore::new(DEBUG),
            strangers: Seldom::default(),
            reviews: Bodies::with_limit(REVIEW_BYTES),
            conversions: Bodies::with_limit(CONVERSION_BYTES),
            of_known: Bodies::with_limit(KNOWN_BYTES),
        };
        Self {
            shared,
            debug,
            clients,
            api_servers,
            room: Arc::new(room),
        }
    }

    fn log_unproven_caller(&self, path: &'static str, remote: Option<&Remote>) {
        if let Some(reviews) = self.room.strangers.count_when_due() {
            let caller = remote.map(|remote| remote.0.to_string());
            tracing::warn!(
                path,
                reviews,
                caller,
                "cluster facts withheld from admission response, the caller has no client certificate signed by --admission-client-ca"
            );
        }
    }

    async fn allow(&self, caller: Caller, access: Access) -> Result<(), Response> {
        let Caller {
            peer,
            method,
            path,
            authorization,
            remote,
        } = caller;
        match access {
            Access::Open => Ok(()),
            Access::ExtenderClient if peer.is_one_of(&self.clients) || peer.is_replica => Ok(()),
            Access::ExtenderClient => {
                let message = if peer.names.is_empty() || !peer.of_extender_ca {
                    "a client certificate signed by the extender CA is required\n"
                } else {
                    "the name of this client certificate is not allowed\n"
                };
                Err((StatusCode::FORBIDDEN, message).into_response())
            }
            Access::Debug => {
                let checked = self
                    .debug
                    .check(
                        &Asker {
                            method: &method,
                            path: &path,
                            authorization: authorization.as_ref(),
                            peer: &peer,
                            allowed: &self.clients,
                            remote,
                        },
                        &self.shared.metrics,
                    )
                    .await;
                checked.map_err(|refused| {
                    let mut response =
                        (refused.status, format!("{}\n", refused.message)).into_response();
                    if refused.status == StatusCode::UNAUTHORIZED {
                        response.headers_mut().insert(
                            header::WWW_AUTHENTICATE,
                            http::HeaderValue::from_static("Bearer"),
                        );
                    }
                    response
                })
            }
        }
    }
}

/// The caller and its target. Separate from the request, whose body cannot be shared between threads.
struct Caller {
    peer: Peer,
    method: http::Method,
    path: String,
    authorization: Option<http::HeaderValue>,
    remote: Option<IpAddr>,
}

impl Caller {
    fn from_request(request: &Request) -> Self {
        Self {
            peer: request
                .extensions()
                .get::<Peer>()
                .cloned()
                .unwrap_or_default(),
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            authorization: request.headers().get(header::AUTHORIZATION).cloned(),
            remote: request.extensions().get::<Remote>().map(|remote| remote.0),
        }
    }
}

/// The middleware.
pub(super) async fn check(
    State(guard): State<RequestGuard>,
    mut request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let path = label(request.uri().path());
    let access = access_of(request.uri().path());
    let handler = route(request.uri().path()).map(|route| route.handler);
    let response = match guard.allow(Caller::from_request(&request), access).await {
        Ok(()) => {
            let trusted = guard.api_servers.trust(request.extensions().get::<Peer>());
            if trusted {
                request.extensions_mut().insert(Trusted);
            } else if handler.is_some_and(Handler::reveals_cluster_state) {
                guard.log_unproven_caller(path, request.extensions().get::<Remote>());
            }
            let activity = request.extensions().get::<Arc<Activity>>().cloned();
            let proven = guard.api_servers.must_prove() && trusted || access != Access::Open;
            if let Some(activity) = activity.as_ref().filter(|_| proven) {
                activity.mark_proven();
            }
            let bodies = guard.room.bodies(access, handler);
            // A caller that sends slowly occupies its connection, but no concurrency limit.
            match bodies.read(request, activity.as_deref()).await {
                Ok((request, _held)) => answer(&guard, access, path, request, next).await,
                Err(refused) => refused,
            }
        }
        Err(refused) => refused,
    };
    guard
        .shared
        .metrics
        .http
        .request(path, response.status(), start.elapsed());
    response
}

/// Paths that do not exist: the response reveals nothing.
pub(super) async fn unknown(shared: Arc<ServiceState>) -> Response {
    let status = StatusCode::NOT_FOUND;
    shared.metrics.http.request("other", status, Duration::ZERO);
    (status, "path not found\n").into_response()
}

async fn answer(
    guard: &RequestGuard,
    access: Access,
    path: &'static str,
    request: Request,
    next: Next,
) -> Response {
    let room = match access {
        Access::ExtenderClient => &guard.room.extender,
        Access::Open => &guard.room.open,
        Access::Debug => &guard.room.debug,
    };
    let Ok(_slot) = room.try_acquire() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [(header::RETRY_AFTER, "1")],
            "too many concurrent requests\n",
        )
            .into_response();
    };
    // Bodies of streams are produced after this future has completed; the timeout covers the beginning of the response.
    let answered =
        tokio::time::timeout(ANSWER, AssertUnwindSafe(next.run(request)).catch_unwind()).await;
    match answered {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            guard.shared.metrics.http.panicked();
            tracing::error!(
                path,
                message = crate::error::panic_text(&*panic),
                "request handler panicked"
            );
            (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n").into_response()
        }
        Err(_) => (StatusCode::GATEWAY_TIMEOUT, "the request timed out\n").into_response(),
    }
}

/// Who may call a path. The page itself is static and public: it requests its data with a token that users enter.
fn access_of(path: &str) -> Access {
    if matches!(path, "/" | "/ui/") {
        Access::Open
    } else {
        access(path)
    }
}

/// The path as a metric label, from a closed list.
fn label(path: &str) -> &'static str {
    let known = ROUTES
        .iter()
        .map(|route| route.path)
        .chain(DEBUG_ROUTES.iter().map(|route| route.path))
        .find(|known| *known == path);
    known.unwrap_or_else(|| {
        if path.starts_with("/ui/") {
            "/ui/"
        } else {
            "other"
        }
    })
}
