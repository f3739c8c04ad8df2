//! A control plane on which scenarios are played, one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, Pod, ServiceAccount,
};
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Client, Resource};
use mortise_apis::k8s;
use mortise_state::index::Index;
use mortise_state::resource_kinds::Object;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::advice::{Advice, Adviser};
use super::objects::{create, csi_node};
use super::outcome::{Landing, Outcome, Stray};
use super::plan::Plan;
use super::provisioner;
use super::scenario::{LABEL, NAMESPACES, PRIORITIES, Scenario};
use crate::harness::{Component, ControlPlane, SchedulerOptions, progress, wait_until};

/// Objects appear in a fraction of a second; this is for a test host that builds something at the same time.
const SOON: Duration = Duration::from_mins(1);
/// Requests at a time.
const WRITERS: usize = 8;
/// A pod that failed is tried again at most 2 s after something changed for it (the scheduler's longest back-off here); when
/// nothing was bound for twice that time, nothing will be.
const QUIET: Duration = Duration::from_secs(4);
/// A pod that the plan refuses is expected to be refused: the first verdict stands.
const REFUSED: Duration = Duration::from_millis(300);
/// The scheduler, or the maker of volumes, owes an answer for no longer than this.
const UNDECIDED: Duration = Duration::from_secs(30);

/// What the watch says about a pod.
#[derive(Clone, Debug, Default)]
struct Seen {
    node: Option<String>,
    /// The scheduler's message, when it found no node.
    message: Option<String>,
}

/// A control plane with everything that scenarios share.
pub struct Arena {
    plane: ControlPlane,
    client: Client,
    adviser: Option<Arc<Adviser>>,
    pods: watch::Receiver<BTreeMap<String, Seen>>,
    tasks: Tasks,
}

/// Tasks that end with their owner.
struct Tasks(Vec<JoinHandle<()>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

impl Arena {
    /// Starts the control plane.
    ///
    /// # Errors
    /// A peer does not start.
    pub async fn start(advice: Advice) -> Result<Self> {
        let mut plane = Box::pin(
            ControlPlane::builder()
                .full()
                .without(Component::Scheduler)
                .start(),
        )
        .await?;
        let client = plane.client();
        let adviser = match advice {
            Advice::None => None,
            Advice::Plan | Advice::Promises => Some(Arc::new(Adviser::start(advice).await?)),
        };
        let options = match &adviser {
            Some(adviser) => {
                SchedulerOptions::with_extender(adviser.config(&plane.dir().join("pki/ca.crt")))
            }
            None => SchedulerOptions::default(),
        };
        plane.start_scheduler(&options).await?;
        for (name, team) in NAMESPACES {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": team}}});
            create(&client, &namespace).await?;
        }
        for (name, value) in PRIORITIES {
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name},
                "value": value, "preemptionPolicy": "Never",
            });
            create(&client, &class).await?;
        }
        for (namespace, _) in NAMESPACES {
            let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
            wait_until("a service account in each namespace", SOON, || async {
                Ok(accounts.get("default").await?)
            })
            .await?;
        }
        let (pods, follower) = follow(client.clone(), adviser.clone());
        let tasks = Tasks(vec![follower, provisioner::start(client.clone())]);
        Ok(Self {
            plane,
            client,
            adviser,
            pods,
            tasks,
        })
    }

    /// Ends the control plane; all went well.
    pub async fn end(self) {
        let Self { plane, tasks, .. } = self;
        drop(tasks);
        plane.stop().await;
    }

    /// Plays a scenario: makes it, plans it, makes the plan's nodes, lets the scheduler bind, and takes everything away.
    ///
    /// # Errors
    /// The API server rejects an object, nodes do not become ready, or the plan is invalid. Unschedulable pods are no error.
    pub async fn play(&mut self, scenario: &Scenario) -> Result<Outcome> {
        let started = Instant::now();
        self.make(&scenario.before).await?;
        let pods: Vec<Value> = scenario.pods.iter().map(|pod| pod.object.clone()).collect();
        self.make(&pods).await?;
        let is_node = |object: &&Value| object["kind"] == "Node";
        let old_nodes = scenario.before.iter().filter(is_node).count();
        self.settled(scenario, old_nodes).await?;

        let now = Timestamp::now();
        let objects = alike_in_every_run(self.read(scenario).await?);
        let mut index = scenario.index(objects, now)?;
        let plan = scenario.plan(now, &index.freeze(now))?;
        for node in &plan.nodes {
            let csi = csi_node(&node.name, scenario.number, None);
            self.make(&[node.object.clone(), csi]).await?;
        }
        self.settled(scenario, old_nodes + plan.nodes.len()).await?;
        if let Some(adviser) = &self.adviser {
            let now = Timestamp::now();
            let index: Index = scenario.index(self.read(scenario).await?, now)?;
            adviser.learn(&plan, index);
        }

        let order = queue_order(scenario);
        let placed = |name: &&String| plan.places.contains_key(*name);
        let planned: BTreeSet<String> = order.iter().filter(placed).cloned().collect();
        self.release(order.iter().filter(placed)).await?;
        self.bound(&planned, QUIET).await?;
        let seen = self.pods.borrow().clone();

        let refused: BTreeSet<String> = plan.refused.keys().cloned().collect();
        if let Some(adviser) = &self.adviser {
            adviser.forget_places();
        }
        self.release(order.iter().filter(|name| refused.contains(*name)))
            .await?;
        self.bound(&refused, REFUSED).await?;
        let after = self.pods.borrow().clone();
        self.clear(scenario).await?;

        let strays = plan.refused.iter().filter_map(|(pod, why)| {
            Some(Stray {
                pod: pod.clone(),
                why: why.clone(),
                landed: after.get(pod)?.node.clone()?,
            })
        });
        Ok(Outcome {
            scenario: scenario.number,
            old_nodes,
            new_nodes: plan.nodes.len(),
            landings: landings(scenario, &plan, &seen),
            strays: strays.collect(),
            refused: refused.len(),
            millis: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    async fn make(&self, objects: &[Value]) -> Result<()> {
        stream::iter(objects)
            .map(|object| create(&self.client, object))
            .buffered(WRITERS)
            .try_for_each(|_| async { Ok(()) })
            .await
    }

    fn of<K: Resource<DynamicType = ()>>(&self) -> Api<K> {
        Api::all(self.client.clone())
    }

    async fn list<K>(&self, scenario: &Scenario) -> Result<Vec<K>>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let own = ListParams::default().labels(&format!("{LABEL}={}", scenario.number));
        Ok(self.of::<K>().list(&own).await?.items)
    }

    /// Waits until the nodes take pods, DaemonSets run on them, and volumes are bound that were made for their claims.
    async fn settled(&self, scenario: &Scenario, nodes: usize) -> Result<()> {
        wait_until("nodes, DaemonSets and volumes", SOON, || async {
            let there = self.list::<Node>(scenario).await?;
            let ready = there.iter().filter(|node| takes_pods(node)).count();
            ensure!(
                ready == nodes && there.len() == nodes,
                "{ready} of {nodes} nodes are ready"
            );
            let sets = self.list::<DaemonSet>(scenario).await?;
            let due: usize = sets
                .iter()
                .map(|set| there.iter().filter(|node| runs_on(set, node)).count())
                .sum();
            let pods = self.list::<Pod>(scenario).await?;
            let running = pods
                .iter()
                .filter(|pod| is_daemon(pod) && node_of(pod).is_some());
            let running = running.count();
            ensure!(
                running == due,
                "{running} of {due} DaemonSet pods have their node"
            );
            let claims = self.list::<PersistentVolumeClaim>(scenario).await?;
            let bound = |claim: &PersistentVolumeClaim| {
                let phase = claim
                    .status
                    .as_ref()
                    .and_then(|status| status.phase.as_deref());
                let named = claim
                    .spec
                    .as_ref()
                    .and_then(|spec| spec.volume_name.as_ref());
                named.is_none() || phase == Some("Bound")
            };
            ensure!(claims.iter().all(bound), "claims are not bound yet");
            Ok(())
        })
        .await
    }

    /// What the API server has of a scenario, as the solver sees it: pods as if their gates were gone.
    async fn read(&self, scenario: &Scenario) -> Result<Vec<Object>> {
        let mut all = Vec::new();
        let namespaces: Api<k8s::Namespace> = self.of();
        for (name, _) in NAMESPACES {
            all.push(Object::Namespace(Box::new(namespaces.get(name).await?)));
        }
        let boxed = |of| Object::StorageClass(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        let boxed = |of| Object::Volume(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        let boxed = |of| Object::VolumeClaim(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        let boxed = |of| Object::CsiNode(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        let boxed = |of| Object::DaemonSet(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        let boxed = |of| Object::Node(Box::new(of));
        all.extend(self.list(scenario).await?.into_iter().map(boxed));
        for mut pod in self.list::<k8s::Pod>(scenario).await? {
            pod.spec.scheduling_gates.clear();
            all.push(Object::Pod(Box::new(pod)));
        }
        Ok(all)
    }

    /// Takes the gates away, one pod after the other.
    async fn release(&self, names: impl Iterator<Item = &String>) -> Result<()> {
        let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        for name in names {
            let (namespace, pod) = name.split_once('/').context("namespace/name")?;
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            pods.patch(pod, &PatchParams::default(), &open)
                .await
                .with_context(|| format!("the gate of {name}"))?;
        }
        Ok(())
    }

    /// Waits until these pods are bound, or nothing goes on any more.
    async fn bound(&self, names: &BTreeSet<String>, quiet: Duration) -> Result<()> {
        let mut pods = self.pods.clone();
        let (mut most, mut since) = (0, Instant::now());
        loop {
            let (bound, undecided) = {
                let seen = pods.borrow_and_update();
                let of = |name: &String| seen.get(name).cloned().unwrap_or_default();
                let bound = names.iter().filter(|name| of(name).node.is_some()).count();
                let undecided = names.iter().map(of);
                let undecided = undecided.filter(|pod| pod.node.is_none() && pod.message.is_none());
                (bound, undecided.count())
            };
            if bound == names.len() {
                return Ok(());
            }
            if bound > most {
                (most, since) = (bound, Instant::now());
            }
            let longest = if undecided == 0 { quiet } else { UNDECIDED };
            let Some(left) = longest.checked_sub(since.elapsed()) else {
                return Ok(());
            };
            if let Ok(changed) = tokio::time::timeout(left, pods.changed()).await {
                changed.context("the watch of pods has ended")?;
            }
        }
    }

    /// Takes everything of a scenario away, and waits until pods and nodes are gone.
    async fn clear(&self, scenario: &Scenario) -> Result<()> {
        let own = ListParams::default().labels(&format!("{LABEL}={}", scenario.number));
        let now = DeleteParams::background().grace_period(0);
        self.remove_namespaced::<DaemonSet>(&now, &own).await?;
        self.remove_namespaced::<Pod>(&now, &own).await?;
        self.remove_namespaced::<PersistentVolumeClaim>(&now, &own)
            .await?;
        self.of::<Node>().delete_collection(&now, &own).await?;
        self.of::<CSINode>().delete_collection(&now, &own).await?;
        self.of::<PersistentVolume>()
            .delete_collection(&now, &own)
            .await?;
        self.of::<StorageClass>()
            .delete_collection(&now, &own)
            .await?;
        wait_until("pods and nodes to be gone", SOON, || async {
            let nodes = self.list::<Node>(scenario).await?.len();
            let pods = self.list::<Pod>(scenario).await?.len();
            if pods > 0 {
                // A DaemonSet's last pods come while it goes.
                self.remove_namespaced::<Pod>(&now, &own).await?;
            }
            ensure!(nodes + pods == 0, "{nodes} nodes, {pods} pods");
            Ok(())
        })
        .await
    }

    async fn remove_namespaced<K>(&self, how: &DeleteParams, which: &ListParams) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        for (namespace, _) in NAMESPACES {
            let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
            api.delete_collection(how, which).await?;
        }
        Ok(())
    }
}

/// Pods that differ in nothing else are told apart by age and UID. Names take their place, so that a scenario has one plan.
fn alike_in_every_run(mut objects: Vec<Object>) -> Vec<Object> {
    for object in &mut objects {
        if let Object::Pod(pod) = object {
            pod.metadata.creation_timestamp = None;
            pod.metadata.uid.clone_from(&pod.metadata.name);
        }
    }
    objects
}

/// Pods as the scheduler's queue has them when all come at once: by priority, then by age.
fn queue_order(scenario: &Scenario) -> Vec<String> {
    let priority = |pod: &Value| {
        let class = pod["spec"]["priorityClassName"].as_str();
        let of = PRIORITIES.iter().find(|(name, _)| class == Some(*name));
        of.map_or(0, |(_, value)| *value)
    };
    let mut pods: Vec<&Value> = scenario.pods.iter().map(|pod| &pod.object).collect();
    pods.sort_by_key(|pod| -priority(pod));
    pods.into_iter().map(name_of).collect()
}

fn name_of(pod: &Value) -> String {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn landings(scenario: &Scenario, plan: &Plan, seen: &BTreeMap<String, Seen>) -> Vec<Landing> {
    let landing = |pod: &super::DrawnPod| {
        let name = name_of(&pod.object);
        let planned = plan.places.get(&name)?.clone();
        let Seen { node, message } = seen.get(&name).cloned().unwrap_or_default();
        Some(Landing {
            features: pod.features.clone(),
            planned,
            message: if node.is_some() { None } else { message },
            landed: node,
            pod: name,
        })
    };
    scenario.pods.iter().filter_map(landing).collect()
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn is_daemon(pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.kind == "DaemonSet")
}

/// Ready, without the taints of a starting node, and cordoned in both ways if in one.
fn takes_pods(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let spec = node.spec.as_ref();
    let cordoned = spec.is_some_and(|spec| spec.unschedulable == Some(true));
    let taints = || {
        spec.and_then(|spec| spec.taints.as_ref())
            .into_iter()
            .flatten()
    };
    let is_cordon = |key: &str| key == "node.kubernetes.io/unschedulable";
    let coming = taints()
        .any(|taint| taint.key.starts_with("node.kubernetes.io/") && !is_cordon(&taint.key));
    ready && !coming && cordoned == taints().any(|taint| is_cordon(&taint.key))
}

/// Whether a DaemonSet of a scenario has a pod on a node: by its node selector, and by its tolerations, which are for
/// everything or for nothing but what every DaemonSet pod tolerates.
fn runs_on(set: &DaemonSet, node: &Node) -> bool {
    let Some(template) = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
    else {
        return false;
    };
    let labels = node.metadata.labels.as_ref();
    let has = |key: &String, value: &String| labels.and_then(|all| all.get(key)) == Some(value);
    let selected = template
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| has(key, value));
    let taints = node.spec.iter().flat_map(|spec| &spec.taints).flatten();
    let mut hard = taints.filter(|taint| {
        taint.effect != "PreferNoSchedule" && !taint.key.starts_with("node.kubernetes.io/")
    });
    selected && (template.tolerations.is_some() || hard.next().is_none())
}

/// Watches the pods of all scenarios; tells the adviser too.
fn follow(
    client: Client,
    adviser: Option<Arc<Adviser>>,
) -> (watch::Receiver<BTreeMap<String, Seen>>, JoinHandle<()>) {
    let (sender, receiver) = watch::channel(BTreeMap::new());
    let task = tokio::spawn(async move {
        let config = watcher::Config::default().labels(LABEL);
        let events = watcher::watcher(Api::<Pod>::all(client), config).default_backoff();
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => {
                    if let Some(Err(error)) = adviser.as_ref().map(|adviser| adviser.seen(&pod)) {
                        progress(&format!("a pod cannot be read: {error:#}"));
                    }
                    sender.send_modify(|all: &mut BTreeMap<String, Seen>| {
                        all.insert(key_of(&pod), seen(&pod));
                    });
                }
                Ok(Event::Delete(pod)) => sender.send_modify(|all| {
                    all.remove(&key_of(&pod));
                }),
                Ok(Event::Init | Event::InitDone) => {}
                Err(error) => progress(&format!("the watch of pods was interrupted: {error}")),
            }
        }
    });
    (receiver, task)
}

fn key_of(pod: &Pod) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", of(&pod.metadata.namespace), of(&pod.metadata.name))
}

fn seen(pod: &Pod) -> Seen {
    let conditions = pod.status.iter().flat_map(|status| &status.conditions);
    let refused = conditions.flatten().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    Seen {
        node: node_of(pod).map(str::to_owned),
        message: refused.map(|condition| condition.message.clone().unwrap_or_default()),
    }
}
