//! What admission answers to manifests of older releases, and to overlays beside others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking where its expectation stands"
)]

mod world;

use serde_json::{Value, json};
use world::{World, good, merged, pool, warned};

/// Every manifest of ours among those that people paste is answered when it is sent as it is: whatever is old in it is told
/// with what to write instead, whether the API server has dropped it already or not.
#[test]
fn pasted_manifests_are_told_what_to_write_instead() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/manifests");
    let (mut objects, mut answered) = (0, 0);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for manifest in mortise_manifests::file::manifests(&text) {
            let object = manifest.unwrap().value();
            let version = object["apiVersion"].as_str().unwrap_or_default();
            if !version.starts_with("karpenter.") {
                continue; // of others, or a piece, which no API server takes
            }
            objects += 1;
            let is_old = !version.ends_with("/v1");
            let mut wanted: Vec<String> = mortise_apis::deprecated_fields::advice(&object)
                .into_iter()
                .map(|advice| advice.instead)
                .collect();
            if is_old {
                wanted.push("`mortise migrate` converts it".to_owned());
            }
            let answer = World::new().ask("CREATE", &object, None);
            let said = [answer.denied, answer.warnings].concat().join("\n");
            for part in &wanted {
                assert!(
                    said.contains(part.as_str()),
                    "{path:?} {object:#}: {part:?} is not in\n{said}"
                );
            }
            answered += usize::from(!said.is_empty());
            // As the API server has it when it was written by an older kubectl: the record of it is all that is left.
            if !is_old {
                let record = json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": object.to_string() } } });
                let kept = merged(good(object["kind"].as_str().unwrap()), &record);
                let said = World::new().ask("CREATE", &kept, None).warnings.join("\n");
                for part in &wanted {
                    assert!(
                        said.contains(part.as_str()),
                        "{path:?}: {part:?} is not in\n{said}"
                    );
                }
            }
        }
    }
    assert!(objects >= 15 && answered >= 8, "{answered} of {objects}");
}

#[test]
fn clients_of_older_versions_are_told() {
    let request = |request_kind: Value| -> mortise_webhooks::admission::AdmissionRequest {
        serde_json::from_value(json!({
            "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }, "requestKind": request_kind,
            "operation": "CREATE", "object": good("NodePool"),
        }))
        .unwrap()
    };
    let mut world = World::new();
    let old = request(json!({ "group": "karpenter.sh", "version": "v1beta1", "kind": "NodePool" }));
    assert_eq!(
        warned(&world.asked(&old)),
        ["apiVersion: of an older release; write karpenter.sh/v1; `mortise migrate` converts it"]
    );
    let new = request(json!({ "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }));
    assert_eq!(warned(&world.asked(&new)), Vec::<String>::new());
}

/// Overlays of equal weight that set the same thing of the same offerings name each other; what differs in weight, types,
/// offerings, pools or in what is set does not.
#[test]
fn overlays_that_contradict_each_other_are_named() {
    let overlay = |name: &str, spec: Value| {
        let named = merged(
            good("NodeOverlay"),
            &json!({ "metadata": { "name": name } }),
        );
        merged(named, &json!({ "spec": spec }))
    };
    let family = |family: &str| json!([{ "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [family] }]);
    let mut world = World::new();
    world.pool(&pool(
        "team",
        &json!({ "spec": { "template": { "metadata": { "labels": { "team": "a" } } } } }),
    ));
    world.overlay(&overlay(
        "cheap",
        json!({ "weight": 5, "price": "0.01", "requirements": family("m5") }),
    ));
    world.overlay(&overlay(
        "fuse",
        json!({ "capacity": { "smarter-devices/fuse": "2" }, "requirements": family("c5") }),
    ));
    let mut said = |name: &str, spec: Value| -> Vec<String> {
        let answer = world.ask("CREATE", &overlay(name, spec), None);
        warned(&answer).to_vec()
    };
    let rejected = "change a weight";
    assert_eq!(
        said(
            "all",
            json!({ "weight": 5, "priceAdjustment": "-10%", "requirements": [] })
        ),
        [format!(
            "NodeOverlay \"cheap\" of equal weight sets the price of 2 types too, and this one is rejected; {rejected}"
        )]
    );
    assert_eq!(
        said(
            "later",
            json!({ "weight": 5, "price": "0.02", "requirements": family("m5") })
        ),
        [format!(
            "NodeOverlay \"cheap\" of equal weight sets the price of 2 types too, and that one is rejected; {rejected}"
        )]
    );
    assert_eq!(
        said(
            "more-fuse",
            json!({ "capacity": { "smarter-devices/fuse": "9" }, "requirements": [] })
        ),
        [format!(
            "NodeOverlay \"fuse\" of equal weight sets smarter-devices/fuse of 1 type too, and that one is rejected; {rejected}"
        )]
    );
    let none = Vec::<String>::new();
    // Itself, another weight, other types, another thing.
    assert_eq!(
        said(
            "cheap",
            json!({ "weight": 5, "price": "0.02", "requirements": family("m5") })
        ),
        none
    );
    assert_eq!(
        said(
            "heavier",
            json!({ "weight": 6, "price": "0.02", "requirements": family("m5") })
        ),
        none
    );
    assert_eq!(
        said(
            "other",
            json!({ "weight": 5, "price": "0.02", "requirements": family("c5") })
        ),
        none
    );
    assert_eq!(
        said(
            "device",
            json!({ "weight": 5, "capacity": { "a.b/c": "1" }, "requirements": family("m5") })
        ),
        none
    );
    // A label of the pool is known; one that nothing has is not met.
    let with = |value: &str| json!([{ "key": "team", "operator": "In", "values": [value] }, { "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"] }]);
    assert_eq!(
        said(
            "team-a",
            json!({ "weight": 5, "price": "0.02", "requirements": with("a") })
        )
        .len(),
        1
    );
    assert_eq!(
        said(
            "team-b",
            json!({ "weight": 5, "price": "0.02", "requirements": with("b") })
        ),
        none
    );
    // The same types, but never the same offering.
    let sold = |capacity_type: &str, zone: &str| json!([{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type] }, { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone] }]);
    world.overlay(&overlay(
        "spot",
        json!({ "weight": 7, "price": "0.01", "requirements": sold("spot", "us-east-1a") }),
    ));
    let answer = world.ask("CREATE", &overlay("on-demand", json!({ "weight": 7, "price": "0.02", "requirements": sold("on-demand", "us-east-1a") })), None);
    assert_eq!(warned(&answer), none);
    let answer = world.ask(
        "CREATE",
        &overlay(
            "spot-too",
            json!({ "weight": 7, "price": "0.02", "requirements": sold("spot", "us-east-1a") }),
        ),
        None,
    );
    assert_eq!(warned(&answer).len(), 1);
}
