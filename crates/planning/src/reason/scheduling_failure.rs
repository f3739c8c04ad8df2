//! Why a pod is unschedulable, as Karpenter says it.

use std::fmt;

use super::{PoolBlocker, Reason};
use mortise_apis::names::PoolName;

/// Text where no NodePool is left to try.
const NO_POOLS: &str = "no dynamic nodepools found";

/// Text where the requirements of every NodePool leave no instance type.
const NO_TYPES: &str = "nodepool requirements filtered out all available instance types";

/// What Karpenter states of the reasons for which a pod is unschedulable. Equal ones have the same text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SchedulingFailure<'a> {
    /// The constraints of the NodePools that were tried.
    Tried(Vec<&'a str>),
    /// No NodePool could be tried, because none has an instance type.
    NoTypes,
    /// No NodePool could be tried, and why.
    Unusable(Vec<(&'a PoolName, &'a str)>),
    /// A reason that concerns no NodePool.
    Other(Option<&'a Reason>),
}

impl<'a> SchedulingFailure<'a> {
    /// What the reasons of one pod say.
    #[must_use]
    pub fn new(reasons: &'a [Reason]) -> Self {
        let (mut tried, mut unusable, mut has_types) = (Vec::new(), Vec::new(), false);
        for reason in reasons {
            let Reason::PoolRefused {
                pool,
                blocker,
                constraint,
                is_tried,
                ..
            } = reason
            else {
                continue;
            };
            if *is_tried {
                tried.push(constraint.as_str());
            } else {
                has_types |= !matches!(blocker, PoolBlocker::NoTypes | PoolBlocker::MinValues);
                unusable.push((pool, constraint.as_str()));
            }
        }
        match (tried.is_empty(), unusable.is_empty()) {
            (false, _) => Self::Tried(tried),
            (true, false) if has_types => Self::Unusable(unusable),
            (true, false) => Self::NoTypes,
            (true, true) => Self::Other(reasons.first()),
        }
    }
}

impl fmt::Display for SchedulingFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tried(constraints) => f.write_str(&constraints.join("; ")),
            Self::NoTypes => f.write_str(NO_TYPES),
            Self::Unusable(pools) => {
                let each = pools.iter();
                let each = each.map(|(pool, why)| format!("{why} (NodePool={pool})"));
                f.write_str(&each.collect::<Vec<_>>().join("; "))
            }
            Self::Other(None | Some(Reason::NoPools)) => f.write_str(NO_POOLS),
            Self::Other(Some(reason)) => reason.fmt(f),
        }
    }
}
