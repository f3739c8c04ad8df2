//! Webhook configurations and the scheduler's extender entry, written from the route table.

use serde_json::{Value, json};

use crate::routes::{Handler, ROUTES, Route};

/// How the control plane reaches this service.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A Service in the cluster.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its port.
        port: u16,
    },
    /// A base URL such as `https://127.0.0.1:8443`.
    Url(String),
}

/// Choices of the webhook configurations.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where the service is.
    pub endpoint: Endpoint,
    /// CA bundle, PEM. Left out of the manifest when `None` (an injector fills it in).
    pub ca_bundle: Option<String>,
    /// `failurePolicy: Fail` instead of `Ignore`.
    pub fail: bool,
    /// User name of this service's own account; its requests are not sent to the webhook, so that it cannot lock itself out.
    pub own_user: Option<String>,
    /// API groups, versions and plurals that are admitted, besides NodePools.
    pub node_classes: Vec<(String, String, String)>,
}

fn client_config(endpoint: &Endpoint, ca_bundle: Option<&str>, route: &Route) -> Value {
    let mut config = match endpoint {
        Endpoint::Service {
            namespace,
            name,
            port,
        } => {
            json!({ "service": { "namespace": namespace, "name": name, "port": port, "path": route.path } })
        }
        Endpoint::Url(base) => {
            json!({ "url": format!("{}{}", base.trim_end_matches('/'), route.path) })
        }
    };
    if let Some(ca) = ca_bundle {
        use base64::Engine as _;
        config["caBundle"] = json!(base64::engine::general_purpose::STANDARD.encode(ca));
    }
    config
}

/// The `clientConfig` of the conversion webhook in a CustomResourceDefinition. `ca_bundle` is PEM; without it an injector
/// has to fill it in before the API server can convert.
#[must_use]
pub fn conversion_client_config(endpoint: &Endpoint, ca_bundle: Option<&str>) -> Value {
    ROUTES
        .iter()
        .find(|route| route.handler == Handler::Convert)
        .map_or(Value::Null, |route| {
            client_config(endpoint, ca_bundle, route)
        })
}

/// The mutating and the validating webhook configuration.
#[must_use]
pub fn webhook_configurations(options: &WebhookOptions) -> Vec<Value> {
    let mut rules = vec![(
        "karpenter.sh".to_owned(),
        "v1".to_owned(),
        "nodepools".to_owned(),
    )];
    rules.extend(options.node_classes.iter().cloned());
    let of = |kind: &str, handler: Handler, operations: &[&str]| {
        let route = ROUTES.iter().find(|route| route.handler == handler)?;
        let rules: Vec<Value> = rules
            .iter()
            .map(|(group, version, plural)| json!({ "apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations, "scope": "Cluster" }))
            .collect();
        let name = if handler == Handler::Validate {
            "validation"
        } else {
            "defaulting"
        };
        let mut webhook = json!({
            "name": format!("{name}.mortise.sh"),
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config(&options.endpoint, options.ca_bundle.as_deref(), route),
            "rules": rules,
            "failurePolicy": if options.fail { "Fail" } else { "Ignore" },
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 5,
        });
        if let Some(user) = &options.own_user {
            webhook["matchConditions"] = json!([{ "name": "not-ourselves", "expression": format!("request.userInfo.username != {}", json!(user)) }]);
        }
        Some(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": format!("{name}.mortise.sh"), "labels": { "app.kubernetes.io/name": "mortise" } },
            "webhooks": [webhook],
        }))
    };
    let mutating = of(
        "MutatingWebhookConfiguration",
        Handler::Default,
        &["CREATE", "UPDATE"],
    );
    let validating = of(
        "ValidatingWebhookConfiguration",
        Handler::Validate,
        &["CREATE", "UPDATE", "DELETE"],
    );
    mutating.into_iter().chain(validating).collect()
}

/// Paths of the files with which kube-scheduler proves who it is.
#[derive(Clone, Debug)]
pub struct SchedulerFiles {
    /// CA of the service's certificate.
    pub ca: String,
    /// Client certificate.
    pub cert: String,
    /// Its key.
    pub key: String,
    /// Name in the service's certificate.
    pub server_name: String,
    /// kubeconfig of kube-scheduler.
    pub kubeconfig: String,
}

/// A KubeSchedulerConfiguration with the recommended extender entry.
#[must_use]
pub fn scheduler_configuration(url: &str, files: &SchedulerFiles) -> Value {
    let verb = |handler| {
        ROUTES
            .iter()
            .find(|route| route.handler == handler)
            .and_then(|route| route.path.rsplit('/').next())
            .unwrap_or_default()
    };
    json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": { "kubeconfig": files.kubeconfig },
        "extenders": [{
            "urlPrefix": format!("{}/extender/v1", url.trim_end_matches('/')),
            "filterVerb": verb(Handler::Filter),
            "prioritizeVerb": verb(Handler::Prioritize),
            "preemptVerb": verb(Handler::Preempt),
            "weight": 5,
            "enableHTTPS": true,
            "tlsConfig": { "serverName": files.server_name, "caFile": files.ca, "certFile": files.cert, "keyFile": files.key },
            "httpTimeout": "300ms",
            "nodeCacheCapable": true,
            "ignorable": true,
        }],
    })
}
