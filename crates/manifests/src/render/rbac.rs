//! Permissions of the service account: exactly those that the service uses.

use mortise_apis::node_class::NodeClassKind;
use mortise_state::resource_kinds::ResourceKind;
use serde_json::{Value, json};

/// The service account, and the features that determine its permissions.
pub struct ServiceAccount<'a> {
    /// Namespace of the service.
    pub namespace: &'a str,
    /// The service account.
    pub account: &'a str,
    /// Roles and bindings.
    pub name: &'a str,
    /// The Lease of the leader election.
    pub lease: &'a str,
    /// The Secret with certificates.
    pub secret: &'a str,
    /// Providers that are served.
    pub providers: &'a [ProviderPermissions],
    /// Names of the CRDs of kinds with an older version.
    pub definitions: &'a [String],
    /// Whether CRDs refer to the service for conversion, so that it updates their CA.
    pub conversion: bool,
    /// Whether the service issues its certificates itself, into the Secret.
    pub own_certificates: bool,
    /// Whether the service writes deletion costs to pods.
    pub pod_deletion_costs: bool,
    /// Whether the service restarts Deployments.
    pub hand_over: bool,
}

/// What a provider's permissions depend on.
#[derive(Clone, Copy, Debug)]
pub struct ProviderPermissions {
    /// Name of the provider.
    pub name: &'static str,
    /// Kind of its node class.
    pub node_class: NodeClassKind,
    /// Whether it creates Node objects; instances of a cloud register themselves.
    pub creates_nodes: bool,
    /// Whether it tells nodes the range of Services, which it reads from the API server.
    pub reads_service_ranges: bool,
}

/// When a rule is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// In every installation.
    Always,
    /// With the provider of this name.
    Provider(&'static str),
    /// When CRDs refer to the service for conversion.
    Conversion,
    /// When the service issues its certificates itself.
    OwnCertificates,
    /// When the service writes deletion costs to pods.
    PodDeletionCosts,
    /// When the service restarts Deployments.
    HandOver,
}

impl ServiceAccount<'_> {
    fn needs(&self, when: When) -> bool {
        match when {
            When::Always => true,
            When::Provider(name) => self.providers.iter().any(|each| each.name == name),
            When::Conversion => self.conversion,
            When::OwnCertificates => self.own_certificates,
            When::PodDeletionCosts => self.pod_deletion_costs,
            When::HandOver => self.hand_over,
        }
    }
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "verbs": verbs })
}

/// A rule for objects with these names only, such as the webhook configurations whose CA is updated.
fn named_rule(groups: &[&str], resources: &[&str], names: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": groups, "resources": resources, "resourceNames": names, "verbs": verbs })
}

/// Rules of a provider's node class.
fn node_class(provider: &ProviderPermissions) -> [(When, Value); 2] {
    let NodeClassKind { group, plural, .. } = provider.node_class;
    let when = When::Provider(provider.name);
    let status = format!("{plural}/status");
    let verbs = &["get", "list", "watch", "patch"];
    [
        (when, rule(&[group], &[plural], verbs)),
        (when, rule(&[group], &[&status], &["patch"])),
    ]
}

/// Rules to read the watched kinds, one for each group. Kinds that are written to have rules of their own.
fn read_rules() -> Vec<Value> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    let kinds = ResourceKind::table().into_iter();
    for ResourceKind { api, .. } in kinds.filter(|kind| !kind.is_written()) {
        match groups.iter_mut().find(|(group, _)| *group == api.group) {
            Some((_, plurals)) => plurals.push(api.plural),
            None => groups.push((api.group, vec![api.plural])),
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|(group, plurals)| rule(&[group], &plurals, &["get", "list", "watch"]))
        .collect()
}

/// Rules of every installation.
fn rules_of_all() -> Vec<Value> {
    let others = [
        rule(&[""], &["nodes"], &["patch", "delete"]),
        rule(&[""], &["pods"], &["delete"]),
        rule(&[""], &["pods/eviction"], &["create"]),
        rule(&[""], &["events"], &["create", "patch"]),
        rule(
            &["karpenter.sh"],
            &["nodepools", "nodeclaims"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            &["karpenter.sh"],
            &[
                "nodepools/status",
                "nodeclaims/status",
                "nodeoverlays/status",
            ],
            &["patch"],
        ),
        rule(&["mortise.sh"], &["nodepoolpolicies/status"], &["patch"]),
        rule(
            &["autoscaling.x-k8s.io"],
            &["capacitybuffers"],
            &["get", "list", "watch", "patch"],
        ),
        rule(
            &["autoscaling.x-k8s.io"],
            &["capacitybuffers/status", "provisioningrequests/status"],
            &["patch"],
        ),
        rule(&["karpenter.sh"], &["nodeclaims"], &["create", "delete"]),
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
    read_rules().into_iter().chain(others).collect()
}

/// Rules of the ClusterRole with all providers, in order. `definitions` are the CRDs that may name the service for conversion.
#[must_use]
pub fn cluster_rules(
    providers: &[ProviderPermissions],
    definitions: &[String],
) -> Vec<(When, Value)> {
    let always = rules_of_all().into_iter().map(|rule| (When::Always, rule));
    let mut all: Vec<(When, Value)> = always.collect();
    for provider in providers.iter().filter(|each| each.creates_nodes) {
        let when = When::Provider(provider.name);
        all.push((when, rule(&[""], &["nodes"], &["create"])));
    }
    for provider in providers.iter().filter(|each| each.reads_service_ranges) {
        let read = named_rule(
            &["networking.k8s.io"],
            &["servicecidrs"],
            &["kubernetes"],
            &["get"],
        );
        all.push((When::Provider(provider.name), read));
    }
    all.extend(providers.iter().flat_map(node_class));
    all.push((When::PodDeletionCosts, rule(&[""], &["pods"], &["patch"])));
    let restarts = rule(&["apps"], &["deployments"], &["patch"]);
    all.push((When::HandOver, restarts));
    let definitions: Vec<&str> = definitions.iter().map(String::as_str).collect();
    all.push((
        When::Conversion,
        named_rule(
            &["apiextensions.k8s.io"],
            &["customresourcedefinitions"],
            &definitions,
            &["get", "patch"],
        ),
    ));
    all
}

/// Rules of the Role in the namespace of the service, in order. `create` is restricted by name too: a write
/// to the path of a missing object creates it, and the authorizer knows its name.
#[must_use]
pub fn local_rules(lease: &str, secret: &str) -> Vec<(When, Value)> {
    vec![
        (
            When::Always,
            named_rule(
                &["coordination.k8s.io"],
                &["leases"],
                &[lease],
                &["get", "create", "update"],
            ),
        ),
        (
            When::OwnCertificates,
            named_rule(
                &[""],
                &["secrets"],
                &[secret],
                &["get", "create", "update", "patch"],
            ),
        ),
    ]
}

/// ServiceAccount, ClusterRole and Role with their bindings.
#[must_use]
pub fn service_account(account: &ServiceAccount<'_>) -> Vec<Value> {
    let needed = |rules: Vec<(When, Value)>| -> Vec<Value> {
        rules
            .into_iter()
            .filter(|(when, _)| account.needs(*when))
            .map(|(_, rule)| rule)
            .collect()
    };
    let cluster = needed(cluster_rules(account.providers, account.definitions));
    let local = needed(local_rules(account.lease, account.secret));
    let ServiceAccount {
        namespace,
        account,
        name,
        ..
    } = account;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watched_kind_may_be_read_and_no_other() {
        let read = ["get", "list", "watch"];
        let mut granted: Vec<(String, String)> = Vec::new();
        for (when, rule) in cluster_rules(&[], &[]) {
            let texts = |field: &str| -> Vec<String> {
                let all = rule[field].as_array().into_iter().flatten();
                all.filter_map(|each| each.as_str().map(str::to_owned))
                    .collect()
            };
            let verbs = texts("verbs");
            if when == When::Always && read.iter().all(|verb| verbs.iter().any(|own| own == verb)) {
                for group in texts("apiGroups") {
                    let resources = texts("resources").into_iter();
                    granted.extend(resources.map(|resource| (group.clone(), resource)));
                }
            }
        }
        let table = ResourceKind::table().into_iter();
        let mut watched: Vec<(String, String)> = table
            .map(|kind| (kind.api.group.to_owned(), kind.api.plural.to_owned()))
            .collect();
        granted.sort();
        watched.sort();
        assert_eq!(granted, watched);
    }
}
