//! Keeping certificates in a Secret, by optimistic concurrency: replicas may try to make it at the same time.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};

use crate::client::error_class::{self, ErrorClass};
use crate::pem::Files;

/// Why the Secret could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("secret {namespace}/{name}: {message}")]
pub(crate) struct SecretError {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) message: String,
    /// 403.
    pub(crate) forbidden: bool,
}

/// Who owns the labels of a Secret that was made here; its contents are owned by whoever writes them.
const MAKER: &str = "mortise-maker";

/// A Secret with certificate files.
#[derive(Clone)]
pub(crate) struct SecretStore {
    client: kube::Client,
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl SecretStore {
    pub(crate) fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        Self {
            api: Api::namespaced(client.clone(), namespace),
            client,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The cluster that it lies in.
    pub(crate) const fn client(&self) -> &kube::Client {
        &self.client
    }

    /// Files of the Secret and its version; no files and no version when there is none.
    pub(crate) async fn load(&self) -> Result<(Files, Option<String>), SecretError> {
        match self.api.get_opt(&self.name).await {
            Ok(None) => Ok((Files::default(), None)),
            Ok(Some(secret)) => {
                let files = secret
                    .data
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(name, ByteString(bytes))| (name, bytes))
                    .collect();
                Ok((files, secret.metadata.resource_version))
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes the files over the version that was read. `false` = another process wrote in between, or the Secret was only
    /// created now, without contents; read again.
    pub(crate) async fn store(
        &self,
        files: &Files,
        version: Option<String>,
    ) -> Result<bool, SecretError> {
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(BTreeMap::from([(
                    "app.kubernetes.io/name".to_owned(),
                    "mortise".to_owned(),
                )])),
                resource_version: version.clone(),
                ..ObjectMeta::default()
            },
            data: Some(
                files
                    .iter()
                    .map(|(name, bytes)| (name.clone(), ByteString(bytes.clone())))
                    .collect(),
            ),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        };
        let written = match version {
            None => self.make().await.map(|()| false),
            Some(_) => {
                let replaced = self
                    .api
                    .replace(&self.name, &PostParams::default(), &secret)
                    .await;
                replaced.map(|_| true)
            }
        };
        match written {
            Ok(whole) => Ok(whole),
            Err(error)
                if matches!(
                    error_class::classify(&error),
                    ErrorClass::Conflict | ErrorClass::AlreadyExists | ErrorClass::NotFound
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Makes the Secret, empty, unless it is there. It is applied to its own path, because a right to create can be given for
    /// a name only so; and it says nothing of the contents, so that replicas that do it at the same time overwrite nothing.
    async fn make(&self) -> Result<(), kube::Error> {
        let empty = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": self.name, "labels": { "app.kubernetes.io/name": "mortise" } },
        });
        let apply = PatchParams::apply(MAKER);
        self.api
            .patch(&self.name, &apply, &Patch::Apply(&empty))
            .await
            .map(|_| ())
    }

    fn failed(&self, error: &kube::Error) -> SecretError {
        let forbidden = matches!(error, kube::Error::Api(status) if status.code == 403);
        SecretError {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            message: error_class::message(error),
            forbidden,
        }
    }
}
