//! The receiver of notifications.

use std::path::{Path, PathBuf};

use http::Uri;
use hyper::body::Bytes;

use crate::client::receiver::ReceiverClient;

/// The receiver of notifications. Its URL is a secret: no text of this module contains more than its host.
pub(super) struct Webhook {
    file: PathBuf,
    host: String,
    client: ReceiverClient,
}

impl Webhook {
    /// Reads the URL once, to find mistakes early.
    pub(super) fn new(file: &Path) -> Result<Self, String> {
        Ok(Self {
            file: file.to_owned(),
            host: read_url(file)?.1,
            client: ReceiverClient::new()?,
        })
    }

    /// The host of the URL that was read last.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Sends a message, again after a failure that may pass.
    pub(super) async fn send(&mut self, body: String) -> Result<(), String> {
        let Self { file, host, client } = self;
        // A Secret that is changed is mounted again: the next message goes to the new URL.
        let url = || {
            let (url, of_url) = read_url(file)?;
            *host = of_url;
            Ok(url)
        };
        client
            .send(url, "application/json", Bytes::from(body))
            .await
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
