//! The receiver: one POST for each message, sent again while the receiver asks for it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::client::backoff::Backoff;

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Times that a message is sent at most.
const ATTEMPTS: u32 = 4;
/// First and longest wait between two of them; what the receiver asks for is waited, up to the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// The receiver of notifications. Its URL is a secret: no text of this module contains more than its host.
pub(super) struct Webhook {
    file: PathBuf,
    host: String,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Why an attempt failed.
struct Failure {
    message: String,
    /// Whether another attempt may succeed, and when the receiver wants it.
    again: Option<Option<Duration>>,
}

impl Webhook {
    /// Reads the URL once, to find mistakes early.
    pub(super) fn new(file: &Path) -> Result<Self, String> {
        let host = read_url(file)?.1;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)
            .map_err(|error| format!("no certificate authorities on this computer: {error}"))?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self {
            file: file.to_owned(),
            host,
            client: Client::builder(TokioExecutor::new()).build(https),
        })
    }

    /// The host of the URL that was read last.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Sends a message, again after a failure that may pass.
    pub(super) async fn send(&mut self, body: &str) -> Result<(), String> {
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        loop {
            let Err(failure) = self.post(body).await else {
                return Ok(());
            };
            let wait = backoff.next();
            match failure.again {
                Some(asked) if backoff.failures() < ATTEMPTS => {
                    tokio::time::sleep(asked.unwrap_or(wait).min(WAITS.1)).await;
                }
                _ => return Err(failure.message),
            }
        }
    }

    async fn post(&mut self, body: &str) -> Result<(), Failure> {
        let permanent = |message: String| Failure {
            message,
            again: None,
        };
        // A Secret that is changed is mounted again: the next message goes to the new URL.
        let (url, host) = read_url(&self.file).map_err(permanent)?;
        self.host = host;
        let request = Request::post(url)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, "mortise")
            .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
            .map_err(|error| permanent(error.to_string()))?;
        let passing = |message: String| Failure {
            message,
            again: Some(None),
        };
        let response = match tokio::time::timeout(WITHIN, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            // The text of the client's error names no URL.
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                return Err(passing(format!("{error}{}", cause.unwrap_or_default())));
            }
            Err(_) => {
                return Err(passing(format!("no answer within {} s", WITHIN.as_secs())));
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let asked = response.headers().get(RETRY_AFTER);
        let asked = asked.and_then(|value| value.to_str().ok()?.parse().ok());
        let is_passing = status.is_server_error()
            || matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
            );
        Err(Failure {
            message: format!("the receiver answered {status}"),
            again: is_passing.then(|| asked.map(Duration::from_secs)),
        })
    }
}

/// The URL in a file, and its host.
fn read_url(file: &Path) -> Result<(Uri, String), String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let text = text.trim();
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    // Its text is not repeated: it is a secret.
    let is_not = || "it has no URL such as https://hooks.example.com/services/...".to_owned();
    let url: Uri = text.parse().map_err(|_| is_not())?;
    let is_http = matches!(url.scheme_str(), Some("https" | "http"));
    match url.host() {
        Some(host) if is_http => Ok((url.clone(), host.to_owned())),
        _ => Err(is_not()),
    }
}
