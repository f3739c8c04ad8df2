//! The snapshot of the documentation.

use crate::world::{quiet, start, template};
use mortise_apis::labels::{INSTANCE_TYPE, TOPOLOGY_ZONE};
use mortise_apis::node_class::NodeClassApi as _;
use mortise_apis::requirements::{Operator, Requirement};
use mortise_apis::values::after;
use mortise_sim::{Deployment, Simulation};
use mortise_state::resource_kinds::ObjectKey;
use serde_json::json;

/// `docs/tasks/plan.md` shows plans of this snapshot: its bytes are pinned, and `UPDATE_EXPECT=1` writes those of now.
#[test]
fn the_example_is_what_is_recorded() {
    let mut options = quiet(11);
    let sizes = ["large", "xlarge", "2xlarge", "4xlarge", "8xlarge"];
    options.catalog.sort_by_key(|each| each.capacity.cpu);
    for (each, size) in options.catalog.iter_mut().zip(sizes) {
        let name = format!("m5.{size}");
        let zones = ["us-east-1a", "us-east-1b"];
        each.requirements
            .replace(Requirement::is(INSTANCE_TYPE, name.as_str()));
        each.requirements
            .replace(Requirement::new(TOPOLOGY_ZONE, Operator::In, zones));
        for offering in &mut each.offerings {
            offering.zone = format!("us-east-1{}", offering.zone).into();
        }
        each.name = name.into();
    }
    options.catalog.sort_by(|a, b| a.name.cmp(&b.name));
    let pool = &mut options.pools[0]["spec"];
    pool["disruption"]["budgets"] = json!([{ "nodes": "0" }]);
    pool["template"]["spec"]["requirements"][0]["values"] = json!(["on-demand"]);
    let mut reports = template("reports", "3", "8Gi");
    reports["metadata"]["annotations"] = json!({ "karpenter.sh/do-not-disrupt": "true" });
    let deployment = |name: &str, template, size, max_unavailable| Deployment {
        name: name.to_owned(),
        template,
        low: size,
        high: size,
        period_s: 0,
        max_unavailable,
    };
    options.deployments = vec![
        deployment("web", template("web", "2", "4Gi"), 24, None),
        deployment("api", template("api", "1500m", "3Gi"), 7, Some(1)),
        deployment("reports", reports, 2, None),
        deployment("batch", template("batch", "14", "12Gi"), 1, None),
    ];
    let mut simulation = Simulation::new(options, mortise_deciders::all());
    simulation.run_until(after(start(), 5 * 60_000));
    simulation.scale("web", 5);
    simulation.run_until(after(start(), 10 * 60_000 + 500));
    simulation.scale("batch", 5);
    simulation.run_until(after(start(), 10 * 60_000 + 1_100));
    let open = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "30%" }] } } });
    simulation
        .edit(&ObjectKey::Pool("general".into()), open)
        .unwrap();
    let recorded = simulation
        .record(&[mortise_aws_class::Ec2NodeClassApi.kind()])
        .unwrap();
    let mut now = Vec::new();
    recorded.write(&mut now).unwrap();
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/data/plan/shop.snapshot"
    );
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let pinned = std::fs::read(path).unwrap();
    assert!(
        pinned == now,
        "tests/data/plan/shop.snapshot is not what is recorded now; UPDATE_EXPECT=1 writes it"
    );
}
