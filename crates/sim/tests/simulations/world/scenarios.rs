//! Scenarios on the small cluster.

use mortise_apis::labels::WellKnown;
use mortise_cloudprovider::InstanceType;
use mortise_planning::settings::Settings;
use mortise_sim::ManifestError;
use mortise_sim::scenario::{ClusterObjects, ScenarioReport, ScenarioSpec, SimulatedService, play};
use serde_json::{Value, json};

use super::{options, template};

/// A scenario of ten minutes with this timeline.
pub(crate) fn document(timeline: &Value) -> Value {
    json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario", "metadata": { "name": "s" },
        "spec": { "duration": "10m", "timeline": timeline },
    })
}

/// A scenario of this length.
pub(crate) fn long(duration: &str, timeline: &Value) -> Value {
    let mut document = document(timeline);
    document["spec"]["duration"] = json!(duration);
    document
}

pub(crate) fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" },
        "spec": { "replicas": replicas, "template": template("web", "1500m", "2Gi") },
    })
}

/// A Deployment whose pods have a node each, of the smallest type.
pub(crate) fn spread(replicas: u32) -> Value {
    let mut web = deployment(replicas);
    web["spec"]["template"]["spec"]["containers"][0]["ports"] =
        json!([{ "containerPort": 80, "hostPort": 80 }]);
    web
}

/// On-demand and spot nodes at the end.
pub(crate) fn nodes_by_capacity_type(report: &ScenarioReport) -> (usize, usize) {
    let of = |capacity_type: &str| {
        let nodes = report.nodes.iter();
        nodes
            .filter(|node| node.capacity_type == capacity_type)
            .count()
    };
    (of("on-demand"), of("spot"))
}

/// The NodePool of the small cluster.
pub(crate) fn pool() -> Value {
    let mut pool = options(1).pools[0].clone();
    pool["kind"] = json!("NodePool");
    pool
}

pub(crate) fn objects(manifests: &[Value]) -> Result<ClusterObjects, ManifestError> {
    let mut objects = ClusterObjects::default();
    for manifest in manifests {
        objects.add(manifest)?;
    }
    objects.complete()
}

/// Four pods of a Deployment.
pub(crate) fn played(document: &Value) -> Result<ScenarioReport, ManifestError> {
    played_with(document, &[pool(), deployment(4)])
}

pub(crate) fn played_with(
    document: &Value,
    manifests: &[Value],
) -> Result<ScenarioReport, ManifestError> {
    let spec = ScenarioSpec::from_document(document)?;
    let service = service(Settings::default());
    play(&spec, objects(manifests)?, cloud(), service)
}

/// The cloud of the small cluster.
pub(crate) fn cloud() -> (Vec<InstanceType>, WellKnown) {
    let world = options(1);
    (world.catalog, world.well_known)
}

/// mortise without its extender.
pub(crate) fn service(settings: Settings) -> SimulatedService {
    SimulatedService {
        settings,
        deciders: Box::new(mortise_deciders::all),
        extender: None,
    }
}
