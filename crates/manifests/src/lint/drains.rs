//! Disruption budgets and workloads in the files that would hold a node indefinitely.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::file::Manifest;
use mortise_apis::k8s::PodDisruptionBudget;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels::DO_NOT_DISRUPT;
use mortise_state::pods::Selector;
use serde_json::Value;

use super::report::{LintFinding, LintLevel, LintReport, ObjectLocation};
use mortise_webhooks::admission::{Check, why_never_allows};

/// Kinds whose pods run for as long as they are there, on any node.
const WORKLOADS: [&str; 3] = ["Deployment", "StatefulSet", "ReplicaSet"];

/// What the files hold of them.
#[derive(Default)]
pub(super) struct Drains {
    /// With the namespace.
    budgets: Vec<(LintFinding, String, PodDisruptionBudget)>,
    workloads: Vec<Workload>,
    /// Least replicas that an autoscaler keeps, by namespace, kind and name of its target.
    scaled: BTreeMap<[String; 3], i64>,
}

struct Workload {
    finding: LintFinding,
    /// Namespace, kind, name.
    key: [String; 3],
    /// Sorted by key.
    labels: Vec<(Arc<str>, Arc<str>)>,
    replicas: i64,
    protected: bool,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Nothing and `default` are the same namespace.
fn namespace(object: &Value) -> String {
    Some(text(object, "/metadata/namespace"))
        .filter(|name| *name != "default")
        .unwrap_or_default()
        .to_owned()
}

impl Drains {
    /// Takes aside what it is about.
    pub(super) fn visit(&mut self, file: &str, manifest: &Manifest) {
        let object = manifest.value();
        let kind = text(&object, "/kind");
        let group = text(&object, "/apiVersion").split('/').next();
        let location = ObjectLocation::new(file, manifest, &object, kind);
        match (group.unwrap_or_default(), kind) {
            ("policy", "PodDisruptionBudget") => {
                let field = ["maxUnavailable", "minAvailable"]
                    .into_iter()
                    .find(|field| object.pointer(&format!("/spec/{field}")).is_some());
                if let (Some(field), Ok(budget)) = (field, serde_json::from_value(object.clone())) {
                    let finding = location.finding(&format!("spec.{field}"));
                    self.budgets.push((finding, namespace(&object), budget));
                }
            }
            ("apps", kind) if WORKLOADS.contains(&kind) => {
                let annotations = object.pointer("/spec/template/metadata/annotations");
                let protected = annotations.and_then(|all| all.get(DO_NOT_DISRUPT));
                let labels = object.pointer("/spec/template/metadata/labels");
                let labels: BTreeMap<&String, &str> = labels
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .filter_map(|(key, value)| Some((key, value.as_str()?)))
                    .collect();
                self.workloads.push(Workload {
                    finding: location.finding("spec.template.metadata.annotations"),
                    key: [
                        namespace(&object),
                        kind.to_owned(),
                        text(&object, "/metadata/name").to_owned(),
                    ],
                    labels: labels
                        .into_iter()
                        .map(|(key, value)| (Arc::from(key.as_str()), Arc::from(value)))
                        .collect(),
                    replicas: object
                        .pointer("/spec/replicas")
                        .and_then(Value::as_i64)
                        .unwrap_or(1),
                    protected: protected.is_some_and(|value| value == "true"),
                });
            }
            ("autoscaling", "HorizontalPodAutoscaler") => {
                let target = ["kind", "name"].map(|field| {
                    text(&object, &format!("/spec/scaleTargetRef/{field}")).to_owned()
                });
                let [kind, name] = target;
                let least = object
                    .pointer("/spec/minReplicas")
                    .and_then(Value::as_i64)
                    .unwrap_or(1);
                self.scaled.insert([namespace(&object), kind, name], least);
            }
            _ => {}
        }
    }

    /// Says what would hold a node indefinitely, given the pools in the files.
    pub(super) fn report<'a>(
        mut self,
        pools: impl Iterator<Item = &'a NodePool>,
        report: &mut LintReport,
    ) {
        for workload in &mut self.workloads {
            if let Some(least) = self.scaled.get(&workload.key) {
                workload.replicas = workload.replicas.max(*least);
            }
        }
        for (finding, space, mut budget) in self.budgets {
            let Some(selector) = budget.spec.selector.as_ref().map(Selector::new) else {
                continue;
            };
            let selected = self.workloads.iter().filter(|workload| {
                let [of, ..] = &workload.key;
                *of == space && selector.matches_labels(&workload.labels)
            });
            let pods: i64 = selected.map(|workload| workload.replicas).sum();
            budget.status.expected_pods = i32::try_from(pods).unwrap_or(i32::MAX);
            if let Some(why) = why_never_allows(&budget) {
                report.findings.push(LintFinding {
                    check: Check::BlockedDrain,
                    level: LintLevel::Warning,
                    problem: format!(
                        "never allows an eviction ({why}): nodes with such pods are never drained"
                    ),
                    fix: "write maxUnavailable: 1, or run more replicas".to_owned(),
                    ..finding
                });
            }
        }
        let without_grace_period: Vec<String> = pools
            .filter(|pool| {
                let spec = &pool.spec.template.spec;
                let expires = spec
                    .expire_after
                    .as_ref()
                    .is_some_and(|after| !after.is_never());
                expires && spec.termination_grace_period.is_none()
            })
            .map(|pool| pool.name().to_string())
            .collect();
        let Some(first) = without_grace_period.first() else {
            return;
        };
        for workload in self
            .workloads
            .into_iter()
            .filter(|workload| workload.protected)
        {
            report.findings.push(LintFinding {
                check: Check::BlockedDrain,
                level: LintLevel::Warning,
                value: format!("{DO_NOT_DISRUPT}: \"true\""),
                value_first: true,
                problem: format!("blocks an expired node of NodePool {first} indefinitely"),
                fix: "set terminationGracePeriod or expireAfter: Never in the pool".to_owned(),
                ..workload.finding
            });
        }
    }
}
