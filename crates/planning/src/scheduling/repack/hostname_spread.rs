//! Topology spread by hostname, as a limit on the pods that share a bin.

use std::collections::BTreeMap;

use super::greedy_fill::HostnameSpreadLimit;
use super::view::RepackView;
use crate::scheduling::topology::TopologyType;

/// The distinct limits of the pods of a pass.
#[derive(Default)]
pub(super) struct HostnameSpreadLimits {
    /// The distinct limits, in the order in which they were found.
    pub(super) distinct: Vec<HostnameSpreadLimit>,
    /// By class and relaxation step: the limit, or `None` if the pod must not move.
    known: BTreeMap<(usize, usize), Option<usize>>,
}

impl HostnameSpreadLimits {
    /// The limit of a pod that may be in any bin of its template; `None` when the pod must not move.
    pub(super) fn intern(&mut self, view: &RepackView<'_, '_>, pod: usize) -> Option<usize> {
        let key = view.class_and_step(pod);
        let Self { distinct, known } = self;
        *known.entry(key).or_insert_with(|| {
            let class = &view.classes[key.0];
            let step = &class.steps[key.1];
            let all = step.owned.iter().chain(&class.counted_in);
            let all = all
                .chain(&class.anti_affinity_groups)
                .chain(&class.inverse_groups);
            let is_tied = all.into_iter().any(|group| {
                let kind = &view.topology.groups[*group].statement.kind;
                view.topology.is_host(*group) && !matches!(kind, TopologyType::Spread { .. })
            });
            if is_tied {
                return None;
            }
            let limit = spread_limit(view, pod);
            let at = distinct.iter().position(|each| *each == limit);
            Some(at.unwrap_or_else(|| {
                distinct.push(limit);
                distinct.len() - 1
            }))
        })
    }

    /// Whether no limit applies to a pod whose limit was interned.
    pub(super) fn is_unlimited(&self, view: &RepackView<'_, '_>, pod: usize) -> bool {
        let limit = self.known.get(&view.class_and_step(pod)).copied().flatten();
        limit.is_some_and(|limit| self.distinct[limit] == HostnameSpreadLimit::default())
    }
}

/// The hostname spread groups that count a pod, and the limits of those that it must satisfy.
pub(super) fn spread_limit(view: &RepackView<'_, '_>, pod: usize) -> HostnameSpreadLimit {
    let (class, step) = view.class_and_step(pod);
    let class = &view.classes[class];
    let step = &class.steps[step];
    let mut limit = HostnameSpreadLimit::default();
    let spread = |group: &usize| match &view.topology.groups[*group].statement.kind {
        TopologyType::Spread { max_skew, .. } if view.topology.is_host(*group) => Some(*max_skew),
        _ => None,
    };
    let counted = class.counted_in.iter();
    let counted = counted.filter(|group| spread(group).is_some());
    limit.counted_in.extend(counted.copied());
    let owned = step.owned.iter();
    let owned = owned.filter_map(|group| Some((*group, spread(group)?)));
    limit.at_most.extend(owned);
    limit
}
