//! What counts as unhealthy, how long it is tolerated, how many may be unhealthy at once: the provider's rules, and
//! what a pool says differently in its annotations.

use jiff::Timestamp;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::labels;
use mortise_apis::nearest::nearest;
use mortise_apis::values::{Allowance, GoDuration, after};
use mortise_cloudprovider::RepairPolicy;
use mortise_planning::reason::Reason;

/// Karpenter's limit.
const LIMIT: Allowance = Allowance::Percent(20);
/// Words of [`labels::REPAIR_MODE`].
const MODES: [&str; 3] = ["forceful", "graceful", "off"];

/// How an unhealthy node is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RepairMode {
    /// At once: its pods are deleted, volumes are not waited for. Karpenter's only way.
    #[default]
    Forceful,
    /// Its pods are evicted as at any drain.
    Graceful,
    /// Not at all.
    Off,
}

/// The rules of one pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepairRules {
    /// How.
    pub(super) mode: RepairMode,
    /// After how long, if the pool says so. # Units: milliseconds.
    pub(super) after_ms: Option<i64>,
    /// At how many unhealthy nodes at most.
    pub(super) limit: Allowance,
}

impl Default for RepairRules {
    fn default() -> Self {
        Self {
            mode: RepairMode::default(),
            after_ms: None,
            limit: LIMIT,
        }
    }
}

impl RepairRules {
    /// Reads a pool's annotations. What cannot be read counts as not said, and is returned as a fault.
    pub(super) fn of(pool: &NodePool) -> (Self, Vec<Reason>) {
        let (mut rules, mut faults) = (Self::default(), Vec::new());
        let annotation = |key: &str| {
            pool.metadata
                .annotations
                .as_ref()?
                .get(key)
                .map(String::as_str)
        };
        match annotation(labels::REPAIR_MODE) {
            None | Some("forceful") => {}
            Some("graceful") => rules.mode = RepairMode::Graceful,
            Some("off") => rules.mode = RepairMode::Off,
            Some(other) => {
                faults.push(Reason::InvalidAnnotation {
                    annotation: labels::REPAIR_MODE,
                    value: other.to_owned(),
                    must_be: "forceful, graceful or off",
                    did_you_mean: nearest(other, MODES),
                });
            }
        }
        if let Some(text) = annotation(labels::REPAIR_TOLERATION_DURATION) {
            match text.parse::<GoDuration>() {
                Ok(span) if span.as_nanos() >= 0 => {
                    rules.after_ms = Some(span.as_nanos() / 1_000_000)
                }
                _ => faults.push(Reason::InvalidAnnotation {
                    annotation: labels::REPAIR_TOLERATION_DURATION,
                    value: text.to_owned(),
                    must_be: "a duration such as 90s or 10m",
                    did_you_mean: None,
                }),
            }
        }
        if let Some(text) = annotation(labels::REPAIR_MAX_UNHEALTHY) {
            match Allowance::parse(text) {
                Ok(limit @ (Allowance::Nodes(0..) | Allowance::Percent(0..=100))) => {
                    rules.limit = limit
                }
                _ => faults.push(Reason::InvalidAnnotation {
                    annotation: labels::REPAIR_MAX_UNHEALTHY,
                    value: text.to_owned(),
                    must_be: "a number of nodes or a percentage from 0% to 100%",
                    did_you_mean: None,
                }),
            }
        }
        (rules, faults)
    }

    /// The limit as Karpenter writes it.
    pub(super) fn limit_text(&self) -> String {
        match self.limit {
            Allowance::Nodes(count) => count.to_string(),
            Allowance::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// A condition that is bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnhealthyCondition {
    /// The condition's type.
    pub(super) condition: &'static str,
    /// Its status.
    pub(super) status: &'static str,
    /// Since when.
    pub(super) since: Timestamp,
    /// When it has lasted too long.
    pub(super) due: Timestamp,
}

/// What of a node is bad: of several the one that is due first. A condition that does not say since when is not judged.
pub(super) fn ailment(
    node: &Node,
    policies: &[RepairPolicy],
    rules: &RepairRules,
) -> Option<UnhealthyCondition> {
    let bad = policies.iter().filter_map(|policy| {
        let condition = node.condition(policy.condition)?;
        if condition.status != policy.status {
            return None;
        }
        let since = condition.last_transition_time.as_ref()?.0;
        let toleration = rules
            .after_ms
            .unwrap_or_else(|| policy.toleration_seconds.saturating_mul(1_000));
        Some(UnhealthyCondition {
            condition: policy.condition,
            status: policy.status,
            since,
            due: after(since, toleration),
        })
    });
    bad.min_by_key(|each| (each.due, each.condition))
}
