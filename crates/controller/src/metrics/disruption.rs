//! Disruption: evaluations, commands, scores.

use std::time::Duration;

use mortise_apis::names::PoolName;
use mortise_engine::metric_event::MetricEvent;
use mortise_planning::disruption::command::CommandKind;
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::histogram::Histogram;

use super::bounded::{Counters, Gauges, Histograms};
use super::families::Families;
use super::labels;
use super::numbers::{as_i64, share};

/// An evaluation that takes this long was cut short.
const CUT_SHORT: Duration = Duration::from_secs(60);

/// The families.
#[derive(Debug)]
pub(crate) struct DisruptionMetrics {
    decisions: Counters<labels::Decision>,
    evaluation: Histograms<labels::Evaluation>,
    failed_validations: Counters<labels::Consolidation>,
    queue_failures: Counters<labels::Decision>,
    timeouts: Counters<labels::Consolidation>,
    eligible: Gauges<labels::ReasonOnly>,
    /// Metrics with a series for each NodePool.
    of_pools: Option<PoolDisruptionSeries>,
}

#[derive(Debug)]
struct PoolDisruptionSeries {
    decisions: Counters<labels::DecisionOfPool>,
    moves: Counters<labels::Scored>,
    score: Histograms<labels::Scored>,
}

/// Karpenter's buckets for scores.
fn scores() -> Histogram {
    Histogram::new([0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0])
}

impl DisruptionMetrics {
    pub(super) fn register(families: &mut Families<'_>) -> Self {
        let durations = families.durations();
        Self {
            decisions: families.counters(
                "karpenter_voluntary_disruption_decisions",
                "Disruption decisions",
                20,
            ),
            evaluation: families.histograms(
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of a disruption evaluation, by its last method",
                2,
                durations,
            ),
            failed_validations: families.counters(
                "karpenter_voluntary_disruption_failed_validations",
                "Disruption commands abandoned before their nodes were tainted",
                4,
            ),
            queue_failures: families.counters(
                "karpenter_voluntary_disruption_queue_failures",
                "Disruption commands abandoned after their nodes were tainted",
                8,
            ),
            timeouts: families.counters(
                "karpenter_voluntary_disruption_consolidation_timeouts",
                "Consolidation evaluations that timed out",
                2,
            ),
            eligible: families.gauges(
                "karpenter_voluntary_disruption_eligible_nodes",
                "Nodes eligible for disruption at the last evaluation, regardless of budgets",
                3,
            ),
            of_pools: families.is_full().then(|| PoolDisruptionSeries {
                decisions: families.counters(
                    "karpenter_voluntary_disruption_decisions_by_nodepool",
                    "Disruption decisions by NodePool",
                    0,
                ),
                moves: families.counters(
                    "karpenter_consolidation_moves",
                    "Scored consolidations by decision",
                    0,
                ),
                score: families.histograms(
                    "karpenter_consolidation_score",
                    "Scores of consolidations",
                    0,
                    scores,
                ),
            }),
        }
    }

    /// Records the tallies of one step with this duration.
    pub(crate) fn tallied(&self, tallies: &[MetricEvent], took: Duration, snapshot: &Snapshot) {
        let mut last = None;
        for tally in tallies {
            self.tally(tally, snapshot);
            if let MetricEvent::Eligible { reason, .. } = tally {
                last = Some(*reason);
            }
        }
        let Some(reason) = last else { return };
        let labels = labels::Evaluation {
            reason,
            consolidation_type: "",
        };
        self.evaluation.observe(&labels, took.as_secs_f64());
        if took >= CUT_SHORT && reason == "underutilized" {
            self.timeouts.count(&labels::Consolidation {
                consolidation_type: "multi",
            });
        }
    }

    fn tally(&self, tally: &MetricEvent, snapshot: &Snapshot) {
        match tally {
            MetricEvent::Eligible { reason, nodes } => {
                let labels = labels::ReasonOnly { reason };
                self.eligible.set(&labels, as_i64(*nodes));
            }
            MetricEvent::Commanded { kind, pools } => {
                self.decisions.count(&decision(*kind));
                let Some(own) = &self.of_pools else { return };
                for pool in pools {
                    own.decisions.count(&labels::DecisionOfPool {
                        nodepool: pool.to_string(),
                        decision: kind.decision(),
                        reason: kind.reason,
                        consolidation_type: kind.consolidation_type,
                    });
                }
            }
            MetricEvent::FailedValidation(kind) => {
                self.failed_validations.count(&labels::Consolidation {
                    consolidation_type: kind.consolidation_type,
                });
            }
            MetricEvent::QueueFailure(kind) => self.queue_failures.count(&decision(*kind)),
            MetricEvent::Scored {
                pool,
                approved,
                percent,
            } => {
                let Some(own) = &self.of_pools else { return };
                let labels = labels::Scored {
                    decision: if *approved { "approved" } else { "rejected" },
                    nodepool: pool.to_string(),
                    policy: consolidation_policy(snapshot, pool),
                };
                own.moves.count(&labels);
                own.score.observe(&labels, share(*percent));
            }
        }
    }
}

const fn decision(kind: CommandKind) -> labels::Decision {
    labels::Decision {
        decision: kind.decision(),
        reason: kind.reason,
        consolidation_type: kind.consolidation_type,
    }
}

/// The consolidation policy of a NodePool as a metric label, such as `when_empty`; empty for a deleted NodePool.
pub(super) fn consolidation_policy(snapshot: &Snapshot, pool: &PoolName) -> String {
    let pool = snapshot.pools.get(pool);
    let disruption = pool.and_then(|pool| pool.spec.disruption.as_ref());
    let Some(policy) = disruption.and_then(|each| each.consolidation_policy.as_deref()) else {
        return String::new();
    };
    let mut text = String::with_capacity(policy.len() + 4);
    for each in policy.chars() {
        if each.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(each.to_ascii_lowercase());
    }
    text
}
