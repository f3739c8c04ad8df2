//! Peers that connect and send nothing, or almost nothing, block no other peer: probes, metrics, admission and the extender
//! respond in the meantime, and the idle connections are closed.
//!
//! `MORTISE_IDLE_CONNECTIONS=10000` sets their number (it needs as many file descriptors); the default fits the limits of
//! every test host.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use mortise_tests::harness::{ControlPlane, Http, Mortise, MortiseOptions, wait_until};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::scene::{SOON, turn};

/// Connections that are opened and say nothing; as many as the usual limit of 1,024 descriptors leaves room for.
const IDLE: usize = 600;
/// Connections on which a body comes byte by byte.
const SLOW: usize = 200;
/// Callers who send one heavy review after the other.
const HEAVY: usize = 8;
/// Calls of each kind while they are there.
const CALLS: usize = 100;
/// Between two bytes of a slow writer: so often that it is never silent.
const DRIP: Duration = Duration::from_millis(500);

/// A connection from one of eight addresses, none of which is that of anybody who means well.
async fn connect(number: usize, to: SocketAddr) -> Result<TcpStream> {
    let last = u8::try_from(number % 8)? + 1;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 1, last), 0)))?;
    Ok(socket.connect(to).await?)
}

fn tls(ca: &str) -> Result<tokio_rustls::TlsConnector> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config).into())
}

/// Sends a body byte by byte, again and again, until it is told to end. Counts the connections that it took.
async fn drip(
    number: usize,
    to: SocketAddr,
    tls: tokio_rustls::TlsConnector,
    end: Arc<AtomicBool>,
    opened: Arc<AtomicUsize>,
) {
    const HEAD: &[u8] = b"POST /admission/v1/validate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n";
    while !end.load(Ordering::Relaxed) {
        let slow = async {
            let stream = connect(number, to).await?;
            let mut stream = tls
                .connect(ServerName::try_from("localhost")?, stream)
                .await?;
            stream.write_all(HEAD).await?;
            opened.fetch_add(1, Ordering::Relaxed);
            while !end.load(Ordering::Relaxed) {
                stream.write_all(b" ").await?;
                stream.flush().await?;
                tokio::time::sleep(DRIP).await;
            }
            anyhow::Ok(())
        };
        // The connection is closed repeatedly, as intended. A pause, so that it does not saturate the test host.
        if slow.await.is_err() {
            tokio::time::sleep(DRIP).await;
        }
    }
}

/// Makes calls, each on a connection of its own, and returns the 99th percentile of their times.
async fn calls(
    http: impl Fn() -> Result<Http>,
    url: &str,
    body: Option<&Value>,
) -> Result<Duration> {
    let mut times = Vec::new();
    for call in 0..CALLS {
        let (http, begun) = (http()?, Instant::now());
        let reply = match body {
            Some(body) => http.post(url, body).await,
            None => http.get(url).await,
        };
        let reply = reply.with_context(|| format!("call {call} of {url}"))?;
        ensure!(reply.status == 200, "call {call} of {url}: {reply:?}");
        times.push(begun.elapsed());
    }
    times.sort();
    times.get(CALLS * 99 / 100).copied().context("a time")
}

async fn filter_calls(mortise: &Mortise) -> Result<Duration> {
    let pod = json!({ "Pod": { "metadata": { "name": "x", "namespace": "default" }, "spec": { "containers": [] } }, "NodeNames": ["n1"] });
    let url = mortise.url("extender/v1/filter");
    calls(|| mortise.scheduler_http(), &url, Some(&pod)).await
}

async fn probe_calls(mortise: &Mortise) -> Result<Duration> {
    calls(|| Http::new("", None), &mortise.health_url("readyz"), None).await
}

/// An API server with the definitions, and mortise, ready.
async fn started() -> Result<(ControlPlane, Mortise)> {
    let crds = Mortise::output(&["manifests", "crds"]).await?;
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    let mortise = Mortise::start(&plane, MortiseOptions::default()).await?;
    mortise.wait_ready().await?;
    Ok((plane, mortise))
}

/// A review of an update that costs as much as its bytes can: lists that are far too long, before and after.
fn heavy_review() -> Value {
    let object = |value: u8| json!({ "metadata": { "name": "p" }, "spec": { "template": { "spec": { "requirements": vec![value; 40_000] } } } });
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "UPDATE", "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" },
        "object": object(0), "oldObject": object(1),
    } })
}

#[tokio::test]
async fn heavy_reviews_do_not_delay_other_calls() -> Result<()> {
    let _turn = turn().await?;
    let (plane, mut mortise) = started().await?;
    let (end, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let (review, url) = (heavy_review(), mortise.url("admission/v1/validate"));
    let senders: Vec<_> = (0..HEAVY)
        .map(|_| {
            let (review, url, http) = (review.clone(), url.clone(), mortise.http());
            let (end, answered) = (Arc::clone(&end), Arc::clone(&answered));
            tokio::spawn(async move {
                let http = http?;
                while !end.load(Ordering::Relaxed) {
                    let reply = http.post(&url, &review).await?;
                    ensure!(matches!(reply.status, 200 | 503), "{reply:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            })
        })
        .collect();
    wait_until("heavy reviews at work", SOON, || async {
        ensure!(answered.load(Ordering::Relaxed) >= HEAVY);
        Ok(())
    })
    .await?;
    let before = answered.load(Ordering::Relaxed);
    let filter = filter_calls(&mortise).await?;
    let ready = probe_calls(&mortise).await?;
    let during = answered.load(Ordering::Relaxed) - before;
    ensure!(during > 0, "nothing heavy went on");
    writeln!(
        std::io::stderr(),
        "99 of 100: filter {filter:?}, readyz {ready:?}, with {during} heavy reviews answered meanwhile"
    )?;
    end.store(true, Ordering::Relaxed);
    for sender in senders {
        sender.await??;
    }
    mortise.kill9().await;
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn silent_and_slow_peers_do_not_block_other_clients() -> Result<()> {
    let _turn = turn().await?;
    let idle = match std::env::var("MORTISE_IDLE_CONNECTIONS") {
        Ok(text) => text.parse().context("MORTISE_IDLE_CONNECTIONS")?,
        Err(_) => IDLE,
    };
    let (plane, mut mortise) = started().await?;
    let https = SocketAddr::from((Ipv4Addr::LOCALHOST, mortise.https_port()));
    let health = mortise.health_url("readyz");
    let address = health
        .strip_prefix("http://")
        .and_then(|rest| rest.split_once('/'))
        .context("an address")?;
    let probes: SocketAddr = address.0.parse()?;

    // Half of them at each port; most are ended at once, to make room for the next.
    let opening = futures::stream::iter(0..idle).map(|number| {
        let to = if number % 2 == 0 { https } else { probes };
        connect(number, to)
    });
    let silent: Vec<Result<TcpStream>> = opening.buffered(64).collect().await;
    let mut silent: Vec<TcpStream> = silent.into_iter().collect::<Result<_>>()?;
    ensure!(silent.len() == idle, "{} of {idle}", silent.len());
    let (end, opened) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let ca = std::fs::read_to_string(plane.dir().join("mortise-certs/ca.crt"))?;
    let tls = tls(&ca)?;
    let writers: Vec<_> = (0..SLOW)
        .map(|number| {
            let (tls, end, opened) = (tls.clone(), Arc::clone(&end), Arc::clone(&opened));
            tokio::spawn(drip(number, https, tls, end, opened))
        })
        .collect();
    wait_until("slow writers at work", SOON, || async {
        let opened = opened.load(Ordering::Relaxed);
        ensure!(opened >= SLOW, "{opened} of {SLOW}");
        Ok(())
    })
    .await?;

    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" },
        "resource": { "group": "karpenter.sh", "version": "v1", "resource": "nodepools" }, "object": { "metadata": { "name": "p" }, "spec": {} },
    } });
    let filter = filter_calls(&mortise).await?;
    let anonymous = || mortise.http();
    let admission = calls(
        anonymous,
        &mortise.url("admission/v1/validate"),
        Some(&review),
    )
    .await?;
    let ready = probe_calls(&mortise).await?;
    // Times are printed and not checked: they depend on the test host.
    writeln!(
        std::io::stderr(),
        "99 of 100: filter {filter:?}, admission {admission:?}, readyz {ready:?}, with {idle} silent and {SLOW} slow peers"
    )?;
    let page = mortise.metrics().await?;
    ensure!(page.contains("mortise_https_connections"), "{page}");

    // None of the silent ones stays.
    end.store(true, Ordering::Relaxed);
    let ended = futures::future::join_all(silent.iter_mut().map(|stream| async {
        let mut nothing = [0; 16];
        // The end, or a reset: anything but silence.
        tokio::time::timeout(SOON, stream.read(&mut nothing))
            .await
            .is_ok()
    }))
    .await;
    let left = ended.iter().filter(|ended| !**ended).count();
    ensure!(left == 0, "{left} silent connections are still open");
    for writer in writers {
        writer.await?;
    }
    mortise.kill9().await;
    plane.stop().await;
    Ok(())
}
