//! A scenario while it is played on the simulated cluster.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use mortise_apis::labels;
use mortise_apis::names::NodeClassKey;
use mortise_apis::values::GoDuration;
use mortise_apis::values::{after, since};
use mortise_cloudprovider::InstanceType;
use mortise_engine::decider::Decider;
use mortise_engine::record::Record;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use mortise_state::snapshot::GangKind;
use serde_json::{Value, json};

use super::checks::{check, watched};
use super::cluster_objects::ClusterObjects;
use super::digest::HistoryDigest;
use super::report::{ScenarioNode, ScenarioReport, ScenarioSample};
use super::simulated_cloud::SimulatedCloud;
use super::spec::ScenarioSpec;
use super::timeline::{Image, TimelineAction, WatchFailure};
use crate::cluster::workload_controllers::daemon_sets::is_daemon;
use crate::cluster::workload_controllers::is_healthy;
use crate::cluster::{ApiServer, Extender, is_deleting};
use crate::faults::WatchFault;
use crate::manifest_error::ManifestError;
use crate::options::SimOptions;
use crate::simulation::Simulation;
use crate::workloads::Job;

/// Samples at regular times, in a whole scenario.
const SAMPLES: i64 = 24;
/// Records are taken at least this often, so that they do not pile up.
const STRETCH_MS: i64 = 60 * 60_000;

/// What happens at a time.
#[derive(Debug)]
enum Due {
    Sample,
    /// An entry, by its place in the timeline.
    Entry(usize),
    /// The prices that an entry changed are as before.
    PricesReturn(usize),
    /// A watch delivers again.
    WatchRecovers(ObjectKind),
}

/// Creates the deciders of one process.
pub type ServiceDeciders = Box<dyn Fn() -> Vec<Box<dyn Decider>> + Send + Sync>;

/// What runs the simulated cluster.
pub struct SimulatedService {
    /// Its settings.
    pub settings: Settings,
    /// The deciders of one process; asked again for each replica and after each crash.
    pub deciders: ServiceDeciders,
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
    cloud: impl Into<SimulatedCloud>,
    service: SimulatedService,
) -> Result<ScenarioReport, ManifestError> {
    let mut run = ScenarioRun::new(spec.clone(), objects, cloud, service)?;
    run.run_until(run.end(), &mut |_| {})?;
    Ok(run.report())
}

/// A scenario that is being played, as far as its caller asks for.
pub struct ScenarioRun {
    spec: ScenarioSpec,
    simulation: Simulation,
    deciders: ServiceDeciders,
    /// What is still to happen, with its milliseconds since the start, in order.
    due: VecDeque<(i64, Due)>,
    samples: Vec<ScenarioSample>,
    history: HistoryDigest,
    node_classes: Vec<NodeClassKey>,
    /// Jobs that entries create, by name.
    created_later: BTreeMap<String, Job>,
}

impl ScenarioRun {
    /// A scenario at its start.
    ///
    /// # Errors
    /// An entry refers to something that the cluster does not have.
    pub fn new(
        spec: ScenarioSpec,
        mut objects: ClusterObjects,
        cloud: impl Into<SimulatedCloud>,
        service: SimulatedService,
    ) -> Result<Self, ManifestError> {
        let SimulatedService {
            mut settings,
            deciders,
            extender,
        } = service;
        settings.gates.capacity_buffer |= objects.has_buffers();
        settings.gates.node_overlay |= objects.has_overlays();
        if objects.has_pod_groups() {
            settings.gangs.insert(GangKind::Coscheduling);
        }
        let SimulatedCloud {
            instance_types: catalog,
            well_known,
            node_classes: types_of_classes,
        } = cloud.into();
        let due = due(&spec, &objects, &catalog)?;
        let node_classes = objects.node_classes()?;
        let creates = spec
            .timeline
            .iter()
            .filter_map(|entry| entry.create.as_ref());
        let created_later = objects.take_jobs(creates.map(|create| create.job.as_str()));
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
        simulation.set_node_classes(types_of_classes);
        if let Some(extender) = extender {
            simulation.set_extender(extender);
        }
        simulation.cluster.timing = spec.timing(simulation.cluster.timing)?;
        simulation.cluster.cloud.set_account(spec.account()?);
        if let Some(taint) = &spec.boot_taint {
            let (taint, stays) = taint.checked()?;
            simulation.add_boot_taint(taint, stays);
        }
        simulation.note_node_claims();
        simulation.keep_scores();
        for _ in 1..spec.replicas {
            simulation.add_replica(deciders());
        }
        Ok(Self {
            spec,
            simulation,
            deciders,
            due,
            samples: Vec::new(),
            history: HistoryDigest::default(),
            node_classes,
            created_later,
        })
    }

    /// When it ends.
    #[must_use]
    pub fn end(&self) -> Timestamp {
        after(self.spec.start, ms(self.spec.duration))
    }

    /// The simulated cluster.
    pub const fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    /// The cluster at regular times, and after each entry of the timeline, so far.
    #[must_use]
    pub fn samples(&self) -> &[ScenarioSample] {
        &self.samples
    }

    /// Plays until a time, at most to the end. How often it is called, and where it stops, does not change the history. `decided`
    /// gets the decisions.
    ///
    /// # Errors
    /// An entry refers to something that the cluster does not have any more.
    pub fn run_until(
        &mut self,
        until: Timestamp,
        decided: &mut dyn FnMut(Vec<Record>),
    ) -> Result<(), ManifestError> {
        let until = until.min(self.end());
        loop {
            let next = self.due.front().map(|(ms, _)| after(self.spec.start, *ms));
            let next = next.filter(|at| *at <= until);
            self.pass_time(next.unwrap_or(until), decided);
            let Some((_, due)) = next.and_then(|_| self.due.pop_front()) else {
                return Ok(());
            };
            self.happen(&due)?;
        }
    }

    fn happen(&mut self, due: &Due) -> Result<(), ManifestError> {
        match due {
            Due::Sample => self.sample(None),
            Due::WatchRecovers(kind) => self.simulation.disturb_watch(kind, None),
            Due::PricesReturn(entry) => {
                self.simulation.end_price_change(*entry);
                let price = self.spec.timeline[*entry].price.as_ref();
                let price = price.map(|price| format!("{price} is as before"));
                self.sample(price);
            }
            Due::Entry(entry) => {
                let field = format!("spec.timeline[{entry}]");
                let timeline = self.spec.timeline[*entry].clone();
                let action = timeline.action(&field)?;
                self.act(*entry, &action)?;
                self.sample(Some(action.to_string()));
            }
        }
        Ok(())
    }

    /// Runs to a time, and digests what is decided on the way.
    fn pass_time(&mut self, end: Timestamp, decided: &mut dyn FnMut(Vec<Record>)) {
        loop {
            let next = after(self.simulation.now(), STRETCH_MS).min(end);
            self.simulation.run_until(next);
            let records = self.simulation.take_records();
            for record in &records {
                // Records are plain data with text keys.
                self.history.add(&json!(record).to_string());
            }
            decided(records);
            self.simulation.take_events();
            if next >= end {
                return;
            }
        }
    }

    fn act(&mut self, entry: usize, action: &TimelineAction<'_>) -> Result<(), ManifestError> {
        let simulation = &mut self.simulation;
        match action {
            TimelineAction::Scale(scale) => {
                simulation.scale(scale.target("scale")?.name(), scale.replicas);
            }
            TimelineAction::Roll(roll) => simulation.roll(roll.target("roll")?.name()),
            TimelineAction::Create(create) => {
                // Each is created by one entry.
                if let Some(job) = self.created_later.remove(&create.job) {
                    simulation.create_job(job);
                }
            }
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
            TimelineAction::Rebalance(of) => {
                for _ in 0..of.count {
                    if simulation.recommend_rebalance().is_none() {
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
            TimelineAction::Crash => simulation.restart_engine((self.deciders)()),
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
        let Image {
            name,
            boot_failure_percent,
            pod_failure_percent,
            ..
        } = image;
        self.simulation.fail_boots(name, *boot_failure_percent);
        self.simulation.fail_pods(name, *pod_failure_percent);
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
        let (mut nodes, mut pods_running, mut pods_pending) = (0, 0, 0);
        for (key, object) in self.simulation.api_server().iter() {
            match key {
                ObjectKey::Node(_) => nodes += 1,
                // Pods of DaemonSets come and go with the nodes.
                ObjectKey::Pod(_) if !is_daemon(object) => {
                    pods_running += u64::from(is_ready(object));
                    pods_pending += u64::from(is_pending(object));
                }
                _ => {}
            }
        }
        let sample = ScenarioSample {
            at: self.simulation.now(),
            seconds: since(self.simulation.now(), self.spec.start) / 1000,
            happened,
            nodes,
            pods_running,
            pods_pending,
            price_micro_usd: self.simulation.cloud().price().0,
            launched: stats.nodes_launched,
            terminated: stats.nodes_removed,
            evicted: stats.evictions,
        };
        self.history.add(&json!(sample).to_string());
        self.samples.push(sample);
    }

    /// What became of the cluster so far.
    #[must_use]
    pub fn report(self) -> ScenarioReport {
        let node_claims = self.simulation.node_claims();
        ScenarioReport {
            seed: self.spec.seed,
            start: self.spec.start,
            nodes: nodes(self.simulation.api_server()),
            node_claims: node_claims.map_or_else(Vec::new, |all| all.steps().to_vec()),
            samples: self.samples,
            totals: self.simulation.stats(),
            scores: self.simulation.scores(),
            minutes: self.simulation.minutes().to_vec(),
            history: self.history.to_string(),
        }
    }
}

/// Everything that happens, with its milliseconds since the start, in order.
fn due(
    spec: &ScenarioSpec,
    objects: &ClusterObjects,
    catalog: &[InstanceType],
) -> Result<VecDeque<(i64, Due)>, ManifestError> {
    let whole = ms(spec.duration);
    let mut all: Vec<(i64, Due)> = Vec::new();
    for (at, entry) in spec.timeline.iter().enumerate() {
        let field = format!("spec.timeline[{at}]");
        let action = entry.action(&field)?;
        check(&action, &field, objects, catalog)?;
        all.push((ms(entry.at), Due::Entry(at)));
        let ends = match &action {
            TimelineAction::Watch(watch) => {
                let end = Due::WatchRecovers(watched(watch, &field)?);
                Some((watch.lasts, end))
            }
            TimelineAction::Price(price) => price.lasts.map(|lasts| (lasts, Due::PricesReturn(at))),
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
    Ok(all.into())
}

fn ms(duration: GoDuration) -> i64 {
    duration.as_nanos() / 1_000_000
}

/// The Nodes with their pods, by NodePool and name.
fn nodes(store: &ApiServer) -> Vec<ScenarioNode> {
    let mut pods: BTreeMap<&str, u64> = BTreeMap::new();
    for (key, pod) in store.iter().filter(|(_, pod)| !is_deleting(pod)) {
        if let (ObjectKey::Pod(_), false) = (key, is_daemon(pod))
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

fn is_ready(pod: &Value) -> bool {
    is_healthy(pod) && !is_deleting(pod)
}

/// It has no node.
fn is_pending(pod: &Value) -> bool {
    pod.pointer("/spec/nodeName").is_none() && !is_deleting(pod)
}
