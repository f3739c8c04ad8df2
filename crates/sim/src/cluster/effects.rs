//! Effects, executed on the virtual API server and cloud.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::{NodeName, ObjectRef, ProviderId};
use mortise_apis::node_class::served::ServedNodeClasses;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::{LaunchError, LaunchRequest, ResolvedNodeClass};
use mortise_engine::effect::{Effect, EffectError, EffectOutput, InstanceListing};
use mortise_engine::write::{ObjectWrite, PatchBody};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::{Value, json};

use super::Cluster;
use super::api_server::is_deleting;
use super::cloud::{RESERVATION_ID, image_of};
use super::workload_controllers::{is_healthy, is_running, node_of, owner};
use crate::clock::Action;
use crate::moved_pods::{NodeKind, node_kind};

/// Annotation that identifies the decision that created a claim.
const INTENT: &str = "/metadata/annotations/mortise.sh~1intent";

/// Why a node drifted that started from another image than that of its class.
const IMAGE_DRIFT: &str = "ImageDrift";

/// Latency of an effect, in milliseconds.
pub(crate) fn latency(effect: &Effect, random: &mut SplitMix64) -> i64 {
    match effect {
        Effect::Launch(_) => random.between(800, 2_500),
        Effect::Terminate { .. }
        | Effect::ListInstances
        | Effect::FindInstance { .. }
        | Effect::Resolve(_)
        | Effect::CheckDrift { .. }
        | Effect::TagInstance(_) => random.between(50, 300),
        Effect::Event(_) => 1,
        _ => random.between(3, 15),
    }
}

/// Result of an effect.
pub(crate) struct Executed {
    pub(crate) result: Result<EffectOutput, EffectError>,
    /// Objects that are returned to the writer with the response.
    pub(crate) returned: Vec<(ObjectKey, Value)>,
}

impl Executed {
    const fn new(result: Result<EffectOutput, EffectError>) -> Self {
        Self {
            result,
            returned: Vec::new(),
        }
    }

    fn returning(output: EffectOutput, key: ObjectKey, object: Value) -> Self {
        Self {
            result: Ok(output),
            returned: vec![(key, object)],
        }
    }
}

/// Executes an effect.
pub(crate) fn execute(effect: &Effect, cluster: &mut Cluster) -> Executed {
    Executed::new(match effect {
        Effect::CreateClaim(claim) => return create_claim(claim, cluster),
        Effect::Write(edit) => return write(edit, cluster),
        Effect::Delete {
            target,
            uid,
            grace_seconds,
        } => return delete(target, uid.as_deref(), *grace_seconds, cluster),
        Effect::Evict { pod, uid } => return evict(&ObjectKey::Pod(pod.clone()), uid, cluster),
        Effect::ListPods(node) => return list_pods(node, cluster),
        Effect::Launch(request) => launch(request, cluster),
        Effect::Terminate { provider_id, .. } => {
            let Cluster {
                cloud,
                clock,
                timing,
                ..
            } = cluster;
            Ok(EffectOutput::Terminated(cloud.terminate(
                provider_id,
                timing.termination_ms,
                clock,
            )))
        }
        Effect::ListInstances => Ok(EffectOutput::Instances(vec![InstanceListing {
            provider: "sim".into(),
            serves: ServedNodeClasses::All,
            reservation_labels: &[RESERVATION_ID],
            instances: Ok(cluster.cloud.list(cluster.now())),
        }])),
        Effect::FindInstance { provider_id, .. } => Ok(EffectOutput::Found(
            cluster.cloud.find(provider_id, cluster.now()),
        )),
        Effect::Resolve(request) => Ok(EffectOutput::Resolved(Arc::new(ResolvedNodeClass {
            status: None,
            annotations: BTreeMap::new(),
            finalizer: None,
            instance_types: cluster.cloud.catalog_of(&request.class.key, cluster.now()),
            shifted_zones: Vec::new(),
            again_ms: None,
        }))),
        Effect::CheckDrift { claim, class } => {
            let image = claim.provider_id().map(ProviderId::from);
            let image = image.and_then(|id| cluster.cloud.image(&id));
            let is_other = image.is_some_and(|image| *image != *image_of(&class.object));
            Ok(EffectOutput::Drift(
                is_other.then(|| IMAGE_DRIFT.to_owned()),
            ))
        }
        Effect::TagInstance(claim) => Ok(EffectOutput::Tagged(cluster.cloud.tag(claim))),
        Effect::Acknowledge { notice, .. } => {
            cluster.cloud.acknowledge(notice);
            Ok(EffectOutput::Acknowledged)
        }
        Effect::Event(event) => {
            let events = &mut cluster.stats.events;
            *events.entry(event.reason.clone()).or_default() += 1;
            Ok(EffectOutput::Sent)
        }
    })
}

fn refused(code: u16, message: String) -> Executed {
    Executed::new(Err(EffectError::Refused { code, message }))
}

fn create_claim(claim: &NodeClaim, cluster: &mut Cluster) -> Executed {
    let key = ObjectKey::Claim(claim.name());
    let value = match serde_json::to_value(claim) {
        Ok(value) => value,
        Err(error) => return refused(400, error.to_string()),
    };
    let now = cluster.now();
    match cluster.api_server.get(&key) {
        None => match cluster.api_server.create(key.clone(), value, now) {
            Ok(created) => Executed::returning(EffectOutput::Written, key, created),
            Err(error) => Executed::new(Err(error)),
        },
        Some(there) if there.pointer(INTENT) == value.pointer(INTENT) => {
            Executed::new(Ok(EffectOutput::Written))
        }
        Some(_) => refused(409, format!("{key:?} exists")),
    }
}

fn write(write: &ObjectWrite, cluster: &mut Cluster) -> Executed {
    let key = ObjectKey::from(&write.target);
    let PatchBody {
        subresource,
        mut merge,
    } = write.edit.render(None);
    if subresource.is_some() {
        // The status subresource accepts nothing else.
        merge = json!({ "status": merge.get("status").cloned().unwrap_or_default() });
    }
    let api_server = &mut cluster.api_server;
    match api_server.patch(&key, &merge, write.resource_version.as_deref()) {
        Ok(written) if api_server.get(&key).is_some() => {
            Executed::returning(EffectOutput::Written, key, written)
        }
        Ok(_) => Executed::new(Ok(EffectOutput::Written)),
        Err(error) => Executed::new(Err(error)),
    }
}

fn delete(
    target: &ObjectRef,
    uid: Option<&str>,
    grace_seconds: Option<i64>,
    cluster: &mut Cluster,
) -> Executed {
    delete_object(ObjectKey::from(target), uid, grace_seconds, cluster)
}

/// Deletes an object, for the service or for another client.
pub(crate) fn delete_object(
    key: ObjectKey,
    uid: Option<&str>,
    grace_seconds: Option<i64>,
    cluster: &mut Cluster,
) -> Executed {
    let at = deletion_time(&key, grace_seconds, cluster);
    match cluster.api_server.delete(&key, uid, at) {
        Ok(Some(value)) => {
            stop_pod(&key, &value, grace_seconds, cluster);
            Executed::returning(EffectOutput::Deleted, key, value)
        }
        Ok(None) | Err(EffectError::NotFound(_)) => Executed::new(Ok(EffectOutput::Deleted)),
        Err(error) => Executed::new(Err(error)),
    }
}

/// The deletion time that an object gets when it is deleted now.
fn deletion_time(key: &ObjectKey, grace_seconds: Option<i64>, cluster: &Cluster) -> Timestamp {
    let now = cluster.now();
    match (key, cluster.api_server.get(key)) {
        (ObjectKey::Pod(_), Some(pod)) if cluster.timing.marks_grace => {
            after(now, grace_seconds.unwrap_or_else(|| own_grace(pod)) * 1_000)
        }
        _ => now,
    }
}

fn own_grace(pod: &Value) -> i64 {
    pod.pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .unwrap_or(30)
}

/// A pod that is being deleted stops after a part of its grace period.
fn stop_pod(key: &ObjectKey, value: &Value, grace_seconds: Option<i64>, cluster: &mut Cluster) {
    let ObjectKey::Pod(pod) = key else { return };
    let most = grace_seconds.unwrap_or_else(|| own_grace(value));
    let most = most.clamp(1, 30) * 1000;
    let (low, high) = cluster.timing.pod_stop_ms;
    let ms = cluster.clock.random.between(low, high).min(most);
    let uid = value
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let stopped = Action::RemoveStoppedPod(pod.clone(), uid);
    cluster.clock.in_ms(ms, stopped);
}

/// As many pods of a budget are healthy as it asks for.
fn is_satisfied(pdb: &Value) -> bool {
    let count = |name: &str| pdb["status"][name].as_i64().unwrap_or(0);
    count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy")
}

fn evict(key: &ObjectKey, uid: &str, cluster: &mut Cluster) -> Executed {
    let evicted = || Executed::new(Ok(EffectOutput::Evicted));
    let Some(pod) = cluster.api_server.get(key).cloned() else {
        return evicted();
    };
    if is_deleting(&pod) {
        return evicted();
    }
    let allowed = |pdb: &Value| {
        let allowed = pdb.pointer("/status/disruptionsAllowed");
        allowed.and_then(Value::as_i64).unwrap_or(0)
    };
    let budgets: Vec<(ObjectKey, i64)> = cluster
        .api_server
        .iter()
        .filter(|(key, pdb)| matches!(key, ObjectKey::Pdb(_)) && selects(pdb, &pod))
        .map(|(key, pdb)| (key.clone(), allowed(pdb)))
        .collect();
    if budgets.len() > 1 {
        return Executed::new(Err(EffectError::MultipleBudgets(format!("{key:?}"))));
    }
    // As with the policy `IfHealthyBudget`: a pod that is not ready costs no eviction of a budget whose other pods suffice.
    let is_counted = |budget: &ObjectKey| {
        is_healthy(&pod) || !cluster.api_server.get(budget).is_some_and(is_satisfied)
    };
    if let Some((budget, allowed)) = budgets.first()
        && is_running(&pod)
        && is_counted(budget)
    {
        if *allowed <= 0 {
            cluster.stats.evictions_refused += 1;
            return Executed::new(Err(EffectError::Blocked(format!("{budget:?}"))));
        }
        cluster.write(
            budget,
            &json!({ "status": { "disruptionsAllowed": allowed - 1 } }),
        );
    }
    cluster.stats.evictions += 1;
    let name = || pod.pointer("/metadata/name").and_then(Value::as_str);
    let owner = owner(&pod).or_else(name);
    let owner = owner.unwrap_or_default();
    cluster.scores.pod_evicted(owner);
    if let Some((claim, kind)) = claim_and_kind(&pod, cluster) {
        let now = cluster.now();
        cluster.scores.moved.leave(owner, &claim, kind, now);
    }
    let ObjectKey::Pod(name) = key else {
        return evicted();
    };
    let deleted = delete(&ObjectRef::Pod(name.clone()), Some(uid), None, cluster);
    Executed {
        result: deleted.result.map(|_| EffectOutput::Evicted),
        ..deleted
    }
}

fn selects(pdb: &Value, pod: &Value) -> bool {
    let required = pdb
        .pointer("/spec/selector/matchLabels")
        .and_then(Value::as_object);
    let labels = pod.pointer("/metadata/labels");
    let same = |(key, value): (&String, &Value)| labels.and_then(|all| all.get(key)) == Some(value);
    pdb.pointer("/metadata/namespace") == pod.pointer("/metadata/namespace")
        && required.is_some_and(|required| required.iter().all(same))
}

fn list_pods(node: &NodeName, cluster: &Cluster) -> Executed {
    let pods = cluster.api_server.pods_on(node.as_str());
    let returned: Vec<(ObjectKey, Value)> = pods.map(|(key, pod)| (key, pod.clone())).collect();
    Executed {
        result: Ok(EffectOutput::PodsListed(returned.len())),
        returned,
    }
}

fn launch(request: &LaunchRequest, cluster: &mut Cluster) -> Result<EffectOutput, EffectError> {
    if request.node_class.is_none() {
        let message = format!(
            "node class {} does not exist",
            request.claim.spec.node_class_ref.name
        );
        let error = LaunchError::NodeClassNotReady { message };
        return Err(EffectError::Launch(error));
    }

    let Cluster {
        clock,
        cloud,
        stats,
        timing,
        scores,
        ..
    } = cluster;
    let (result, new) = cloud.launch(request, clock.now(), &mut clock.random);
    for id in new {
        stats.nodes_launched += 1;
        let ms = timing.boot.draw(&mut clock.random);
        clock.in_ms(ms, Action::CreateNode(id));
    }
    match result {
        Ok(launched) => Ok(EffectOutput::Launched(Box::new(launched))),
        Err(error) => {
            if matches!(error, LaunchError::InsufficientCapacity { .. }) {
                stats.shortages += 1;
            }
            scores.moved.change(clock.now());
            Err(EffectError::Launch(error))
        }
    }
}

/// The NodeClaim and the kind of the node that a pod is on.
fn claim_and_kind(pod: &Value, cluster: &Cluster) -> Option<(String, NodeKind)> {
    let node = ObjectKey::Node(NodeName::from(node_of(pod)?));
    let node = cluster.api_server.get(&node)?;
    Some((owner(node)?.to_owned(), kind_of(node)?))
}

/// The kind of a node.
pub(super) fn kind_of(node: &Value) -> Option<NodeKind> {
    let labels = node.pointer("/metadata/labels")?;
    node_kind(|key| labels.get(key)?.as_str())
}
