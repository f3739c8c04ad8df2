//! A recorded cluster, played as a scenario: the pods that it had run again, under the names of its workloads.

use std::collections::BTreeMap;

use crate::plan::{cluster, served};
use crate::world::scenarios::{long, objects, service};
use mortise_sim::RecordedScenario;
use mortise_sim::scenario::{ScenarioRun, ScenarioSpec};
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::{Value, json};

/// How many pods each workload of a cluster has, DaemonSets aside, by its name in a scenario.
fn sizes<'a>(objects: impl Iterator<Item = &'a Object>) -> BTreeMap<String, usize> {
    let mut sizes = BTreeMap::new();
    for object in objects {
        let Object::Pod(pod) = object else { continue };
        let owner = pod.metadata.owner_references.iter().flatten().next();
        if let Some(owner) = owner.filter(|owner| owner.kind != "DaemonSet") {
            *sizes.entry(format!("default.{}", owner.name)).or_default() += 1;
        }
    }
    sizes
}

#[test]
fn the_workloads_of_a_recorded_cluster_run_again() {
    for seed in 1..=12 {
        let recorded = cluster(seed).record(&served()).unwrap();
        let wanted = sizes(recorded.objects.values());
        let scenario = RecordedScenario::of(&recorded).unwrap();
        assert_eq!(scenario.left_out, Vec::<String>::new(), "seed {seed}");
        let service = service(recorded.settings.clone());
        let spec = ScenarioSpec::from_document(&long("30m", &json!([]))).unwrap();
        let objects = objects(&scenario.documents).unwrap();
        let run = ScenarioRun::new(spec, objects, scenario.cloud.clone(), service);
        let mut run = run.unwrap();
        let end = run.end();
        run.run_until(end, &mut |_| {}).unwrap();
        let simulation = run.simulation();
        assert_eq!(simulation.stats().violations, Vec::<String>::new());
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for (key, pod) in simulation.api_server().iter() {
            let label = &pod["metadata"]["labels"]["mortise.sh/simulated-workload"];
            if let (ObjectKey::Pod(_), Value::String(workload), Value::String(_)) =
                (key, label, &pod["spec"]["nodeName"])
            {
                *found.entry(workload.clone()).or_default() += 1;
            }
        }
        assert_eq!(found, wanted, "seed {seed}");
    }
}
