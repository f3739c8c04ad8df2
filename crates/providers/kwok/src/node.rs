//! The Node object of a kwok instance, and the selection of its offering.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_apis::requirements::{Operator, Requirement, Requirements};
use mortise_apis::values::fnv1a;
use mortise_cloudprovider::{InstanceType, LaunchError, LaunchedInstance, Offering};

/// Prefix of the provider ids of kwok instances.
pub(crate) const PREFIX: &str = "kwok://";

/// `kwok-<claim>-<five letters>-<number>`, both fixed by the claim's UID.
pub(crate) fn node_name(claim: &NodeClaim) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let mut rest = fnv1a(uid.bytes());
    let mut word = String::with_capacity(5);
    for _ in 0..5 {
        let at = usize::try_from(rest % LETTERS.len() as u64).unwrap_or(0);
        word.extend(LETTERS.get(at).map(|byte| char::from(*byte)));
        rest /= LETTERS.len() as u64;
    }
    let number = fnv1a(format!("{uid}/number").bytes()) >> 32;
    format!("kwok-{}-{word}-{number}", claim.name())
}

/// The cheapest available offering of the claim's instance types; the UID breaks ties.
pub(crate) fn choose_offering<'a>(
    claim: &NodeClaim,
    types: &'a [InstanceType],
) -> Result<(&'a InstanceType, &'a Offering), LaunchError> {
    let requirements = claim.requirements();
    let names = requirements
        .get(labels::INSTANCE_TYPE)
        .filter(|requirement| requirement.operator() == Operator::In);
    let Some(names) = names else {
        return Err(LaunchError::Create {
            reason: "InstanceTypeNotRequested".to_owned(),
            message: format!(
                "the NodeClaim has no requirement {} with operator In",
                labels::INSTANCE_TYPE
            ),
        });
    };
    let mut cheapest: Vec<(&InstanceType, &Offering)> = Vec::new();
    for each in types.iter().filter(|each| names.has(&each.name)) {
        for offering in each
            .offerings
            .iter()
            .filter(|offering| offering.available && is_compatible(&requirements, offering))
        {
            let best = cheapest.first().map(|(_, best)| price(best));
            match best.map(|best| price(offering).cmp(&best)) {
                Some(std::cmp::Ordering::Greater) => {}
                Some(std::cmp::Ordering::Equal) => cheapest.push((each, offering)),
                None | Some(std::cmp::Ordering::Less) => cheapest = vec![(each, offering)],
            }
        }
    }
    let pick = fnv1a(claim.metadata.uid.as_deref().unwrap_or_default().bytes())
        % (cheapest.len().max(1) as u64);
    cheapest
        .get(usize::try_from(pick).unwrap_or(0))
        .copied()
        .ok_or_else(|| LaunchError::InsufficientCapacity {
            message: "no available offering satisfies the NodeClaim".to_owned(),
            unavailable: Vec::new(),
            again_ms: None,
            missing: None,
        })
}

/// Price for comparison; an unknown price is higher than every known one.
fn price(offering: &Offering) -> i64 {
    offering.price.map_or(i64::MAX, |price| price.0)
}

fn is_compatible(requirements: &Requirements, offering: &Offering) -> bool {
    let has = |key: &str, value: &str| {
        requirements
            .get(key)
            .is_none_or(|requirement| requirement.has(value))
    };
    has(labels::TOPOLOGY_ZONE, &offering.zone)
        && has(labels::CAPACITY_TYPE, offering.capacity_type.as_str())
}

/// Labels of the node: single-valued requirements of claim, type and offering, then the provider's own.
fn node_labels(
    claim: &NodeClaim,
    chosen: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let single = |all: &mut BTreeMap<String, String>, requirements: &Requirements| {
        for requirement in requirements
            .iter()
            .filter(|each| !Requirement::is_complement(each))
        {
            if let [only] = requirement.values() {
                all.insert(requirement.key().to_owned(), only.to_string());
            }
        }
    };
    single(&mut all, &claim.requirements());
    single(&mut all, &chosen.requirements);
    all.insert(labels::INSTANCE_TYPE.to_owned(), chosen.name.to_string());
    all.insert(labels::TOPOLOGY_ZONE.to_owned(), offering.zone.to_string());
    all.insert(
        labels::CAPACITY_TYPE.to_owned(),
        offering.capacity_type.as_str().to_owned(),
    );
    all.extend(
        offering
            .labels
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string())),
    );
    all.extend(claim.metadata.labels.clone().unwrap_or_default());
    all.insert("kwok.x-k8s.io/node".to_owned(), "fake".to_owned());
    all.insert("kwok-partition".to_owned(), "a".to_owned());
    all.insert(labels::HOSTNAME.to_owned(), claim.name().to_string());
    if let Some(price) = offering.price {
        all.insert(
            "eks-node-viewer/instance-price".to_owned(),
            format!("{:.6}", price.dollars()),
        );
    }
    all
}

/// The Node of a claim's instance, as it is created.
pub(crate) fn node_of(claim: &NodeClaim, chosen: &InstanceType, offering: &Offering) -> Node {
    let name = node_name(claim);
    let mut annotations = claim.metadata.annotations.clone().unwrap_or_default();
    annotations.insert("kwok.x-k8s.io/node".to_owned(), "fake".to_owned());
    let (capacity, allocatable) = resources(claim, chosen);
    let unregistered = Taint {
        key: labels::UNREGISTERED_TAINT.to_owned(),
        effect: "NoExecute".to_owned(),
        ..Taint::default()
    };
    Node {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            labels: Some(node_labels(claim, chosen, offering)),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(format!("{PREFIX}{name}")),
            taints: Some(vec![unregistered]),
            ..NodeSpec::default()
        }),
        status: Some(NodeStatus {
            capacity: Some(capacity),
            allocatable: Some(allocatable),
            phase: Some("Pending".to_owned()),
            ..NodeStatus::default()
        }),
    }
}

/// Capacity is what the claim requests; allocatable is the type's, over the requests. Limits count the former.
fn resources(
    claim: &NodeClaim,
    chosen: &InstanceType,
) -> (BTreeMap<String, Quantity>, BTreeMap<String, Quantity>) {
    let requests = claim.spec.requests().cloned().unwrap_or_default();
    let mut allocatable = requests.clone();
    allocatable.extend(chosen.allocatable().to_api());
    (requests, allocatable)
}

/// The result of the launch of a claim.
pub(crate) fn launched(claim: &NodeClaim, node: &Node) -> LaunchedInstance {
    let status = node.status.as_ref();
    LaunchedInstance {
        provider_id: ProviderId::from(format!("{PREFIX}{}", node_name(claim))),
        image_id: None,
        labels: node.metadata.labels.clone().unwrap_or_default(),
        annotations: BTreeMap::new(),
        capacity: status
            .and_then(|status| status.capacity.clone())
            .unwrap_or_default(),
        allocatable: status
            .and_then(|status| status.allocatable.clone())
            .unwrap_or_default(),
    }
}

/// Name of the claim, from the labels of its Node.
pub(crate) fn claim_of(node: &Node) -> Option<Arc<str>> {
    node.metadata
        .labels
        .as_ref()?
        .get(labels::HOSTNAME)
        .map(|name| name.as_str().into())
}
