//! What a scenario came to, and how two of them differ.

use std::collections::BTreeMap;

use mortise_sim::{NodeClaimStage, NodeClaimStep};

/// Times closer than this have no order.
const SAME_MS: i64 = 1_000;

/// Where everything is, at rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Placement {
    /// Nodes by NodePool, instance type and capacity type.
    pub(super) nodes: BTreeMap<[String; 3], usize>,
    /// Pods by the NodePool of their node.
    pub(super) pods: BTreeMap<String, u64>,
    /// Pods without a node.
    pub(super) waiting: u64,
    /// Nodes per zone by NodePool, in ascending order, because zones are equal; empty where zones are free.
    pub(super) zones: BTreeMap<String, Vec<usize>>,
}

impl Placement {
    /// Where these nodes are: NodePool, instance type and capacity type, zone, pods. `has_zones`: zones are compared.
    pub(super) fn new(
        nodes: impl Iterator<Item = ([String; 3], String, u64)>,
        waiting: u64,
        has_zones: bool,
    ) -> Self {
        let mut placement = Self {
            waiting,
            ..Self::default()
        };
        let mut zones: BTreeMap<(String, String), usize> = BTreeMap::new();
        for (kind, zone, pods) in nodes {
            let [pool, ..] = &kind;
            *placement.pods.entry(pool.clone()).or_default() += pods;
            if has_zones {
                *zones.entry((pool.clone(), zone)).or_default() += 1;
            }
            *placement.nodes.entry(kind).or_default() += 1;
        }
        for ((pool, _), count) in zones {
            placement.zones.entry(pool).or_default().push(count);
        }
        placement
            .zones
            .values_mut()
            .for_each(|counts| counts.sort_unstable());
        placement
    }
}

/// A part of a scenario that ends before an entry of the timeline, or with the scenario.
#[derive(Clone, Debug)]
pub(super) struct Act {
    /// The entry that it began with.
    pub(super) begins: String,
    /// What became of NodeClaims, in order.
    pub(super) steps: Vec<NodeClaimStep>,
    /// Where everything was at its end.
    pub(super) end: Placement,
}

/// A scenario that was played.
pub(super) type Outcome = Vec<Act>;

/// What happened to NodeClaims of a NodePool.
type Kind = (String, NodeClaimStage, Option<String>);

/// Reasons of consolidation: whether the last pod has left a node or is moved decides between them.
const CONSOLIDATION: [&str; 2] = ["Empty", "Underutilized"];

/// How the real cluster differs from the simulated one, in words.
pub(super) fn differences(simulated: &Outcome, real: &Outcome) -> Vec<String> {
    let mut found = Vec::new();
    for (wanted, act) in simulated.iter().zip(real) {
        let begins = &wanted.begins;
        if wanted.end != act.end {
            found.push(format!(
                "after {begins}: simulated {:?}, real {:?}",
                wanted.end, act.end
            ));
        }
        let (wanted, act) = (kinds(&wanted.steps), kinds(&act.steps));
        let count =
            |all: &BTreeMap<Kind, (usize, i64)>, kind| all.get(kind).map_or(0, |(count, _)| *count);
        for kind in wanted
            .keys()
            .chain(act.keys().filter(|kind| !wanted.contains_key(*kind)))
        {
            let (one, other) = (count(&wanted, kind), count(&act, kind));
            if one != other {
                found.push(format!(
                    "after {begins}: {kind:?} {one} times simulated, {other} times real"
                ));
            }
        }
        found.extend(swapped(begins, &wanted, &act));
    }
    if simulated.len() != real.len() {
        found.push(format!(
            "{} acts simulated, {} real",
            simulated.len(),
            real.len()
        ));
    }
    found
}

/// How often each thing happened, and when first, in milliseconds. A disruption that is withdrawn does not count.
fn kinds(steps: &[NodeClaimStep]) -> BTreeMap<Kind, (usize, i64)> {
    let mut kinds: BTreeMap<Kind, (usize, i64)> = BTreeMap::new();
    let is_deleted = |step: &NodeClaimStep| {
        steps.iter().any(|other| {
            other.node_claim == step.node_claim && other.stage == NodeClaimStage::Deleting
        })
    };
    for step in steps {
        if step.stage == NodeClaimStage::Disrupted && !is_deleted(step) {
            continue;
        }
        let reason = step.reason.as_deref().map(|reason| {
            let is_consolidation = CONSOLIDATION.contains(&reason);
            if is_consolidation {
                CONSOLIDATION.join(" or ")
            } else {
                reason.to_owned()
            }
        });
        let kind = (step.node_pool.clone(), step.stage, reason);
        let (count, _) = kinds.entry(kind).or_insert((0, step.at.as_millisecond()));
        *count += 1;
    }
    kinds
}

/// Pairs of a NodePool that came in another order for the first time. A simulated node takes longer to join than one of kwok: that
/// others had gone before it joined is no order.
fn swapped(
    begins: &str,
    simulated: &BTreeMap<Kind, (usize, i64)>,
    real: &BTreeMap<Kind, (usize, i64)>,
) -> Vec<String> {
    let mut found = Vec::new();
    for (first, (_, first_at)) in simulated {
        for (second, (_, second_at)) in simulated {
            let (Some((_, a)), Some((_, b))) = (real.get(first), real.get(second)) else {
                continue;
            };
            let joins = [NodeClaimStage::Registered, NodeClaimStage::Initialized];
            let is_boot = joins.contains(&second.1) && first.1 >= NodeClaimStage::Disrupted;
            if first.0 != second.0 || is_boot {
                continue;
            }
            if first_at + SAME_MS < *second_at && b + SAME_MS < *a {
                found.push(format!(
                    "after {begins}: {first:?} before {second:?} simulated, after it real"
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn step(ms: i64, stage: NodeClaimStage) -> NodeClaimStep {
        NodeClaimStep {
            at: Timestamp::from_millisecond(ms).unwrap_or_default(),
            node_pool: "p".to_owned(),
            node_claim: format!("p-{ms}"),
            stage,
            reason: None,
        }
    }

    fn act(steps: &[(i64, NodeClaimStage)], waiting: u64) -> Outcome {
        vec![Act {
            begins: "the start".to_owned(),
            steps: steps.iter().map(|(ms, stage)| step(*ms, *stage)).collect(),
            end: Placement {
                waiting,
                ..Placement::default()
            },
        }]
    }

    #[test]
    fn differences_are_found() {
        use NodeClaimStage::{Created, Deleting, Disrupted};
        let wanted = act(&[(0, Created), (5_000, Deleting)], 0);
        for (found, words) in [
            (act(&[(9_000, Created), (9_000, Deleting)], 0), None),
            (act(&[(1_000, Created), (0, Deleting)], 0), None),
            (act(&[(2_000, Created), (0, Deleting)], 0), Some("before")),
            (
                act(&[(0, Created), (1, Created), (2, Deleting)], 0),
                Some("1 times simulated, 2 times real"),
            ),
            (
                act(&[(0, Created)], 0),
                Some("1 times simulated, 0 times real"),
            ),
            (
                act(&[(0, Created), (9, Disrupted), (9_000, Deleting)], 0),
                None,
            ),
            (act(&[(0, Created), (1, Deleting)], 1), Some("waiting: 1")),
            (Vec::new(), Some("1 acts simulated, 0 real")),
        ] {
            let differences = differences(&wanted, &found);
            assert_eq!(
                differences.len(),
                usize::from(words.is_some()),
                "{differences:?}"
            );
            assert!(
                differences
                    .iter()
                    .all(|each| words.is_some_and(|words| each.contains(words))),
                "{differences:?}"
            );
        }
    }
}
