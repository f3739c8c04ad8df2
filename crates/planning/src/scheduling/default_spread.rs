//! Default topology spread constraints: the `PodTopologySpread` part of a scheduler configuration.
//!
//! # Source
//! Karpenter core after 1.14 (`--scheduler-config`), and the defaults that kube-scheduler's PodTopologySpread plugin
//! accepts. The constraints exist only within a pass; objects are never changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::{Deserialize, Serialize};

use mortise_apis::names::PodKey;
use mortise_apis::validation::is_label_key;
use mortise_state::pods::{Selector, SpreadConstraint};
use mortise_state::snapshot::{Pod, PodClass, Workloads};

/// The part of a scheduler configuration that defines default constraints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Spreading of pods without constraints.
    #[serde(default)]
    pub pod_topology_spread: PodTopologySpread,
}

/// Spreading of pods without constraints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodTopologySpread {
    /// The constraints; their selector is that of the pod's Services and controller.
    #[serde(default)]
    pub default_constraints: Vec<DefaultConstraint>,
}

/// A default constraint as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "the fields of the Kubernetes API by their names"
)]
pub struct DefaultConstraint {
    pub max_skew: i32,
    #[serde(default)]
    pub topology_key: String,
    #[serde(default)]
    pub when_unsatisfiable: String,
    #[serde(default)]
    pub min_domains: Option<i32>,
    #[serde(default)]
    pub node_affinity_policy: Option<String>,
    #[serde(default)]
    pub node_taints_policy: Option<String>,
    #[serde(default)]
    pub label_selector: Option<serde_json::Value>,
    #[serde(default)]
    pub match_label_keys: Option<Vec<String>>,
}

/// An invalid default constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidDefaultConstraint {
    /// Its position in the list, from 0.
    pub at: usize,
    /// Field, value and allowed values.
    pub what: String,
}

impl fmt::Display for InvalidDefaultConstraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "podTopologySpread.defaultConstraints[{}].{}",
            self.at, self.what
        )
    }
}

impl std::error::Error for InvalidDefaultConstraint {}

/// Checked default constraints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpreadDefaults {
    constraints: Vec<SpreadConstraint>,
}

impl SpreadDefaults {
    /// Compiles a configuration.
    ///
    /// # Errors
    /// The first constraint that is invalid, or uses a field that default constraints may not have.
    pub fn from_config(config: &SchedulerConfig) -> Result<Self, InvalidDefaultConstraint> {
        let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
        let mut constraints = Vec::new();
        let all = &config.pod_topology_spread.default_constraints;
        for (at, each) in all.iter().enumerate() {
            let bad = |what: String| Err(InvalidDefaultConstraint { at, what });
            if each.max_skew <= 0 {
                return bad(format!(
                    "maxSkew is {}; it must be 1 or more",
                    each.max_skew
                ));
            }
            if !is_label_key(&each.topology_key) {
                return bad(format!(
                    "topologyKey is {:?}; it must be a label key such as topology.kubernetes.io/zone",
                    each.topology_key
                ));
            }
            if !matches!(
                each.when_unsatisfiable.as_str(),
                "DoNotSchedule" | "ScheduleAnyway"
            ) {
                return bad(format!(
                    "whenUnsatisfiable is {:?}; it must be DoNotSchedule or ScheduleAnyway",
                    each.when_unsatisfiable
                ));
            }
            if each.label_selector.is_some() {
                return bad(
                    "labelSelector must not be set: it follows from services and controllers"
                        .to_owned(),
                );
            }
            if each.match_label_keys.is_some() {
                return bad("matchLabelKeys must not be set".to_owned());
            }
            if !seen.insert((&each.topology_key, &each.when_unsatisfiable)) {
                return bad(format!(
                    "topologyKey {:?} with {} is there twice",
                    each.topology_key, each.when_unsatisfiable
                ));
            }
            let constraint = TopologySpreadConstraint {
                max_skew: each.max_skew,
                topology_key: each.topology_key.clone(),
                when_unsatisfiable: each.when_unsatisfiable.clone(),
                min_domains: each.min_domains,
                node_affinity_policy: each.node_affinity_policy.clone(),
                node_taints_policy: each.node_taints_policy.clone(),
                ..TopologySpreadConstraint::default()
            };
            constraints.push(SpreadConstraint::new(&constraint, &[]));
        }
        Ok(Self { constraints })
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.constraints.is_empty()
    }
}

/// Adds the default constraints to pods without constraints, for one pass.
pub(super) struct DefaultSpread<'a> {
    defaults: &'a SpreadDefaults,
    workloads: &'a Workloads,
    classes: BTreeMap<(usize, Selector), Arc<PodClass>>,
}

impl<'a> DefaultSpread<'a> {
    pub(super) const fn new(defaults: &'a SpreadDefaults, workloads: &'a Workloads) -> Self {
        Self {
            defaults,
            workloads,
            classes: BTreeMap::new(),
        }
    }

    /// The pod with its default constraints.
    pub(super) fn apply(&mut self, pod: Arc<Pod>) -> Arc<Pod> {
        if self.defaults.is_empty() || !pod.class.spread.is_empty() {
            return pod;
        }
        let PodKey { namespace, .. } = &pod.key;
        let owner = pod.owner.as_ref().map(|owner| (&*owner.kind, &owner.name));
        let Some(selector) = self.workloads.selector_of(namespace, &pod.labels, owner) else {
            return pod;
        };
        let address = Arc::as_ptr(&pod.class).cast::<()>() as usize;
        let class = self
            .classes
            .entry((address, selector))
            .or_insert_with_key(|(_, selector)| {
                let mut class = PodClass::clone(&pod.class);
                class.spread = self.defaults.constraints.clone();
                let each = class.spread.iter_mut();
                each.for_each(|each| each.selector = Some(selector.clone()));
                Arc::new(class)
            });
        let class = Arc::clone(class);
        Arc::new(Pod {
            class,
            ..Pod::clone(&pod)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(constraint: serde_json::Value) -> Result<SpreadDefaults, String> {
        let config = serde_json::json!({"podTopologySpread": {"defaultConstraints": [constraint]}});
        let config: SchedulerConfig =
            serde_json::from_value(config).map_err(|error| error.to_string())?;
        SpreadDefaults::from_config(&config).map_err(|error| error.to_string())
    }

    #[test]
    fn bad_constraints_name_field_and_value() {
        let good = serde_json::json!({"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"});
        assert!(!read(good.clone()).unwrap().is_empty());
        let with = |key: &str, value: serde_json::Value| {
            let mut each = good.clone();
            each[key] = value;
            read(each).unwrap_err()
        };
        assert!(with("maxSkew", 0.into()).contains("maxSkew is 0"));
        assert!(with("topologyKey", "a b".into()).contains("\"a b\""));
        assert!(
            with("whenUnsatisfiable", "Never".into()).contains("DoNotSchedule or ScheduleAnyway")
        );
        assert!(with("labelSelector", serde_json::json!({})).contains("labelSelector"));
        assert!(with("matchLabelKeys", serde_json::json!(["a"])).contains("matchLabelKeys"));
        assert!(with("maxskew", 1.into()).contains("unknown field"));
    }
}
