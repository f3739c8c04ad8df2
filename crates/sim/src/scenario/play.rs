//! Plays a scenario on the simulated cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::values::GoDuration;
use mortise_apis::values::{after, since};
use mortise_cloudprovider::InstanceType;
use mortise_engine::decider::Decider;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde_json::{Value, json};

use super::cluster_objects::ClusterObjects;
use super::digest::HistoryDigest;
use super::report::{ScenarioNode, ScenarioReport, ScenarioSample};
use super::spec::ScenarioSpec;
use super::timeline::{Image, Price, TimelineAction, Watch, WatchFailure};
use crate::cluster::{ApiServer, Extender, is_deleting};
use crate::faults::WatchFault;
use crate::manifest_error::ManifestError;
use crate::options::SimOptions;
use crate::simulation::Simulation;

/// Samples at regular times, in a whole scenario.
const SAMPLES: i64 = 24;
/// Records are taken at least this often, so that they do not pile up.
const STRETCH_MS: i64 = 60 * 60_000;
/// Kinds whose watch can fail.
const WATCHED: [(&str, ObjectKind); 4] = [
    ("Pod", ObjectKind::Pod),
    ("Node", ObjectKind::Node),
    ("NodeClaim", ObjectKind::Claim),
    ("NodePool", ObjectKind::Pool),
];

/// What happens at a time.
enum Due<'a> {
    Sample,
    /// With its place in the timeline.
    Entry(usize, TimelineAction<'a>),
    /// The prices that an entry changed are as before.
    PricesReturn(usize, &'a Price),
    /// A watch delivers again.
    WatchRecovers(ObjectKind),
}

/// What runs the simulated cluster.
pub struct SimulatedService<'a> {
    /// Its settings.
    pub settings: Settings,
    /// The deciders of one process; asked again for each replica and after each crash.
    pub deciders: &'a dyn Fn() -> Vec<Box<dyn Decider>>,
    /// What kube-scheduler calls, if it calls any.
    pub extender: Option<Box<dyn Extender>>,
}

/// Plays a scenario from its beginning to its end.
///
/// # Errors
/// An entry refers to something that the cluster does not have.
///
/// # Cost
/// Simulated time: a day of 1,000 nodes takes minutes of one core.
pub fn play(
    spec: &ScenarioSpec,
    objects: ClusterObjects,
    cloud: (Vec<InstanceType>, WellKnown),
    service: SimulatedService<'_>,
) -> Result<ScenarioReport, ManifestError> {
    let SimulatedService {
        mut settings,
        deciders,
        extender,
    } = service;
    settings.gates.capacity_buffer |= objects.has_buffers();
    let (catalog, well_known) = cloud;
    let due = due(spec, &objects, &catalog)?;
    let node_classes = objects.node_classes()?;
    let options = SimOptions {
        seed: spec.seed,
        start: spec.start,
        settings,
        catalog,
        well_known,
        node_classes: node_classes.clone(),
        pools: objects.pools,
        daemon_sets: objects.daemon_sets,
        deployments: objects.deployments,
        workloads: objects.workloads,
        jobs: Vec::new(),
        others: objects.others,
        interruption_every_s: spec.spot_interruption_every.map_or(0, GoDuration::as_secs),
        shortage_per_mille: spec.spot_shortage_percent * 10,
    };
    let mut simulation = Simulation::new(options, deciders());
    if let Some(extender) = extender {
        simulation.set_extender(extender);
    }
    simulation.note_node_claims();
    simulation.keep_scores();
    for _ in 1..spec.replicas {
        simulation.add_replica(deciders());
    }
    let mut player = Player {
        simulation,
        start: spec.start,
        samples: Vec::new(),
        history: HistoryDigest::default(),
        node_classes,
    };
    for (ms, due) in due {
        player.run_until(after(spec.start, ms));
        match due {
            Due::Sample => player.sample(None),
            Due::WatchRecovers(kind) => player.simulation.disturb_watch(&kind, None),
            Due::PricesReturn(entry, price) => {
                player.simulation.end_price_change(entry);
                player.sample(Some(format!("{price} is as before")));
            }
            Due::Entry(entry, action) => {
                player.act(entry, &action, deciders)?;
                player.sample(Some(action.to_string()));
            }
        }
    }
    Ok(player.report(spec.seed))
}

/// Everything that happens, with its milliseconds since the start, in order.
fn due<'a>(
    spec: &'a ScenarioSpec,
    objects: &ClusterObjects,
    catalog: &[InstanceType],
) -> Result<Vec<(i64, Due<'a>)>, ManifestError> {
    let ms = |duration: GoDuration| duration.as_nanos() / 1_000_000;
    let whole = ms(spec.duration);
    let mut all: Vec<(i64, Due<'a>)> = Vec::new();
    for (at, entry) in spec.timeline.iter().enumerate() {
        let field = format!("spec.timeline[{at}]");
        let action = entry.action(&field)?;
        check(&action, &field, objects, catalog)?;
        all.push((ms(entry.at), Due::Entry(at, action)));
        let ends = match action {
            TimelineAction::Watch(watch) => {
                let end = Due::WatchRecovers(watched(watch, &field)?);
                Some((watch.lasts, end))
            }
            TimelineAction::Price(price) => price
                .lasts
                .map(|lasts| (lasts, Due::PricesReturn(at, price))),
            _ => None,
        };
        if let Some((lasts, end)) = ends {
            let at = ms(entry.at).saturating_add(ms(lasts));
            if at <= whole {
                all.push((at, end));
            }
        }
    }
    // Entries come before the sample of the same time.
    all.extend((1..=SAMPLES).map(|nth| (whole / SAMPLES * nth, Due::Sample)));
    if whole % SAMPLES != 0 {
        all.push((whole, Due::Sample));
    }
    all.sort_by_key(|(ms, _)| *ms);
    Ok(all)
}

/// The names in an entry are those of the cluster and the cloud.
fn check(
    action: &TimelineAction<'_>,
    field: &str,
    objects: &ClusterObjects,
    catalog: &[InstanceType],
) -> Result<(), ManifestError> {
    let known = |name: &str, given: &str, all: &[&str]| {
        if all.contains(&given) {
            return Ok(());
        }
        Err(ManifestError::unknown(
            format!("{field}.{name}"),
            given,
            all,
        ))
    };
    match action {
        TimelineAction::Scale(scale) => {
            let field = format!("{field}.scale");
            objects.check_target(scale.target(&field)?, &field)
        }
        TimelineAction::Roll(roll) => {
            let field = format!("{field}.roll");
            objects.check_target(roll.target(&field)?, &field)
        }
        TimelineAction::Edit(edit) => {
            known("edit.nodePool", &edit.node_pool, &objects.pool_names())
        }
        TimelineAction::Delete(delete) => {
            known("delete.nodePool", &delete.node_pool, &objects.pool_names())
        }
        TimelineAction::Shortage(shortage) => {
            let field = format!("{field}.shortage");
            shortage.offerings().check(&field, catalog)
        }
        TimelineAction::Price(price) => {
            let field = format!("{field}.price");
            price.to(&field)?;
            if price.lasts.is_some_and(|lasts| lasts <= GoDuration::ZERO) {
                return Err(ManifestError::new(
                    format!("{field}.for"),
                    "must be more than 0s; leave it out for prices that stay",
                ));
            }
            price.offerings().check(&field, catalog)
        }
        TimelineAction::Image(image) => {
            if image.name.is_empty() {
                let field = format!("{field}.image.name");
                return Err(ManifestError::new(field, "is empty"));
            }
            if image.boot_failure_percent > 100 {
                let field = format!("{field}.image.bootFailurePercent");
                return Err(ManifestError::new(field, "must be from 0 to 100"));
            }
            let classes = objects.node_classes()?;
            let names: Vec<&str> = classes.iter().map(|class| &*class.name).collect();
            known("image.nodeClass", &image.node_class, &names)
        }
        TimelineAction::Watch(watch) => watched(watch, field).map(drop),
        TimelineAction::Interrupt(_) | TimelineAction::Images(_) | TimelineAction::Crash => Ok(()),
    }
}

fn watched(watch: &Watch, field: &str) -> Result<ObjectKind, ManifestError> {
    let mut kinds = WATCHED.iter();
    let found = kinds.find(|(name, _)| *name == watch.kind);
    let names = WATCHED.map(|(name, _)| name);
    let unknown = || ManifestError::unknown(format!("{field}.watch.kind"), &watch.kind, &names);
    found.map(|(_, kind)| kind.clone()).ok_or_else(unknown)
}

struct Player {
    simulation: Simulation,
    start: Timestamp,
    samples: Vec<ScenarioSample>,
    history: HistoryDigest,
    node_classes: Vec<NodeClassKey>,
}

impl Player {
    /// Runs to a time, and digests what is decided on the way.
    fn run_until(&mut self, end: Timestamp) {
        loop {
            let next = after(self.simulation.now(), STRETCH_MS).min(end);
            self.simulation.run_until(next);
            for record in self.simulation.take_records() {
                // Records are plain data with text keys.
                self.history.add(&json!(record).to_string());
            }
            self.simulation.take_events();
            if next >= end {
                return;
            }
        }
    }

    /// Pods that DaemonSets do not own.
    fn pods(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        let objects = self.simulation.api_server().iter();
        objects.filter(|(key, pod)| {
            matches!(key, ObjectKey::Pod(_))
                && pod.pointer("/metadata/ownerReferences/0/kind") != Some(&json!("DaemonSet"))
        })
    }

    fn act(
        &mut self,
        entry: usize,
        action: &TimelineAction<'_>,
        deciders: &dyn Fn() -> Vec<Box<dyn Decider>>,
    ) -> Result<(), ManifestError> {
        let simulation = &mut self.simulation;
        match action {
            TimelineAction::Scale(scale) => {
                simulation.scale(scale.target("scale")?.name(), scale.replicas);
            }
            TimelineAction::Roll(roll) => simulation.roll(roll.target("roll")?.name()),
            TimelineAction::Edit(edit) => {
                let key = ObjectKey::Pool(edit.node_pool.as_str().into());
                let edited = simulation.edit(&key, edit.patch.clone());
                return edited.map_err(|error| ManifestError::new("edit", error.to_string()));
            }
            TimelineAction::Delete(delete) => {
                simulation.delete_nodes(&delete.node_pool, delete.nodes);
            }
            TimelineAction::Interrupt(interrupt) => {
                for _ in 0..interrupt.count {
                    if !simulation.interrupt_one() {
                        break;
                    }
                }
            }
            TimelineAction::Shortage(shortage) => {
                let lasts = shortage.lasts.as_nanos() / 1_000_000;
                let until = after(simulation.now(), lasts);
                let offerings = shortage.offerings();
                simulation.empty_capacity(until, |each| offerings.include(each));
            }
            TimelineAction::Price(price) => {
                let offerings = price.offerings();
                let to = price.to("price")?;
                simulation.change_prices(entry, to, |each| offerings.include(each));
            }
            TimelineAction::Image(image) => return self.set_image(image),
            TimelineAction::Images(images) => simulation.break_images(images.broken),
            TimelineAction::Crash => simulation.restart_engine(deciders()),
            TimelineAction::Watch(watch) => {
                let fault = match watch.fault {
                    WatchFailure::Silent => WatchFault::Silent,
                    WatchFailure::Expired => WatchFault::Expired,
                };
                simulation.disturb_watch(&watched(watch, "")?, Some(fault));
            }
        }
        Ok(())
    }

    /// The node class names the image as a user's edit of it does.
    fn set_image(&mut self, image: &Image) -> Result<(), ManifestError> {
        let percent = image.boot_failure_percent;
        self.simulation.fail_boots(&image.name, percent);
        let mut classes = self.node_classes.iter();
        let class = classes.find(|class| *class.name == *image.node_class);
        let Some(class) = class else {
            let names: Vec<&str> = self.node_classes.iter().map(|class| &*class.name).collect();
            let field = "image.nodeClass";
            return Err(ManifestError::unknown(field, &image.node_class, &names));
        };
        let merge = json!({ "spec": { "image": image.name } });
        let edited = self
            .simulation
            .edit(&ObjectKey::NodeClass(class.clone()), merge);
        edited.map_err(|error| ManifestError::new("image", error.to_string()))
    }

    fn sample(&mut self, happened: Option<String>) {
        let stats = self.simulation.stats();
        let count = |is_counted: fn(&Value) -> bool| {
            self.pods().filter(|(_, pod)| is_counted(pod)).count() as u64
        };
        let is_node = |(key, _): &(&ObjectKey, &Value)| matches!(key, ObjectKey::Node(_));
        let sample = ScenarioSample {
            at: self.simulation.now(),
            seconds: since(self.simulation.now(), self.start) / 1000,
            happened,
            nodes: self.simulation.api_server().iter().filter(is_node).count() as u64,
            pods_running: count(is_running),
            pods_pending: count(is_pending),
            price_micro_usd: self.simulation.cloud().price().0,
            launched: stats.nodes_launched,
            terminated: stats.nodes_removed,
            evicted: stats.evictions,
        };
        self.history.add(&json!(sample).to_string());
        self.samples.push(sample);
    }

    fn report(self, seed: u64) -> ScenarioReport {
        let node_claims = self.simulation.node_claims();
        ScenarioReport {
            seed,
            nodes: nodes(self.simulation.api_server()),
            node_claims: node_claims.map_or_else(Vec::new, |all| all.steps().to_vec()),
            samples: self.samples,
            totals: self.simulation.stats(),
            scores: self.simulation.scores(),
            history: self.history.to_string(),
        }
    }
}

/// The Nodes with their pods, by NodePool and name.
fn nodes(store: &ApiServer) -> Vec<ScenarioNode> {
    let mut pods: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, pod) in store.iter().filter(|(_, pod)| !is_deleting(pod)) {
        let is_of_daemon_set =
            pod.pointer("/metadata/ownerReferences/0/kind") == Some(&json!("DaemonSet"));
        if let (ObjectKey::Pod(_), false) = (key, is_of_daemon_set)
            && let Some(node) = pod.pointer("/spec/nodeName").and_then(Value::as_str)
        {
            *pods.entry(node).or_default() += 1;
        }
    }
    let mut nodes = Vec::new();
    for (key, node) in store.iter() {
        let ObjectKey::Node(name) = key else { continue };
        let label = |key: &str| {
            let labels = node.pointer("/metadata/labels");
            let value = labels.and_then(|labels| labels.get(key)?.as_str());
            value.unwrap_or_default().to_owned()
        };
        nodes.push(ScenarioNode {
            node_pool: label(labels::NODEPOOL),
            name: name.to_string(),
            instance_type: label(labels::INSTANCE_TYPE),
            zone: label(labels::TOPOLOGY_ZONE),
            capacity_type: label(labels::CAPACITY_TYPE),
            pods: pods.get(name.as_str()).copied().unwrap_or(0),
        });
    }
    nodes.sort();
    nodes
}

fn is_running(pod: &Value) -> bool {
    pod.pointer("/status/phase") == Some(&json!("Running")) && !is_deleting(pod)
}

/// It has no node.
fn is_pending(pod: &Value) -> bool {
    pod.pointer("/spec/nodeName").is_none() && !is_deleting(pod)
}
