//! The events that are told: for each reason its type, the objects that it is told on, how long it is not repeated, and how
//! its text begins.
//!
//! Alerts and dashboards match on these, so they are Karpenter's where it has them (`docs/reference/events.md` lists all). Tests
//! hold every event that any story tells against this table.
//!
//! Implements karpenter-core 8.2.

use crate::effect::Event;

/// How one reason is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Reason.
    pub reason: &'static str,
    /// `Warning` instead of `Normal`.
    pub warning: bool,
    /// Kinds of objects that it is told on; empty for node classes, whose kind is the provider's.
    pub on: &'static [&'static str],
    /// The same event is not told again for so long, in seconds.
    pub every_s: i64,
    /// How its text begins.
    pub begins: &'static str,
}

/// How the text of an event about a condition begins. Its reason is the type of the condition.
pub const TRANSITION: &str = "Status condition transitioned, Type: ";

/// Reason of the event about an object that has come to its end.
pub const FINALIZED: &str = "Finalized";

const POD: &[&str] = &["Pod"];
const NODE: &[&str] = &["Node"];
const CLAIM: &[&str] = &["NodeClaim"];
const POOL: &[&str] = &["NodePool"];
const BOTH: &[&str] = &["Node", "NodeClaim"];
const ALL: &[&str] = &["Node", "NodeClaim", "NodePool"];
const CLASS: &[&str] = &[];

/// Two minutes: upstream's default.
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

/// Every reason but the types of conditions. A reason that is told in two ways has two rows.
pub const RULES: &[EventRule] = &[
    warning("FailedScheduling", POD, 300, "Failed to schedule pod, "),
    normal("Nominated", POD, USUAL, "Pod should schedule on: "),
    warning(
        "NoCompatibleInstanceTypes",
        POOL,
        60,
        "NodePool requirements filtered out all compatible available instance types",
    ),
    normal("DisruptionBlocked", BOTH, USUAL, ""),
    normal(
        "DisruptionBlocked",
        POOL,
        60,
        "No allowed disruptions for disruption reason ",
    ),
    normal("DisruptionLaunching", CLAIM, USUAL, "Launching NodeClaim: "),
    normal(
        "DisruptionWaitingReadiness",
        CLAIM,
        USUAL,
        "Waiting on readiness to continue disruption",
    ),
    normal("DisruptionTerminating", BOTH, USUAL, "Disrupting Node"),
    normal("Unconsolidatable", BOTH, 900, ""),
    normal(
        "ConsolidationCandidate",
        BOTH,
        USUAL,
        "Consolidation candidate: ",
    ),
    normal(
        "ConsolidationRejected",
        BOTH,
        USUAL,
        "Consolidation rejected: ",
    ),
    normal("ConsolidationApproved", ALL, USUAL, ""),
    normal("Evicted", POD, USUAL, "Evicted pod: "),
    normal(
        "Disrupted",
        POD,
        USUAL,
        "Deleting the pod to accommodate the terminationTimestamp: ",
    ),
    warning("FailedDraining", BOTH, USUAL, "Failed to drain node, "),
    normal(
        "AwaitingVolumeDetachment",
        NODE,
        USUAL,
        "Awaiting deletion of bound volumeattachments ",
    ),
    warning(
        "TerminationGracePeriodExpiring",
        BOTH,
        USUAL,
        "All pods will be deleted by ",
    ),
    warning("NodeRepairBlocked", ALL, 900, "more th"),
    warning("InsufficientCapacityError", CLAIM, USUAL, "NodeClaim "),
    warning("UnregisteredTaintMissing", CLAIM, USUAL, ""),
    warning("FailedConsistencyCheck", CLAIM, USUAL, "expected "),
    warning("InvalidDoNotDisruptAnnotation", POD, USUAL, ""),
    normal("DoNotDisruptUntil", POD, USUAL, ""),
    normal("DoNotDisruptGracePeriodElapsed", POD, USUAL, ""),
    normal(FINALIZED, ALL, USUAL, "Finalized "),
    warning("FailedTermination", BOTH, USUAL, ""),
    // Of the cloud's notices.
    warning("SpotInterrupted", BOTH, USUAL, ""),
    normal("SpotRebalanceRecommendation", BOTH, USUAL, ""),
    warning("InstanceStopping", BOTH, USUAL, ""),
    warning("InstanceTerminating", BOTH, USUAL, ""),
    warning("InstanceUnhealthy", BOTH, USUAL, ""),
    warning("TerminatingOnInterruption", BOTH, USUAL, ""),
    normal(
        "WaitingOnNodeClaimTermination",
        CLASS,
        USUAL,
        "Waiting on NodeClaim termination for ",
    ),
    // Our own.
    warning(
        "AwaitingVolumeDetachment",
        BOTH,
        USUAL,
        "Awaiting volume detachment, ",
    ),
    warning("LaunchesPaused", POOL, USUAL, ""),
    normal("LaunchesPaused", POOL, USUAL, ""),
    warning("StaticCapacityShort", POOL, 300, ""),
    warning("InvalidRepairSetting", POOL, USUAL, ""),
];

/// What is wrong with an event by this table; `None` when nothing is.
#[must_use]
pub fn fault(event: &Event) -> Option<String> {
    let kind = event.target.kind();
    let about = || format!("{} on a {kind}: {:?}", event.reason, event.message);
    if event.message.starts_with(TRANSITION) {
        let named = format!("{TRANSITION}{}, Status: ", event.reason);
        let is_right = !event.warning && ALL.contains(&kind) && event.message.starts_with(&named);
        return (!is_right).then(|| format!("{} is no event of a condition", about()));
    }
    let fits = |rule: &EventRule| {
        let on = if rule.on.is_empty() {
            !POD.contains(&kind) && !ALL.contains(&kind)
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
