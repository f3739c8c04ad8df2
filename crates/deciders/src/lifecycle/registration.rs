//! What a Node gets from its claim, and when it counts as initialized. Pure functions of the two objects, and of the
//! devices that are published.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::resources::resources_of;
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::schema::groups::{GROUP, V1};
use mortise_apis::{labels, taints};
use mortise_engine::decider::StepInput;
use mortise_engine::write::Registration;

/// Prefix of our own annotations, which are about claims and mean nothing on nodes.
const OWN_ANNOTATIONS: &str = "mortise.sh/";

/// What a Node lacks of its NodeClaim; `None` if it lacks nothing.
///
/// Taints are copied only until the registered label is there, which is written by the same patch: afterwards whoever
/// removes a start-up taint would see it come back. While hooks are pending, label and taints wait: the node keeps the
/// taint that it was born with. A node that lacks nothing is marked initialized by the same patch.
pub(super) fn registration(
    claim: &NodeClaim,
    node: &Node,
    input: &StepInput<'_>,
) -> Option<Registration> {
    let mut lacking = Registration {
        owners: owners(claim, node),
        ..Registration::default()
    };
    if !has_finalizer(&node.metadata, labels::TERMINATION_FINALIZER) {
        let mut finalizers = node.metadata.finalizers.clone().unwrap_or_default();
        finalizers.push(labels::TERMINATION_FINALIZER.to_owned());
        lacking.finalizers = Some(finalizers);
    }
    let registered = is_marked(node, labels::REGISTERED);
    let waits = !registered && !pending_hooks(claim, node).is_empty();
    let mut wanted = claim.metadata.labels.clone().unwrap_or_default();
    if !waits {
        wanted.insert(labels::REGISTERED.to_owned(), "true".to_owned());
    }
    let taints = registered_taints(claim, node);
    let mut after = node.clone();
    if !registered {
        after.spec.taints.clone_from(&taints);
    }
    if !waits && missing(claim, &after, input).is_none() {
        wanted.insert(labels::INITIALIZED.to_owned(), "true".to_owned());
    }
    let class = &claim.spec.node_class_ref;
    wanted.insert(
        labels::node_class_key(&class.group, &class.kind),
        class.name.clone(),
    );
    lacking.labels = differing(wanted, node.metadata.labels.as_ref());
    let mut wanted = claim.metadata.annotations.clone().unwrap_or_default();
    wanted.retain(|key, _| !key.starts_with(OWN_ANNOTATIONS));
    lacking.annotations = differing(wanted, node.metadata.annotations.as_ref());
    if !registered && !waits && taints != node.spec.taints {
        lacking.taints = Some(taints);
    }
    (!lacking.is_empty()).then_some(lacking)
}

/// Hooks that must be done before the node counts as registered, and are not.
///
/// # Shape
/// In the order in which the claim names them.
pub(super) fn pending_hooks<'a>(claim: &'a NodeClaim, node: &Node) -> Vec<&'a str> {
    let hooks = claim
        .annotation(labels::REGISTRATION_HOOKS)
        .unwrap_or_default();
    let is_done = |hook: &str| {
        let key = format!("{}{hook}", labels::REGISTRATION_HOOK);
        let annotations = node.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(&key))
            .is_some_and(|value| value == "true")
    };
    hooks
        .split(',')
        .map(str::trim)
        .filter(|hook| !hook.is_empty() && !is_done(hook))
        .collect()
}

/// The label with the node class of a NodeClaim and its Node, if an older version did not write it.
pub(super) fn class_label(
    claim: &NodeClaim,
    there: Option<&str>,
) -> Option<BTreeMap<String, String>> {
    let class = &claim.spec.node_class_ref;
    let key = labels::node_class_key(&class.group, &class.kind);
    (there != Some(class.name.as_str())).then(|| BTreeMap::from([(key, class.name.clone())]))
}

/// The label is there with value `true`.
pub(super) fn is_marked(node: &Node, label: &str) -> bool {
    node.label(label) == Some("true")
}

fn differing(
    mut wanted: BTreeMap<String, String>,
    there: Option<&BTreeMap<String, String>>,
) -> BTreeMap<String, String> {
    let is_there = |key: &String, value: &String| {
        there.is_some_and(|there| there.get(key).is_some_and(|has| has == value))
    };
    wanted.retain(|key, value| !is_there(key, value));
    wanted
}

/// The Node's owners with the claim among them; `None` when it is there already.
fn owners(claim: &NodeClaim, node: &Node) -> Option<Vec<OwnerReference>> {
    let owner = OwnerReference {
        api_version: format!("{GROUP}/{V1}"),
        kind: "NodeClaim".to_owned(),
        name: claim.name().to_string(),
        uid: claim.metadata.uid.clone().unwrap_or_default(),
        block_owner_deletion: Some(true),
        controller: None,
    };
    let mut all = node.metadata.owner_references.clone().unwrap_or_default();
    if all.contains(&owner) {
        return None;
    }
    all.retain(|each| each.uid != owner.uid);
    all.push(owner);
    Some(all)
}

/// The Node's taints with those of the claim, without the one that it was born with.
fn registered_taints(claim: &NodeClaim, node: &Node) -> Vec<Taint> {
    let mut all = node.spec.taints.clone();
    if !is_marked(node, labels::DO_NOT_SYNC_TAINTS) {
        all = taints::merge(&all, claim.spec.taints());
        all = taints::merge(&all, claim.spec.startup_taints());
    }
    all.retain(|taint| taint.key != labels::UNREGISTERED_TAINT);
    all
}

/// Why a registered Node is not initialized yet: condition reason and message; `None` when nothing is missing. Whoever
/// writes that a node is initialized asks this.
pub(super) fn missing(
    claim: &NodeClaim,
    node: &Node,
    input: &StepInput<'_>,
) -> Option<(&'static str, String)> {
    incomplete(claim, node).or_else(|| unpublished(claim, node, input))
}

/// What the two objects say of it.
fn incomplete(claim: &NodeClaim, node: &Node) -> Option<(&'static str, String)> {
    if node
        .condition("Ready")
        .is_none_or(|ready| ready.status != "True")
    {
        return Some(("NodeNotReady", "node is not ready".to_owned()));
    }
    let startup = claim.spec.startup_taints();
    if let Some(taint) = node
        .spec
        .taints
        .iter()
        .find(|taint| startup.iter().any(|each| taints::matches(each, taint)))
    {
        return Some((
            "StartupTaintsExist",
            format!("startup taint {} is not removed yet", taints::text(taint)),
        ));
    }
    if let Some(taint) = node
        .spec
        .taints
        .iter()
        .find(|taint| taints::is_ephemeral(taint))
    {
        return Some((
            "KnownEphemeralTaintsExist",
            format!("taint {} is not removed yet", taints::text(taint)),
        ));
    }
    let asked = claim.spec.requests().map(resources_of).unwrap_or_default();
    let given = resources_of(&node.status.allocatable);
    let unknown = asked
        .iter()
        .find(|(name, amount)| *amount != 0 && given.get(name) == 0)
        .map(|(name, _)| name.to_owned());
    unknown.map(|name| {
        (
            "ResourceNotRegistered",
            format!("node does not report resource {name} yet"),
        )
    })
}

/// Which drivers have not published the devices of a registered Node on which pods of its claim count; condition reason
/// and message, `None` when nothing is missing. Nothing is known of devices while claims for them are ignored.
fn unpublished(
    claim: &NodeClaim,
    node: &Node,
    input: &StepInput<'_>,
) -> Option<(&'static str, String)> {
    let drivers = claim.annotation(labels::REQUESTED_DRA_DRIVERS)?;
    if input.settings.ignore_devices {
        return None;
    }
    let name = node.metadata.name.as_deref();
    let slices = input.snapshot.devices.slices.values();
    let own: Vec<_> = slices
        .map(|slice| &slice.spec)
        .filter(|slice| slice.node_name.as_deref() == name)
        .collect();
    let is_complete = |driver: &str| {
        own.iter().any(|slice| {
            let same = own.iter().filter(|other| {
                other.driver == slice.driver
                    && other.pool.name == slice.pool.name
                    && other.pool.generation == slice.pool.generation
            });
            let count = i64::try_from(same.count()).unwrap_or(i64::MAX);
            slice.driver == driver && count == slice.pool.resource_slice_count
        })
    };
    let all = drivers.split(',').map(str::trim);
    let missing: Vec<&str> = all
        .filter(|driver| !driver.is_empty() && !is_complete(driver))
        .collect();
    (!missing.is_empty()).then(|| {
        (
            "DRADriverPoolsNotPublished",
            format!("devices are not published yet by {}", missing.join(", ")),
        )
    })
}
