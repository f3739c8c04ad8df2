//! The HTTP surface: one HTTPS listener for extender, webhooks, debug paths and page; two plain ones for metrics and health.

mod activity;
mod auth;
mod bodies;
mod debug;
pub(crate) mod exposition;
mod forwarding;
mod guard;
mod http_loop;
mod metrics_and_probes;
mod patience;
mod seldom;
mod sent;
mod slots;
mod ui;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use mortise_webhooks::router::WebhookState;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Listen;
use crate::error::RunError;
use crate::service_state::ServiceState;
use crate::tls::{ApiServers, Tls};

pub use auth::{AccessDenied, DebugAccess};
use debug::DebugState;
pub use debug::{DEBUG_ROUTES, DebugRoute, DebugView, Subject, explanation};
use forwarding::Forwarding;
use guard::RequestGuard;

/// The parts of the HTTPS service.
#[derive(Clone)]
pub struct HttpsService {
    /// State that responses are computed from.
    pub shared: Arc<ServiceState>,
    /// The webhook and extender handlers.
    pub webhooks: WebhookState,
    /// Who may read debug paths.
    pub debug: Arc<DebugAccess>,
    /// Names of client certificates that may call the extender and the debug paths.
    pub clients: Arc<[String]>,
    /// Certificates.
    pub tls: Arc<Tls>,
    /// Which callers of admission count as API servers; only those get facts of the cluster in responses.
    pub api_servers: ApiServers,
}

impl std::fmt::Debug for HttpsService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service")
            .field("debug", &self.debug)
            .field("clients", &self.clients)
            .field("api_servers", &self.api_servers)
            .finish_non_exhaustive()
    }
}

impl HttpsService {
    /// Every route of the HTTPS listener, guarded. Tests call it without a socket; a [`crate::tls::Peer`] in the request's
    /// extensions replaces the client certificate.
    pub fn router(&self) -> Router {
        let guard = RequestGuard::new(
            Arc::clone(&self.shared),
            Arc::clone(&self.debug),
            Arc::clone(&self.clients),
            self.api_servers.clone(),
        );
        let shared = Arc::clone(&self.shared);
        let forwarding = Forwarding::new(
            Arc::clone(&self.shared),
            Arc::clone(&self.webhooks.extender),
            Arc::clone(&self.tls),
            forwarding::WITHIN,
        );
        mortise_webhooks::router::router(self.webhooks.clone())
            .route_layer(axum::middleware::from_fn_with_state(
                forwarding,
                forwarding::to_leader,
            ))
            .merge(debug::router(DebugState {
                shared: Arc::clone(&self.shared),
                extender: Arc::clone(&self.webhooks.extender),
                counters: Arc::clone(&self.webhooks.counters),
            }))
            .merge(ui::routes())
            .route("/", get(|| async { Redirect::temporary("/ui/") }))
            // Only of routes: a path that does not exist needs no review.
            .route_layer(axum::middleware::from_fn_with_state(guard, guard::check))
            .fallback(move || guard::unknown(shared))
    }
}

/// The bound addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Extender, webhooks, debug paths, page.
    pub https: SocketAddr,
    /// `/metrics`.
    pub metrics: SocketAddr,
    /// `/healthz`, `/readyz`.
    pub health: SocketAddr,
}

/// Open listeners that are not served yet.
#[derive(Debug)]
pub struct Listeners {
    https: TcpListener,
    metrics: TcpListener,
    health: TcpListener,
    addresses: Addresses,
}

impl Listeners {
    /// Opens all three, so that a port in use is known before anything else starts.
    ///
    /// # Errors
    /// [`RunError::Listen`] with the address that could not be bound.
    pub async fn bind(listen: &Listen) -> Result<Self, RunError> {
        let (https, https_at) = bind(listen.https, "HTTPS").await?;
        let (metrics, metrics_at) = bind(listen.metrics, "metrics").await?;
        let (health, health_at) = bind(listen.health, "health").await?;
        Ok(Self {
            https,
            metrics,
            health,
            addresses: Addresses {
                https: https_at,
                metrics: metrics_at,
                health: health_at,
            },
        })
    }

    /// The bound addresses.
    #[must_use]
    pub const fn addresses(&self) -> Addresses {
        self.addresses
    }
}

async fn bind(
    address: SocketAddr,
    purpose: &'static str,
) -> Result<(TcpListener, SocketAddr), RunError> {
    let failed = |source| RunError::Listen {
        purpose,
        address,
        source,
    };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// Serves until `end`, then lets open requests complete. Returns when the last connection is closed.
pub async fn serve(service: HttpsService, listeners: Listeners, end: CancellationToken) {
    let Listeners {
        https,
        metrics,
        health,
        addresses,
    } = listeners;
    tracing::info!(https = %addresses.https, metrics = %addresses.metrics, health = %addresses.health, "listening");
    let shared = Arc::clone(&service.shared);
    let calls = Arc::clone(&service.webhooks.counters);
    let connections = TaskTracker::new();
    let loops = [
        http_loop::Loop {
            port: "https",
            listener: https,
            limits: http_loop::HTTPS_LIMITS,
            tls: Some(Arc::clone(&service.tls)),
            router: service.router(),
            shared: Arc::clone(&shared),
        },
        http_loop::Loop {
            port: "metrics",
            listener: metrics,
            limits: http_loop::PLAIN_LIMITS,
            tls: None,
            router: metrics_and_probes::metrics(Arc::clone(&shared), calls),
            shared: Arc::clone(&shared),
        },
        http_loop::Loop {
            port: "health",
            listener: health,
            limits: http_loop::PLAIN_LIMITS,
            tls: None,
            router: metrics_and_probes::health(Arc::clone(&shared)),
            shared,
        },
    ];
    futures::future::join_all(
        loops
            .into_iter()
            .map(|each| each.run(connections.clone(), end.clone())),
    )
    .await;
    connections.close();
    connections.wait().await;
}

#[cfg(test)]
mod tests;
