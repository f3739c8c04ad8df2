//! A proxy between one client and the API server that does what networks and busy servers do: refuses, delays, loses
//! answers, cuts watches, falls silent. The watch of one resource alone can be disturbed, too.
//!
//! The client speaks plain HTTP to it and needs no credentials; the proxy speaks TLS to the API server as the user that
//! it was started for. It counts what it did, and remembers every write.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::certificates::write;
use super::control_plane::ControlPlane;
use super::http::connector;
use super::watch_faults::{Collections, Passing, Reads, WatchFault};

/// A watch that is cut lives on this long after its first piece, which else would not leave the proxy.
const CUT_AFTER: Duration = Duration::from_millis(50);

/// What an API server says of a version that it has forgotten.
const TOO_OLD: &str = "too old resource version";

type Body = UnsyncBoxBody<Bytes, anyhow::Error>;

/// Which requests a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// All of them.
    All,
    /// Those that change something, except the Lease.
    Writes,
    /// Merge patches, except of the Lease.
    Patches,
    /// Beginnings of watches.
    Watches,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is answered with this status, reason and message, and not forwarded.
    Refused(u16, &'static str, &'static str),
    /// It is forwarded this much later.
    Late(Duration),
    /// It is executed, and the response is lost.
    AnswerLost,
    /// The watch ends in the middle after its first events.
    Cut,
    /// The watch says that its version is too old.
    Expired,
    /// Nothing comes back, and nothing is forwarded.
    Silent,
}

/// Every `every`-th request of a sort goes badly; 1 = all of them.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Which requests.
    pub on: Requests,
    /// Every how many-th of them.
    pub every: u64,
    /// What becomes of those.
    pub bad: Bad,
}

/// A write that was forwarded.
#[derive(Clone, Debug)]
pub struct Forwarded {
    /// When it was forwarded.
    pub at: Instant,
    /// HTTP method.
    pub method: Method,
    /// Path with query.
    pub path: String,
}

/// A rule, how many requests it was asked about, and how many of them went badly.
struct Counted {
    rule: Rule,
    asked: u64,
    hits: u64,
}

struct Inner {
    server_client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    server: String,
    rules: Mutex<Vec<Counted>>,
    /// Increases when the rules change: silent connections and watches restart.
    season: watch::Sender<u64>,
    writes: Mutex<Vec<Forwarded>>,
    collections: Collections,
}

/// The running proxy; it ends when it is dropped.
pub struct FaultProxy {
    inner: Arc<Inner>,
    kubeconfig: PathBuf,
    task: JoinHandle<()>,
}

impl FaultProxy {
    /// Starts without rules: everything passes. `user` and `groups` as in [`ControlPlane::kubeconfig_for`].
    ///
    /// # Errors
    /// The state directory cannot be written, or no port is free.
    pub async fn start(plane: &ControlPlane, user: &str, groups: &[&str]) -> Result<Self> {
        let authority = plane.authority();
        let identity = authority.client(user, groups)?;
        let server_client = Client::builder(TokioExecutor::new())
            .build(connector(&authority.pem(), Some(&identity))?);
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let kubeconfig = plane
            .dir()
            .join("etc")
            .join(format!("proxy-{}.kubeconfig", address.port()));
        write_kubeconfig(&kubeconfig, &format!("http://{address}"))?;
        let inner = Arc::new(Inner {
            server_client,
            server: plane.url(),
            rules: Mutex::default(),
            season: watch::Sender::new(0),
            writes: Mutex::default(),
            collections: Collections::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&inner)));
        Ok(Self {
            inner,
            kubeconfig,
            task,
        })
    }

    /// Kubeconfig file of the client.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Replaces all rules. What hangs under the old ones ends, and so does every watch.
    pub fn set(&self, rules: &[Rule]) {
        let counted = |rule: &Rule| Counted {
            rule: *rule,
            asked: 0,
            hits: 0,
        };
        let fresh = rules.iter().map(counted).collect();
        *self
            .inner
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = fresh;
        self.inner.season.send_modify(|season| *season += 1);
    }

    /// How many requests have gone badly by each of the rules since they were set, in their order.
    #[must_use]
    pub fn hits(&self) -> Vec<u64> {
        let rules = self.inner.rules.lock();
        let rules = rules.unwrap_or_else(PoisonError::into_inner);
        rules.iter().map(|each| each.hits).collect()
    }

    /// Sets or clears the fault of the watch of one resource alone (`pods`, `nodeclaims`). When it is cleared, delayed events
    /// are delivered. Watches of other resources, and the rules, stay as they are.
    pub fn disturb(&self, resource: &str, fault: Option<WatchFault>) {
        self.inner.collections.disturb(resource, fault);
    }

    /// Lists and watches of a resource that were asked for so far and not refused by a rule.
    #[must_use]
    pub fn reads(&self, resource: &str) -> Reads {
        self.inner.collections.reads(resource)
    }

    /// Every write that was forwarded so far, but those of the Lease.
    #[must_use]
    pub fn writes(&self) -> Vec<Forwarded> {
        let writes = self.inner.writes.lock();
        writes.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultProxy")
            .field("kubeconfig", &self.kubeconfig)
            .field("hits", &self.hits())
            .finish_non_exhaustive()
    }
}

fn write_kubeconfig(path: &Path, server: &str) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "proxy",
        "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
        "clusters": [{ "name": "proxy", "cluster": { "server": server } }],
        "users": [{ "name": "proxy", "user": {} }],
    });
    write(path, &serde_json::to_string_pretty(&config)?)
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(serve(stream, Arc::clone(&inner)));
    }
}

async fn serve(stream: TcpStream, inner: Arc<Inner>) {
    // Without it small answers wait for delayed acknowledgements; a failure costs only time.
    stream.set_nodelay(true).ok();
    let answer = service_fn(|request| {
        let inner = Arc::clone(&inner);
        async move { inner.answer(request).await }
    });
    // An error here is a lost answer, which is what the proxy is for, or a client that went away.
    hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), answer)
        .await
        .ok();
}

impl Inner {
    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>> {
        let method = request.method().clone();
        let path = request
            .uri()
            .path_and_query()
            .map_or_else(String::new, ToString::to_string);
        let mut season = self.season.subscribe();
        season.borrow_and_update();
        let bad = self.bad(&method, &path);
        match bad {
            Some(Bad::Refused(code, reason, message)) => return status(code, reason, message),
            Some(Bad::Late(by)) => tokio::time::sleep(by).await,
            Some(Bad::Expired) => return expired(),
            Some(Bad::Silent) => {
                season.changed().await.ok();
                return Err(anyhow!("the silence is over"));
            }
            Some(Bad::AnswerLost | Bad::Cut) | None => {}
        }
        if method == Method::GET
            && let Some(turn) = self.collections.note(&path, is_watch(&path))
        {
            return match turn % 2 {
                0 => status(410, "Expired", TOO_OLD),
                _ => expired(),
            };
        }
        let is_write = is_write(&method, &path);
        if is_write {
            let forwarded = Forwarded {
                at: Instant::now(),
                method: method.clone(),
                path: path.clone(),
            };
            let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
            writes.push(forwarded);
        }
        let (mut parts, body) = request.into_parts();
        parts.uri = format!("{}{path}", self.server).parse()?;
        parts.version = hyper::Version::default();
        parts.headers.remove(hyper::header::HOST);
        parts.headers.remove(hyper::header::CONNECTION);
        let body = Full::new(body.collect().await?.to_bytes());
        let mut response = self
            .server_client
            .request(Request::from_parts(parts, body))
            .await?;
        *response.version_mut() = hyper::Version::HTTP_11;
        if bad == Some(Bad::AnswerLost) {
            // What was asked for is done before the connection breaks.
            response.into_body().collect().await?;
            return Err(anyhow!("the answer is lost"));
        }
        let cut = bad == Some(Bad::Cut);
        if !is_watch(&path) {
            return Ok(response.map(|body| body.map_err(anyhow::Error::from).boxed_unsync()));
        }
        Ok(response.map(|body| watched(self.collections.pass(&path, body), season, cut)))
    }

    /// What becomes of this request.
    fn bad(&self, method: &Method, path: &str) -> Option<Bad> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        for each in rules.iter_mut() {
            let is_meant = match each.rule.on {
                Requests::All => true,
                Requests::Writes => is_write(method, path),
                Requests::Patches => method == Method::PATCH && is_write(method, path),
                Requests::Watches => is_watch(path),
            };
            if is_meant {
                each.asked += 1;
                if each.asked.is_multiple_of(each.rule.every.max(1)) {
                    each.hits += 1;
                    return Some(each.rule.bad);
                }
            }
        }
        None
    }
}

/// A watch that ends when the rules change, or after its first piece.
fn watched(passing: Passing, season: watch::Receiver<u64>, cut: bool) -> Body {
    let pieces = futures::stream::unfold(
        (passing, season, 0_usize),
        move |(mut passing, mut season, seen)| async move {
            if cut && seen > 0 {
                tokio::time::sleep(CUT_AFTER).await;
                return Some((Err(anyhow!("cut")), (passing, season, 0)));
            }
            tokio::select! {
                _ = season.changed() => None,
                piece = passing.next() => piece.map(|piece| (piece, (passing, season, seen + 1))),
            }
        },
    );
    StreamBody::new(pieces.fuse()).boxed_unsync()
}

fn is_watch(path: &str) -> bool {
    path.contains("watch=true") || path.contains("watch=1")
}

fn is_write(method: &Method, path: &str) -> bool {
    let reviews = path.contains("accessreviews") || path.contains("tokenreviews");
    *method != Method::GET && !path.contains("/leases/") && !path.ends_with("/leases") && !reviews
}

fn status(code: u16, reason: &str, message: &str) -> Result<Response<Body>> {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": reason, "message": message, "code": code,
    });
    let response = Response::builder()
        .status(code)
        .header(hyper::header::CONTENT_TYPE, "application/json");
    Ok(response.body(text(body.to_string()))?)
}

fn expired() -> Result<Response<Body>> {
    let event = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "reason": "Expired", "message": TOO_OLD, "code": 410,
    } });
    let response = Response::builder().header(hyper::header::CONTENT_TYPE, "application/json");
    Ok(response.body(text(format!("{event}\n")))?)
}

fn text(text: String) -> Body {
    let frame = futures::stream::once(async move { Ok(Frame::data(Bytes::from(text))) });
    StreamBody::new(frame).boxed_unsync()
}
