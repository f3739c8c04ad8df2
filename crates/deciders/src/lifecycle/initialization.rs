//! From a launched instance to an initialized node.

use jiff::Timestamp;

use super::{LifecycleDecider, registration};
use crate::conditions::at_initialization;
use crate::tracking::timer_queue::earlier;
use mortise_apis::k8s::Node;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{NodeName, ObjectRef, Uid};
use mortise_apis::schema::conditions::Conditions;
use mortise_apis::values::after;
use mortise_cloudprovider::LaunchedInstance;
use mortise_engine::condition_edits::edited_claim;
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::record::Verdict;
use mortise_engine::write::{
    InstanceStatus, NodeClaimStatusEdit, ObjectWrite, Registration, node_ref,
};
use mortise_planning::reason::Reason;

/// How far the Node of a claim is.
struct NodeProgress<'a> {
    node: Option<&'a Node>,
    /// Message about several Nodes with the provider ID, of which none is registered.
    duplicates: Option<String>,
    is_registered: bool,
    /// Why the Node is not initialized: reason and message, or nothing is missing; `None` without a Node.
    missing: Option<Option<(&'static str, String)>>,
}

impl NodeProgress<'_> {
    /// Sets `Registered` and, after it, `Initialized`.
    fn set_conditions(
        &self,
        conditions: &mut Conditions<'_>,
        claim: &NodeClaim,
        launched: Option<&LaunchedInstance>,
        input: &StepInput<'_>,
    ) {
        if !self.is_registered {
            self.set_unregistered(conditions, claim);
            return;
        }
        conditions.set_true("Registered");
        let Some((node, missing)) = self.node.zip(self.missing.as_ref()) else {
            conditions.set_unknown("Initialized", "NodeNotFound", "node is not there");
            return;
        };
        if let Some((reason, message)) = missing {
            conditions.set_unknown("Initialized", reason, message);
            return;
        }
        if !conditions.is_true("Initialized") {
            let pool = claim
                .pool()
                .and_then(|name| input.snapshot.pools.get(&name));
            let expected = launched.map(|known| &known.capacity);
            let expected = expected.or(claim.status.capacity.as_ref());
            at_initialization(conditions, claim, expected, node, pool.map(|pool| &**pool));
        }
        conditions.set_true("Initialized");
    }

    fn set_unregistered(&self, conditions: &mut Conditions<'_>, claim: &NodeClaim) {
        if let Some(message) = &self.duplicates {
            conditions.set_false("Registered", "MultipleNodesFound", message);
            return;
        }
        let hooks = self
            .node
            .map(|node| registration::pending_hooks(claim, node))
            .unwrap_or_default();
        if hooks.is_empty() {
            let message = "node has not registered yet";
            conditions.set_unknown("Registered", "NodeNotFound", message);
        } else {
            let message = hooks.join(", ");
            conditions.set_unknown("Registered", "RegistrationHookPending", &message);
        }
    }
}

/// Says which Nodes have the provider ID of one NodeClaim, if there are several.
fn duplicate_nodes(node: Option<&Node>, duplicates: &[NodeName]) -> Option<String> {
    if duplicates.is_empty() {
        return None;
    }
    let first = node.and_then(|node| node.metadata.name.as_deref());
    let others = duplicates.iter().map(|each| each.as_str());
    let names: Vec<&str> = first.into_iter().chain(others).collect();
    Some(format!(
        "several nodes have the provider ID of the NodeClaim: {}",
        names.join(", ")
    ))
}

impl LifecycleDecider {
    /// Adds the label of the node class to launched claims and registered nodes of older versions, which had none.
    pub(super) fn hydrate(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let class = &claim.spec.node_class_ref;
        let key = labels::node_class_key(&class.group, &class.kind);
        let target = ObjectRef::Claim(claim.name());
        if let Some(labels) = registration::class_label(claim, claim.label(&key)) {
            let write = ObjectWrite::add_labels(target, labels);
            return self.outbox.send(input.now, write, step).err().flatten();
        }
        let state_node = claim
            .provider_id()
            .and_then(|id| input.snapshot.nodes.get(id))?;
        let node = state_node
            .node
            .as_deref()
            .filter(|_| claim.is_true("Registered"))?;
        let labels = registration::class_label(claim, node.label(&key))?;
        let write = ObjectWrite::add_labels(node_ref(node), labels);
        self.outbox.send(input.now, write, step).err().flatten()
    }

    /// Launched: registration, then initialization. `launched` is the instance that status does not name yet: then the
    /// same write of status tells of its launch too.
    pub(super) fn update_progress(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        uid: Uid,
        launched: Option<&LaunchedInstance>,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let id = launched.map_or_else(|| claim.provider_id(), |known| Some(&known.provider_id));
        let state_node = id.and_then(|id| input.snapshot.nodes.get(id));
        let node = state_node
            .and_then(|state_node| state_node.node.as_deref())
            .filter(|node| node.metadata.deletion_timestamp.is_none());
        let mut again = None;
        let mut is_registered = claim.is_true("Registered");
        let duplicates = state_node.filter(|_| !is_registered);
        let duplicates = duplicates.and_then(|each| duplicate_nodes(node, &each.duplicate_nodes));
        if !is_registered {
            if launched.is_none() {
                match self.await_condition(input, claim, &uid, "Registered", step) {
                    Ok(at) => again = at,
                    Err(at) => return at,
                }
            }
            if let Some(node) = node.filter(|_| duplicates.is_none()) {
                if let Some(at) = self.settles(input, node, &uid) {
                    return earlier(again, Some(at));
                }
                match registration::registration(claim, node, input) {
                    Some(lacking) => {
                        return earlier(again, self.register(input, claim, node, lacking, step));
                    }
                    None => is_registered = registration::is_marked(node, labels::REGISTERED),
                }
            }
        } else if input.settings.initialization_timeout_ms > 0 {
            match self.await_condition(input, claim, &uid, "Initialized", step) {
                Ok(at) => again = at,
                Err(at) => return at,
            }
        }
        let missing = node.map(|node| registration::missing(claim, node, input));
        if let (true, Some(node), Some(None)) = (is_registered, node, &missing)
            && !registration::is_marked(node, labels::INITIALIZED)
        {
            let sent = self
                .outbox
                .send(input.now, ObjectWrite::initialize(node), step);
            return earlier(again, sent.err().flatten());
        }
        let is_initialized = matches!(missing, Some(None));
        let progress = NodeProgress {
            node,
            duplicates,
            is_registered,
            missing,
        };
        let list = edited_claim(claim, input.now, |conditions| {
            conditions.set_true("Launched");
            progress.set_conditions(conditions, claim, launched, input);
        });
        let node_name = node
            .filter(|_| is_registered)
            .and_then(|node| node.metadata.name.clone());
        let renamed = node_name.is_some() && claim.status.node_name != node_name;
        if list.is_none() && !renamed && launched.is_none() {
            self.unsaid.remove(&uid);
            return again;
        }
        // Another reason why it is not initialized yet: the next one, or the end of waiting, may come in a moment.
        let is_detail = !is_initialized && !renamed && claim.is_true("Registered");
        if is_detail && launched.is_none() {
            let first = *self.unsaid.entry(uid.clone()).or_insert(input.now);
            let at = after(first, input.settings.reason_grace_ms);
            if at > input.now {
                return earlier(again, Some(at));
            }
        }
        self.unsaid.remove(&uid);
        let edit = NodeClaimStatusEdit {
            instance: launched.map(InstanceStatus::from),
            node_name: node_name.filter(|_| renamed),
            conditions: Some(list.unwrap_or_else(|| claim.status.conditions.clone())),
            ..NodeClaimStatusEdit::default()
        };
        let write = ObjectWrite::claim_status(claim, edit);
        let sent = self.outbox.send(input.now, write, step);
        earlier(again, sent.err().flatten())
    }

    /// When to register a Node that has just joined; `None` = now. Only one that may be ready in a moment is waited
    /// for: its kubelet has said nothing of `Ready` yet, or that it is, and kube-controller-manager is about to take
    /// the taint away. One that says it is not Ready takes its time, and what waits for its registration must not.
    fn settles(&mut self, input: &StepInput<'_>, node: &Node, uid: &Uid) -> Option<Timestamp> {
        let is_late = node.condition("Ready").is_some_and(|ready| {
            let mut taints = node.spec.taints.iter();
            ready.status != "True" || !taints.any(|taint| taint.key == labels::NOT_READY_TAINT)
        });
        if is_late || registration::is_marked(node, labels::REGISTERED) {
            self.joined.remove(uid);
            return None;
        }
        let first = *self.joined.entry(uid.clone()).or_insert(input.now);
        let at = after(first, input.settings.join_grace_ms);
        (at > input.now).then_some(at)
    }

    fn register(
        &mut self,
        input: &StepInput<'_>,
        claim: &NodeClaim,
        node: &Node,
        lacking: Registration,
        step: &mut Step,
    ) -> Option<Timestamp> {
        let write = ObjectWrite::register(node, lacking);
        if let Err(at) = self.outbox.send(input.now, write, step) {
            return at;
        }
        let born_tainted = node
            .spec
            .taints
            .iter()
            .any(|taint| taint.key == labels::UNREGISTERED_TAINT);
        if !born_tainted && !registration::is_marked(node, labels::REGISTERED) {
            let node = node.metadata.name.as_deref().unwrap_or_default().into();
            let (by, verdict) = (DeciderId::Lifecycle, Verdict::Observed);
            let reasons = vec![Reason::UnregisteredTaintMissing { node }];
            step.announce(
                input,
                by,
                [ObjectRef::Claim(claim.name())],
                verdict,
                reasons,
            );
        }
        None
    }
}
