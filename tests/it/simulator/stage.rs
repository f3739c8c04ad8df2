//! A script on a real control plane, next to others.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_apis::{NodeClaim, NodePool, labels};
use mortise_sim::NodeClaimHistory;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::outcome::{Act, Outcome, Placement};
use super::scripts::{PLAY, Script};
use crate::objects::kwok_class;
use crate::scene::{SOON, Scene, label, on_node, provider_id};

/// Everything has been as in the simulator for this long: longer than any delay of the settings and scenarios.
const STEADY: Duration = Duration::from_secs(22);
/// Everything has been unlike the simulator for this long: it stays so.
const STUCK: Duration = Duration::from_secs(60);
/// However much goes on, an act ends after this time.
const LONGEST: Duration = Duration::from_mins(4);

/// A control plane with a watch of all NodeClaims.
pub(super) struct Stage<'a> {
    scene: &'a Scene,
    history: Arc<Mutex<Watched>>,
    watch: JoinHandle<()>,
}

#[derive(Default)]
struct Watched {
    history: NodeClaimHistory,
    /// The watch was interrupted: something may be missing.
    fault: Option<String>,
}

impl<'a> Stage<'a> {
    /// Makes the node class, and watches.
    pub(super) async fn open(scene: &'a Scene) -> Result<Self> {
        scene.apply(&[kwok_class()]).await?;
        let history = Arc::new(Mutex::new(Watched::default()));
        let claims: Api<NodeClaim> = Api::all(scene.plane.client());
        let watched = Arc::clone(&history);
        let watch = tokio::spawn(async move {
            let events = watcher::watcher(claims, watcher::Config::default()).default_backoff();
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.next().await {
                let mut watched = watched.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(error) = watched.note(event) {
                    watched.fault.get_or_insert_with(|| format!("{error:#}"));
                }
            }
        });
        Ok(Self {
            scene,
            history,
            watch,
        })
    }

    /// Ends the watch.
    pub(super) fn close(self) {
        self.watch.abort();
    }

    /// Plays a script whose acts end as `wanted`, or otherwise, and takes everything away.
    pub(super) async fn play(&self, script: &Script, wanted: &Outcome) -> Result<Outcome> {
        let played = self.acts(script, wanted).await;
        let played = played.with_context(|| script.name.clone())?;
        self.clear(script).await?;
        Ok(played)
    }

    async fn acts(&self, script: &Script, wanted: &Outcome) -> Result<Outcome> {
        // The same script may have been played before; and a NodePool with replicas has NodeClaims before this one is made whole.
        let (_, mut seen) = self.steps(script, usize::MAX)?;
        self.make(script).await?;
        let entries = script.entries()?;
        let mut acts = Vec::new();
        for (number, act) in wanted.iter().enumerate() {
            if let Some(entry) = number.checked_sub(1) {
                let (_, entry) = entries.get(entry).context("an entry")?;
                self.act(script, entry).await?;
            }
            let end = self.rest(script, &act.end).await?;
            let (steps, all) = self.steps(script, seen)?;
            seen = all;
            acts.push(Act {
                begins: act.begins.clone(),
                steps,
                end,
            });
        }
        Ok(acts)
    }

    /// What became of the script's NodeClaims since the step with this number, and the number of the next.
    fn steps(
        &self,
        script: &Script,
        seen: usize,
    ) -> Result<(Vec<mortise_sim::NodeClaimStep>, usize)> {
        let watched = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(fault) = &watched.fault {
            bail!("the watch of NodeClaims was interrupted: {fault}");
        }
        let pools = script.pools();
        let all = watched.history.steps();
        let new = all.iter().skip(seen);
        let own = new.filter(|step| pools.contains(&step.node_pool));
        Ok((own.cloned().collect(), all.len()))
    }

    async fn make(&self, script: &Script) -> Result<()> {
        let name = &script.name;
        let namespace =
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        self.scene.apply(&[namespace]).await?;
        let client = self.scene.plane.client();
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        wait_until("a service account", SOON, || async {
            Ok(accounts.get("default").await?)
        })
        .await?;
        let (pools, others): (Vec<Value>, Vec<Value>) = script
            .manifests
            .iter()
            .cloned()
            .partition(|each| each["kind"] == "NodePool");
        self.scene.apply(&pools).await?;
        let api: Api<NodePool> = Api::all(client);
        for pool in script.pools() {
            wait_until("a NodePool to be ready", SOON, || async {
                let conditions = api.get(&pool).await?.status.conditions;
                let ready = find(&conditions, "Ready");
                ensure!(
                    ready.is_some_and(|ready| ready.status == ConditionStatus::True),
                    "{pool}: {conditions:?}"
                );
                Ok(())
            })
            .await?;
        }
        self.scene.apply(&others).await
    }

    /// Does what an entry of the timeline says.
    async fn act(&self, script: &Script, entry: &Value) -> Result<()> {
        let client = self.scene.plane.client();
        let merge = PatchParams::default();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &script.name);
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str);
        if let Some(deployment) = text("/scale/deployment") {
            let patch = json!({ "spec": { "replicas": entry["scale"]["replicas"] } });
            deployments
                .patch(deployment, &merge, &Patch::Merge(&patch))
                .await?;
        } else if let Some(deployment) = text("/roll/deployment") {
            deployments.restart(deployment).await?;
        } else if let Some(pool) = text("/edit/nodePool") {
            let pools: Api<NodePool> = Api::all(client);
            let patch = Patch::Merge(&entry["edit"]["patch"]);
            pools.patch(pool, &merge, &patch).await?;
        } else if let Some(pool) = text("/delete/nodePool") {
            let count = entry["delete"]["nodes"].as_u64().context("a number")?;
            let nodes: Api<Node> = Api::all(client);
            let of_pool = ListParams::default().labels(&format!("{}={pool}", labels::NODEPOOL));
            let mut found = nodes.list(&of_pool).await?.items;
            found.sort_by_key(|node| node.metadata.creation_timestamp.clone());
            for node in found.iter().take(usize::try_from(count)?) {
                let name = node.metadata.name.as_deref().context("a name")?;
                nodes.delete(name, &DeleteParams::default()).await?;
            }
        } else {
            bail!("{entry}: cannot be done on a real control plane");
        }
        Ok(())
    }

    /// Waits until everything rests, and returns where it is.
    async fn rest(&self, script: &Script, wanted: &Placement) -> Result<Placement> {
        let begun = Instant::now();
        let before = Mutex::new((None, begun));
        wait_until("rest", LONGEST + SOON, || async {
            let found = self.look(script).await?;
            let now = Instant::now();
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            if before.0.as_ref() != Some(&found) {
                *before = (Some(found.clone()), now);
            }
            let (placement, moving) = found;
            let needed = if placement == *wanted { STEADY } else { STUCK };
            let is_at_rest = moving.is_empty() && now - before.1 >= needed;
            ensure!(
                is_at_rest || now - begun >= LONGEST,
                "moving: {moving:?}, {placement:?}"
            );
            Ok(placement)
        })
        .await
    }

    /// Where everything is, and what is on its way.
    async fn look(&self, script: &Script) -> Result<(Placement, Vec<String>)> {
        let client = self.scene.plane.client();
        let api: Api<Node> = Api::all(client.clone());
        let own = ListParams::default().labels(&format!("{PLAY}={}", script.name));
        let nodes = api.list(&own).await?.items;
        let api: Api<NodeClaim> = Api::all(client.clone());
        let claims = api.list(&own).await?.items;
        let api: Api<Pod> = Api::namespaced(client, &script.name);
        let pods = api.list(&ListParams::default()).await?.items;
        let mut moving = Vec::new();
        for claim in &claims {
            if claim.metadata.deletion_timestamp.is_some() || !claim.is_true("Initialized") {
                moving.push(claim.name().to_string());
            }
        }
        if nodes.len() != claims.len() {
            moving.push(format!("{} nodes of {} claims", nodes.len(), claims.len()));
        }
        let stopping = pods
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some());
        moving.extend(stopping.filter_map(|pod| pod.metadata.name.clone()));
        let counted = nodes.iter().filter(|node| provider_id(node).is_some());
        let counted = counted.map(|node| {
            let kind = [
                labels::NODEPOOL,
                labels::INSTANCE_TYPE,
                labels::CAPACITY_TYPE,
            ];
            let here = pods
                .iter()
                .filter(|pod| on_node(pod) == node.metadata.name.as_deref());
            (
                kind.map(|key| label(node, key).to_owned()),
                label(node, labels::TOPOLOGY_ZONE).to_owned(),
                here.count() as u64,
            )
        });
        let waiting = pods.iter().filter(|pod| on_node(pod).is_none()).count();
        let placement = Placement::new(counted, waiting as u64, script.has_zones);
        Ok((placement, moving))
    }

    /// Takes the workloads and NodePools away, and waits until the nodes are gone.
    async fn clear(&self, script: &Script) -> Result<()> {
        let client = self.scene.plane.client();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), &script.name);
        let all = (DeleteParams::default(), ListParams::default());
        deployments.delete_collection(&all.0, &all.1).await?;
        let pools: Api<NodePool> = Api::all(client);
        for pool in script.pools() {
            pools.delete(&pool, &DeleteParams::background()).await?;
        }
        wait_until("all nodes of a play to be gone", SOON, || async {
            let (placement, moving) = self.look(script).await?;
            ensure!(
                placement == Placement::default() && moving.is_empty(),
                "{placement:?} {moving:?}"
            );
            Ok(())
        })
        .await
    }
}

impl Watched {
    fn note(&mut self, event: Result<Event<NodeClaim>, watcher::Error>) -> Result<()> {
        let now = Timestamp::now();
        match event? {
            Event::Apply(claim) | Event::InitApply(claim) => {
                let object = serde_json::to_value(&claim)?;
                self.history.observe(now, &claim.name(), Some(&object));
            }
            Event::Delete(claim) => self.history.observe(now, &claim.name(), None),
            Event::Init | Event::InitDone => {}
        }
        Ok(())
    }
}
