//! Disruption: looks, commands, scores.

use std::time::Duration;

use mortise_core::disruption::command::CommandKind;
use mortise_core::metric_event::MetricEvent;
use mortise_core::snapshot::Snapshot;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::detail::{SeriesLimit, TelemetryDetail};
use super::exposition::policy_of;
use super::observe::{as_i64, count};
use super::{
    Counters, Gauges, Histograms, Metrics, counters, duration_of, gauges, histograms, labels,
};

/// A look that takes as long as this was cut short.
const CUT_SHORT: Duration = Duration::from_secs(60);

/// The families.
#[derive(Debug)]
pub(super) struct DisruptionMetrics {
    decisions: Counters<labels::Decision>,
    evaluation: Histograms<labels::Evaluation>,
    failed_validations: Counters<labels::Consolidation>,
    queue_failures: Counters<labels::Decision>,
    timeouts: Counters<labels::Consolidation>,
    eligible: Gauges<labels::ReasonOnly>,
    /// Those with a series for each pool.
    of_pools: Option<PoolDisruptionSeries>,
}

#[derive(Debug)]
struct PoolDisruptionSeries {
    decisions: Counters<labels::DecisionOfPool>,
    moves: Counters<labels::Scored>,
    score: Histograms<labels::Scored>,
}

/// Upstream's bounds for scores.
fn scores() -> Histogram {
    Histogram::new([0.1, 0.25, 0.33, 0.5, 1.0, 2.0, 5.0, 10.0])
}

impl DisruptionMetrics {
    pub(super) fn register(registry: &mut Registry, ceiling: &SeriesLimit) -> Self {
        let (r, c) = (registry, ceiling);
        Self {
            decisions: counters(
                r,
                "karpenter_voluntary_disruption_decisions",
                "Disruption decisions",
                20,
                c,
            ),
            evaluation: histograms(
                r,
                "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
                "Duration of a disruption evaluation, by its last method",
                2,
                duration_of(c),
                c,
            ),
            failed_validations: counters(
                r,
                "karpenter_voluntary_disruption_failed_validations",
                "Disruption commands abandoned before their nodes were tainted",
                4,
                c,
            ),
            queue_failures: counters(
                r,
                "karpenter_voluntary_disruption_queue_failures",
                "Disruption commands abandoned after their nodes were tainted",
                8,
                c,
            ),
            timeouts: counters(
                r,
                "karpenter_voluntary_disruption_consolidation_timeouts",
                "Consolidation evaluations that timed out",
                2,
                c,
            ),
            eligible: gauges(
                r,
                "karpenter_voluntary_disruption_eligible_nodes",
                "Nodes eligible for disruption at the last evaluation, regardless of budgets",
                3,
                c,
            ),
            of_pools: (c.detail == TelemetryDetail::Full).then(|| PoolDisruptionSeries {
                decisions: counters(
                    r,
                    "karpenter_voluntary_disruption_decisions_by_nodepool",
                    "Disruption decisions by NodePool",
                    0,
                    c,
                ),
                moves: counters(
                    r,
                    "karpenter_consolidation_moves",
                    "Scored consolidations by decision",
                    0,
                    c,
                ),
                score: histograms(
                    r,
                    "karpenter_consolidation_score",
                    "Scores of consolidations",
                    0,
                    scores,
                    c,
                ),
            }),
        }
    }

    fn tally(&self, tally: &MetricEvent, snapshot: &Snapshot) {
        match tally {
            MetricEvent::Eligible { reason, nodes } => {
                let labels = labels::ReasonOnly { reason };
                self.eligible.with(&labels, |gauge| {
                    gauge.set(as_i64(*nodes));
                });
            }
            MetricEvent::Commanded { kind, pools } => {
                self.decisions.with(&decision(*kind), count);
                for pool in self.of_pools.iter().flat_map(|_| pools) {
                    let labels = labels::DecisionOfPool {
                        nodepool: pool.to_string(),
                        decision: kind.decision(),
                        reason: kind.reason,
                        consolidation_type: kind.consolidation_type,
                    };
                    let of_pools = self.of_pools.as_ref();
                    of_pools
                        .into_iter()
                        .for_each(|own| own.decisions.with(&labels, count));
                }
            }
            MetricEvent::FailedValidation(kind) => {
                let labels = labels::Consolidation {
                    consolidation_type: kind.consolidation_type,
                };
                self.failed_validations.with(&labels, count);
            }
            MetricEvent::QueueFailure(kind) => self.queue_failures.with(&decision(*kind), count),
            MetricEvent::Scored {
                pool,
                approved,
                percent,
            } => {
                let Some(own) = &self.of_pools else { return };
                let labels = labels::Scored {
                    decision: if *approved { "approved" } else { "rejected" },
                    nodepool: pool.to_string(),
                    policy: policy_of(snapshot, pool),
                };
                own.moves.with(&labels, count);
                own.score
                    .with(&labels, |histogram| histogram.observe(hundredths(*percent)));
            }
        }
    }
}

impl Metrics {
    /// Counts what one step of a decider, which took so long, tells.
    pub(crate) fn tallied(&self, tallies: &[MetricEvent], took: Duration, snapshot: &Snapshot) {
        let mut last = None;
        for tally in tallies {
            self.disruptions.tally(tally, snapshot);
            if let MetricEvent::Eligible { reason, .. } = tally {
                last = Some(*reason);
            }
        }
        let Some(reason) = last else { return };
        let labels = labels::Evaluation {
            reason,
            consolidation_type: "",
        };
        self.disruptions
            .evaluation
            .with(&labels, |histogram| histogram.observe(took.as_secs_f64()));
        if took >= CUT_SHORT && reason == "underutilized" {
            let labels = labels::Consolidation {
                consolidation_type: "multi",
            };
            self.disruptions.timeouts.with(&labels, count);
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

#[expect(clippy::cast_precision_loss, reason = "for display only")]
fn hundredths(percent: i64) -> f64 {
    percent as f64 / 100.0
}
