//! TLS settings that change while connections go on: a new connection sees the new certificate, an old one keeps its own.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificates::{self, Files};

/// Sessions remembered for resumption. A handful of API servers and schedulers call; more would only cost memory.
const SESSIONS: usize = 64;

/// Why files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct TlsError {
    /// Which file.
    pub file: &'static str,
    /// What is wrong with it.
    pub message: String,
}

/// The settings in use.
#[derive(Debug, Default)]
pub struct Tls {
    current: ArcSwapOption<ServerTls>,
}

/// Settings of new connections.
#[derive(Debug)]
pub(crate) struct ServerTls {
    /// For the handshake.
    pub(crate) config: Arc<ServerConfig>,
    /// The names that the server certificate is for.
    pub(crate) names: Vec<String>,
}

impl Tls {
    /// No certificate yet: handshakes are refused.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The settings for the next connection.
    #[must_use]
    pub(crate) fn current(&self) -> Option<Arc<ServerTls>> {
        self.current.load_full()
    }

    /// Puts files into use. When they do not fit together, nothing changes.
    ///
    /// # Errors
    /// A file is missing or unreadable, or the key is not the certificate's.
    pub fn load(&self, files: &Files) -> Result<(), TlsError> {
        let config = Arc::new(server_config(files)?);
        let chain = files
            .get(certificates::TLS_CERT)
            .and_then(|pem| certificates::chain(pem).ok());
        let names = alternative_names(chain.as_deref());
        self.current
            .store(Some(Arc::new(ServerTls { config, names })));
        Ok(())
    }
}

fn server_config(files: &Files) -> Result<ServerConfig, TlsError> {
    let read = |file: &'static str| {
        files.get(file).ok_or_else(|| TlsError {
            file,
            message: "is missing".to_owned(),
        })
    };
    let chain = certificates::chain(read(certificates::TLS_CERT)?).map_err(|message| TlsError {
        file: certificates::TLS_CERT,
        message,
    })?;
    let key =
        PrivateKeyDer::from_pem_slice(read(certificates::TLS_KEY)?).map_err(|error| TlsError {
            file: certificates::TLS_KEY,
            message: error.to_string(),
        })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError {
            file: certificates::TLS_CERT,
            message: error.to_string(),
        })?;
    let builder = match files.get(certificates::EXTENDER_CA_CERT) {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let file = certificates::EXTENDER_CA_CERT;
            let mut roots = RootCertStore::empty();
            for cert in certificates::chain(pem).map_err(|message| TlsError { file, message })? {
                roots.add(cert).map_err(|error| TlsError {
                    file,
                    message: error.to_string(),
                })?;
            }
            // API servers and people have no such certificate: who must have one is decided per path.
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| TlsError {
                    file,
                    message: error.to_string(),
                })?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError {
            file: certificates::TLS_KEY,
            message: error.to_string(),
        })?;
    // What both sides can do is taken in this order. kube-scheduler asks one question at a time, and its HTTP/2 client hands
    // each over between threads several times: with HTTP/1.1 a call takes a third of the time (docs/scheduler.md).
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS);
    Ok(config)
}

/// DNS names and addresses that the first certificate of a chain is for.
fn alternative_names(chain: Option<&[CertificateDer<'_>]>) -> Vec<String> {
    let parsed = chain
        .and_then(|chain| chain.first())
        .and_then(|der| X509Certificate::from_der(der).ok());
    let Some((_, cert)) = parsed else {
        return Vec::new();
    };
    match cert.subject_alternative_name() {
        Ok(Some(alternative)) => alternative
            .value
            .general_names
            .iter()
            .filter_map(certificates::general_name)
            .collect(),
        _ => Vec::new(),
    }
}

/// Who is at the other end of a connection, as far as a certificate of the extender CA proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Common name and DNS names of the verified client certificate; empty without one.
    pub names: Vec<String>,
}

impl Peer {
    /// The peer of a finished handshake. The chain was verified by the handshake.
    pub(crate) fn of(chain: Option<&[CertificateDer<'_>]>) -> Self {
        let parsed = chain
            .and_then(|chain| chain.first())
            .and_then(|der| X509Certificate::from_der(der).ok());
        let Some((_, cert)) = parsed else {
            return Self::default();
        };
        let mut names: Vec<String> = cert
            .subject()
            .iter_common_name()
            .filter_map(|name| name.as_str().ok().map(str::to_owned))
            .collect();
        if let Ok(Some(alternative)) = cert.subject_alternative_name() {
            names.extend(
                alternative
                    .value
                    .general_names
                    .iter()
                    .filter_map(certificates::general_name),
            );
        }
        Self { names }
    }

    /// One of the names is among those allowed.
    #[must_use]
    pub fn is_one_of(&self, allowed: &[String]) -> bool {
        self.names.iter().any(|name| allowed.contains(name))
    }
}
