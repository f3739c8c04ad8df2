//! Clusters made from a seed: nodes of many types that are 60 to 80 % full, with and without GPUs.
//!
//! Nodes are as full as those of a cluster that was provisioned well and has lived for a while: each is nearly too full to take
//! the pods of another, so no bound on free capacity answers in place of a simulation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use mortise_apis::labels;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::resources::Resources;
use mortise_apis::values::SplitMix64;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};
use serde_json::json;

use super::case::{CaseNode, CasePod, ClusterCase, GPU};
use crate::inputs;

const GIB: i64 = 1 << 30;
const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];
const FAMILIES: [&str; 3] = ["c", "s", "m"];
const CPUS: [i64; 5] = [2, 4, 8, 16, 32];
/// In milli, without GPUs: with larger types, a single node would take the place of dozens.
const MOST_CPU: i64 = 32_000;
/// CPUs and GPUs of the types with GPUs.
const GPU_SIZES: [(i64, i64); 5] = [(4, 1), (8, 1), (16, 1), (48, 4), (96, 8)];
/// Apps; the pods of one are alike.
const APPS: u64 = 40;
/// A node is full after this many pods in a row that do not fit.
const MISSES: usize = 20;

/// Which nodes a generated cluster has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeMix {
    /// Three families in five sizes.
    Families,
    /// Three in ten have GPUs; every fourth of these runs no GPU pod.
    Gpus,
}

/// A cluster of this many nodes. The same seed gives the same cluster.
pub(super) fn cluster(folder: &Path, seed: u64, nodes: usize, mix: NodeMix) -> Result<ClusterCase> {
    let mut types = inputs::catalog(folder, "consolidation-catalog")?;
    types.retain(|each| each.name.ends_with("-amd64-linux") && each.capacity.cpu <= MOST_CPU);
    if mix == NodeMix::Gpus {
        types.extend(GPU_SIZES.map(|(cpu, gpus)| gpu_type(cpu, gpus)));
    }
    let by_name: BTreeMap<Arc<str>, Resources> = types
        .iter()
        .map(|each| (Arc::clone(&each.name), each.allocatable()))
        .collect();
    let mut random = SplitMix64::new(seed);
    let mut case = ClusterCase {
        pool: serde_json::from_value(pool())?,
        types,
        nodes: Vec::new(),
        pods: Vec::new(),
    };
    for at in 0..nodes {
        let has_gpus = mix == NodeMix::Gpus && random.chance(300);
        let instance_type = if has_gpus {
            let (cpu, gpus) = pick(&mut random, &GPU_SIZES);
            gpu_type_name(cpu, gpus)
        } else {
            let (family, cpu) = (pick(&mut random, &FAMILIES), pick(&mut random, &CPUS));
            format!("{family}-{cpu}x-amd64-linux")
        };
        let node = CaseNode {
            name: format!("node-{at:05}"),
            zone: pick(&mut random, &ZONES).to_owned(),
            capacity_type: labels::CAPACITY_TYPE_ON_DEMAND.to_owned(),
            instance_type,
        };
        let allocatable = by_name.get(&*node.instance_type);
        fill(
            &mut case.pods,
            &node,
            allocatable.context("type")?,
            &mut random,
        );
        case.nodes.push(node);
    }
    Ok(case)
}

fn pick<T: Copy>(random: &mut SplitMix64, of: &[T]) -> T {
    let at = random.below(of.len() as u64);
    of[usize::try_from(at).unwrap_or(0)]
}

/// Adds pods to a node until its scarcest resource is 60 to 80 % used.
fn fill(
    pods: &mut Vec<CasePod>,
    node: &CaseNode,
    allocatable: &Resources,
    random: &mut SplitMix64,
) {
    let mut used = Resources::zero();
    let mut add = |app: String, requests: Resources, used: &mut Resources| {
        used.add_assign(&requests);
        pods.push(CasePod {
            name: format!("pod-{:06}", pods.len()),
            node: node.name.clone(),
            app,
            requests,
        });
    };
    let gpus = allocatable.get(GPU);
    if gpus > 0 && !random.chance(250) {
        let asked = if gpus == 1 {
            1
        } else {
            gpus * random.between(60, 80) / 100
        };
        let (cpu, memory) = (random.between(1, 2) * 1_000, random.between(2, 6) * GIB);
        for _ in 0..asked {
            let requests = Resources::new(cpu, memory).with("pods", 1).with(GPU, 1);
            add("trainer".to_owned(), requests, &mut used);
        }
    }
    let target = random.between(60, 80);
    let mut misses = 0;
    while misses < MISSES && percent(&used, allocatable) < target {
        let app = random.below(APPS);
        let requests = requests_of(app);
        let sum = used.add(&requests);
        if percent(&sum, allocatable) > 80 || !sum.fits_in(allocatable) {
            misses += 1;
            continue;
        }
        misses = 0;
        add(format!("app-{app}"), requests, &mut used);
    }
}

/// How full a node is by CPU or memory, whichever is scarcer.
fn percent(used: &Resources, allocatable: &Resources) -> i64 {
    let share = |used: i64, allocatable: i64| used.saturating_mul(100) / allocatable.max(1);
    share(used.cpu, allocatable.cpu).max(share(used.memory >> 20, allocatable.memory >> 20))
}

/// Requests of an app's pods.
fn requests_of(app: u64) -> Resources {
    let mut random = SplitMix64::new(app);
    let cpu = pick(
        &mut random,
        &[100, 200, 250, 500, 750, 1_000, 1_500, 2_000, 4_000],
    );
    let gib_per_cpu = pick(&mut random, &[1, 2, 3, 4, 6, 8]);
    Resources::new(cpu, cpu * gib_per_cpu * GIB / 1_000).with("pods", 1)
}

fn gpu_type_name(cpu: i64, gpus: i64) -> String {
    format!("g-{cpu}x{gpus}-amd64-linux")
}

/// A type with GPUs: 4 GiB and 2.7 cents per CPU, 60 cents per GPU.
fn gpu_type(cpu: i64, gpus: i64) -> InstanceType {
    let name = gpu_type_name(cpu, gpus);
    let list =
        |key: &str, values: &[&str]| Requirement::new(key, Operator::In, values.iter().copied());
    let price = cpu * 27_000 + gpus * 600_000;
    let offerings = ZONES.iter().flat_map(|zone| {
        [(CapacityType::Spot, 70), (CapacityType::OnDemand, 100)].map(|(kind, percent)| Offering {
            zone: (*zone).into(),
            capacity_type: kind,
            price: Some(MicroUsd(price * percent / 100)),
            available: true,
            reservation: None,
            labels: Vec::new(),
        })
    });
    InstanceType {
        name: name.as_str().into(),
        requirements: [
            list(labels::INSTANCE_TYPE, &[&name]),
            list(labels::ARCH, &["amd64"]),
            list(labels::OS, &["linux"]),
            list(labels::TOPOLOGY_ZONE, &ZONES),
            list(labels::CAPACITY_TYPE, &["spot", "on-demand"]),
        ]
        .into_iter()
        .collect(),
        capacity: Resources::new(cpu * 1_000, cpu * 4 * GIB)
            .with("pods", 128)
            .with(GPU, gpus),
        overhead: Resources::new(100, 10 << 20),
        offerings: offerings.collect(),
        devices: Arc::default(),
    }
}

/// A NodePool of on-demand nodes, so that savings come from packing alone, whose budget allows everything.
fn pool() -> serde_json::Value {
    json!({
        "metadata": {"name": "default", "uid": "pool-default"},
        "spec": {
            "template": {"metadata": {}, "spec": {
                "nodeClassRef": {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"},
                "requirements": [{"key": labels::CAPACITY_TYPE, "operator": "In", "values": [labels::CAPACITY_TYPE_ON_DEMAND]}],
                "expireAfter": "Never",
            }},
            "disruption": {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized", "budgets": [{"nodes": "100%"}]},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(seed: u64) -> ClusterCase {
        cluster(&inputs::own_folder(), seed, 40, NodeMix::Gpus).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_cluster() {
        let (one, same, other) = (made(1), made(1), made(2));
        assert_eq!((&one.nodes, &one.pods), (&same.nodes, &same.pods));
        assert_ne!(one.pods, other.pods);
    }

    #[test]
    fn nodes_are_neither_empty_nor_overfull() {
        let case = made(1);
        for node in &case.nodes {
            let of = case
                .types
                .iter()
                .find(|each| *each.name == *node.instance_type)
                .unwrap();
            let mut used = Resources::zero();
            for pod in case.pods.iter().filter(|pod| pod.node == node.name) {
                used.add_assign(&pod.requests);
            }
            let percent = percent(&used, &of.allocatable());
            assert!(used.fits_in(&of.allocatable()), "{node:?}");
            assert!((30..=80).contains(&percent), "{percent} % of {node:?}");
        }
    }
}
