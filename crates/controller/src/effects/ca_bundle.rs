//! Publishes mortise's CA to API servers: `caBundle` of the webhook configurations of the manifests, and of the CRDs that name
//! this service for conversion.
//!
//! Only the leader does this, and only for a CA that this service issued. A missing permission is no error: then cert-manager's
//! injector or the manifest sets the bundle.

use base64::Engine as _;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use serde_json::json;

use crate::client::error_class::{self, ErrorClass};

/// Kind, plural and name of each configuration, as `mortise manifests webhooks` writes them.
const CONFIGURATIONS: [(&str, &str, &str); 3] = [
    (
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "validation.mortise.sh",
    ),
    (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "defaulting.mortise.sh",
    ),
    (
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "schedulers.mortise.sh",
    ),
];

/// Writes the bundle into every configuration that is installed, and into those of the definitions that name this service for
/// conversion, where they have another one. Returns how many were written.
pub(crate) async fn announce(
    client: &Client,
    ca: &[u8],
    definitions: &[String],
) -> Result<usize, kube::Error> {
    let bundle = base64::engine::general_purpose::STANDARD.encode(ca);
    let mut written = announce_conversion(client, &bundle, definitions).await?;
    for (kind, plural, name) in CONFIGURATIONS {
        let resource = ApiResource {
            group: "admissionregistration.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "admissionregistration.k8s.io/v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let found = match api.get(name).await {
            Ok(found) => found,
            Err(error) if is_left_to_others(&error) => continue,
            Err(error) => return Err(error),
        };
        let Some(patch) = patch(&found, &bundle) else {
            continue;
        };
        match api
            .patch(name, &PatchParams::default(), &Patch::Strategic(patch))
            .await
        {
            Ok(_) => {
                tracing::info!(kind, name, "updated caBundle of webhook configuration");
                written += 1;
            }
            Err(error) if is_left_to_others(&error) => {
                tracing::debug!(kind, name, error = %error_class::message(&error), "caBundle is managed by another component");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// Writes the bundle into every definition that is converted by this service and has another one.
async fn announce_conversion(
    client: &Client,
    bundle: &str,
    definitions: &[String],
) -> Result<usize, kube::Error> {
    let resource = ApiResource {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "apiextensions.k8s.io/v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
        plural: "customresourcedefinitions".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut written = 0;
    for name in definitions {
        let found = match api.get(name).await {
            Ok(found) => found,
            Err(error) if is_left_to_others(&error) => continue,
            Err(error) => return Err(error),
        };
        let Some(patch) = conversion_patch(&found, bundle) else {
            continue;
        };
        match api
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
        {
            Ok(_) => {
                tracing::info!(name, "updated caBundle of CRD");
                written += 1;
            }
            Err(error) if is_left_to_others(&error) => {
                tracing::debug!(name, error = %error_class::message(&error), "caBundle is managed by another component");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// The bundle for a definition that this service converts and that has another one.
fn conversion_patch(found: &DynamicObject, bundle: &str) -> Option<serde_json::Value> {
    let config = found
        .data
        .pointer("/spec/conversion/webhook/clientConfig")?;
    let text = |pointer| config.pointer(pointer).and_then(serde_json::Value::as_str);
    let place = text("/service/path").or_else(|| text("/url"))?;
    let ours = place.ends_with("/conversion/v1");
    (ours && text("/caBundle") != Some(bundle)).then(|| {
        json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": bundle } } } } })
    })
}

fn is_left_to_others(error: &kube::Error) -> bool {
    error_class::classify(error) == ErrorClass::NotFound
        || matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// The bundle for every webhook that has another one; `None` when all have it.
fn patch(found: &DynamicObject, bundle: &str) -> Option<serde_json::Value> {
    let webhooks = found.data.get("webhooks")?.as_array()?;
    let stale: Vec<_> = webhooks
        .iter()
        .filter(|webhook| {
            webhook
                .pointer("/clientConfig/caBundle")
                .and_then(serde_json::Value::as_str)
                != Some(bundle)
        })
        .filter_map(|webhook| {
            Some(json!({ "name": webhook.get("name")?, "clientConfig": { "caBundle": bundle } }))
        })
        .collect();
    (!stale.is_empty()).then(|| json!({ "webhooks": stale }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_definitions_that_we_convert_are_written() {
        let definition = |conversion: serde_json::Value| -> DynamicObject {
            serde_json::from_value(json!({
                "metadata": { "name": "nodepools.karpenter.sh" },
                "spec": { "conversion": conversion },
            }))
            .unwrap()
        };
        let webhook = |config: serde_json::Value| {
            definition(json!({ "strategy": "Webhook", "webhook": { "clientConfig": config } }))
        };
        let want = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": "new" } } } } });
        for (found, written) in [
            (definition(json!({ "strategy": "None" })), false),
            (
                webhook(json!({ "url": "https://x/conversion/v1", "caBundle": "old" })),
                true,
            ),
            (
                webhook(json!({ "url": "https://x/conversion/v1", "caBundle": "new" })),
                false,
            ),
            (
                webhook(json!({ "service": { "path": "/conversion/v1" } })),
                true,
            ),
            (
                webhook(json!({ "service": { "path": "/convert" }, "caBundle": "old" })),
                false,
            ),
        ] {
            let patch = conversion_patch(&found, "new");
            assert_eq!(patch, written.then(|| want.clone()), "{:?}", found.data);
        }
    }

    #[test]
    fn only_webhooks_with_another_bundle_are_written() {
        let object = |bundles: &[Option<&str>]| -> DynamicObject {
            let webhooks: Vec<_> = bundles
                .iter()
                .enumerate()
                .map(|(n, bundle)| json!({ "name": format!("w{n}"), "clientConfig": { "url": "https://x", "caBundle": bundle } }))
                .collect();
            serde_json::from_value(
                json!({ "metadata": { "name": "validation.mortise.sh" }, "webhooks": webhooks }),
            )
            .unwrap()
        };
        assert_eq!(patch(&object(&[Some("new"), Some("new")]), "new"), None);
        let want = json!({ "webhooks": [{ "name": "w1", "clientConfig": { "caBundle": "new" } }, { "name": "w2", "clientConfig": { "caBundle": "new" } }] });
        assert_eq!(
            patch(&object(&[Some("new"), Some("old"), None]), "new"),
            Some(want)
        );
    }
}
