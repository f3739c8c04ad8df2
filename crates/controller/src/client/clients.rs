//! Connections to the API server.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tower::util::MapRequestLayer;

use super::error_class;
use super::reader::Reader;
use super::transport;
use crate::error::RunError;
use crate::metrics::WriteCounter;

/// Three clients: for the Lease, for token reviews, and for everything else.
#[derive(Clone)]
pub struct Clients {
    /// For everything except the Lease and reviews.
    pub main: kube::Client,
    pub(crate) lease: kube::Client,
    pub(crate) reviews: kube::Client,
    pub(crate) namespace: String,
    pub(crate) server: String,
    cluster_ca: Option<String>,
    /// Counts writes of all clients, once a counter is set.
    writes: Arc<OnceLock<WriteCounter>>,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Clients {
    /// Reads a kubeconfig file, or finds one as kubectl does, or uses the service account of the pod.
    ///
    /// # Errors
    /// [`RunError::Kubeconfig`] if there is none, or it cannot be read.
    pub async fn from_kubeconfig(
        kubeconfig: Option<&Path>,
        context: Option<&str>,
    ) -> Result<Self, RunError> {
        let options = KubeConfigOptions {
            context: context.map(str::to_owned),
            ..KubeConfigOptions::default()
        };
        let config = match kubeconfig {
            Some(path) => {
                let file = Kubeconfig::read_from(path).map_err(|error| RunError::Kubeconfig {
                    path: path.display().to_string(),
                    message: with_causes(&error),
                })?;
                kube::Config::from_custom_kubeconfig(file, &options)
                    .await
                    .map_err(|error| RunError::Kubeconfig {
                        path: path.display().to_string(),
                        message: with_causes(&error),
                    })?
            }
            None if context.is_some() => {
                kube::Config::from_kubeconfig(&options)
                    .await
                    .map_err(|error| RunError::Kubeconfig {
                        path: "KUBECONFIG or ~/.kube/config".to_owned(),
                        message: with_causes(&error),
                    })?
            }
            None => kube::Config::infer()
                .await
                .map_err(|error| RunError::Kubeconfig {
                    path: "KUBECONFIG, ~/.kube/config, service account".to_owned(),
                    message: with_causes(&error),
                })?,
        };
        Self::connect(config)
    }

    /// Reads with the client for everything.
    pub(crate) fn reader(&self) -> Reader {
        Reader::new(self.main.clone())
    }

    /// Reads with the connection of the Lease.
    pub(crate) fn lease_reader(&self) -> Reader {
        Reader::new(self.lease.clone())
    }

    /// Creates clients from a configuration. Sends nothing yet.
    ///
    /// # Errors
    /// [`RunError::Kubeconfig`] if the credentials or certificates in it cannot be used.
    pub fn connect(mut config: kube::Config) -> Result<Self, RunError> {
        // The callers retry, since they know what a failure means; retries of the client would hide the 429 of a
        // PodDisruptionBudget.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(10));
        let agent = format!("mortise/{}", env!("CARGO_PKG_VERSION"));
        if let Ok(agent) = http::HeaderValue::from_str(&agent) {
            config.headers.push((http::header::USER_AGENT, agent));
        }
        let server = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let cluster_ca = config.root_cert.as_deref().and_then(base64_of_pem);
        let writes: Arc<OnceLock<WriteCounter>> = Arc::default();
        let counted = Arc::clone(&writes);
        let count = MapRequestLayer::new(move |request: http::Request<Body>| {
            if let Some(counter) = counted.get() {
                counter.sent(request.method(), request.uri().path());
            }
            request
        });
        let unusable = |error: kube::Error| RunError::Kubeconfig {
            path: server.clone(),
            message: with_causes(&error),
        };
        // A Lease request that times out closes its connection, and the next one opens a new one: HTTP/2 would retry on a dead
        // connection.
        let lease = ClientBuilder::try_from(config.clone()).map_err(unusable)?;
        let reviews = ClientBuilder::try_from(config.clone()).map_err(unusable)?;
        let main = transport::client(&config).map_err(unusable)?;
        Ok(Self {
            main: main.with_layer(&count).build(),
            lease: lease.with_layer(&count).build(),
            reviews: reviews.with_layer(&count).build(),
            namespace,
            server: server.clone(),
            cluster_ca,
            writes,
        })
    }

    /// Counts the writes of these clients and of their clones from now on. The first call wins.
    pub(crate) fn count_writes(&self, counter: WriteCounter) {
        self.writes.get_or_init(|| counter);
    }

    /// URL of the API server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// CA of the API server as kubeconfigs and cloud providers write it: base64 of PEM text. `None` if the system's trust store
    /// verifies the server.
    #[must_use]
    pub fn cluster_ca(&self) -> Option<&str> {
        self.cluster_ca.as_deref()
    }

    /// The namespace of the service account or of the kubeconfig context.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// Certificates (DER) as base64 of PEM text, 64 characters per line, as in `ca.crt` files.
fn base64_of_pem(certificates: &[Vec<u8>]) -> Option<String> {
    use base64::Engine as _;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let mut text = String::new();
    for certificate in certificates {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        for (position, letter) in encode(certificate).chars().enumerate() {
            if position > 0 && position % 64 == 0 {
                text.push('\n');
            }
            text.push(letter);
        }
        text.push_str("\n-----END CERTIFICATE-----\n");
    }
    (!text.is_empty()).then(|| encode(text.as_bytes()))
}

/// Why the API server could not be asked.
pub(crate) fn connection_error(clients: &Clients, error: &kube::Error) -> RunError {
    let server = clients.server.clone();
    let message = why_failed(error);
    match error {
        kube::Error::Api(status) if status.code == 401 => RunError::Unauthenticated {
            server,
            message: error_class::message(error),
        },
        _ => RunError::Unreachable { server, message },
    }
}

/// Why a request had no answer, with all causes, in one line.
#[must_use]
pub fn why_failed(error: &kube::Error) -> String {
    match error {
        // The layers around a failed connection have no message of their own.
        kube::Error::Service(cause) => with_causes(&**cause),
        other => with_causes(other),
    }
}

/// An error with its causes, in one line; a parser's multi-line excerpt is omitted.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let first_line = |error: &dyn std::error::Error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().trim().to_owned()
    };
    let mut text = first_line(error);
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = first_line(cause);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    #[test]
    fn the_ca_is_written_as_its_file_was() {
        let decode = |text: &str| {
            let bytes = base64::engine::general_purpose::STANDARD.decode(text);
            String::from_utf8(bytes.unwrap()).unwrap()
        };
        let two = [vec![7_u8; 100], b"short".to_vec()];
        let pem = decode(&base64_of_pem(&two).unwrap());
        let lines: Vec<&str> = pem.lines().collect();
        assert_eq!(lines[0], "-----BEGIN CERTIFICATE-----");
        assert_eq!(
            lines.iter().map(|line| line.len()).collect::<Vec<_>>(),
            [27, 64, 64, 8, 25, 27, 8, 25]
        );
        assert_eq!(lines[6], "c2hvcnQ=");
        assert!(pem.ends_with("-----END CERTIFICATE-----\n"));
        assert_eq!(base64_of_pem(&[]), None);
    }
}
