//! Disruption: evaluations, commands, scores.

use std::time::Duration;

use mortise_apis::names::PoolName;
use mortise_engine::metric_event::MetricEvent;
use mortise_planning::disruption::command::CommandKind;
use mortise_state::snapshot::Snapshot;

use super::families::Buckets;
use super::labels;
use super::numbers::{as_i64, share};
use super::series::series;

/// An evaluation that takes this long was cut short.
const CUT_SHORT: Duration = Duration::from_secs(60);

series! {
    /// The families.
    DisruptionMetrics {
        decisions: always counter[labels::Decision; 20] "karpenter_voluntary_disruption_decisions" "Disruption decisions";
        evaluation: always histogram[labels::Evaluation; 2; Buckets::DURATIONS] "karpenter_voluntary_disruption_decision_evaluation_duration_seconds" "Duration of a disruption evaluation, by its last method";
        failed_validations: always counter[labels::Consolidation; 4] "karpenter_voluntary_disruption_failed_validations" "Disruption commands abandoned before their nodes were tainted";
        queue_failures: always counter[labels::Decision; 8] "karpenter_voluntary_disruption_queue_failures" "Disruption commands abandoned after their nodes were tainted";
        timeouts: always counter[labels::Consolidation; 2] "karpenter_voluntary_disruption_consolidation_timeouts" "Consolidation evaluations that timed out";
        eligible: always gauge[labels::ReasonOnly; 3] "karpenter_voluntary_disruption_eligible_nodes" "Nodes eligible for disruption at the last evaluation, regardless of budgets";
        decisions_of_pool: full counter[labels::DecisionOfPool; 0] "karpenter_voluntary_disruption_decisions_by_nodepool" "Disruption decisions by NodePool";
        moves: full counter[labels::Scored; 0] "karpenter_consolidation_moves" "Scored consolidations by decision";
        score: full histogram[labels::Scored; 0; Buckets::SCORES] "karpenter_consolidation_score" "Scores of consolidations";
    }
}

impl DisruptionMetrics {
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
                for pool in pools {
                    self.decisions_of_pool.count(&labels::DecisionOfPool {
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
            // Counted where the cloud is.
            MetricEvent::InstanceUnhealthy { .. } => {}
            MetricEvent::Scored {
                pool,
                approved,
                percent,
            } => {
                let labels = labels::Scored {
                    decision: if *approved { "approved" } else { "rejected" },
                    nodepool: pool.to_string(),
                    policy: consolidation_policy(snapshot, pool),
                };
                self.moves.count(&labels);
                self.score.observe(&labels, share(*percent));
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
