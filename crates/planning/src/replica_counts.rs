//! Replica counts of static NodePools, which have a fixed number of nodes. A pure function of the objects and the ledger,
//! so that every decider and a restarted process count identically.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, PoolName, Uid};
use mortise_state::snapshot::Snapshot;

/// Counts of one NodePool.
#[derive(Clone, Debug, Default)]
pub struct ReplicaCounts {
    /// NodeClaims that count towards `replicas`: not being deleted, and not about to be replaced by a NodeClaim that
    /// counts in their place. Sorted by name.
    pub counted: Vec<Arc<NodeClaim>>,
    /// NodeClaims that were requested and that no object shows yet.
    pub coming: i64,
    /// NodeClaims that are being deleted.
    pub going: i64,
    /// NodeClaims whose replacement exists.
    pub replaced: i64,
}

impl ReplicaCounts {
    /// Counts every NodePool with `replicas`. `leaving`: NodeClaims whose deletion was requested and is not observed yet.
    ///
    /// # Cost
    /// One pass over the NodeClaims, none without such a NodePool.
    pub fn all(snapshot: &Snapshot, leaving: &BTreeSet<Uid>) -> BTreeMap<PoolName, Self> {
        let mut all: BTreeMap<PoolName, Self> = snapshot
            .pools
            .iter()
            .filter(|(_, pool)| pool.is_static())
            .map(|(name, _)| (name.clone(), Self::default()))
            .collect();
        if all.is_empty() {
            return all;
        }
        let mut replaced: BTreeSet<ClaimName> = BTreeSet::new();
        for (_, claim) in snapshot.claims.sorted() {
            let Some(census) = claim.pool().and_then(|pool| all.get_mut(&pool)) else {
                continue;
            };
            let leaves = claim.uid().is_some_and(|uid| leaving.contains(&uid));
            if leaves || claim.metadata.deletion_timestamp.is_some() {
                census.going += 1;
                continue;
            }
            let names = claim.annotation(labels::REPLACES).unwrap_or_default();
            replaced.extend(
                names
                    .split(',')
                    .filter(|name| !name.is_empty())
                    .map(ClaimName::from),
            );
            census.counted.push(Arc::clone(claim));
        }
        for census in all.values_mut() {
            let before = census.counted.len();
            census
                .counted
                .retain(|claim| !replaced.contains(&claim.name()));
            census.replaced = count(before - census.counted.len());
        }
        for (name, coming) in snapshot.ledger.expected_claims() {
            if !snapshot.claims.contains(name)
                && let Some(census) = all.get_mut(&coming.pool)
            {
                census.coming += 1;
            }
        }
        all
    }

    /// Number of missing nodes; negative when there are too many. Requested NodeClaims count as existing: they are never a
    /// reason to create another one, nor to delete one.
    pub fn missing(&self, replicas: i64) -> i64 {
        let there = count(self.counted.len());
        let missing = replicas - there - self.coming;
        let surplus = there - replicas;
        if surplus > 0 {
            -surplus
        } else {
            missing.max(0)
        }
    }

    /// Nodes that count against `limits.nodes`: a node that is being deleted still counts.
    pub fn nodes(&self) -> i64 {
        count(self.counted.len()) + self.coming + self.going + self.replaced
    }
}

fn count(of: usize) -> i64 {
    i64::try_from(of).unwrap_or(i64::MAX)
}
