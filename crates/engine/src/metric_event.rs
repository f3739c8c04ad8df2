//! Facts that are only counted: what a decider evaluated and what became of its commands, for metrics that no single
//! decision can give. Words are Karpenter's label values.

use mortise_apis::names::PoolName;
use mortise_planning::disruption::command::CommandKind;

/// One thing to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricEvent {
    /// Nodes that could be disrupted for a reason (`empty`, `drifted`, `underutilized`), in a search that came so far.
    Eligible {
        /// The reason.
        reason: &'static str,
        /// How many.
        nodes: usize,
    },
    /// A command is executed.
    Commanded {
        /// What it does.
        kind: CommandKind,
        /// Pools of its nodes, each once. Sorted.
        pools: Vec<PoolName>,
    },
    /// A command was abandoned before anything was done.
    FailedValidation(CommandKind),
    /// A command was abandoned after its nodes were marked.
    QueueFailure(CommandKind),
    /// A status of an instance has become bad.
    InstanceUnhealthy {
        /// Which one: Karpenter's `category`.
        category: &'static str,
    },
    /// A move was scored for a pool with the policy `Balanced`.
    Scored {
        /// The pool.
        pool: PoolName,
        /// Whether it is worth it.
        approved: bool,
        /// The score, in hundredths.
        percent: i64,
    },
}
