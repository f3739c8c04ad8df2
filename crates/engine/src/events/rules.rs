//! The events that are sent: for each reason its type, the objects that it appears on, how long it is not repeated, and how
//! its text begins.
//!
//! Alerts and dashboards match on these, so they are Karpenter's where it has them (`docs/reference/events.md` lists all). Tests
//! compare every event of every story with this table.
//!
//! Implements karpenter-core 8.2.

use crate::effect::Event;

/// The events of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Reason.
    pub reason: &'static str,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// Kinds of objects that it appears on; empty for node classes, whose kind is the provider's.
    pub on: &'static [&'static str],
    /// The same event is not sent again for so long, in seconds.
    pub every_s: i64,
    /// How its text begins.
    pub begins: &'static str,
}

/// How the text of an event about a condition begins. Its reason is the type of the condition.
pub(super) const TRANSITION: &str = "Status condition transitioned, Type: ";

const POD: &[&str] = &["Pod"];
const NODE: &[&str] = &["Node"];
const CLAIM: &[&str] = &["NodeClaim"];
const POOL: &[&str] = &["NodePool"];
const BOTH: &[&str] = &["Node", "NodeClaim"];
const ALL: &[&str] = &["Node", "NodeClaim", "NodePool"];
const CONDITIONED: &[&str] = &["Node", "NodeClaim", "NodePool", "CapacityBuffer"];
const CLASS: &[&str] = &[];

/// Two minutes: Karpenter's default.
const USUAL: i64 = 120;

const fn normal(
    reason: &'static str,
    on: &'static [&'static str],
    every_s: i64,
    begins: &'static str,
) -> EventRule {
    EventRule {
        reason,
        warning: false,
        on,
        every_s,
        begins,
    }
}

const fn warning(
    reason: &'static str,
    on: &'static [&'static str],
    every_s: i64,
    begins: &'static str,
) -> EventRule {
    EventRule {
        warning: true,
        ..normal(reason, on, every_s, begins)
    }
}

pub(super) const FAILED_SCHEDULING: EventRule =
    warning("FailedScheduling", POD, 300, "Failed to schedule pod, ");
pub(super) const NOMINATED: EventRule = normal("Nominated", POD, USUAL, "Pod should schedule on: ");
pub(super) const NO_COMPATIBLE_INSTANCE_TYPES: EventRule = warning(
    "NoCompatibleInstanceTypes",
    POOL,
    60,
    "NodePool requirements filtered out all compatible available instance types",
);
pub(super) const DISRUPTION_BLOCKED: EventRule = normal("DisruptionBlocked", BOTH, USUAL, "");
pub(super) const NO_BUDGET: EventRule = normal(
    "DisruptionBlocked",
    POOL,
    60,
    "No allowed disruptions for disruption reason ",
);
pub(super) const DISRUPTION_LAUNCHING: EventRule =
    normal("DisruptionLaunching", CLAIM, USUAL, "Launching NodeClaim: ");
pub(super) const DISRUPTION_WAITING_READINESS: EventRule = normal(
    "DisruptionWaitingReadiness",
    CLAIM,
    USUAL,
    "Waiting on readiness to continue disruption",
);
pub(super) const DISRUPTION_TERMINATING: EventRule =
    normal("DisruptionTerminating", BOTH, USUAL, "Disrupting Node");
pub(super) const UNCONSOLIDATABLE: EventRule = normal("Unconsolidatable", BOTH, 900, "");
pub(super) const CONSOLIDATION_CANDIDATE: EventRule = normal(
    "ConsolidationCandidate",
    BOTH,
    USUAL,
    "Consolidation candidate: ",
);
pub(super) const CONSOLIDATION_REJECTED: EventRule = normal(
    "ConsolidationRejected",
    BOTH,
    USUAL,
    "Consolidation rejected: ",
);
pub(super) const CONSOLIDATION_APPROVED: EventRule =
    normal("ConsolidationApproved", ALL, USUAL, "");
pub(super) const EVICTED: EventRule = normal("Evicted", POD, USUAL, "Evicted pod: ");
pub(super) const HANDED_OVER: EventRule = normal(
    "HandedOver",
    POD,
    USUAL,
    "Restarting the deployment instead of evicting the pod: ",
);
pub(super) const DISRUPTED: EventRule = normal(
    "Disrupted",
    POD,
    USUAL,
    "Deleting the pod to accommodate the terminationTimestamp: ",
);
pub(super) const FAILED_DRAINING: EventRule =
    warning("FailedDraining", BOTH, USUAL, "Failed to drain node, ");
pub(super) const AWAITING_VOLUME_DETACHMENT: EventRule = normal(
    "AwaitingVolumeDetachment",
    NODE,
    USUAL,
    "Awaiting deletion of bound volumeattachments ",
);
pub(super) const TERMINATION_GRACE_PERIOD_EXPIRING: EventRule = warning(
    "TerminationGracePeriodExpiring",
    BOTH,
    USUAL,
    "All pods will be deleted by ",
);
pub(super) const NODE_REPAIR_BLOCKED: EventRule = warning("NodeRepairBlocked", ALL, 900, "more th");
pub(super) const INSUFFICIENT_CAPACITY_ERROR: EventRule =
    warning("InsufficientCapacityError", CLAIM, USUAL, "NodeClaim ");
pub(super) const UNREGISTERED_TAINT_MISSING: EventRule =
    warning("UnregisteredTaintMissing", CLAIM, USUAL, "");
pub(super) const FAILED_CONSISTENCY_CHECK: EventRule =
    warning("FailedConsistencyCheck", CLAIM, USUAL, "expected ");
pub(super) const INVALID_DO_NOT_DISRUPT_ANNOTATION: EventRule =
    warning("InvalidDoNotDisruptAnnotation", POD, USUAL, "");
pub(super) const DO_NOT_DISRUPT_UNTIL: EventRule = normal("DoNotDisruptUntil", POD, USUAL, "");
pub(super) const DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED: EventRule =
    normal("DoNotDisruptGracePeriodElapsed", POD, USUAL, "");
pub(super) const FINALIZED: EventRule = normal("Finalized", CONDITIONED, USUAL, "Finalized ");
pub(super) const FAILED_TERMINATION: EventRule = warning("FailedTermination", BOTH, USUAL, "");
pub(super) const SPOT_INTERRUPTED: EventRule = warning("SpotInterrupted", BOTH, USUAL, "");
pub(super) const SPOT_REBALANCE_RECOMMENDATION: EventRule =
    normal("SpotRebalanceRecommendation", BOTH, USUAL, "");
pub(super) const INSTANCE_STOPPING: EventRule = warning("InstanceStopping", BOTH, USUAL, "");
pub(super) const INSTANCE_TERMINATING: EventRule = warning("InstanceTerminating", BOTH, USUAL, "");
pub(super) const INSTANCE_UNHEALTHY: EventRule = warning("InstanceUnhealthy", BOTH, USUAL, "");
pub(super) const CAPACITY_RESERVATION_INSTANCE_INTERRUPTED: EventRule =
    warning("CapacityReservationInstanceInterrupted", BOTH, USUAL, "");
pub(super) const CAPACITY_BLOCK_EXPIRING: EventRule =
    warning("CapacityBlockExpiring", BOTH, USUAL, "");
pub(super) const TERMINATING_ON_INTERRUPTION: EventRule =
    warning("TerminatingOnInterruption", BOTH, USUAL, "");
pub(super) const WAITING_ON_NODE_CLAIM_TERMINATION: EventRule = normal(
    "WaitingOnNodeClaimTermination",
    CLASS,
    USUAL,
    "Waiting on NodeClaim termination for ",
);
pub(super) const VOLUME_DETACHMENT_BLOCKED: EventRule = warning(
    "AwaitingVolumeDetachment",
    BOTH,
    USUAL,
    "Awaiting volume detachment, ",
);
pub(super) const LAUNCHES_PAUSED: EventRule = warning("LaunchesPaused", POOL, USUAL, "");
pub(super) const LAUNCHES_RESUMED: EventRule = normal("LaunchesPaused", POOL, USUAL, "");
pub(super) const STATIC_CAPACITY_SHORT: EventRule = warning("StaticCapacityShort", POOL, 300, "");
pub(super) const INVALID_REPAIR_SETTING: EventRule =
    warning("InvalidRepairSetting", POOL, USUAL, "");
pub(super) const INVALID_INTERRUPTION_SETTING: EventRule =
    warning("InvalidInterruptionSetting", POOL, USUAL, "");
pub(super) const PREREQUISITE_MISSING: EventRule =
    warning("PrerequisiteMissing", &["NodeClaim", "NodePool"], USUAL, "");
pub(super) const UNDECLARED_STARTUP_TAINT: EventRule = warning(
    "UndeclaredStartupTaint",
    POOL,
    USUAL,
    "Nodes join with taint ",
);
pub(super) const ZONAL_SHIFT_ACTIVE: EventRule = warning("ZonalShiftActive", POOL, USUAL, "zone ");
pub(super) const ZONAL_SHIFT_CLEARED: EventRule = normal("ZonalShiftCleared", POOL, USUAL, "zone ");

/// Changes of conditions; the reason is the type of the condition.
pub(super) const CONDITION: EventRule = normal("", CONDITIONED, USUAL, TRANSITION);

/// Every reason but the types of conditions. A reason with two types or texts has two rows.
pub const RULES: &[EventRule] = &[
    FAILED_SCHEDULING,
    NOMINATED,
    NO_COMPATIBLE_INSTANCE_TYPES,
    DISRUPTION_BLOCKED,
    NO_BUDGET,
    DISRUPTION_LAUNCHING,
    DISRUPTION_WAITING_READINESS,
    DISRUPTION_TERMINATING,
    UNCONSOLIDATABLE,
    CONSOLIDATION_CANDIDATE,
    CONSOLIDATION_REJECTED,
    CONSOLIDATION_APPROVED,
    EVICTED,
    HANDED_OVER,
    DISRUPTED,
    FAILED_DRAINING,
    AWAITING_VOLUME_DETACHMENT,
    TERMINATION_GRACE_PERIOD_EXPIRING,
    NODE_REPAIR_BLOCKED,
    INSUFFICIENT_CAPACITY_ERROR,
    UNREGISTERED_TAINT_MISSING,
    FAILED_CONSISTENCY_CHECK,
    INVALID_DO_NOT_DISRUPT_ANNOTATION,
    DO_NOT_DISRUPT_UNTIL,
    DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED,
    FINALIZED,
    FAILED_TERMINATION,
    SPOT_INTERRUPTED,
    SPOT_REBALANCE_RECOMMENDATION,
    INSTANCE_STOPPING,
    INSTANCE_TERMINATING,
    INSTANCE_UNHEALTHY,
    CAPACITY_RESERVATION_INSTANCE_INTERRUPTED,
    CAPACITY_BLOCK_EXPIRING,
    TERMINATING_ON_INTERRUPTION,
    WAITING_ON_NODE_CLAIM_TERMINATION,
    VOLUME_DETACHMENT_BLOCKED,
    LAUNCHES_PAUSED,
    LAUNCHES_RESUMED,
    STATIC_CAPACITY_SHORT,
    INVALID_REPAIR_SETTING,
    INVALID_INTERRUPTION_SETTING,
    PREREQUISITE_MISSING,
    UNDECLARED_STARTUP_TAINT,
    ZONAL_SHIFT_ACTIVE,
    ZONAL_SHIFT_CLEARED,
];

/// What is wrong with an event by this table; `None` when nothing is.
#[must_use]
pub fn fault(event: &Event) -> Option<String> {
    let kind = event.target.kind();
    let about = || format!("{} on a {kind}: {:?}", event.reason, event.message);
    if event.message.starts_with(TRANSITION) {
        let named = format!("{TRANSITION}{}, Status: ", event.reason);
        let is_right =
            !event.warning && CONDITIONED.contains(&kind) && event.message.starts_with(&named);
        return (!is_right).then(|| format!("{} is no event of a condition", about()));
    }
    let fits = |rule: &EventRule| {
        let on = if rule.on.is_empty() {
            !POD.contains(&kind) && !CONDITIONED.contains(&kind)
        } else {
            rule.on.contains(&kind)
        };
        rule.reason == event.reason
            && on
            && rule.warning == event.warning
            && rule.every_s * 1_000 == event.dedupe_ms
            && event.message.starts_with(rule.begins)
    };
    let known = RULES.iter().any(fits);
    (!known).then(|| {
        let type_ = if event.warning { "Warning" } else { "Normal" };
        format!(
            "{} is not in the table as {type_}, every {} ms",
            about(),
            event.dedupe_ms
        )
    })
}
