//! Accepts connections and serves HTTP on them, with a timeout and a limit for everything.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_rustls::LazyConfigAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::activity::{Activity, Standing};
use super::patience::Unstalled;
use super::seldom::Seldom;
use super::sent::Sent;
use super::slots::{Admission, Limits, Slots};
use crate::client::backoff::Backoff;
use crate::service_state::ServiceState;
use crate::service_state::handshakes::{FailedHandshake, HandshakeCause};
use crate::tls::{Peer, Tls};
use crate::traces::TracedRequest;

/// A handshake takes two round trips; a client that takes longer is not serious.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// From the accept to the first whole request. Go's clients sometimes open one spare connection and keep it; it costs nothing
/// until the port is full, and is then evicted first.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// Idle timeout of used connections. Go's client closes idle ones after 90 s; closing earlier makes calls race with the close
/// and fail.
const IDLE: Duration = Duration::from_secs(120);
/// Interval of HTTP/2 pings.
const PING: Duration = Duration::from_secs(45);
/// Concurrent requests on one HTTP/2 connection: kube-scheduler sends one at a time, API servers tens.
const STREAMS: u32 = 128;

/// API servers, schedulers and a few users open tens. A network of API servers behind one address opens many.
pub(super) const HTTPS_LIMITS: Limits = Limits {
    all: 512,
    of_peer: 256,
};
/// A Prometheus or two; a kubelet that opens a connection for each probe.
pub(super) const PLAIN_LIMITS: Limits = Limits {
    all: 128,
    of_peer: 64,
};

/// One listener with its routes.
pub(super) struct Loop {
    /// For metrics and logs: `https`, `metrics`, `health`.
    pub(super) port: &'static str,
    pub(super) listener: TcpListener,
    pub(super) limits: Limits,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) router: Router,
    pub(super) shared: Arc<ServiceState>,
}

impl Loop {
    pub(super) async fn run(self, connections: TaskTracker, end: CancellationToken) {
        let slots = Slots::new(self.limits);
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_secs(1));
        let log_limit = Seldom::default();
        loop {
            let accepted = tokio::select! {
                () = end.cancelled() => return,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok((stream, address)) => (stream, address.ip()),
                Err(error) => {
                    // Mostly out of file descriptors: an immediate retry would not free any.
                    tracing::warn!(%error, "failed to accept connection");
                    tokio::time::sleep(backoff.next()).await;
                    continue;
                }
            };
            backoff.reset();
            let activity = Activity::new();
            let slot = match slots.admit(peer, &activity) {
                Admission::Room(slot) => slot,
                Admission::InPlaceOfAnother(slot) => {
                    self.shared
                        .metrics
                        .http
                        .connection_ended(self.port, "crowded_out");
                    log_full_port(&log_limit, self.port, peer);
                    slot
                }
                Admission::Full => {
                    self.shared
                        .metrics
                        .http
                        .connection_ended(self.port, "refused");
                    log_full_port(&log_limit, self.port, peer);
                    continue;
                }
            };
            let connection = Connection {
                port: self.port,
                peer,
                tls: self.tls.clone(),
                router: self.router.clone(),
                shared: Arc::clone(&self.shared),
                activity,
                end: end.clone(),
            };
            connections.spawn(async move {
                connection.serve(stream).await;
                drop(slot);
            });
        }
    }
}

fn log_full_port(log_limit: &Seldom, port: &'static str, newest: IpAddr) {
    if let Some(connections) = log_limit.count_when_due() {
        tracing::warn!(
            port, connections, %newest,
            "too many connections, idle ones are closed for new ones"
        );
    }
}

struct Connection {
    port: &'static str,
    peer: IpAddr,
    tls: Option<Arc<Tls>>,
    router: Router,
    shared: Arc<ServiceState>,
    activity: Arc<Activity>,
    end: CancellationToken,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "failed to set socket option");
        }
        let Some(tls) = self.tls.clone() else {
            return self.http(stream, Peer::default(), false).await;
        };
        let handshake = tokio::select! {
            handshake = tokio::time::timeout(HANDSHAKE, self.accept_tls(&tls, stream)) => handshake,
            // The connection was evicted during its handshake, which is counted already.
            () = self.activity.wait_for_eviction() => return,
        };
        match handshake {
            Ok(Some((stream, peer))) => {
                let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                let shared = Arc::clone(&self.shared);
                shared.metrics.http.connection(true);
                self.http(stream, peer, is_h2).await;
                shared.metrics.http.connection(false);
            }
            Ok(None) => {}
            Err(_) => self.report_failed_handshake(
                HandshakeCause::TimedOut,
                None,
                Vec::new(),
                String::new(),
            ),
        }
    }

    /// The handshake; `None` if it failed, which is reported.
    async fn accept_tls(
        &self,
        tls: &Tls,
        stream: TcpStream,
    ) -> Option<(tokio_rustls::server::TlsStream<TcpStream>, Peer)> {
        let Some(current) = tls.current() else {
            self.report_failed_handshake(
                HandshakeCause::NoCertificate,
                None,
                Vec::new(),
                String::new(),
            );
            return None;
        };
        let mut asked = None;
        let handshake = async {
            let hello =
                LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
            asked = hello.client_hello().server_name().map(str::to_owned);
            hello.into_stream(Arc::clone(&current.config)).await
        };
        match handshake.await {
            Ok(stream) => {
                let peer = current.peer(stream.get_ref().1.peer_certificates());
                Some((stream, peer))
            }
            Err(error) => {
                let cause = HandshakeCause::from_error(&error, asked.as_deref(), &current.names);
                self.report_failed_handshake(
                    cause,
                    asked,
                    current.names.clone(),
                    error.to_string(),
                );
                None
            }
        }
    }

    fn report_failed_handshake(
        &self,
        cause: HandshakeCause,
        asked: Option<String>,
        names: Vec<String>,
        error: String,
    ) {
        self.shared.metrics.http.handshake_failed(cause.label());
        let failed = FailedHandshake {
            cause,
            peer: self.peer.to_canonical(),
            asked,
            names,
            error,
        };
        self.shared.handshakes.report(&failed, self.shared.now());
    }

    async fn http<S>(self, stream: S, peer: Peer, is_h2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            port,
            peer: address,
            router,
            shared,
            activity,
            end,
            ..
        } = self;
        let serving = Arc::clone(&activity);
        let tracer = Arc::clone(&shared);
        let service = service_fn(move |request: http::Request<Incoming>| {
            let activity = Arc::clone(&serving);
            let answering = activity.begin_request();
            let traced = tracer
                .traces()
                .and_then(|_| TracedRequest::begin(&request, tracer.now()))
                .map(|traced| (Arc::clone(&tracer), traced));
            let mut request = request.map(Body::new);
            let extensions = request.extensions_mut();
            extensions.insert(peer.clone());
            extensions.insert(Remote(address.to_canonical()));
            extensions.insert(Arc::clone(&activity));
            let answer = router.clone().oneshot(request);
            async move {
                let response = answer.await?;
                drop(answering);
                if let Some((tracer, traced)) = traced
                    && let Some(traces) = tracer.traces()
                {
                    traces.answered(traced, response.status(), tracer.now());
                }
                Ok::<_, std::convert::Infallible>(
                    response.map(|body| Body::new(Sent::new(body, activity))),
                )
            }
        });
        // The protocol is known: detecting it from the first bytes could wait for them indefinitely.
        let mut builder = match is_h2 {
            true => Builder::new(TokioExecutor::new()).http2_only(),
            false => Builder::new(TokioExecutor::new()).http1_only(),
        };
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
        let connection = builder.serve_connection(TokioIo::new(Unstalled::new(stream)), service);
        tokio::pin!(connection);
        let mut ending = false;
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(error, "connection closed");
                    }
                    return;
                }
                () = activity.wait_for_eviction() => return,
                () = tokio::time::sleep_until(idle_deadline(&activity)) => {
                    if !activity.can_evict() {
                        // A response in progress has its own timeout.
                        activity.record_progress();
                    } else if idle_deadline(&activity) <= Instant::now() {
                        shared.metrics.http.connection_ended(port, "silent");
                        return;
                    }
                }
                () = end.cancelled(), if !ending => {
                    ending = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// When a connection without progress is closed.
fn idle_deadline(activity: &Activity) -> Instant {
    let patience = match activity.standing() {
        Standing::Silent => FIRST_REQUEST,
        Standing::Answered | Standing::Proven => IDLE,
    };
    activity.last_progress() + patience
}

/// The address of a caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote(pub(crate) IpAddr);
