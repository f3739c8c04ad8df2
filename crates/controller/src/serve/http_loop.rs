//! Accepting connections and serving HTTP on them: time for everything, a bound for everything.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use crate::backoff::Backoff;
use crate::shared::Shared;
use crate::tls::{Peer, Tls};

/// A handshake takes two round trips; a minute of them is somebody who does not mean it.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Idle HTTP/1 connections. Go's client closes idle ones after 90 s; closing earlier than it does makes calls race with
/// the close and fail.
const IDLE: Duration = Duration::from_secs(120);
/// HTTP/2 connections are asked whether they live this often.
const PING: Duration = Duration::from_secs(45);
/// Connections per listener. API servers, schedulers and a few people make tens.
const CONNECTIONS: usize = 512;
/// Concurrent requests on one HTTP/2 connection: kube-scheduler sends one at a time, API servers tens.
const STREAMS: u32 = 128;

/// One listener with what is served on it.
pub(super) struct Loop {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) router: Router,
    pub(super) shared: Arc<Shared>,
}

impl Loop {
    pub(super) async fn run(self, connections: TaskTracker, end: CancellationToken) {
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        loop {
            let accepted = tokio::select! {
                () = end.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, mostly: spinning would not bring them back.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(backoff.next()).await;
                    continue;
                }
            };
            backoff.reset();
            let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                tracing::warn!(
                    most = CONNECTIONS,
                    "too many connections; one was closed at once"
                );
                continue;
            };
            let connection = Connection {
                tls: self.tls.clone(),
                router: self.router.clone(),
                shared: Arc::clone(&self.shared),
                end: end.clone(),
            };
            connections.spawn(async move {
                connection.serve(stream).await;
                drop(slot);
            });
        }
    }
}

struct Connection {
    tls: Option<Arc<Tls>>,
    router: Router,
    shared: Arc<Shared>,
    end: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a socket option could not be set");
        }
        let Some(tls) = &self.tls else {
            return self.http(stream, Peer::default()).await;
        };
        let Some(config) = tls.current() else {
            self.shared.metrics.handshake_failed();
            return;
        };
        match tokio::time::timeout(
            HANDSHAKE,
            tokio_rustls::TlsAcceptor::from(config).accept(stream),
        )
        .await
        {
            Ok(Ok(stream)) => {
                let peer = Peer::of(stream.get_ref().1.peer_certificates());
                self.shared.metrics.connection(true);
                let metrics = Arc::clone(&self.shared);
                self.http(stream, peer).await;
                metrics.metrics.connection(false);
            }
            Ok(Err(error)) => {
                self.shared.metrics.handshake_failed();
                tracing::debug!(%error, "a TLS handshake failed");
            }
            Err(_) => self.shared.metrics.handshake_failed(),
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S, peer: Peer) {
        let Self { router, end, .. } = self;
        let service = router.map_request(move |mut request: http::Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            request.map(axum::body::Body::new)
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_buf_size(64 << 10);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(PING)
            .keep_alive_timeout(Duration::from_secs(20))
            .max_concurrent_streams(STREAMS);
        let connection =
            builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::pin!(connection);
        let mut ending = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "a connection ended");
                    }
                    return;
                }
                () = end.cancelled(), if !ending => {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
