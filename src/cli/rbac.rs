//! What the service account may do: exactly what the workers use.

use serde_json::{Value, json};

/// Names of the account.
pub(super) struct Account<'a> {
    pub(super) namespace: &'a str,
    /// The service account.
    pub(super) account: &'a str,
    /// Roles and bindings.
    pub(super) name: &'a str,
    /// Definitions name the service for conversion, and it keeps their CA right.
    pub(super) conversion: bool,
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

/// A rule for objects of these names only: the certificate of the webhooks is kept right, nothing else.
fn named_rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs })
}

/// ServiceAccount, ClusterRole and Role with their bindings.
pub(super) fn manifests(account: &Account<'_>) -> Vec<Value> {
    let read = &["get", "list", "watch"];
    let Account {
        namespace,
        account,
        name,
        conversion,
    } = account;
    let mut cluster = vec![
        rule(
            &[""],
            &[
                "pods",
                "nodes",
                "namespaces",
                "persistentvolumes",
                "persistentvolumeclaims",
                // Whom they select, for default spread constraints.
                "services",
                "replicationcontrollers",
            ],
            read,
        ),
        named_rule(&[""], &["services"], &["kube-dns"], &["get"]),
        rule(
            &["apps"],
            &["daemonsets", "replicasets", "statefulsets"],
            read,
        ),
        rule(&["policy"], &["poddisruptionbudgets"], read),
        rule(
            &["storage.k8s.io"],
            &["storageclasses", "csinodes", "volumeattachments"],
            read,
        ),
        // With --ignore-dra-requests=false.
        rule(
            &["resource.k8s.io"],
            &[
                "deviceclasses",
                "resourceclaims",
                "resourceclaimtemplates",
                "resourceslices",
            ],
            read,
        ),
        rule(&[""], &["nodes"], &["create", "patch", "delete"]),
        rule(&[""], &["pods"], &["delete"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["events"], &["create", "patch"]),
        rule(
            &["karpenter.sh"],
            &["nodepools", "nodeclaims"],
            &["get", "list", "watch", "patch"],
        ),
        // With the feature gate NodeOverlay.
        rule(&["karpenter.sh"], &["nodeoverlays"], read),
        rule(
            &["karpenter.sh"],
            &[
                "nodepools/status",
                "nodeclaims/status",
                "nodeoverlays/status",
            ],
            &["patch"],
        ),
        rule(&["karpenter.sh"], &["nodeclaims"], &["create", "delete"]),
        rule(
            &["karpenter.kwok.sh", "karpenter.k8s.aws"],
            &["kwoknodeclasses", "ec2nodeclasses"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            &["karpenter.kwok.sh", "karpenter.k8s.aws"],
            &["kwoknodeclasses/status", "ec2nodeclasses/status"],
            &["patch"],
        ),
        named_rule(
            &["admissionregistration.k8s.io"],
            &[
                "validatingwebhookconfigurations",
                "mutatingwebhookconfigurations",
            ],
            &[
                "validation.mortise.sh",
                "defaulting.mortise.sh",
                "schedulers.mortise.sh",
            ],
            &["get", "patch"],
        ),
        rule(&["authentication.k8s.io"], &["tokenreviews"], &["create"]),
        rule(
            &["authorization.k8s.io"],
            &["subjectaccessreviews"],
            &["create"],
        ),
    ];
    if *conversion {
        cluster.push(named_rule(
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            &[
                "ec2nodeclasses.karpenter.k8s.aws",
                "nodeclaims.karpenter.sh",
                "nodepools.karpenter.sh",
            ],
            &["get", "patch"],
        ));
    }
    let local = vec![
        rule(
            &["coordination.k8s.io"],
            &["leases"],
            &["get", "create", "update", "patch"],
        ),
        rule(&[""], &["secrets"], &["get", "create", "update", "patch"]),
    ];
    let labels = json!({ "app.kubernetes.io/name": "mortise" });
    let wide = json!({ "name": name, "labels": labels });
    let own = |name: &str| json!({ "name": name, "namespace": namespace, "labels": labels });
    let subject = json!([{ "kind": "ServiceAccount", "name": account, "namespace": namespace }]);
    let reference =
        |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let api = "rbac.authorization.k8s.io/v1";
    vec![
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": own(account) }),
        json!({ "apiVersion": api, "kind": "ClusterRole", "metadata": wide, "rules": cluster }),
        json!({ "apiVersion": api, "kind": "ClusterRoleBinding", "metadata": wide, "subjects": subject, "roleRef": reference("ClusterRole") }),
        json!({ "apiVersion": api, "kind": "Role", "metadata": own(name), "rules": local }),
        json!({ "apiVersion": api, "kind": "RoleBinding", "metadata": own(name), "subjects": subject, "roleRef": reference("Role") }),
    ]
}
