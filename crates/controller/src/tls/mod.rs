//! TLS settings that change at run time: a new connection uses the new certificate, an old one keeps its own.

pub mod certificates;
mod replicas;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use replicas::ReplicaOrClient;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::pem::{self, Files};

/// Sessions kept for resumption. Only a handful of API servers and schedulers call; more would waste memory.
const SESSIONS: usize = 64;

/// Why files cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {message}")]
pub struct TlsError {
    /// The file.
    pub file: &'static str,
    /// The problem.
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
    /// Names of the server certificate.
    pub(crate) names: Vec<String>,
    /// The server certificate, which other replicas present when they call this one.
    own: CertificateDer<'static>,
    /// For calls of other replicas.
    pub(crate) to_replicas: Arc<ClientConfig>,
    /// CA of the extender's clients.
    extender: Option<Arc<dyn ClientCertVerifier>>,
    /// CA of API servers.
    admission: Option<Arc<dyn ClientCertVerifier>>,
}

impl ServerTls {
    /// The peer of a finished handshake. The handshake verified that one of the client CAs signed its certificate; here the
    /// result says which one, because neither is valid for the other's clients.
    pub(crate) fn peer(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some([own, between @ ..]) = chain else {
            return Peer::default();
        };
        let signed = |by: &Option<Arc<dyn ClientCertVerifier>>| {
            by.as_ref()
                .is_some_and(|by| by.verify_client_cert(own, between, UnixTime::now()).is_ok())
        };
        Peer {
            names: client_names(own),
            is_replica: *own == self.own,
            of_extender_ca: signed(&self.extender),
            of_admission_ca: signed(&self.admission),
        }
    }
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

    /// Applies files. When they do not fit together, nothing changes.
    ///
    /// # Errors
    /// A file is missing or unreadable, or the key is not the certificate's.
    pub fn load(&self, files: &Files) -> Result<(), TlsError> {
        let extender = verifier(files, &[pem::EXTENDER_CA_CERT])?;
        let admission = verifier(files, &[pem::ADMISSION_CA_CERT])?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let identity = server_identity(files)?;
        let to_replicas =
            replicas::client_config(&provider, &identity).map_err(|error| TlsError {
                file: pem::TLS_KEY,
                message: error.to_string(),
            })?;
        let own = identity.own.clone();
        let names = alternative_names(&own);
        let config = Arc::new(server_config(files, provider, identity)?);
        self.current.store(Some(Arc::new(ServerTls {
            config,
            names,
            own,
            to_replicas,
            extender,
            admission,
        })));
        Ok(())
    }
}

/// What the server proves who it is by.
struct ServerIdentity {
    /// The first certificate of the chain.
    own: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

fn server_identity(files: &Files) -> Result<ServerIdentity, TlsError> {
    let read = |file: &'static str| {
        files.get(file).ok_or_else(|| TlsError {
            file,
            message: "is missing".to_owned(),
        })
    };
    let chain = pem::chain(read(pem::TLS_CERT)?).map_err(|message| TlsError {
        file: pem::TLS_CERT,
        message,
    })?;
    let key = PrivateKeyDer::from_pem_slice(read(pem::TLS_KEY)?).map_err(|error| TlsError {
        file: pem::TLS_KEY,
        message: error.to_string(),
    })?;
    let own = chain.first().cloned().ok_or_else(|| TlsError {
        file: pem::TLS_CERT,
        message: "holds no certificate".to_owned(),
    })?;
    Ok(ServerIdentity { own, chain, key })
}

fn server_config(
    files: &Files,
    provider: Arc<CryptoProvider>,
    ServerIdentity { own, chain, key }: ServerIdentity,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError {
            file: pem::TLS_CERT,
            message: error.to_string(),
        })?;
    let all = [pem::EXTENDER_CA_CERT, pem::ADMISSION_CA_CERT];
    let builder = match verifier(files, &all)? {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            builder.with_client_cert_verifier(Arc::new(ReplicaOrClient { own, clients }))
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| TlsError {
            file: pem::TLS_KEY,
            message: error.to_string(),
        })?;
    // The server's order of preference. kube-scheduler sends one request at a time, and its HTTP/2 client passes each between
    // threads several times: with HTTP/1.1 a call takes a third of the time (docs/benchmarks/extender.md).
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    config.session_storage = rustls::server::ServerSessionMemoryCache::new(SESSIONS);
    Ok(config)
}

/// Verifies clients of any CA in these files; `None` without any. Few callers have a certificate: the path decides whether one
/// is required.
fn verifier(
    files: &Files,
    of: &[&'static str],
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let mut roots = RootCertStore::empty();
    let mut last = None;
    for &file in of {
        let failed = |message| TlsError { file, message };
        let Some(pem) = files.get(file) else {
            continue;
        };
        for cert in pem::chain(pem).map_err(failed)? {
            roots.add(cert).map_err(|error| failed(error.to_string()))?;
        }
        last = Some(file);
    }
    let Some(file) = last else {
        return Ok(None);
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .allow_unauthenticated()
        .build()
        .map_err(|error| TlsError {
            file,
            message: error.to_string(),
        })?;
    Ok(Some(verifier))
}

/// DNS names and addresses of a certificate.
fn alternative_names(der: &CertificateDer<'_>) -> Vec<String> {
    let parsed = X509Certificate::from_der(der).ok();
    parsed.map_or_else(Vec::new, |(_, cert)| subject_alternative_names(&cert))
}

fn subject_alternative_names(cert: &X509Certificate<'_>) -> Vec<String> {
    match cert.subject_alternative_name() {
        Ok(Some(alternative)) => alternative
            .value
            .general_names
            .iter()
            .filter_map(pem::general_name)
            .collect(),
        _ => Vec::new(),
    }
}

/// The verified identity of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Common name and DNS names of the verified client certificate; empty without one.
    pub names: Vec<String>,
    /// It is the server certificate of this process: the peer is another replica.
    pub is_replica: bool,
    /// The extender's CA signed it.
    pub of_extender_ca: bool,
    /// The CA of API servers signed it.
    pub of_admission_ca: bool,
}

impl Peer {
    /// The extender's CA signed one of these names.
    #[must_use]
    pub fn is_one_of(&self, allowed: &[String]) -> bool {
        self.of_extender_ca && self.has_one_of(allowed)
    }

    fn has_one_of(&self, allowed: &[String]) -> bool {
        self.names.iter().any(|name| allowed.contains(name))
    }
}

/// Which callers of admission count as API servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiServers {
    /// Any: no CA is configured.
    Anybody,
    /// Those with a certificate of the given CA and one of these names; any name if the list is empty.
    Named(Arc<[String]>),
}

impl ApiServers {
    /// Whether a caller counts as one.
    #[must_use]
    pub fn trust(&self, peer: Option<&Peer>) -> bool {
        match self {
            Self::Anybody => true,
            Self::Named(names) => peer.is_some_and(|peer| {
                peer.of_admission_ca && (names.is_empty() || peer.has_one_of(names))
            }),
        }
    }

    /// Whether a caller needs a certificate.
    #[must_use]
    pub const fn must_prove(&self) -> bool {
        matches!(self, Self::Named(_))
    }
}

/// Common name and DNS names of a certificate.
fn client_names(cert: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, cert)) = X509Certificate::from_der(cert) else {
        return Vec::new();
    };
    let mut names: Vec<String> = cert
        .subject()
        .iter_common_name()
        .filter_map(|name| name.as_str().ok().map(str::to_owned))
        .collect();
    names.extend(subject_alternative_names(&cert));
    names
}
