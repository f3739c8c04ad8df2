//! Kubeconfig files.

use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::certificates::{Identity, write};

/// What a client needs to reach one API server as one user, all in one file.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    server: String,
    authority_pem: String,
    user: Value,
}

impl Kubeconfig {
    /// For `server` (an https URL), trusting `authority_pem`, as the user of a client certificate.
    #[must_use]
    pub fn with_certificate(server: &str, authority_pem: &str, user: &Identity) -> Self {
        let user = json!({
            "client-certificate-data": STANDARD.encode(&user.certificate),
            "client-key-data": STANDARD.encode(&user.key),
        });
        Self {
            server: server.to_owned(),
            authority_pem: authority_pem.to_owned(),
            user,
        }
    }

    /// For `server`, trusting `authority_pem`, as the user of a bearer token (a service account's, say).
    #[must_use]
    pub fn with_token(server: &str, authority_pem: &str, token: &str) -> Self {
        Self {
            server: server.to_owned(),
            authority_pem: authority_pem.to_owned(),
            user: json!({ "token": token }),
        }
    }

    /// Writes the file (JSON, which is YAML too).
    ///
    /// # Errors
    /// The path cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
            "clusters": [{ "name": "test", "cluster": {
                "server": self.server,
                "certificate-authority-data": STANDARD.encode(&self.authority_pem),
            } }],
            "users": [{ "name": "test", "user": self.user }],
        });
        write(path, &serde_json::to_string_pretty(&config)?)
    }
}
