//! A second kube-scheduler that asks the extender, for clusters whose own one cannot be configured.

use serde_json::{Value, json};

use super::scheduler::{SchedulerFiles, scheduler_configuration};

/// Where the files of the extender's client lie in the pod.
const CERTIFICATES: &str = "/etc/mortise/extender";
const CONFIGURATION: &str = "/etc/mortise/scheduler";
const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Choices of the second scheduler.
#[derive(Clone, Debug)]
pub struct SecondScheduler {
    /// Namespace of everything.
    pub namespace: String,
    /// Name of everything, and what pods write into `schedulerName`.
    pub name: String,
    /// Image of kube-scheduler; its version should be the cluster's.
    pub image: String,
    /// Secret with `ca.crt`, `extender-client.crt` and `extender-client.key`.
    pub secret: String,
    /// Base URL of the service.
    pub url: String,
    /// Name that the service's certificate must have; `None`: the host of the URL.
    pub server_name: Option<String>,
    /// Copies; one leads, the others wait.
    pub replicas: u32,
}

/// ServiceAccount, rights, configuration and Deployment.
#[must_use]
pub fn second_scheduler(options: &SecondScheduler) -> Vec<Value> {
    let SecondScheduler {
        namespace, name, ..
    } = options;
    let labels = json!({ "app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "mortise" });
    let wide = |suffix: &str| json!({ "name": format!("{name}{suffix}"), "labels": labels });
    let own = |name: &str| json!({ "name": name, "namespace": namespace, "labels": labels });
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": namespace }]);
    let role = |kind: &str, name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let bound = |suffix: &str, to: &str| {
        json!({ "apiVersion": RBAC, "kind": "ClusterRoleBinding", "metadata": wide(suffix),
            "roleRef": role("ClusterRole", to), "subjects": subjects })
    };
    // The cluster's own role names one Lease only, that of the first scheduler.
    let lease = json!({ "apiVersion": RBAC, "kind": "Role", "metadata": own(name), "rules": [
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"] },
        { "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [name], "verbs": ["get", "update"] },
    ] });
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": own(name) }),
        bound("", "system:kube-scheduler"),
        bound("-volumes", "system:volume-scheduler"),
        json!({ "apiVersion": RBAC, "kind": "RoleBinding",
            "metadata": { "name": format!("{name}-authentication"), "namespace": "kube-system", "labels": labels },
            "roleRef": role("Role", "extension-apiserver-authentication-reader"), "subjects": subjects }),
        lease,
        json!({ "apiVersion": RBAC, "kind": "RoleBinding", "metadata": own(name),
            "roleRef": role("Role", name), "subjects": subjects }),
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": own(name),
            "data": { "config.yaml": format!("{:#}\n", configuration(options)) } }),
        deployment(options, &labels),
    ]
}

/// The configuration of the second scheduler; JSON, which is YAML too.
fn configuration(options: &SecondScheduler) -> Value {
    let file = |name: &str| format!("{CERTIFICATES}/{name}");
    let files = SchedulerFiles {
        ca: file("ca.crt"),
        cert: file("extender-client.crt"),
        key: file("extender-client.key"),
        server_name: options.server_name.clone(),
        kubeconfig: String::new(),
    };
    let mut all = scheduler_configuration(&options.url, &files);
    // In its pod it uses its service account.
    if let Some(fields) = all.as_object_mut() {
        fields.remove("clientConnection");
    }
    all["leaderElection"] = json!({ "leaderElect": true, "resourceNamespace": options.namespace, "resourceName": options.name });
    all["profiles"] = json!([{ "schedulerName": options.name, "pluginConfig": [{
        "name": "NodeResourcesFit",
        "args": { "scoringStrategy": { "type": "MostAllocated",
            "resources": [{ "name": "cpu", "weight": 1 }, { "name": "memory", "weight": 1 }] } },
    }] }]);
    // A pod that could not be placed is tried again soon after its node has become ready.
    all["podMaxBackoffSeconds"] = json!(2);
    all
}

fn deployment(options: &SecondScheduler, labels: &Value) -> Value {
    let SecondScheduler {
        namespace,
        name,
        image,
        secret,
        replicas,
        ..
    } = options;
    let selector = json!({ "app.kubernetes.io/name": name });
    let probe = json!({ "httpGet": { "path": "/healthz", "port": 10259, "scheme": "HTTPS" }, "periodSeconds": 10 });
    let files = ["ca.crt", "extender-client.crt", "extender-client.key"];
    let files = files.map(|file| json!({ "key": file, "path": file }));
    let spread = json!([{ "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": { "matchLabels": selector } }]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": selector },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": name,
                    "priorityClassName": "system-cluster-critical",
                    "topologySpreadConstraints": spread,
                    "tolerations": [{ "key": "CriticalAddonsOnly", "operator": "Exists" }],
                    "securityContext": { "runAsNonRoot": true, "runAsUser": 65532, "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
                    "containers": [{
                        "name": "kube-scheduler",
                        "image": image,
                        "command": ["kube-scheduler", format!("--config={CONFIGURATION}/config.yaml")],
                        "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                        "livenessProbe": probe,
                        "readinessProbe": probe,
                        "securityContext": { "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] } },
                        "volumeMounts": [
                            { "name": "configuration", "mountPath": CONFIGURATION, "readOnly": true },
                            { "name": "certificates", "mountPath": CERTIFICATES, "readOnly": true },
                        ],
                    }],
                    "volumes": [
                        { "name": "configuration", "configMap": { "name": name } },
                        // Of the Secret only what a client needs: never the service's own keys.
                        { "name": "certificates", "secret": { "secretName": secret, "defaultMode": 0o440, "items": files } },
                    ],
                },
            },
        },
    })
}
