//! What the solver makes of a scenario, and the nodes that follow from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::values::SplitMix64;
use mortise_apis::{NodeClaim, NodePool};
use mortise_cloudprovider::{InstanceType, Offering};
use mortise_planning::scheduling::{REPACK, ReservedCapacityMode, SolveOptions, solve};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use serde_json::{Value, json};

use super::objects;
use super::scenario::{CPUS, LABEL, Scenario};

/// A node to make.
#[derive(Clone, Debug)]
pub struct PlannedNode {
    /// Its name.
    pub name: String,
    /// The Node object.
    pub object: Value,
}

/// A scenario's plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Nodes to make.
    pub nodes: Vec<PlannedNode>,
    /// Node of each pod, by `namespace/name`.
    pub places: BTreeMap<String, String>,
    /// Pods without a place, with the reason.
    pub refused: BTreeMap<String, String>,
}

impl Scenario {
    /// An index that knows the pools and what the cloud sells, and these objects.
    ///
    /// # Errors
    /// A pool that cannot be read.
    pub(crate) fn index(&self, objects: Vec<Object>, now: Timestamp) -> Result<Index> {
        let known = WellKnown::core().with_keys([CPUS]);
        // The scheduler never saw these pods: they wait behind their gates.
        let mut index = Index::new(known, true, now);
        let catalog = Arc::new(Catalog::build(self.types.clone()));
        for pool in &self.pools {
            let pool: NodePool = serde_json::from_value(pool.clone()).context("a pool")?;
            index.set_catalog(&pool.node_class_key(), Arc::clone(&catalog));
            index.apply(ObjectEvent::Applied(
                Object::Pool(Box::new(pool)),
                EventSource::Watch,
            ));
        }
        for object in objects {
            index.apply(ObjectEvent::Applied(object, EventSource::Watch));
        }
        index.set_synced();
        Ok(index)
    }

    /// Solves with the settings of provisioning, and launches what is planned: each claim becomes an instance of any type
    /// and offering that it allows, because clouds choose too.
    ///
    /// # Errors
    /// A planned claim that no offering satisfies.
    pub fn plan(&self, now: Timestamp, snapshot: &Snapshot) -> Result<Plan> {
        let options = SolveOptions {
            pending: true,
            reserved: ReservedCapacityMode::Strict,
            repack: REPACK,
            ..SolveOptions::default()
        };
        let (plan, report) = solve(now, snapshot, &options, &|| false);
        let mut rng = SplitMix64::new(self.number);
        let mut made = Plan {
            nodes: Vec::new(),
            places: BTreeMap::new(),
            refused: BTreeMap::new(),
        };
        for placement in &plan.placements {
            let node = snapshot
                .nodes
                .get(&*placement.node)
                .context("a placement on a node that is not there")?;
            made.places
                .insert(placement.pod.key.to_string(), node.name().to_owned());
        }
        for (at, planned) in plan.claims.iter().enumerate() {
            let pool = snapshot
                .pools
                .get(&planned.pool)
                .context("a claim of a pool that is not there")?;
            let name = format!("s{}-new-{at}", self.number);
            let claim = planned.to_claim(&name, pool, now);
            for pod in &planned.pods {
                made.places.insert(pod.key.to_string(), name.clone());
            }
            made.nodes.push(self.launch(&claim, &name, &mut rng)?);
        }
        for unplaced in report.unplaced {
            for (key, _) in unplaced.pods {
                made.refused
                    .insert(key.to_string(), unplaced.message.clone());
            }
        }
        for (key, why) in report.ignored {
            made.refused.insert(key.to_string(), why.to_string());
        }
        Ok(made)
    }

    /// The instance of a claim: in half of the cases the cheapest it allows, otherwise any.
    fn launch(&self, claim: &NodeClaim, name: &str, rng: &mut SplitMix64) -> Result<PlannedNode> {
        let wanted = claim.requirements();
        let allows = |key: &str, value: &str| wanted.get(key).is_none_or(|own| own.has(value));
        let mut ways: Vec<(&InstanceType, &Offering)> = Vec::new();
        for of in &self.types {
            if !allows(labels::INSTANCE_TYPE, &of.name) {
                continue;
            }
            let suits = |offering: &&Offering| {
                offering.available
                    && allows(labels::TOPOLOGY_ZONE, &offering.zone)
                    && allows(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
            };
            ways.extend(
                of.offerings
                    .iter()
                    .filter(suits)
                    .map(|offering| (of, offering)),
            );
        }
        ensure!(
            !ways.is_empty(),
            "nothing on sale satisfies claim {name}: {wanted}"
        );
        ways.sort_by_key(|(of, offering)| (offering.price, of.name.clone(), offering.zone.clone()));
        let any = rng.below(ways.len() as u64);
        let at = if rng.chance(500) { 0 } else { any };
        let (of, offering) = usize::try_from(at)
            .ok()
            .and_then(|at| ways.get(at))
            .context("an offering for it")?;
        let mut own: BTreeMap<String, String> = BTreeMap::new();
        for requirements in [&wanted, &of.requirements] {
            own.extend(single_values(requirements));
        }
        own.extend(
            [
                (labels::INSTANCE_TYPE, &*of.name),
                (labels::TOPOLOGY_ZONE, &*offering.zone),
                (labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        own.extend(claim.metadata.labels.clone().unwrap_or_default());
        let number = self.number.to_string();
        own.extend(
            [
                (labels::HOSTNAME, name),
                (labels::REGISTERED, "true"),
                (labels::INITIALIZED, "true"),
                (LABEL, &number),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned())),
        );
        let object = objects::node(
            name,
            json!(own),
            json!(claim.spec.taints()),
            false,
            &of.capacity.to_api(),
            &of.allocatable().to_api(),
        );
        Ok(PlannedNode {
            name: name.to_owned(),
            object,
        })
    }
}

/// Labels that requirements settle.
fn single_values(of: &Requirements) -> impl Iterator<Item = (String, String)> {
    of.iter().filter_map(|each: &Requirement| {
        if each.is_complement() {
            return None;
        }
        match each.values() {
            [only] => Some((each.key().to_owned(), only.to_string())),
            _ => None,
        }
    })
}
