//! A small HTTP client: requests out, status and body back, TLS by given roots only.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use super::certificates::Identity;

/// Longer than any response of a healthy peer on a busy test host.
const TIMEOUT: Duration = Duration::from_mins(2);

/// A client that trusts the given authority only, and shows a client certificate if it has one. Plain `http` works too.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: Vec<(String, String)>,
}

/// An answer, whatever its status.
#[derive(Clone, Debug)]
pub struct Reply {
    /// HTTP status code.
    pub status: u16,
    /// Body as text (invalid UTF-8 replaced).
    pub body: String,
}

impl Http {
    /// A client that trusts `authority_pem` (nothing when empty) and identifies itself as `identity`.
    ///
    /// # Errors
    /// A PEM text is not what it should be.
    pub fn new(authority_pem: &str, identity: Option<&Identity>) -> Result<Self> {
        let connector = connector(authority_pem, identity)?;
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            headers: Vec::new(),
        })
    }

    /// Sends this header with every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// GET.
    ///
    /// # Errors
    /// No answer: refused, TLS, timeout. Any status is an answer.
    pub async fn get(&self, url: &str) -> Result<Reply> {
        self.send(http::Method::GET, url, None).await
    }

    /// POST of a JSON body.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn post(&self, url: &str, body: &Value) -> Result<Reply> {
        self.send(http::Method::POST, url, Some(body.to_string()))
            .await
    }

    /// POST of any text, sent as `application/json`: for bodies that are wrong on purpose.
    ///
    /// # Errors
    /// As [`Http::get`].
    pub async fn post_text(&self, url: &str, body: &str) -> Result<Reply> {
        self.send(http::Method::POST, url, Some(body.to_owned()))
            .await
    }

    async fn send(&self, method: http::Method, url: &str, body: Option<String>) -> Result<Reply> {
        let context = || format!("{method} {url}");
        let mut request = http::Request::builder().method(method.clone()).uri(url);
        if body.is_some() {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .with_context(context)?;
        let exchange = async {
            let response = self.client.request(request).await?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await?.to_bytes();
            anyhow::Ok(Reply {
                status,
                body: String::from_utf8_lossy(&body).into_owned(),
            })
        };
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .with_context(|| format!("{}: no answer in {TIMEOUT:?}", context()))?
            .with_context(context)
    }
}

/// Connections that trust the given authority only, and show a client certificate if there is one. Plain `http` works too.
pub(crate) fn connector(
    authority_pem: &str,
    identity: Option<&Identity>,
) -> Result<HttpsConnector<HttpConnector>> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority_pem.as_bytes()) {
        roots.add(certificate.context("the authority's PEM")?)?;
    }
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificate, key }) => {
            let chain: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(certificate.as_bytes()).collect();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|error| anyhow!("the client's key: {error}"))?;
            config.with_client_auth_cert(chain.context("the client's certificate")?, key)?
        }
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // As Go's clients do: without it a body of several segments waits for a delayed acknowledgement, 40 ms.
    tcp.set_nodelay(true);
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(tcp))
}

impl Reply {
    /// The body, if the status is 200.
    ///
    /// # Errors
    /// Another status; the text holds it and the body.
    pub fn ok(self) -> Result<String> {
        match self.status {
            200 => Ok(self.body),
            status => Err(anyhow!("status {status}: {}", self.body)),
        }
    }

    /// The body as JSON, if the status is 200.
    ///
    /// # Errors
    /// Another status, or the body is not JSON.
    pub fn json(self) -> Result<Value> {
        let body = self.ok()?;
        serde_json::from_str(&body).with_context(|| format!("not JSON: {body}"))
    }
}
