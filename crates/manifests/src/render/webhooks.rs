//! Webhook configurations, written from the route table.

use mortise_apis::node_class::NodeClassKind;
use mortise_webhooks::routes::{Handler, ROUTES, Route};
use serde_json::{Value, json};

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
    /// `failurePolicy: Fail` instead of `Ignore`, for objects that are made or changed; deletions always pass.
    pub fail: bool,
    /// User name of this service's own account; its requests are not sent to the webhook, so that it cannot lock itself out.
    pub own_user: Option<String>,
    /// Node classes that are admitted.
    pub node_classes: Vec<NodeClassKind>,
    /// Namespace of the service, whose own pods are never touched; with it, new pods of labelled namespaces get the
    /// scheduler that the label names.
    pub scheduler_names: Option<String>,
}

/// The configuration that gives new pods the scheduler of their namespace. It is its own object: it is about pods, so it
/// must never keep one from being made.
fn scheduler_name_configuration(options: &WebhookOptions, own_namespace: &str) -> Option<Value> {
    let route = ROUTES
        .iter()
        .find(|route| route.handler == Handler::SchedulerName)?;
    Some(json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "schedulers.mortise.sh", "labels": { "app.kubernetes.io/name": "mortise" } },
        "webhooks": [{
            "name": "schedulers.mortise.sh",
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config(&options.endpoint, options.ca_bundle.as_deref(), route),
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"], "scope": "Namespaced" }],
            "namespaceSelector": { "matchExpressions": [
                { "key": mortise_apis::labels::SCHEDULER_NAME, "operator": "Exists" },
                { "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": excluded_namespaces(own_namespace) },
            ] },
            "matchConditions": [{
                "name": "default-scheduler",
                "expression": "!has(object.spec.schedulerName) || object.spec.schedulerName in ['', 'default-scheduler']",
            }],
            "failurePolicy": "Ignore",
            "matchPolicy": "Equivalent",
            "reinvocationPolicy": "Never",
            "sideEffects": "None",
            "timeoutSeconds": 2,
        }],
    }))
}

fn excluded_namespaces(own_namespace: &str) -> Vec<&str> {
    let mut names = vec!["kube-system", own_namespace];
    names.dedup();
    names
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

/// Rules of a webhook: what it is asked scope.
#[derive(Clone, Copy)]
enum WebhookScope {
    /// Pools, overlays, policies, buffers and node classes that are made or changed.
    Specs,
    /// Pools and node classes that are deleted.
    Deletions,
    /// Claims that people make themselves, without a pool.
    Claims,
    /// Claims that people delete.
    ClaimDeletions,
}

impl WebhookScope {
    fn rules(self, node_classes: &[NodeClassKind]) -> Vec<Value> {
        let pool = ("karpenter.sh", "v1", "nodepools", "Cluster");
        let classes = node_classes
            .iter()
            .map(|kind| (kind.group, kind.version, kind.plural, "Cluster"));
        let claims = ("karpenter.sh", "v1", "nodeclaims", "Cluster");
        let (kinds, operations): (Vec<_>, &[&str]) = match self {
            Self::Specs => (
                [
                    pool,
                    ("karpenter.sh", "v1alpha1", "nodeoverlays", "Cluster"),
                    ("mortise.sh", "v1alpha1", "nodepoolpolicies", "Cluster"),
                    (
                        "autoscaling.x-k8s.io",
                        "v1beta1",
                        "capacitybuffers",
                        "Namespaced",
                    ),
                ]
                .into_iter()
                .chain(classes)
                .collect(),
                &["CREATE", "UPDATE"],
            ),
            Self::Deletions => (std::iter::once(pool).chain(classes).collect(), &["DELETE"]),
            Self::Claims => (vec![claims], &["CREATE"]),
            Self::ClaimDeletions => (vec![claims], &["DELETE"]),
        };
        kinds
            .into_iter()
            .map(|(group, version, plural, scope)| {
                json!({ "apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations, "scope": scope })
            })
            .collect()
    }

    /// Which of the requests are not sent at all, in CEL.
    fn conditions(self, own_user: Option<&String>) -> Vec<Value> {
        let condition =
            |name: &str, expression: &str| json!({ "name": name, "expression": expression });
        let mut all = Vec::new();
        if let Some(user) = own_user {
            let expression = format!("request.userInfo.username != {}", json!(user));
            all.push(condition("not-ourselves", &expression));
        }
        match self {
            // Labels, finalizers and annotations of any object can be written without asking.
            Self::Specs => all.extend([
                condition("not-going", "!has(object.metadata.deletionTimestamp)"),
                condition(
                    "spec-changes",
                    "request.operation == 'CREATE' || !has(object.spec) || !has(oldObject.spec) || object.spec != oldObject.spec",
                ),
            ]),
            Self::Claims => all.push(condition(
                "without-a-pool",
                "!has(object.metadata.labels) || !('karpenter.sh/nodepool' in object.metadata.labels)",
            )),
            // Garbage collection and controllers delete many, and read no warnings.
            Self::ClaimDeletions => all.push(condition(
                "by-people",
                "!request.userInfo.username.startsWith('system:')",
            )),
            Self::Deletions => {}
        }
        all
    }

    /// Deletions must always be possible, and a claim is the way to a node that is needed.
    const fn may_fail(self) -> bool {
        matches!(self, Self::Specs)
    }
}

/// The mutating and the validating webhook configuration, and that of schedulers where it is asked for.
#[must_use]
pub fn webhook_configurations(options: &WebhookOptions) -> Vec<Value> {
    let webhook = |name: &str, handler: Handler, scope: WebhookScope| {
        let route = ROUTES.iter().find(|route| route.handler == handler)?;
        let mut webhook = json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client_config(&options.endpoint, options.ca_bundle.as_deref(), route),
            "rules": scope.rules(&options.node_classes),
            "failurePolicy": if options.fail && scope.may_fail() { "Fail" } else { "Ignore" },
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "timeoutSeconds": 5,
        });
        let conditions = scope.conditions(options.own_user.as_ref());
        if !conditions.is_empty() {
            webhook["matchConditions"] = Value::Array(conditions);
        }
        Some(webhook)
    };
    let configuration = |kind: &str, name: &str, webhooks: [Option<Value>; 4]| {
        let webhooks: Vec<Value> = webhooks.into_iter().flatten().collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "mortise" } },
            "webhooks": webhooks,
        })
    };
    let schedulers = options
        .scheduler_names
        .as_ref()
        .and_then(|own| scheduler_name_configuration(options, own));
    let mut all = vec![
        configuration(
            "MutatingWebhookConfiguration",
            "defaulting.mortise.sh",
            [
                webhook(
                    "defaulting.mortise.sh",
                    Handler::Default,
                    WebhookScope::Specs,
                ),
                webhook(
                    "claims.defaulting.mortise.sh",
                    Handler::Default,
                    WebhookScope::Claims,
                ),
                None,
                None,
            ],
        ),
        configuration(
            "ValidatingWebhookConfiguration",
            "validation.mortise.sh",
            [
                webhook(
                    "validation.mortise.sh",
                    Handler::Validate,
                    WebhookScope::Specs,
                ),
                webhook(
                    "claims.validation.mortise.sh",
                    Handler::Validate,
                    WebhookScope::Claims,
                ),
                webhook(
                    "deletion.mortise.sh",
                    Handler::Validate,
                    WebhookScope::Deletions,
                ),
                webhook(
                    "claims.deletion.mortise.sh",
                    Handler::Validate,
                    WebhookScope::ClaimDeletions,
                ),
            ],
        ),
    ];
    all.extend(schedulers);
    all
}
