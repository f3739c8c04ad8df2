//! Manifests into a cluster, as `kubectl apply --server-side` would, without starting a program.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{GroupVersionKind, TypeMeta};
use kube::discovery::Scope;
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::stages::documents;
use super::wait::wait_until;

/// Field manager of everything that the harness applies.
const MANAGER: &str = "mortise-tests";
/// A new CRD is served within a second; a busy test host takes longer.
const SERVED_WITHIN: Duration = Duration::from_secs(30);

/// Applies every document of `yaml` in order; a CRD is waited for until it is served. Namespaced objects without a
/// namespace go to `default`. Returns the objects as the API server stored them.
pub(crate) async fn apply(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for document in documents(yaml)? {
        let items = match document.get("items").and_then(Value::as_array) {
            Some(items)
                if document
                    .get("kind")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kind.ends_with("List")) =>
            {
                items.clone()
            }
            _ => vec![document],
        };
        for item in items {
            applied.push(apply_one(client, item).await?);
        }
    }
    Ok(applied)
}

async fn apply_one(client: &Client, document: Value) -> Result<DynamicObject> {
    let object: DynamicObject =
        serde_json::from_value(document).context("not a Kubernetes object")?;
    let types: TypeMeta = object
        .types
        .clone()
        .context("a document has no apiVersion and kind")?;
    let name = object
        .metadata
        .name
        .clone()
        .with_context(|| format!("a {} has no metadata.name", types.kind))?;
    let label = format!("{} {name}", types.kind);
    let gvk = GroupVersionKind::try_from(&types).map_err(|error| anyhow!("{label}: {error}"))?;
    let (resource, capabilities) = wait_until(
        &format!("{} {} to be served", types.api_version, types.kind),
        SERVED_WITHIN,
        || async {
            kube::discovery::pinned_kind(client, &gvk)
                .await
                .map_err(plain)
        },
    )
    .await?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    };
    // Server-side apply drops the status of a new Node, where creation keeps it; capacity stands there.
    let created = if types.kind == "Node" {
        api.create(&PostParams::default(), &object).await.ok()
    } else {
        None
    };
    let stored = match created {
        Some(stored) => stored,
        None => api
            .patch(
                &name,
                &PatchParams::apply(MANAGER).force(),
                &Patch::Apply(&object),
            )
            .await
            .map_err(plain)
            .with_context(|| format!("cannot apply {label}"))?,
    };
    if types.kind == "CustomResourceDefinition" {
        wait_until(
            &format!("{label} to be established"),
            SERVED_WITHIN,
            || async {
                let seen = api.get(&name).await?;
                let established = seen
                    .data
                    .pointer("/status/conditions")
                    .and_then(Value::as_array)
                    .is_some_and(|conditions| {
                        conditions.iter().any(|condition| {
                            condition["type"] == "Established" && condition["status"] == "True"
                        })
                    });
                ensure!(
                    established,
                    "not yet (resource version {:?})",
                    seen.resource_version()
                );
                Ok(())
            },
        )
        .await?;
        served(client, &label, &stored).await?;
    }
    Ok(stored)
}

/// A CRD is established a moment before its watch cache is filled; until then lists are refused ("storage is
/// (re)initializing"), which a program that has just started should not have to see in every test.
async fn served(client: &Client, label: &str, crd: &DynamicObject) -> Result<()> {
    let text = |pointer: &str| {
        crd.data
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let versions = crd.data.pointer("/spec/versions").and_then(Value::as_array);
    for version in versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
    {
        let gvk = GroupVersionKind::gvk(
            text("/spec/group"),
            version["name"].as_str().unwrap_or_default(),
            text("/spec/names/kind"),
        );
        let resource = ApiResource::from_gvk_with_plural(&gvk, text("/spec/names/plural"));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        // "Any" version is answered from the cache only.
        let from_cache = ListParams::default().match_any();
        wait_until(
            &format!("{label} {} to be served", gvk.version),
            SERVED_WITHIN,
            || async { api.list(&from_cache).await.map_err(plain) },
        )
        .await?;
    }
    Ok(())
}

/// What the API server said, without the whole Status object around it.
fn plain(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("{} (status {})", status.message, status.code),
        other => anyhow!(other),
    }
}
