//! What only the cluster and the catalog can tell: one file per check, one row per file and kind.

mod architectures;
mod budgets;
mod buffer;
mod catalog;
mod class;
mod commitments;
mod contradiction;
mod deletion;
mod expiry;
mod limit_names;
mod min_values;
mod overlap;
mod overlay;
mod policy;
mod unevictable_pods;
mod unsatisfiable;
mod usage;

pub use unevictable_pods::why_never_allows;

use mortise_apis::karpenter::nodepool::NodePool;

use super::finding::Check;
use super::preview;
use super::review::{AdmissionRequest, AdmissionResult};
use super::{AdmissionContext, GroupVersionKind};

/// All checks that need more than the object, in the order of their warnings.
pub const CHECKS: &[AdmissionCheck] = &[
    on_pools(Check::NodeClass, class::run),
    on_pools(Check::NodeClass, contradiction::run),
    on_pools(Check::Limits, limit_names::run),
    on_pools(Check::Catalog, catalog::run),
    on_pools(Check::Unsatisfiable, unsatisfiable::run),
    on_pools(Check::Architectures, architectures::run),
    on_pools(Check::MinValues, min_values::run),
    on_pools(Check::Budgets, budgets::run),
    on_pools(Check::Limits, usage::run),
    on_pools(Check::Overlap, overlap::run),
    on_pools(Check::BlockedDrain, expiry::run),
    on_pools(Check::Preview, preview::preview_pool),
    AdmissionCheck {
        check: Check::Overlay,
        kinds: CheckedKinds::Named(&["NodeOverlay"]),
        run: CheckRun::Write(overlay::run),
    },
    AdmissionCheck {
        check: Check::Policy,
        kinds: CheckedKinds::Named(&["NodePoolPolicy"]),
        run: CheckRun::Write(policy::run),
    },
    AdmissionCheck {
        check: Check::Buffer,
        kinds: CheckedKinds::Named(&["CapacityBuffer"]),
        run: CheckRun::Write(buffer::run),
    },
    AdmissionCheck {
        check: Check::Preview,
        kinds: CheckedKinds::NodeClasses,
        run: CheckRun::Write(preview::preview_class),
    },
    AdmissionCheck {
        check: Check::Deletion,
        kinds: CheckedKinds::Named(&["NodePool", "NodeClaim"]),
        run: CheckRun::Deletion(deletion::run),
    },
    AdmissionCheck {
        check: Check::Deletion,
        kinds: CheckedKinds::NodeClasses,
        run: CheckRun::Deletion(deletion::run),
    },
];

/// One check: what it finds, in which objects, and how.
#[derive(Debug)]
pub struct AdmissionCheck {
    /// What it finds.
    pub check: Check,
    /// Kinds of the objects.
    pub kinds: CheckedKinds,
    run: CheckRun,
}

/// The kinds whose objects a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedKinds {
    /// These.
    Named(&'static [&'static str]),
    /// All node classes that are served.
    NodeClasses,
}

type RequestCheck = fn(&AdmissionContext<'_>, &AdmissionRequest, &mut AdmissionResult);
type PoolCheck = fn(&AdmissionContext<'_>, &PoolRequest<'_>, &mut AdmissionResult);

/// How a check is called.
#[derive(Clone, Copy, Debug)]
enum CheckRun {
    /// With a NodePool that is created or edited, parsed once for all checks.
    Pool(PoolCheck),
    /// With an object that is created or edited.
    Write(RequestCheck),
    /// With an object that is deleted.
    Deletion(RequestCheck),
}

/// A NodePool that is created or edited.
pub(in crate::admission) struct PoolRequest<'a> {
    pub(in crate::admission) request: &'a AdmissionRequest,
    pub(in crate::admission) pool: &'a NodePool,
    /// The NodePool before an update.
    pub(in crate::admission) before: Option<&'a NodePool>,
}

const fn on_pools(check: Check, run: PoolCheck) -> AdmissionCheck {
    AdmissionCheck {
        check,
        kinds: CheckedKinds::Named(&["NodePool"]),
        run: CheckRun::Pool(run),
    }
}

impl AdmissionCheck {
    /// Whether it is about deletions; the others are about objects that are created or edited.
    #[must_use]
    pub const fn is_of_deletions(&self) -> bool {
        matches!(self.run, CheckRun::Deletion(_))
    }
}

impl CheckedKinds {
    fn contains(self, context: &AdmissionContext<'_>, kind: &GroupVersionKind) -> bool {
        match self {
            Self::Named(kinds) => kinds.contains(&kind.kind.as_str()),
            Self::NodeClasses => {
                let mut served = context.rules.crds.kinds().iter();
                served.any(|each| each.group == kind.group && each.kind == kind.kind)
            }
        }
    }
}

/// Runs the checks of NodePools.
pub(super) fn check_pool(
    context: &AdmissionContext<'_>,
    request: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    for check in CHECKS {
        if let CheckRun::Pool(run) = check.run {
            run(context, request, answer);
        }
    }
}

/// Runs the checks of other objects that are created or edited.
pub(super) fn check_write(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    for check in CHECKS {
        if let CheckRun::Write(run) = check.run
            && check.kinds.contains(context, &request.kind)
        {
            run(context, request, answer);
        }
    }
}

/// Runs the checks of objects that are deleted.
pub(super) fn check_deletion(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    for check in CHECKS {
        if let CheckRun::Deletion(run) = check.run
            && check.kinds.contains(context, &request.kind)
        {
            run(context, request, answer);
        }
    }
}
