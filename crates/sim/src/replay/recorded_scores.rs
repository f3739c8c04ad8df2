//! Scores of the cluster that a recording shows, and of what its process did there.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::k8s;
use mortise_apis::karpenter::nodeclaim::DISRUPTION_REASON;
use mortise_apis::names::{ClaimName, NodeName, PodKey, Uid};
use mortise_apis::schema::conditions;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::values::{after, since};
use mortise_engine::effect::{Effect, EffectOutput};
use mortise_planning::disruption::command::DisruptionReason;
use mortise_state::resource_kinds::{Object, ObjectEvent, ObjectKey};
use mortise_state::snapshot::{Snapshot, StateNode};

use crate::moved_pods::{NodeKind, node_kind};
use crate::scores::{ScoreMeter, Scores};
use crate::stats::{CostMeter, Stats};

/// What is added up while a recording is played.
#[derive(Default)]
pub(super) struct RecordedScores {
    meter: ScoreMeter,
    cost: Option<CostMeter>,
    /// Instances and their price in the snapshot of a generation.
    priced: Option<(u64, usize, MicroUsd)>,
    stats: Stats,
    /// The next minute to count.
    minute: Option<Timestamp>,
    began: Option<Timestamp>,
    until: Option<Timestamp>,
    /// Pods without a node.
    waiting: BTreeMap<PodKey, Waiting>,
    /// Claims with their creation, and their Node.
    claims: BTreeMap<ClaimName, (Timestamp, Option<NodeName>)>,
    /// The kind of each Node.
    kinds: BTreeMap<NodeName, NodeKind>,
    launched: BTreeSet<ClaimName>,
    evicted: BTreeSet<Uid>,
}

struct Waiting {
    uid: Option<String>,
    created: Timestamp,
    is_daemon: bool,
}

impl RecordedScores {
    /// Counts the time until an entry, in which the cluster was as the deciders saw it last.
    pub(super) fn pass(&mut self, at: Timestamp, snapshot: &Snapshot) {
        if self.began.is_none() {
            self.began = Some(at);
            self.minute = Some(after(at, 60_000));
        }
        let cost = self.cost.get_or_insert_with(|| CostMeter::new(at));
        let known = self.priced.filter(|(of, ..)| *of == snapshot.generation);
        let priced = known.unwrap_or_else(|| priced(snapshot));
        self.priced = Some(priced);
        let (_, instances, price) = priced;
        while let Some(minute) = self.minute.filter(|minute| *minute <= at) {
            self.meter.pods_wait(self.waiting.len());
            self.meter.count_nodes(instances, price, snapshot, minute);
            self.minute = Some(after(minute, 60_000));
        }
        cost.charge(price, at, &mut self.stats);
        self.until = Some(at);
    }

    /// An object changed.
    pub(super) fn changed(&mut self, at: Timestamp, event: &ObjectEvent) {
        match event {
            ObjectEvent::Applied(object @ Object::Pod(pod), _) => {
                if let ObjectKey::Pod(key) = object.key() {
                    self.pod(at, key, pod);
                }
            }
            ObjectEvent::Applied(Object::Claim(claim), _) => {
                let created = claim.metadata.creation_timestamp.as_ref();
                if let Some(created) = created {
                    let node = claim.status.node_name.as_deref().map(NodeName::from);
                    self.claims.insert(claim.name(), (created.0, node));
                }
            }
            ObjectEvent::Deleted(ObjectKey::Pod(pod), _) => drop(self.waiting.remove(pod)),
            ObjectEvent::Deleted(ObjectKey::Claim(claim), _) => {
                if let Some((created, node)) = self.claims.remove(claim) {
                    self.meter.node_ended(created, at, node.as_ref());
                }
            }
            ObjectEvent::Applied(object @ Object::Node(node), _) => {
                let labels = node.metadata.labels.as_ref();
                let kind = node_kind(|key| labels?.get(key).map(String::as_str));
                if let (ObjectKey::Node(name), Some(kind)) = (object.key(), kind) {
                    self.kinds.insert(name, kind);
                }
            }
            ObjectEvent::Deleted(ObjectKey::Node(node), _) => drop(self.kinds.remove(node)),
            _ => {}
        }
    }

    fn pod(&mut self, at: Timestamp, key: PodKey, pod: &k8s::Pod) {
        let metadata = &pod.metadata;
        let is_over = metadata.deletion_timestamp.is_some()
            || matches!(&*pod.status.phase, "Succeeded" | "Failed");
        if is_over {
            self.waiting.remove(&key);
        } else if pod.spec.node_name.is_none() {
            let waiting = Waiting {
                uid: metadata.uid.clone(),
                created: metadata.creation_timestamp.as_ref().map_or(at, |at| at.0),
                is_daemon: is_daemon(metadata),
            };
            self.waiting.insert(key, waiting);
        } else {
            self.bound(at, &key, pod);
        }
    }

    /// A pod is on a node, by now or since before.
    fn bound(&mut self, at: Timestamp, key: &PodKey, pod: &k8s::Pod) {
        let owner = pod.metadata.owner_references.iter().flatten().next();
        let node = pod.spec.node_name.as_deref().map(NodeName::from);
        let node = node.filter(|_| !is_daemon(&pod.metadata));
        if let Some(node) = &node {
            self.meter.node_used(node);
        }
        let waited = self.waiting.remove(key);
        let Some(waited) = waited.filter(|waited| waited.uid == pod.metadata.uid) else {
            return;
        };
        let seconds = (since(at, waited.created) / 1000).max(0);
        if waited.is_daemon {
            self.meter.daemon_pod_placed(seconds);
        } else {
            self.meter.pod_placed(seconds);
        }
        let kind = node.and_then(|node| self.kinds.get(&node));
        if let (Some(owner), Some(kind)) = (owner, kind) {
            let kind = NodeKind::clone(kind);
            self.meter.moved.arrive(&owner.name, kind, at);
        }
    }

    /// A request of this process was done.
    pub(super) fn done(
        &mut self,
        effect: &Effect,
        output: &EffectOutput,
        snapshot: Option<&Snapshot>,
    ) {
        match (effect, output) {
            (Effect::Launch(request), _) => drop(self.launched.insert(request.claim.name())),
            (Effect::Evict { pod, uid }, EffectOutput::Evicted)
                if self.evicted.insert(uid.clone()) =>
            {
                let found = snapshot.and_then(|snapshot| snapshot.pods.get(pod));
                let owner = found.and_then(|pod| pod.owner.as_ref());
                let owner = owner.map_or(&pod.name, |owner| &owner.name);
                self.meter.pod_evicted(owner);
                let node = found.and_then(|pod| pod.node.as_ref());
                let state_node = node.and_then(|node| snapshot?.node(node.as_str()));
                if let (Some(node), Some(at)) = (node, self.until)
                    && let Some(claim) = state_node.and_then(|node| consolidated(node))
                    && let Some(kind) = self.kinds.get(node)
                {
                    let moved = &mut self.meter.moved;
                    moved.consolidate(claim.clone(), at);
                    moved.leave(owner, claim.as_str(), NodeKind::clone(kind), at);
                }
            }
            _ => {}
        }
    }

    /// The scores so far, and the seconds that they are of.
    pub(super) fn scores(&self) -> (Scores, i64) {
        let times = self.began.zip(self.until);
        let seconds = times.map_or(0, |(began, until)| since(until, began) / 1000);
        let scores = Scores {
            spent_micro_usd: self.stats.spent_micro_usd,
            evictions: self.evicted.len() as u64,
            nodes_launched: self.launched.len() as u64,
            ..self.meter.scores()
        };
        (scores, seconds)
    }
}

fn is_daemon(metadata: &ObjectMeta) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "DaemonSet")
}

/// The NodeClaim of a node that consolidation removes.
fn consolidated(node: &StateNode) -> Option<ClaimName> {
    let claim = node.claim.as_ref()?;
    let reason = conditions::find(&claim.status.conditions, DISRUPTION_REASON)?;
    let is_consolidated = claim.is_true(DISRUPTION_REASON)
        && reason.reason == DisruptionReason::Underutilized.as_str();
    is_consolidated.then(|| claim.name())
}

/// The generation of a snapshot, its managed instances and their price.
fn priced(snapshot: &Snapshot) -> (u64, usize, MicroUsd) {
    let nodes = snapshot.nodes.values();
    let instances = nodes.filter(|node| node.is_managed() && node.provider_id().is_some());
    let prices: Vec<MicroUsd> = instances
        .map(|node| node.price.unwrap_or_default())
        .collect();
    (snapshot.generation, prices.len(), prices.into_iter().sum())
}
