//! Receivers that are not the API server: one POST for each message, sent again while the receiver asks for it.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::backoff::Backoff;

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(10);
/// Times that a message is sent at most.
const ATTEMPTS: u32 = 4;
/// First and longest wait between two of them; what the receiver asks for is waited, up to the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Connections to receivers. No text of this module contains a URL: it may be a secret.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverClient(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// Why an attempt failed.
struct Failure {
    message: String,
    /// Whether another attempt may succeed, and when the receiver wants it.
    again: Option<Option<Duration>>,
}

impl Failure {
    const fn permanent(message: String) -> Self {
        Self {
            message,
            again: None,
        }
    }

    const fn passing(message: String) -> Self {
        Self {
            message,
            again: Some(None),
        }
    }
}

impl ReceiverClient {
    /// # Errors
    /// This computer has no certificate authorities.
    pub(crate) fn new() -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(provider)
            .map_err(|error| format!("no certificate authorities on this computer: {error}"))?
            .https_or_http()
            .enable_http1()
            .build();
        Ok(Self(Client::builder(TokioExecutor::new()).build(https)))
    }

    /// Sends a message, again after a failure that may pass. The URL is asked for before each attempt.
    ///
    /// # Errors
    /// What failed last, without the URL.
    pub(crate) async fn send(
        &self,
        mut url: impl FnMut() -> Result<Uri, String>,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<(), String> {
        let mut backoff = Backoff::new(WAITS.0, WAITS.1);
        loop {
            let attempt = match url() {
                Ok(url) => self.post(url, content_type, body.clone()).await,
                Err(message) => Err(Failure::permanent(message)),
            };
            let Err(failure) = attempt else {
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

    async fn post(&self, url: Uri, content_type: &'static str, body: Bytes) -> Result<(), Failure> {
        let request = Request::post(url)
            .header(CONTENT_TYPE, content_type)
            .header(USER_AGENT, "mortise")
            .body(Full::new(body))
            .map_err(|error| Failure::permanent(error.to_string()))?;
        match tokio::time::timeout(WITHIN, self.0.request(request)).await {
            Ok(Ok(response)) => check(&response),
            // The text of the client's error names no URL.
            Ok(Err(error)) => {
                let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
                let cause = cause.unwrap_or_default();
                Err(Failure::passing(format!("{error}{cause}")))
            }
            Err(_) => {
                let message = format!("no answer within {} s", WITHIN.as_secs());
                Err(Failure::passing(message))
            }
        }
    }
}

fn check(response: &Response<Incoming>) -> Result<(), Failure> {
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
