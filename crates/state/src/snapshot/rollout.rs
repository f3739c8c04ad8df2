//! Deployments, as far as a drain needs them: whether a restart starts new pods before it ends the old ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use mortise_apis::k8s::{Deployment, DeploymentSpec};
use mortise_apis::labels;
use mortise_apis::names::{NamespacedName, Uid};

use crate::pods::Selector;

/// What Kubernetes allows too many or too few if the Deployment does not say.
const DEFAULT_PERCENT: i64 = 25;

/// A Deployment.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// The version of the object that this is about.
    pub resource_version: Option<String>,
    /// Pods that it should have.
    pub replicas: i32,
    /// What its pods are recognised by.
    pub selector: Selector,
    /// Each new pod is available before an old one ends.
    pub starts_before_it_ends: bool,
    /// It replaces no pods.
    pub is_paused: bool,
    /// It is replacing pods.
    pub is_running: bool,
    /// The pod for which this service restarted it last.
    pub handed_over: Option<Uid>,
}

impl Rollout {
    /// Reads a Deployment.
    #[must_use]
    pub fn of(deployment: &Deployment) -> Self {
        let Deployment {
            metadata,
            spec,
            status,
        } = deployment;
        let replicas = spec.replicas.unwrap_or(1);
        let annotations = spec.template.metadata.annotations.as_ref();
        let handed_over = annotations.and_then(|all| all.get(labels::HANDED_OVER));
        let is_seen = status.observed_generation >= metadata.generation.unwrap_or_default();
        Self {
            resource_version: metadata.resource_version.clone(),
            replicas,
            selector: spec
                .selector
                .as_ref()
                .map(Selector::new)
                .unwrap_or_default(),
            starts_before_it_ends: starts_before_it_ends(spec, replicas),
            is_paused: spec.paused,
            is_running: !is_seen
                || status.updated_replicas < replicas
                || status.replicas > status.updated_replicas,
            handed_over: handed_over.map(|uid| uid.as_str().into()),
        }
    }
}

impl Rollout {
    /// Whether it says the same of another version of the object.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let same_version = Self {
            resource_version: other.resource_version.clone(),
            ..self.clone()
        };
        same_version == *other
    }
}

/// Deployments by name; `None` unless pods are handed over.
pub type Rollouts = Option<Arc<BTreeMap<NamespacedName, Arc<Rollout>>>>;

fn starts_before_it_ends(spec: &DeploymentSpec, replicas: i32) -> bool {
    if !matches!(spec.strategy.type_.as_str(), "" | "RollingUpdate") {
        return false;
    }
    let rolling = &spec.strategy.rolling_update;
    let surge = amount(rolling.max_surge.as_ref(), replicas, Rounding::Up);
    let missing = amount(rolling.max_unavailable.as_ref(), replicas, Rounding::Down);
    // Where both are 0 the controller takes one pod away first.
    surge.is_some_and(|surge| surge > 0) && missing == Some(0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rounding {
    Up,
    Down,
}

/// A number of pods; `None` if it is neither a number nor a percentage.
fn amount(value: Option<&IntOrString>, replicas: i32, rounding: Rounding) -> Option<i64> {
    let percent = match value {
        None => DEFAULT_PERCENT,
        Some(IntOrString::Int(count)) => return Some(i64::from(*count)),
        Some(IntOrString::String(text)) => text.strip_suffix('%')?.parse::<u16>().ok()?.into(),
    };
    let hundredths = percent * i64::from(replicas.max(0));
    Some(match rounding {
        Rounding::Up => hundredths.div_euclid(100) + i64::from(hundredths % 100 > 0),
        Rounding::Down => hundredths.div_euclid(100),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn rollout(spec: Value, status: Value) -> Rollout {
        let deployment = json!({ "metadata": { "generation": 2, "resourceVersion": "7" }, "spec": spec, "status": status });
        Rollout::of(&serde_json::from_value(deployment).unwrap())
    }

    #[test]
    fn a_new_pod_is_there_before_the_old_one_ends_if_the_strategy_says_so() {
        let starts = |replicas: i32, strategy: Value| {
            let spec = json!({ "replicas": replicas, "strategy": strategy });
            rollout(spec, json!({})).starts_before_it_ends
        };
        let rolling = |surge: Value, missing: Value| json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": surge, "maxUnavailable": missing } });
        for (replicas, strategy, wanted) in [
            (1, json!({}), true),
            (3, json!({}), true),
            // 25 % of four is one.
            (4, json!({}), false),
            (1, json!({ "type": "Recreate" }), false),
            (1, rolling(json!("25%"), json!("25%")), true),
            (1, rolling(json!(1), json!(0)), true),
            (10, rolling(json!(1), json!(0)), true),
            (1, rolling(json!(0), json!(0)), false),
            (1, rolling(json!(1), json!(1)), false),
            (10, rolling(json!("1%"), json!("9%")), true),
            (1, rolling(json!("many"), json!(0)), false),
            (1, rolling(json!(1), json!("few")), false),
        ] {
            assert_eq!(
                starts(replicas, strategy.clone()),
                wanted,
                "{replicas} {strategy}"
            );
        }
    }

    #[test]
    fn it_runs_until_every_pod_is_of_the_last_template() {
        let runs = |status: Value| rollout(json!({ "replicas": 1 }), status).is_running;
        let status = |generation: i64, replicas: i32, updated: i32| json!({ "observedGeneration": generation, "replicas": replicas, "updatedReplicas": updated });
        assert!(runs(json!({})));
        assert!(runs(status(1, 1, 1)));
        assert!(runs(status(2, 1, 0)));
        assert!(runs(status(2, 2, 1)));
        assert!(!runs(status(2, 1, 1)));
    }

    #[test]
    fn it_names_the_pod_for_which_it_was_restarted() {
        let template = json!({ "metadata": { "annotations": { labels::HANDED_OVER: "uid-1" } } });
        let found = rollout(json!({ "template": template, "paused": true }), json!({}));
        assert_eq!(found.handed_over.as_deref(), Some("uid-1"));
        assert!(found.is_paused);
        assert_eq!(found.replicas, 1);
        assert_eq!(found.resource_version.as_deref(), Some("7"));
    }
}
