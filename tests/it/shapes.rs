//! Kinds of drain blockers: the node, the owner, what would clear it, and what a user does then.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_apis::labels::DO_NOT_DISRUPT;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::objects::{budget, deployment, kwok_class, never, pod, small_pool};
use crate::scene::{LaunchedNode, SOON, Scene};

/// The label of a node with its app, and the requirement of the NodePool for one node per app.
pub(crate) const OF: &str = "of";
/// Delay until kwok removes an evicted pod.
pub(crate) const DELAY: &str = "pod-delete.stage.kwok.x-k8s.io/delay";
/// Longest time from a deletion to the word about what is in its way.
const WITHIN_S: i64 = 60;

/// A drain blocker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// As metrics spell it.
    label: &'static str,
    /// App of the node.
    pub(crate) app: &'static str,
    /// Owner, as reported; empty if there is none.
    owner: &'static str,
    /// What would clear it, as it is told; the beginning.
    unblocks: &'static str,
    /// What a person does, as arguments of kubectl, with ` && ` between commands; empty when nothing is done.
    cure: &'static str,
}

const fn shape(
    label: &'static str,
    app: &'static str,
    owner: &'static str,
    unblocks: &'static str,
    cure: &'static str,
) -> Shape {
    Shape {
        label,
        app,
        owner,
        unblocks,
        cure,
    }
}

/// Those of a cluster with kwok. Pods that are not waited for any more a minute after their time come first.
pub(crate) const SHAPES: [Shape; 22] = [
    shape(
        "pod_stuck",
        "stuck",
        " of ReplicaSet stuck-",
        "check the container runtime and volumes",
        "",
    ),
    shape(
        "pod_finalizer",
        "kept",
        "",
        "the controller of the finalizer must remove it",
        r#"patch pod kept --type=merge -p {"metadata":{"finalizers":null}}"#,
    ),
    shape(
        "in_grace_period",
        "slow",
        " of ReplicaSet slow-",
        "it terminates within its grace period; a shorter terminationGracePeriodSeconds is faster",
        "delete pod -l app=slow --force --grace-period=0 --wait=false",
    ),
    shape(
        "pdb_never_allows",
        "never",
        " of ReplicaSet never-",
        "allow one unavailable pod in the budget",
        r#"patch pdb never --type=merge -p {"spec":{"minAvailable":0}}"#,
    ),
    shape(
        "pdb_pod_not_ready",
        "unready",
        " of ReplicaSet unready-",
        "set unhealthyPodEvictionPolicy: AlwaysAllow on the budget",
        r#"patch pdb unready --type=merge -p {"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}"#,
    ),
    shape(
        "pdb_pods_not_ready",
        "unready",
        " of ReplicaSet unready-",
        "more than 2 of its pods must be ready",
        "",
    ),
    shape(
        "pdb_pods_pending",
        "waits",
        "",
        "pod default/waits-too must be scheduled",
        "delete pdb waits",
    ),
    shape(
        "pdb_not_computed",
        "uncounted",
        " of ReplicaSet uncounted-",
        "kube-controller-manager must be running and compute it",
        "delete validatingadmissionpolicybinding budgets",
    ),
    shape(
        "pdb_not_countable",
        "uncountable",
        " of ConfigMap uncountable",
        "use an existing controller for the pods",
        r#"patch pdb uncountable --type=merge -p {"spec":{"maxUnavailable":null,"minAvailable":0}}"#,
    ),
    shape(
        "pdb_exhausted",
        "used-up",
        " of ReplicaSet used-up-",
        "it allows the next eviction when the evicted pods are ready on other nodes",
        // Its status was refused while another budget's was: kube-controller-manager waits ever longer before it counts again.
        "annotate pdb used-up counted=again",
    ),
    shape(
        "multiple_pdbs",
        "several",
        " of ReplicaSet several-",
        "let only one of",
        "delete pdb second && annotate pdb several counted=again",
    ),
    shape(
        "do_not_disrupt",
        "guarded",
        " of ReplicaSet guarded-",
        "remove the annotation karpenter.sh/do-not-disrupt",
        "annotate pod -l app=guarded karpenter.sh/do-not-disrupt-",
    ),
    shape(
        "do_not_disrupt_until",
        "until",
        " of ReplicaSet until-",
        "it expires automatically",
        "annotate pod -l app=until karpenter.sh/do-not-disrupt-",
    ),
    shape(
        "eviction_denied",
        "denied",
        " of ReplicaSet denied-",
        "an admission webhook or policy denies it",
        "delete validatingadmissionpolicybinding evictions",
    ),
    shape(
        "eviction_forbidden",
        "forbidden",
        " of ReplicaSet forbidden-",
        "let the service account create pods/eviction",
        "create rolebinding evicts -n forbidden --clusterrole=evicts --serviceaccount=kube-system:mortise",
    ),
    shape(
        "eviction_unavailable",
        "unanswered",
        " of ReplicaSet unanswered-",
        "the API server or one of its webhooks must respond again",
        "delete validatingwebhookconfiguration unanswered",
    ),
    shape(
        "volume_attached",
        "attached",
        " of driver ebs.csi.test",
        "kube-controller-manager detaches it",
        "delete volumeattachment attached",
    ),
    shape(
        "volume_detaching",
        "detaching",
        " of driver ebs.csi.test",
        "driver ebs.csi.test must say that it is detached",
        r#"patch volumeattachment detaching --type=merge -p {"metadata":{"finalizers":null}}"#,
    ),
    shape(
        "volume_detach_failed",
        "torn",
        " of driver ebs.csi.test",
        "driver ebs.csi.test must be able to detach it",
        r#"patch volumeattachment torn --type=merge -p {"metadata":{"finalizers":null}}"#,
    ),
    shape(
        "node_finalizer",
        "node",
        "",
        "the controller of the finalizer must remove it",
        r#"patch node NODE --type=merge -p {"metadata":{"finalizers":null}}"#,
    ),
    shape(
        "claim_finalizer",
        "claim",
        "",
        "the controller of the finalizer must remove it",
        r#"patch nodeclaim CLAIM --type=merge -p {"metadata":{"finalizers":null}}"#,
    ),
    shape(
        "api_write_rejected",
        "refused",
        "",
        "change the admission webhook, policy or permission",
        "",
    ),
];

/// Blockers of a cloud and of kubelets: kwok's instances are their Nodes, which terminate at once, regardless of kubelets.
pub(crate) const OF_CLOUDS: [Shape; 3] = [
    shape(
        "kubelet_not_responding",
        "silent",
        " of ReplicaSet silent-",
        "the kubelet must respond again",
        "delete pod -l app=silent --force --grace-period=0 --wait=false",
    ),
    shape(
        "instance_termination_failed",
        "protected",
        "",
        "the cloud must accept the call",
        "",
    ),
    shape(
        "instance_terminating",
        "ending",
        "",
        "the cloud provider confirms the termination",
        "",
    ),
];

impl Shape {
    fn event(&self) -> &'static str {
        let family = self.label.split('_').next();
        match family {
            Some("volume") => "AwaitingVolumeDetachment",
            Some("node" | "claim" | "api" | "instance") => "FailedTermination",
            _ => "FailedDraining",
        }
    }

    /// Whether the node is deleted soon after [`Shape::cure`], or automatically.
    pub(crate) fn ends(&self) -> bool {
        !self.cure.is_empty()
            || matches!(
                self.label,
                "pod_stuck" | "pdb_exhausted" | "instance_terminating"
            )
    }

    /// Waits until the blocker of the node is reported in time, with owner, age and what would clear it; and queries it.
    pub(crate) async fn told(
        &self,
        scene: &Scene,
        of: &LaunchedNode,
        since: Timestamp,
    ) -> Result<()> {
        let (node, claim) = (of.node_name().to_owned(), of.claim.name().to_string());
        let has_node = self.label != "claim_finalizer";
        let about = if has_node { &node } else { &claim };
        // The age stands before it.
        let part = format!(" s; {}", self.unblocks);
        let event = scene.event(self.event(), about, &part).await;
        let event = event.with_context(|| self.label.to_owned())?;
        let text = event.message.unwrap_or_default();
        ensure!(
            event.type_.as_deref() == Some("Warning") && text.contains(self.owner),
            "{}: {text}",
            self.label
        );
        let at = event.first_timestamp.context("a time")?.0;
        let after = at.duration_since(since).as_secs();
        ensure!(after <= WITHIN_S, "{} was told after {after} s", self.label);
        let kind = if has_node { "node" } else { "nodeclaim" };
        let explained = scene
            .mortise
            .debug(&format!("explain?{kind}={about}"))
            .await?;
        let shown = explained["drain_blockers"].as_array();
        let is_shown = |each: &Value| each["kind"] == self.label;
        ensure!(
            shown.is_some_and(|all| all.iter().any(is_shown)),
            "{}: {explained:#}",
            self.label
        );
        Ok(())
    }

    /// Does what a person would do.
    pub(crate) async fn cure(&self, scene: &Scene, of: &LaunchedNode) -> Result<()> {
        if self.cure.is_empty() {
            return Ok(());
        }
        let claim = of.claim.name().to_string();
        for command in self.cure.split(" && ") {
            let words = command.split(' ').map(|word| match word {
                "NODE" => of.node_name(),
                "CLAIM" => &claim,
                word => word,
            });
            let said = scene.plane.kubectl(&words.collect::<Vec<_>>()).await?;
            said.ok().with_context(|| self.label.to_owned())?;
        }
        Ok(())
    }
}

/// Waits until the metric counts an app's node under one of its blockers.
pub(crate) async fn counted(scene: &Scene, shapes: &[Shape], app: &str) -> Result<()> {
    wait_until(
        &format!("the node of {app} in the metric"),
        SOON,
        || async {
            let mut count = 0.0;
            for shape in shapes.iter().filter(|shape| shape.app == app) {
                let label = format!("reason=\"{}\"", shape.label);
                let labels = [label.as_str()];
                let own = scene.mortise.metric("mortise_drains_blocked", &labels);
                count += own.await?;
            }
            ensure!((0.5..1.5).contains(&count), "{count}");
            Ok(())
        },
    )
    .await
}

/// A Deployment with a node of its own.
pub(crate) fn app(name: &str, replicas: usize, annotations: Value) -> Value {
    let mut made = deployment(
        name,
        replicas,
        SIZE,
        json!({ "nodeSelector": { OF: name } }),
    );
    made["spec"]["template"]["metadata"]["annotations"] = annotations;
    made
}

/// The same, with this time to stop and this grace period of its pods.
pub(crate) fn slow_app(name: &str, takes: &str, grace: i64) -> Value {
    let mut made = app(name, 1, json!({ DELAY: takes }));
    made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = json!(grace);
    made
}

const SIZE: (&str, &str) = ("100m", "64Mi");

/// Requirement of a NodePool: each node is for one app.
pub(crate) const FOR_APPS: (&str, &str, &[&str]) = (OF, "Exists", &[]);

/// By app: the nodes that were launched for it.
pub(crate) fn by_app(launched_nodes: Vec<LaunchedNode>) -> BTreeMap<String, LaunchedNode> {
    let of = |launched_node: LaunchedNode| (launched_node.label(OF).to_owned(), launched_node);
    launched_nodes.into_iter().map(of).collect()
}

/// All workloads on the nodes of [`SHAPES`], and their disruption budgets.
pub(crate) async fn workloads(scene: &Scene) -> Result<Vec<Value>> {
    let none = || json!({});
    let mut pool = small_pool("default", never());
    if let Some(all) = pool["spec"]["template"]["spec"]["requirements"].as_array_mut() {
        let (key, operator, _) = FOR_APPS;
        all.push(json!({ "key": key, "operator": operator }));
    }
    let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let elsewhere = |name: &str| {
        let mut made = app(name, 1, json!({}));
        made["metadata"]["namespace"] = json!(name);
        made
    };
    let unavailable = |name: &str, of: &str| {
        json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": name },
            "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": of } } } })
    };
    let bare = |name: &str, of: &str, on: &str| {
        let over = json!({ "nodeSelector": { OF: on } });
        pod(name, of, SIZE, over)
    };
    // Its controller exists, and cannot be scaled.
    let owner =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "uncountable" } });
    let owner = scene.plane.apply_yaml(&owner.to_string()).await?;
    let uid = owner.first().and_then(|made| made.metadata.uid.clone());
    let mut uncountable = bare("uncountable", "uncountable", "uncountable");
    uncountable["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "uncountable", "uid": uid.context("a UID")?, "controller": true,
    }]);
    let mut kept = bare("kept", "kept", "kept");
    kept["metadata"]["finalizers"] = json!(["example.com/backup"]);
    kept["metadata"]["annotations"] = json!({ DELAY: "1h" });
    let guarded = |value: &str| json!({ DO_NOT_DISRUPT: value });
    let mut all = vec![
        kwok_class(),
        pool,
        namespace("forbidden"),
        namespace("unanswered"),
        budget("never", 1),
        budget("unready", 2),
        budget("waits", 1),
        budget("uncounted", 0),
        budget("used-up", 2),
        budget("several", 0),
        unavailable("second", "several"),
        unavailable("uncountable", "uncountable"),
        slow_app("stuck", "1h", 2),
        slow_app("slow", "1h", 600),
        kept,
        app("unready", 1, none()),
        bare("waits", "waits", "waits"),
        // No instance type satisfies this.
        pod(
            "waits-too",
            "waits",
            SIZE,
            json!({ "nodeSelector": { "nowhere": "true" } }),
        ),
        uncountable,
        app("used-up", 1, none()),
        app("guarded", 1, guarded("true")),
        app("until", 1, guarded("3h")),
        elsewhere("forbidden"),
        elsewhere("unanswered"),
    ];
    let plain = [
        "never",
        "uncounted",
        "several",
        "denied",
        "attached",
        "detaching",
        "torn",
        "node",
        "claim",
        "refused",
    ];
    all.extend(plain.iter().map(|name| app(name, 1, none())));
    Ok(all)
}
