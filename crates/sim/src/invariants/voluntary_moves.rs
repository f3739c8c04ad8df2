//! What consolidation launches in the place of nodes costs no more than they do, with what is paid for in advance.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use mortise_apis::labels::REPLACES;
use mortise_state::snapshot::Snapshot;

use super::bill::Bill;
use crate::cluster::{Cluster, SimInstance};

/// What was compared.
#[derive(Default)]
pub(super) struct VoluntaryMoves {
    /// NodeClaims whose replacements were compared with them.
    compared: BTreeSet<String>,
    /// When prices changed last: what was decided before counts with the prices of then.
    prices_changed: Option<Timestamp>,
}

/// Instances that replace the same nodes.
#[derive(Default)]
struct Replacements {
    claims: BTreeSet<String>,
    price: i64,
    /// When the first of their NodeClaims was created.
    decided: Option<Timestamp>,
}

impl VoluntaryMoves {
    /// Offerings have other prices from now on.
    pub(super) const fn prices_changed(&mut self, now: Timestamp) {
        self.prices_changed = Some(now);
    }

    /// Compares what consolidation launched with what it replaces, once all of it is launched.
    pub(super) fn check(
        &mut self,
        snapshot: &Snapshot,
        cluster: &Cluster,
        found: &mut Vec<String>,
    ) {
        let mut instances: BTreeMap<&str, &SimInstance> = BTreeMap::new();
        for (_, instance) in cluster.cloud.instances() {
            instances.insert(&instance.claim, instance);
        }
        let mut all: BTreeMap<&str, Option<Replacements>> = BTreeMap::new();
        for claim in snapshot.claims.values() {
            let Some(replaced) = claim.annotation(REPLACES) else {
                continue;
            };
            let group = all
                .entry(replaced)
                .or_insert_with(|| Some(Replacements::default()));
            let created = claim.metadata.creation_timestamp.as_ref().map(|at| at.0);
            // One that is not launched yet has no price.
            *group = group.take().and_then(|group| {
                let price = instances.get(claim.name().as_str())?.price.0;
                let mut claims = group.claims;
                claims.insert(claim.name().to_string());
                Some(Replacements {
                    claims,
                    price: group.price + price,
                    decided: group.decided.into_iter().chain(created).min(),
                })
            });
        }
        all.retain(|replaced, new| new.is_some() && !self.compared.contains(*replaced));
        if all.is_empty() {
            return;
        }
        let bill = Bill::new(snapshot, cluster);
        for (replaced, new) in all {
            let Some(new) = new else { continue };
            self.compared.insert(replaced.to_owned());
            self.compare((replaced, &new), &instances, (cluster, &bill), found);
        }
    }

    fn compare(
        &self,
        (replaced, new): (&str, &Replacements),
        instances: &BTreeMap<&str, &SimInstance>,
        (cluster, bill): (&Cluster, &Bill),
        found: &mut Vec<String>,
    ) {
        let names = replaced.split(',').map(str::trim);
        let is_consolidated = names
            .clone()
            .all(|name| cluster.scores.moved.is_consolidated(name));
        // One that the cloud took meanwhile is no longer paid for, and the replacement is still needed.
        let prices: Option<Vec<i64>> = names
            .clone()
            .map(|name| instances.get(name).map(|instance| instance.price.0))
            .collect();
        let is_of_now = self
            .prices_changed
            .is_none_or(|changed| new.decided.is_some_and(|decided| changed < decided));
        let Some(prices) = prices.filter(|_| is_consolidated && is_of_now) else {
            return;
        };
        let old: i64 = prices.iter().sum();
        let without = |is_gone: &dyn Fn(&str) -> bool| {
            let left = instances.iter().filter(|(name, _)| !is_gone(name));
            bill.of(left.map(|(_, instance)| *instance))
        };
        let is_paid = || {
            !bill.is_all()
                && without(&|name| names.clone().any(|old| old == name))
                    <= without(&|name| new.claims.contains(name))
        };
        if new.price > old && !is_paid() {
            found.push(format!(
                "consolidation replaced {replaced} at {old} micro-dollars an hour by nodes at {}",
                new.price
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_apis::values::SplitMix64;
    use serde_json::json;

    use super::*;
    use crate::cluster::FIRST_IMAGE;
    use crate::invariants::tests::simulation;

    #[test]
    fn a_more_expensive_replacement_is_reported() {
        let mut simulation = simulation();
        let claim = json!({ "metadata": { "name": "old", "uid": "1" }, "spec": {} });
        let claim = serde_json::from_value(claim).unwrap();
        let (now, mut random) = (simulation.now(), SplitMix64::new(1));
        let cloud = &mut simulation.cluster.cloud;
        let launched = cloud.launch_alone(&claim, FIRST_IMAGE, now, &mut random);
        launched.0.unwrap();
        let price = cloud.price().0;
        let said = |moves: &VoluntaryMoves, price: i64, cluster: &Cluster| {
            let (_, instance) = cluster.cloud.instances().next().unwrap();
            let new = Replacements {
                claims: BTreeSet::new(),
                price,
                decided: Some(now),
            };
            let mut found = Vec::new();
            let instances = BTreeMap::from([("old", instance)]);
            let bill = Bill::default();
            moves.compare(("old", &new), &instances, (cluster, &bill), &mut found);
            found
        };
        let mut moves = VoluntaryMoves::default();
        let cluster = &mut simulation.cluster;
        assert!(
            said(&moves, price + 1, cluster).is_empty(),
            "not consolidation's"
        );
        cluster.scores.moved.consolidate("old".into(), now);
        assert!(said(&moves, price, cluster).is_empty(), "the same price");
        let found = said(&moves, price + 1, cluster);
        assert!(
            found[0].starts_with("consolidation replaced old at"),
            "{found:?}"
        );
        moves.prices_changed(now);
        assert!(
            said(&moves, price + 1, cluster).is_empty(),
            "at other prices"
        );
    }
}
