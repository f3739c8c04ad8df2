use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use mortise_webhooks::Counters;
use mortise_webhooks::routes::{Access, ROUTES};
use rustls_pki_types::pem::PemObject as _;
use tower::ServiceExt as _;

use super::*;
use crate::config::default_extender_clients;
use crate::pem::{self, Files};
use crate::testing;
use crate::tls::{Peer, certificates};

pub(super) fn service(debug: DebugAccess) -> HttpsService {
    let shared = testing::shared();
    let webhooks = WebhookState {
        view: Arc::<ServiceState>::clone(&shared),
        counters: Arc::default(),
        extender: Arc::default(),
        rules: Arc::default(),
        conversion: true,
    };
    HttpsService {
        shared,
        webhooks,
        debug: Arc::new(debug),
        clients: default_extender_clients().into(),
        tls: Arc::default(),
        api_servers: ApiServers::Anybody,
    }
}

async fn call(
    service: &HttpsService,
    method: Method,
    path: &str,
    names: &[&str],
    body: &'static str,
) -> (StatusCode, String) {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(Body::from(body))
        .unwrap();
    request.extensions_mut().insert(Peer {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        is_replica: false,
        of_extender_ca: true,
        of_admission_ca: false,
    });
    let response = service.router().oneshot(request).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn each_path_has_its_callers() {
    let service = service(DebugAccess::CertificateOnly);
    for route in ROUTES {
        let (status, body) = call(&service, Method::POST, route.path, &[], "{}").await;
        match route.access {
            Access::ExtenderClient => {
                assert_eq!(status, StatusCode::FORBIDDEN, "{}: {body}", route.path)
            }
            // The handler responds; an admission review carries its result inside, a conversion review outside.
            Access::Open => {
                let want = if route.path == "/conversion/v1" {
                    StatusCode::BAD_REQUEST
                } else {
                    StatusCode::OK
                };
                assert_eq!(status, want, "{}: {body}", route.path);
            }
            Access::Debug => assert_eq!(status, StatusCode::UNAUTHORIZED, "{}: {body}", route.path),
        }
    }
    // Conversion is not enabled: there is no such path.
    let mut without = service.clone();
    without.webhooks.conversion = false;
    let (status, _) = call(&without, Method::POST, "/conversion/v1", &[], "{}").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // Short, but one value per two bytes: it is not read.
    let values = format!("[{}0]", "0,".repeat(100_000)).leak();
    let (status, body) = call(
        &service,
        Method::POST,
        "/admission/v1/validate",
        &[],
        values,
    )
    .await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{body}");
    assert!(body.contains("at most 100000"), "{body}");
    let long = "x".repeat(9 << 20).leak();
    let (status, _) = call(&service, Method::POST, "/admission/v1/default", &[], long).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    let filter = "/extender/v1/filter";
    assert_eq!(
        call(&service, Method::POST, filter, &["unknown"], "{}")
            .await
            .0,
        StatusCode::FORBIDDEN
    );
    let (status, _) = call(
        &service,
        Method::POST,
        filter,
        &["mortise-extender-client"],
        "not JSON",
    )
    .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "the handler answers");
    for path in ["/debug/config", "/api/v1/state"] {
        assert_eq!(
            call(&service, Method::GET, path, &[], "").await.0,
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
    }
    for path in ["/nothing", "/debug/nothing", "/extender/v1/bind"] {
        let (status, _) = call(&service, Method::GET, path, &[], "").await;
        assert_eq!(
            status,
            StatusCode::NOT_FOUND,
            "{path}: before anybody is asked"
        );
    }
    assert_eq!(
        call(
            &service,
            Method::GET,
            "/debug/config",
            &["system:kube-scheduler"],
            ""
        )
        .await
        .0,
        StatusCode::OK
    );
    let page = exposition::render(&service.shared, &Counters::default().snapshot()).unwrap();
    assert!(
        page.contains("mortise_http_requests_total{path=\"/extender/v1/filter\",status=\"403\"} 2"),
        "{page}"
    );
}

#[tokio::test]
async fn large_bodies_are_refused_and_panics_are_answered() {
    let service = service(DebugAccess::Loopback);
    let body = "x".repeat((8 << 20) + 1).leak();
    assert_eq!(
        call(&service, Method::POST, "/admission/v1/validate", &[], body)
            .await
            .0,
        StatusCode::PAYLOAD_TOO_LARGE
    );
    let guard = RequestGuard::new(
        Arc::clone(&service.shared),
        Arc::clone(&service.debug),
        Arc::clone(&service.clients),
        ApiServers::Anybody,
    );
    let router: Router = Router::new()
        .route("/debug/config", get(broken))
        .layer(axum::middleware::from_fn_with_state(guard, guard::check));
    let response = router
        .oneshot(Request::get("/debug/config").body(Body::empty()).unwrap())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let page = exposition::render(&service.shared, &Counters::default().snapshot()).unwrap();
    assert!(page.contains("mortise_http_panics_total 1"), "{page}");
}

async fn broken() -> StatusCode {
    panic!("as a test")
}

/// Response to a request over a real connection; `with` = the client presents the extender's client certificate.
async fn over_tls(
    address: SocketAddr,
    files: &Files,
    with: bool,
    offered: &[&str],
    path: &str,
) -> Result<StatusCode, String> {
    let mut roots = rustls::RootCertStore::empty();
    for cert in pem::chain(&files[pem::CA_CERT]).unwrap() {
        roots.add(cert).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = if with {
        let key = rustls_pki_types::PrivateKeyDer::from_pem_slice(&files[pem::EXTENDER_CLIENT_KEY])
            .unwrap();
        builder
            .with_client_auth_cert(pem::chain(&files[pem::EXTENDER_CLIENT_CERT]).unwrap(), key)
            .unwrap()
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = offered
        .iter()
        .map(|alpn| alpn.as_bytes().to_vec())
        .collect();
    let stream = tokio::net::TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    let name = rustls_pki_types::ServerName::try_from("localhost").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| error.to_string())?;
    // Clients that support both, like kube-scheduler, use HTTP/1.1.
    let alpn = if offered.contains(&"http/1.1") {
        "http/1.1"
    } else {
        "h2"
    };
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    let request = Request::post(format!("https://localhost{path}"))
        .header("host", "localhost")
        .body("{}".to_owned())
        .unwrap();
    let io = TokioIo::new(stream);
    let response = if alpn == "h2" {
        let (mut send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
                .await
                .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        send.send_request(request).await
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        send.send_request(request).await
    };
    response
        .map(|response| response.status())
        .map_err(|error| error.to_string())
}

#[tokio::test]
async fn a_client_certificate_opens_the_extender_over_both_protocols() {
    let files = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
    let others = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
    let service = service(DebugAccess::CertificateOnly);
    service.tls.load(&files).unwrap();
    let listeners = Listeners::bind(&Listen::any_port(std::net::Ipv4Addr::LOCALHOST.into()))
        .await
        .unwrap();
    let Addresses {
        https,
        metrics,
        health,
    } = listeners.addresses();
    let end = CancellationToken::new();
    let server = tokio::spawn(serve(service, listeners, end.clone()));
    for offered in [&["http/1.1"][..], &["h2"], &["h2", "http/1.1"]] {
        assert_eq!(
            over_tls(https, &files, false, offered, "/extender/v1/filter").await,
            Ok(StatusCode::FORBIDDEN)
        );
        assert_ne!(
            over_tls(https, &files, true, offered, "/extender/v1/filter").await,
            Ok(StatusCode::FORBIDDEN)
        );
        assert_eq!(
            over_tls(https, &files, false, offered, "/admission/v1/validate").await,
            Ok(StatusCode::OK)
        );
    }
    let mixed = Files::from_iter(files.clone().into_iter().chain([
        (
            pem::EXTENDER_CLIENT_CERT.to_owned(),
            others[pem::EXTENDER_CLIENT_CERT].clone(),
        ),
        (
            pem::EXTENDER_CLIENT_KEY.to_owned(),
            others[pem::EXTENDER_CLIENT_KEY].clone(),
        ),
    ]));
    assert!(
        over_tls(https, &mixed, true, &["http/1.1"], "/admission/v1/validate")
            .await
            .is_err(),
        "a certificate of another CA is refused in the handshake"
    );
    assert!(
        plain(metrics, "/metrics")
            .await
            .contains("karpenter_cluster_state_node_count 2")
    );
    assert!(plain(health, "/readyz").await.starts_with("HTTP/1.1 200"));
    end.cancel();
    server.await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(https).await.is_err(),
        "the listener is closed"
    );
}

/// Two CAs, each for its own callers: a certificate of one gives no access to the other's paths, regardless of its name.
#[tokio::test]
async fn a_certificate_opens_what_its_ca_is_for() {
    let mut files = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
    let theirs = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
    files.insert(
        pem::ADMISSION_CA_CERT.to_owned(),
        theirs[pem::EXTENDER_CA_CERT].clone(),
    );
    let tls = Tls::new();
    tls.load(&files).unwrap();
    let current = tls.current().unwrap();
    let peer = |files: &Files| {
        let chain = pem::chain(&files[pem::EXTENDER_CLIENT_CERT]).unwrap();
        current.peer(Some(&chain))
    };
    let (scheduler, api_server) = (peer(&files), peer(&theirs));
    assert_eq!(scheduler.names, api_server.names, "names prove nothing");
    let clients = default_extender_clients();
    assert!(scheduler.is_one_of(&clients) && !api_server.is_one_of(&clients));
    let named =
        |names: &[&str]| ApiServers::Named(names.iter().map(|name| (*name).to_owned()).collect());
    for (api_servers, want) in [
        (ApiServers::Anybody, [true; 3]),
        (named(&[]), [false, false, true]),
        (named(&[pem::EXTENDER_CLIENT_NAME]), [false, false, true]),
        (named(&["kube-apiserver"]), [false; 3]),
    ] {
        let got = [None, Some(&scheduler), Some(&api_server)].map(|peer| api_servers.trust(peer));
        assert_eq!(got, want, "{api_servers:?}");
    }
    let none = certificates::in_memory(&[], jiff::Timestamp::now()).unwrap();
    assert_eq!(
        (peer(&none).of_extender_ca, peer(&none).of_admission_ca),
        (false, false)
    );
    files.insert(pem::ADMISSION_CA_CERT.to_owned(), b"nothing".to_vec());
    assert_eq!(tls.load(&files).unwrap_err().file, "--admission-client-ca");
}

#[tokio::test]
async fn facts_of_the_cluster_are_for_api_servers() {
    let everybody = service(DebugAccess::CertificateOnly);
    let mut strict = everybody.clone();
    strict.api_servers = ApiServers::Named(Arc::default());
    let review = serde_json::json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "DELETE", "name": "general",
        "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" },
        "oldObject": { "metadata": { "name": "general" } },
    } });
    let warnings = async |service: &HttpsService, of_admission_ca: bool| {
        let mut request = Request::post("/admission/v1/validate")
            .header("content-type", "application/json")
            .body(Body::from(review.to_string()))
            .unwrap();
        request.extensions_mut().insert(Peer {
            of_admission_ca,
            ..Peer::default()
        });
        let response = service.router().oneshot(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let answer: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        answer["response"]["warnings"].to_string()
    };
    for (service, proven, told) in [
        (&everybody, false, true),
        (&strict, true, true),
        (&strict, false, false),
    ] {
        let warnings = warnings(service, proven).await;
        assert_eq!(warnings.contains("drains"), told, "{warnings}");
    }
    assert_eq!(strict.webhooks.counters.withheld.get(), 1);
}

async fn plain(address: SocketAddr, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream
        .write_all(
            format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes(),
        )
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let shared = testing::shared();
    let status = async |shared: &Arc<ServiceState>, path: &str| {
        let response = metrics_and_probes::health(Arc::clone(shared))
            .oneshot(Request::get(path).body(Body::empty()).unwrap())
            .await
            .unwrap();
        let status = response.status().as_u16();
        (
            status,
            String::from_utf8(
                response
                    .into_body()
                    .collect()
                    .await
                    .unwrap()
                    .to_bytes()
                    .to_vec(),
            )
            .unwrap(),
        )
    };
    assert_eq!(status(&shared, "/readyz").await.0, 200);
    shared.health.set_certificate(false);
    assert_eq!(
        status(&shared, "/readyz").await,
        (503, "no certificate is loaded\n".to_owned())
    );
    assert_eq!(status(&shared, "/healthz").await.0, 200);
    shared.health.set_stopping();
    assert!(status(&shared, "/readyz").await.1.contains("shutting down"));
    let empty = ServiceState::new(
        Arc::new(crate::SystemClock),
        mortise_apis::labels::WellKnown::core(),
        "x",
        serde_json::Value::Null,
    );
    assert!(
        status(&empty, "/readyz")
            .await
            .1
            .contains("not all watches are synced")
    );
}
