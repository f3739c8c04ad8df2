//! What instances cost that no commitment pays for, counted from the instances alone.

use mortise_apis::labels;
use mortise_apis::node_pool_policy::{Commitment, CommitmentAmount};
use mortise_cloudprovider::CapacityType;
use mortise_state::snapshot::Snapshot;

use crate::cluster::{Cluster, SimInstance};

/// What is paid for in advance: commitments, with the NodePools that each is for.
#[derive(Default)]
pub(super) struct Bill(Vec<(Vec<String>, Commitment)>);

impl Bill {
    /// With the policies of now.
    pub(super) fn new(snapshot: &Snapshot, cluster: &Cluster) -> Self {
        let policies = snapshot.policies.values();
        let all = policies.flat_map(|policy| {
            let own = policy.commitments(cluster.now());
            own.map(|commitment| (policy.spec.node_pools.clone(), commitment))
        });
        Self(all.collect())
    }

    /// Nothing is paid for in advance.
    pub(super) const fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Millionths of a dollar per hour for these instances.
    pub(super) fn of<'a>(&self, instances: impl Iterator<Item = &'a SimInstance>) -> i64 {
        let mut instances: Vec<&SimInstance> = instances.collect();
        instances.sort_by_key(|each| std::cmp::Reverse(each.price));
        let mut left: Vec<CommitmentAmount> = self.0.iter().map(|(_, each)| each.amount).collect();
        let mut bill = 0;
        for instance in instances {
            let mut rest = instance.price.0;
            let of_it = self.0.iter().zip(&mut left);
            for ((pools, commitment), left) in of_it {
                if !is_paid(instance, pools, commitment) {
                    continue;
                }
                match left {
                    CommitmentAmount::OnDemandPrice(price) => {
                        let paid = price.0.min(rest);
                        price.0 -= paid;
                        rest -= paid;
                    }
                    // For whole nodes: not for what dollars have left of one.
                    CommitmentAmount::Instances(count)
                        if *count > 0 && rest == instance.price.0 =>
                    {
                        *count -= 1;
                        rest = 0;
                    }
                    CommitmentAmount::Instances(_) => {}
                }
            }
            bill += rest;
        }
        bill
    }
}

fn is_paid(instance: &SimInstance, pools: &[String], commitment: &Commitment) -> bool {
    let pool = instance.labels.get(labels::NODEPOOL);
    instance.capacity_type == CapacityType::OnDemand
        && pool.is_some_and(|pool| pools.contains(pool))
        && commitment.requirements.iter().all(|own| {
            let value = instance.labels.get(own.key());
            value.map_or_else(|| own.allows_absence(), |value| own.has(value))
        })
}

#[cfg(test)]
mod tests {
    use mortise_apis::karpenter::nodeclaim::NodeClaim;
    use mortise_apis::requirements::{Requirement, Requirements};
    use mortise_apis::values::SplitMix64;
    use mortise_apis::values::money::MicroUsd;
    use serde_json::json;

    use super::*;
    use crate::cluster::FIRST_IMAGE;
    use crate::invariants::tests::simulation;

    #[test]
    fn commitments_pay_for_as_much_as_they_say() {
        let mut simulation = simulation();
        let (now, mut random) = (simulation.now(), SplitMix64::new(1));
        let cloud = &mut simulation.cluster.cloud;
        for name in ["a", "b"] {
            let labels = json!({ "karpenter.sh/nodepool": "p" });
            let claim =
                json!({ "metadata": { "name": name, "uid": name, "labels": labels }, "spec": {} });
            let claim: NodeClaim = serde_json::from_value(claim).unwrap();
            let launched = cloud.launch_alone(&claim, FIRST_IMAGE, now, &mut random);
            launched.0.unwrap();
        }
        let bill = |amount, pool: &str, requirements: Requirements| {
            let commitment = Commitment {
                name: "ri".into(),
                requirements,
                amount,
                until: None,
            };
            let bill = Bill(vec![(vec![pool.to_owned()], commitment)]);
            bill.of(simulation.cluster.cloud.instances().map(|(_, each)| each))
        };
        let (all, of) = (Requirements::new, |name: &str| {
            Requirements::from_iter([Requirement::is(labels::INSTANCE_TYPE, name)])
        });
        // Two nodes of the least price that there is.
        let table = [
            (CommitmentAmount::Instances(0), "p", all(), 2),
            (CommitmentAmount::Instances(1), "p", all(), 1),
            (CommitmentAmount::Instances(3), "p", all(), 0),
            (CommitmentAmount::OnDemandPrice(MicroUsd(1)), "p", all(), 1),
            (CommitmentAmount::Instances(1), "other", all(), 2),
            (CommitmentAmount::Instances(1), "p", of("t4"), 1),
            (CommitmentAmount::Instances(1), "p", of("t8"), 2),
        ];
        for (amount, pool, requirements, expected) in table {
            assert_eq!(
                bill(amount, pool, requirements),
                expected,
                "{amount:?} {pool}"
            );
        }
    }
}
