//! Certificates: created, stored, renewed and reloaded.
//!
//! ```text
//! Secret or directory ─► files ─► renewed where due (and written back) ─► TLS settings of the listener
//!          ▲                                                                     │
//!          └──────────────── reloaded every few seconds ◄───────────────────────┘
//! ```
//!
//! A reload that fails (files of two generations, a key that does not match) changes nothing and is retried.

mod directory;
mod issue;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::client::Clients;
use crate::config::CertificateSource;
use crate::effects::ca_bundle;
use crate::effects::secret::SecretStore;
use crate::error::RunError;
use crate::pem::{ADMISSION_CA_CERT, CA_CERT, CA_KEY, EXTENDER_CA_CERT, Files, TLS_CERT};
use crate::service_state::ServiceState;

use super::Tls;
pub use issue::CertificateError;

/// Timeout for reading a Secret, which takes milliseconds on a healthy API server.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to check whether this process leads.
const TICK: Duration = Duration::from_secs(2);
/// Attempts to write a Secret after conflicts.
const WRITES: u32 = 5;

/// Creates the missing or due files of a directory, and returns all files. Creates the directory if needed; only the owner can
/// read keys.
///
/// # Errors
/// A file cannot be read, written or parsed; a name is neither a DNS name nor an IP address.
pub fn ensure_directory(
    directory: &Path,
    names: &[String],
    now: Timestamp,
) -> Result<Files, CertificateError> {
    let mut files = directory::load(directory)?;
    if issue::is_managed_elsewhere(&files) {
        return Ok(files);
    }
    if issue::ensure(&mut files, &server_names(names, None), now)? {
        directory::store(directory, &files)?;
    }
    Ok(files)
}

/// A complete set of files in memory only, for evaluation.
///
/// # Errors
/// A name is neither a DNS name nor an IP address.
pub fn in_memory(names: &[String], now: Timestamp) -> Result<Files, CertificateError> {
    let mut files = Files::new();
    issue::ensure(&mut files, &server_names(names, None), now)?;
    Ok(files)
}

/// Default names of every server certificate, the given names, and those of a Service.
fn server_names(given: &[String], service: Option<(&str, &str)>) -> Vec<String> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"]
        .map(str::to_owned)
        .to_vec();
    if let Some((service, namespace)) = service {
        let short = format!("{service}.{namespace}");
        names.extend([
            service.to_owned(),
            short.clone(),
            format!("{short}.svc"),
            format!("{short}.svc.cluster.local"),
        ]);
    }
    names.extend(given.iter().cloned());
    names.sort();
    names.dedup();
    names
}

enum CertificateStore {
    Secret(Box<SecretStore>),
    Directory(PathBuf),
    Memory(std::sync::Mutex<Files>),
}

/// Keeps the TLS settings of the listener current.
pub(crate) struct Certificates {
    store: CertificateStore,
    names: Vec<String>,
    admission_ca: Option<PathBuf>,
    /// CRDs that may name this service for conversion.
    definitions: Vec<String>,
    shared: Arc<ServiceState>,
    tls: Arc<Tls>,
    loaded: Option<Files>,
    broken: Option<String>,
}

impl Certificates {
    /// Reads nothing yet. `cluster` (clients and namespace) is needed for a Secret.
    pub(crate) fn new(
        source: &CertificateSource,
        names: &[String],
        cluster: Option<(&Clients, &str)>,
        shared: Arc<ServiceState>,
    ) -> Result<Self, RunError> {
        let (store, service) = match (source, cluster) {
            (CertificateSource::Secret { name, service }, Some((clients, namespace))) => (
                CertificateStore::Secret(Box::new(SecretStore::new(
                    clients.main.clone(),
                    namespace,
                    name,
                ))),
                Some((service.as_str(), namespace)),
            ),
            (CertificateSource::Secret { .. }, None) => {
                return Err(RunError::Usage(
                    "certificates in a Secret require a cluster; use a directory".to_owned(),
                ));
            }
            (CertificateSource::Directory(path), _) => {
                (CertificateStore::Directory(path.clone()), None)
            }
            (CertificateSource::Memory, _) => {
                (CertificateStore::Memory(std::sync::Mutex::default()), None)
            }
        };
        Ok(Self {
            store,
            names: server_names(names, service),
            admission_ca: None,
            definitions: Vec::new(),
            shared,
            tls: Arc::new(Tls::new()),
            loaded: None,
            broken: None,
        })
    }

    /// The file with the CA of API servers is read with the others.
    pub(crate) fn with_admission_ca(self, admission_ca: Option<PathBuf>) -> Self {
        Self {
            admission_ca,
            ..self
        }
    }

    /// The CA is written into these CRDs too, where they name this service for conversion.
    pub(crate) fn with_definitions(self, definitions: Vec<String>) -> Self {
        Self {
            definitions,
            ..self
        }
    }

    /// TLS settings that follow the files.
    pub(crate) fn tls(&self) -> Arc<Tls> {
        Arc::clone(&self.tls)
    }

    /// The files in use.
    #[cfg(test)]
    pub(crate) const fn files(&self) -> Option<&Files> {
        self.loaded.as_ref()
    }

    /// Reads, renews where due, writes back, and applies changes.
    pub(crate) async fn refresh(&mut self) -> Result<bool, RunError> {
        let mut files = self.renewed().await?;
        if let Some(path) = &self.admission_ca {
            let pem = tokio::fs::read(path).await.map_err(|error| {
                let path = path.display();
                RunError::Certificates(format!("{ADMISSION_CA_CERT} {path}: {error}"))
            })?;
            files.insert(ADMISSION_CA_CERT.to_owned(), pem);
        }
        if self.loaded.as_ref() == Some(&files) {
            return Ok(false);
        }
        self.tls
            .load(&files)
            .map_err(|error| RunError::Certificates(error.to_string()))?;
        let expiry = files
            .get(TLS_CERT)
            .and_then(|pem| issue::expiry(pem))
            .map(|time| time.to_string())
            .unwrap_or_default();
        tracing::info!(
            expiry,
            client_ca = files.contains_key(EXTENDER_CA_CERT),
            "certificate loaded"
        );
        if !files.contains_key(EXTENDER_CA_CERT) {
            tracing::warn!(
                file = EXTENDER_CA_CERT,
                "client CA is missing, the extender rejects every call"
            );
        }
        self.loaded = Some(files);
        self.shared.health.set_certificate(true);
        Ok(true)
    }

    async fn renewed(&self) -> Result<Files, RunError> {
        let text = |error: &dyn std::fmt::Display| RunError::Certificates(error.to_string());
        for _ in 0..WRITES {
            let (mut files, version) = match &self.store {
                CertificateStore::Secret(secret) => {
                    secret.load().await.map_err(|error| match error.forbidden {
                        true => RunError::Forbidden {
                            who: "this user".to_owned(),
                            rights: vec![format!("get secrets in namespace {}", error.namespace)],
                            option: "",
                        },
                        false => text(&error),
                    })?
                }
                CertificateStore::Directory(path) => {
                    (directory::load(path).map_err(|error| text(&error))?, None)
                }
                CertificateStore::Memory(files) => (
                    files.lock().map(|files| files.clone()).unwrap_or_default(),
                    None,
                ),
            };
            if issue::is_managed_elsewhere(&files) {
                return Ok(files);
            }
            if !issue::ensure(&mut files, &self.names, self.shared.now())
                .map_err(|error| text(&error))?
            {
                return Ok(files);
            }
            let written = match &self.store {
                CertificateStore::Secret(secret) => secret
                    .store(&files, version)
                    .await
                    .map_err(|error| text(&error))?,
                CertificateStore::Directory(path) => directory::store(path, &files)
                    .map(|()| true)
                    .map_err(|error| text(&error))?,
                CertificateStore::Memory(kept) => {
                    kept.lock().map(|mut kept| kept.clone_from(&files)).is_ok()
                }
            };
            if written {
                tracing::info!("issued or renewed certificates");
                return Ok(files);
            }
        }
        Err(RunError::Certificates(
            "the Secret keeps changing; another process may be writing it".to_owned(),
        ))
    }

    /// Reloads the files every `period` until `end`; as the leader, also publishes mortise's own CA to webhooks and CRDs.
    pub(crate) async fn run(mut self, period: Duration, end: CancellationToken) {
        let mut announced = false;
        let mut look = Instant::now() + period;
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                () = tokio::time::sleep_until(look.min(Instant::now() + TICK)) => {}
            }
            if Instant::now() >= look {
                look = Instant::now() + period;
                announced = false;
                self.reload().await;
            }
            if !announced && self.shared.health.is_leading() {
                announced = true;
                self.publish_ca().await;
            }
        }
    }

    async fn reload(&mut self) {
        let late = RunError::Certificates("request timed out".to_owned());
        let refreshed = tokio::time::timeout(PATIENCE, self.refresh()).await;
        match refreshed.unwrap_or(Err(late)) {
            Ok(true) => {
                self.broken = None;
                self.shared.metrics.http.certificates_reloaded("loaded");
            }
            Ok(false) => self.broken = None,
            Err(error) => {
                let error = error.to_string();
                self.shared.metrics.http.certificates_reloaded("failed");
                if self.broken.as_ref() != Some(&error) {
                    tracing::error!(
                        error,
                        "failed to reload certificates, the previous ones stay in use"
                    );
                    self.broken = Some(error);
                }
            }
        }
    }

    async fn publish_ca(&self) {
        let (CertificateStore::Secret(secret), Some(files)) = (&self.store, &self.loaded) else {
            return;
        };
        let Some(ca) = files.get(CA_CERT).filter(|_| files.contains_key(CA_KEY)) else {
            return;
        };
        if let Err(error) = ca_bundle::announce(secret.client(), ca, &self.definitions).await {
            tracing::warn!(%error, "failed to update caBundle of webhook configurations, retrying");
        }
    }

    /// Reload interval: local files can change at any time, a Secret costs a call.
    pub(crate) const fn period(&self) -> Duration {
        match self.store {
            CertificateStore::Secret(_) => Duration::from_secs(60),
            CertificateStore::Directory(_) => Duration::from_secs(5),
            CertificateStore::Memory(_) => Duration::from_secs(3600),
        }
    }
}

#[cfg(test)]
mod tests;
