//! Claims to launch an instance each for, by one request. Pure.

use std::collections::BTreeSet;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_cloudprovider::LaunchBatch;

use crate::instances::InstanceRecord;
use crate::launch::fleet_input::NodeNetwork;
use crate::node_class::CachedNodeClass;
use crate::tags;

/// A claim without an instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchMember<'a> {
    pub(crate) claim: &'a NodeClaim,
    pub(crate) uid: &'a str,
}

/// What a request is made for: one claim, or several that differ in nothing that the request has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingLaunch<'a> {
    pub(crate) first: LaunchMember<'a>,
    pub(crate) others: &'a [LaunchMember<'a>],
    /// Identity of the request: the token of the batch, or the UID of the only claim.
    pub(crate) token: &'a str,
    /// Token of the batch, if the claims are launched in one.
    pub(crate) batch: Option<&'a str>,
    /// Ids of the instances of the batch that claims have.
    pub(crate) taken: &'a BTreeSet<String>,
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) network: NodeNetwork<'a>,
}

static NONE_TAKEN: BTreeSet<String> = BTreeSet::new();

impl<'a> PendingLaunch<'a> {
    /// The launch of one claim that belongs to no batch.
    pub(crate) const fn of_claim(
        claim: LaunchMember<'a>,
        class: &'a CachedNodeClass,
        network: NodeNetwork<'a>,
    ) -> Self {
        Self {
            first: claim,
            others: &[],
            token: claim.uid,
            batch: None,
            taken: &NONE_TAKEN,
            class,
            network,
        }
    }

    /// All claims, in the order in which they get instances.
    pub(crate) fn members(&self) -> impl Iterator<Item = LaunchMember<'a>> + use<'a> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// How many instances are asked for.
    pub(crate) const fn count(&self) -> usize {
        1 + self.others.len()
    }

    /// The launch of one of the claims by a request of its own, still as part of the batch.
    pub(crate) const fn alone(self, member: LaunchMember<'a>) -> Self {
        Self {
            first: member,
            others: &[],
            token: member.uid,
            ..self
        }
    }
}

/// Gives the instances of a batch to its claims: one that names a claim to that, the others in order of id to the claims in their
/// order, except what other claims have. The same input gives the same result in every process.
pub(crate) fn assign(
    batch: &LaunchBatch,
    members: &[LaunchMember<'_>],
    taken: &BTreeSet<String>,
    instances: &[InstanceRecord],
) -> Vec<Option<InstanceRecord>> {
    let named = |each: &InstanceRecord| each.described.tags.get(tags::NODECLAIM_UID).cloned();
    let is_of_batch = |each: &&InstanceRecord| {
        let token = each.described.tags.get(tags::LAUNCH_BATCH);
        token.is_some_and(|token| **token == *batch.token)
    };
    let mut free: Vec<&InstanceRecord> = instances
        .iter()
        .filter(is_of_batch)
        .filter(|each| named(each).is_none() && !taken.contains(&each.id))
        .collect();
    free.sort_by(|a, b| b.id.cmp(&a.id));
    let own = |member: &LaunchMember<'_>| {
        let mut own = instances.iter();
        own.find(|each| named(each).as_deref() == Some(member.uid))
    };
    let mut given: Vec<Option<InstanceRecord>> =
        members.iter().map(|member| own(member).cloned()).collect();
    for each in given.iter_mut().filter(|each| each.is_none()) {
        *each = free.pop().cloned();
    }
    given
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::launch::tests::instance;

    #[test]
    fn instances_are_given_by_name_then_in_order_and_never_twice() {
        let claim = NodeClaim::default();
        let member = |uid| LaunchMember { claim: &claim, uid };
        let members = [member("u-1"), member("u-2"), member("u-3"), member("u-4")];
        let batch = LaunchBatch {
            token: Arc::from("t"),
            claims: Vec::new(),
            taken: Vec::new(),
        };
        let own = (tags::LAUNCH_BATCH, "t");
        let instances = [
            instance("i-5", &[own]),
            instance("i-3", &[own, (tags::NODECLAIM_UID, "u-2")]),
            instance("i-2", &[own]),
            instance("i-4", &[own, (tags::NODECLAIM_UID, "u-9")]),
            instance("i-1", &[own]),
            instance("i-0", &[(tags::LAUNCH_BATCH, "other")]),
        ];
        let given = assign(
            &batch,
            &members,
            &BTreeSet::from(["i-1".to_owned()]),
            &instances,
        );
        let ids: Vec<Option<&str>> = given
            .iter()
            .map(|each| each.as_ref().map(|each| &*each.id))
            .collect();
        assert_eq!(ids, [Some("i-2"), Some("i-3"), Some("i-5"), None]);
    }
}
