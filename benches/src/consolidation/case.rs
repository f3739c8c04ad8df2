//! Clusters before consolidation: the recorded ones, and what is common to all.

use std::path::Path;

use anyhow::Result;
use mortise_apis::NodePool;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_cloudprovider::{InstanceType, Offering};
use serde::Deserialize;
use serde_json::Value;

use crate::bound;
use crate::inputs;

/// The resource that GPU pods ask for.
pub(super) const GPU: &str = "nvidia.com/gpu";

/// A NodePool, what it may launch, and nodes with their pods.
#[derive(Clone, Debug)]
pub(super) struct ClusterCase {
    pub(super) pool: NodePool,
    pub(super) types: Vec<InstanceType>,
    pub(super) nodes: Vec<CaseNode>,
    pub(super) pods: Vec<CasePod>,
}

/// A node; everything else follows from its instance type.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CaseNode {
    pub(super) name: String,
    pub(super) instance_type: String,
    pub(super) zone: String,
    pub(super) capacity_type: String,
}

/// A pod, and the node that it runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CasePod {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) app: String,
    pub(super) requests: Resources,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCase {
    node_pool: NodePool,
    nodes: Vec<CaseNode>,
    pods: Vec<RawPod>,
}

#[derive(Deserialize)]
struct RawPod {
    name: String,
    node: String,
    #[serde(default)]
    labels: Value,
    cpu_m: i64,
    memory_bytes: i64,
}

impl ClusterCase {
    /// A recorded cluster.
    pub(super) fn recorded(folder: &Path, name: &str) -> Result<Self> {
        let raw: RawCase = inputs::read(folder, &format!("consolidation-{name}"))?;
        let pod = |raw: RawPod| CasePod {
            app: raw.labels["app"].as_str().unwrap_or("app").to_owned(),
            name: raw.name,
            node: raw.node,
            requests: Resources::new(raw.cpu_m, raw.memory_bytes).with("pods", 1),
        };
        Ok(Self {
            pool: raw.node_pool,
            types: inputs::catalog(folder, "consolidation-catalog")?,
            nodes: raw.nodes,
            pods: raw.pods.into_iter().map(pod).collect(),
        })
    }

    /// No nodes of this NodePool on which all pods would run cost less per hour, even if pods and nodes could be divided.
    pub(super) fn lower_bound(&self) -> f64 {
        let asked = self.pool.requirements();
        let mut rows = Vec::new();
        let mut prices = Vec::new();
        for each in &self.types {
            if let Some(offering) = cheapest(each, &asked) {
                rows.push(amounts(&each.allocatable()).to_vec());
                prices.push(offering.price.map_or(f64::NAN, |price| price.dollars()));
            }
        }
        let mut total = Resources::zero();
        for pod in &self.pods {
            total.add_assign(&pod.requests);
        }
        bound::of_totals(&amounts(&total), &rows, &prices)
    }
}

/// Whether a NodePool or a NodeClaim that asks for this may become this type, by the labels that it names.
fn allows(asked: &Requirements, of: &InstanceType) -> bool {
    of.requirements.iter().all(|own| {
        let asked = asked.get(own.key());
        asked.is_none_or(|asked| asked.has_intersection(own))
    })
}

/// The cheapest offering of a type for these requirements; of equal ones the first.
pub(super) fn cheapest<'a>(of: &'a InstanceType, asked: &Requirements) -> Option<&'a Offering> {
    let has = |key: &str, value: &str| asked.get(key).is_none_or(|asked| asked.has(value));
    let is_asked_for = |offering: &&Offering| {
        offering.available
            && offering.price.is_some()
            && has(mortise_apis::labels::TOPOLOGY_ZONE, &offering.zone)
            && has(
                mortise_apis::labels::CAPACITY_TYPE,
                offering.capacity_type.as_str(),
            )
    };
    if !allows(asked, of) {
        return None;
    }
    let offerings = of.offerings.iter().filter(is_asked_for);
    offerings.min_by_key(|offering| offering.price)
}

/// Resources as the bound counts them: CPUs, GiB, pods, GPUs.
#[expect(clippy::cast_precision_loss, reason = "for display")]
fn amounts(of: &Resources) -> [f64; 4] {
    const GIB: f64 = (1_u64 << 30) as f64;
    [
        of.cpu as f64 / 1e3,
        of.memory as f64 / GIB,
        of.pods as f64,
        of.get(GPU) as f64,
    ]
}
