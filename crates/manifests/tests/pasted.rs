//! Admission of manifests of older releases, and of overlays next to others.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking where its expectation stands"
)]

#[path = "../../../webhooks/tests/test_cluster/mod.rs"]
mod test_cluster;

use serde_json::{Value, json};
use test_cluster::node_classes::{EC2, crds};
use test_cluster::{TestCluster, good, merged, pool, warned};

/// Every pasted manifest of an own kind gets a warning with the replacement for each deprecated part, whether or not
/// the API server has already dropped it.
#[test]
fn pasted_manifests_get_their_replacements() {
    let folder =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/manifests");
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
            let mut wanted: Vec<String> =
                mortise_apis::deprecated_fields::advice(crds(&[EC2]).known(), &object)
                    .into_iter()
                    .map(|advice| advice.instead)
                    .collect();
            if is_old {
                wanted.push("`mortise migrate` converts it".to_owned());
            }
            let answer = TestCluster::new().admit("CREATE", &object, None);
            let said = [answer.denied, answer.warnings].concat().join("\n");
            for part in &wanted {
                assert!(
                    said.contains(part.as_str()),
                    "{path:?} {object:#}: {part:?} is not in\n{said}"
                );
            }
            answered += usize::from(!said.is_empty());
            // The object as stored after an older kubectl wrote it: only the annotation still contains the old fields.
            if !is_old {
                let record = json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": object.to_string() } } });
                let kept = merged(good(object["kind"].as_str().unwrap()), &record);
                let said = TestCluster::new()
                    .admit("CREATE", &kept, None)
                    .warnings
                    .join("\n");
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
fn clients_of_older_versions_get_a_warning() {
    let request = |request_kind: Value| -> mortise_webhooks::admission::AdmissionRequest {
        serde_json::from_value(json!({
            "kind": { "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }, "requestKind": request_kind,
            "operation": "CREATE", "object": good("NodePool"),
        }))
        .unwrap()
    };
    let mut cluster = TestCluster::new();
    let old = request(json!({ "group": "karpenter.sh", "version": "v1beta1", "kind": "NodePool" }));
    assert_eq!(
        warned(&cluster.admit_request(&old)),
        ["apiVersion: of an older release; write karpenter.sh/v1; `mortise migrate` converts it"]
    );
    let new = request(json!({ "group": "karpenter.sh", "version": "v1", "kind": "NodePool" }));
    assert_eq!(warned(&cluster.admit_request(&new)), Vec::<String>::new());
}

/// Overlays of equal weight that set the same field of the same offerings name each other; others do not: those with
/// another weight, other types, offerings or NodePools, or another field.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn overlays_that_contradict_each_other_are_named() {
    let overlay = |name: &str, spec: Value| {
        let named = merged(
            good("NodeOverlay"),
            &json!({ "metadata": { "name": name } }),
        );
        merged(named, &json!({ "spec": spec }))
    };
    let family = |family: &str| json!([{ "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": [family] }]);
    let mut cluster = TestCluster::new();
    cluster.pool(&pool(
        "team",
        &json!({ "spec": { "template": { "metadata": { "labels": { "team": "a" } } } } }),
    ));
    cluster.overlay(&overlay(
        "cheap",
        json!({ "weight": 5, "price": "0.01", "requirements": family("m5") }),
    ));
    cluster.overlay(&overlay(
        "fuse",
        json!({ "capacity": { "smarter-devices/fuse": "2" }, "requirements": family("c5") }),
    ));
    let mut said = |name: &str, spec: Value| -> Vec<String> {
        let answer = cluster.admit("CREATE", &overlay(name, spec), None);
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
    // The overlay itself, another weight, other types, another field.
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
    // A label of the NodePool is known; a label that nothing has matches nothing.
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
    // The same types, but no common offering.
    let sold = |capacity_type: &str, zone: &str| json!([{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type] }, { "key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone] }]);
    cluster.overlay(&overlay(
        "spot",
        json!({ "weight": 7, "price": "0.01", "requirements": sold("spot", "us-east-1a") }),
    ));
    let answer = cluster.admit("CREATE", &overlay("on-demand", json!({ "weight": 7, "price": "0.02", "requirements": sold("on-demand", "us-east-1a") })), None);
    assert_eq!(warned(&answer), none);
    let answer = cluster.admit(
        "CREATE",
        &overlay(
            "spot-too",
            json!({ "weight": 7, "price": "0.02", "requirements": sold("spot", "us-east-1a") }),
        ),
        None,
    );
    assert_eq!(warned(&answer).len(), 1);
}
