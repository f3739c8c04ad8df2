#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use mortise_apis::labels::{COSCHEDULING_GROUP, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_planning::scheduling::SchedulerConfig;
use mortise_planning::settings::Settings;
use mortise_state::resource_kinds::ObjectKind;
use serde_json::{Value, json};

use super::RecordedScenario;
use crate::recorded_cluster::RecordedCluster;
use crate::scenario::ClusterObjects;
use crate::test_cluster::{GROUP, KIND, instance_type, ordinary_types};

/// A cluster with a NodePool, a node of it and another node.
fn recorded(objects: Vec<(ObjectKind, Value)>) -> RecordedCluster {
    let mut cluster = RecordedCluster {
        taken_at: Timestamp::UNIX_EPOCH,
        recorded_by: String::new(),
        settings: Settings::default(),
        scheduler_config: SchedulerConfig::default(),
        well_known: WellKnown::default(),
        served: vec![NodeClassKind {
            group: GROUP,
            version: "v1",
            kind: KIND,
            plural: "fakenodeclasses",
        }],
        objects: BTreeMap::new(),
        catalogs: BTreeMap::from([(NodeClassKey::new(GROUP, KIND, "default"), ordinary_types())]),
        names_are_hashed: false,
    };
    let pool = |name: &str, class: &str| {
        let class = json!({ "group": GROUP, "kind": KIND, "name": class });
        json!({
            "metadata": {
                "name": name, "resourceVersion": "7", "uid": "u", "generation": 4,
                "annotations": { "karpenter.sh/nodepool-hash": "1", "mortise.sh/note": "a" },
            },
            "spec": { "template": { "spec": { "nodeClassRef": class, "requirements": [] } } },
            "status": { "nodes": 3 },
        })
    };
    let node =
        |name: &str, labels: Value| json!({ "metadata": { "name": name, "labels": labels } });
    let always = [
        (ObjectKind::Pool, pool("general", "default")),
        (ObjectKind::Pool, pool("unknown", "other")),
        (
            ObjectKind::Node,
            node("ours", json!({ "karpenter.sh/nodepool": "general" })),
        ),
        (ObjectKind::Node, node("system", json!({}))),
    ];
    for (kind, value) in always.into_iter().chain(objects) {
        cluster.add(kind.deserialize(value).unwrap());
    }
    cluster
}

/// A pod of `shop` on a node. `owner`: kind and name.
fn pod(
    name: &str,
    owner: Option<(&str, &str)>,
    change: &dyn Fn(&mut Value),
) -> (ObjectKind, Value) {
    let mut pod = json!({
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "nodeName": "ours", "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] },
        "status": { "phase": "Running" },
    });
    if let Some((kind, owner)) = owner {
        pod["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "v1", "kind": kind, "name": owner, "uid": "u", "controller": true },
        ]);
    }
    change(&mut pod);
    (ObjectKind::Pod, pod)
}

fn scenario(objects: Vec<(ObjectKind, Value)>) -> RecordedScenario {
    let scenario = RecordedScenario::of(&recorded(objects)).unwrap();
    let mut all = ClusterObjects::default();
    for document in &scenario.documents {
        all.add(document).unwrap();
    }
    all.complete().unwrap();
    scenario
}

impl RecordedScenario {
    fn document(&self, kind: &str, name: &str) -> &Value {
        let mut all = self.documents.iter();
        let found = all.find(|each| each["kind"] == kind && each["metadata"]["name"] == name);
        found.unwrap_or(&Value::Null)
    }

    /// Kind, name and size of each workload.
    fn sizes(&self) -> Vec<String> {
        let workloads = self.documents.iter().filter_map(|each| {
            let size = ["replicas", "completions"].map(|field| each["spec"][field].as_u64());
            let size = size.into_iter().flatten().next()?;
            let name = each["metadata"]["name"].as_str()?;
            Some(format!("{} {name} {size}", each["kind"].as_str()?))
        });
        workloads.collect()
    }
}

fn same(_: &mut Value) {}

#[test]
fn pods_become_the_workloads_that_own_them() {
    let hash = |pod: &mut Value| pod["metadata"]["labels"]["pod-template-hash"] = json!("6fb");
    let set = Some(("StatefulSet", "web"));
    let on = |node: &'static str| move |pod: &mut Value| pod["spec"]["nodeName"] = json!(node);
    let phase = |phase: &'static str| move |pod: &mut Value| pod["status"]["phase"] = json!(phase);
    let of_job = Some(("Job", "sum"));
    let found = scenario(vec![
        pod("web-6fb-1", Some(("ReplicaSet", "web-6fb")), &hash),
        pod("web-6fb-2", Some(("ReplicaSet", "web-6fb")), &hash),
        pod("web-5ca-3", Some(("ReplicaSet", "web-5ca")), &|pod| {
            pod["metadata"]["labels"]["pod-template-hash"] = json!("5ca");
            pod["spec"]["nodeName"] = Value::Null;
        }),
        pod("other-1", Some(("CloneSet", "other")), &same),
        pod("web-0", set, &same),
        pod("web-1", set, &same),
        pod("sum-x", of_job, &same),
        pod("sum-y", of_job, &phase("Succeeded")),
        pod("alone", None, &same),
        pod("agent-x", Some(("DaemonSet", "agent")), &same),
        pod("proxy", Some(("Node", "ours")), &same),
        pod("old", Some(("ReplicaSet", "web-6fb")), &|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        }),
        pod("dns-1", Some(("ReplicaSet", "dns-1")), &on("system")),
        pod("dns-2", Some(("ReplicaSet", "dns-1")), &on("system")),
        pod("held", Some(("ReplicaSet", "held")), &|pod| {
            pod["spec"]["schedulingGates"] = json!([{ "name": "example.com/wait" }]);
        }),
    ]);
    assert_eq!(
        found.sizes(),
        [
            "Deployment shop.other 1",
            "Deployment shop.web 3",
            "StatefulSet shop.web-statefulset 2",
            "Job shop.alone 1",
            "Job shop.sum 1",
        ]
    );
    assert_eq!(
        found.left_out,
        [
            "1 NodePool with a node class whose instance types were not recorded",
            "2 pods on nodes that no NodePool made",
            "1 pod with scheduling gates",
        ]
    );
    let pool = found.document("NodePool", "general");
    assert_eq!(
        pool["metadata"],
        json!({ "name": "general", "annotations": { "mortise.sh/note": "a" } })
    );
    assert!(pool.get("status").is_none());
}

#[test]
fn selectors_ask_for_the_namespace() {
    let namespace = |name: &str, tier: &str| {
        let metadata = json!({ "name": name, "labels": { "tier": tier } });
        (ObjectKind::Namespace, json!({ "metadata": metadata }))
    };
    let web = json!({ "matchLabels": { "app": "web" } });
    let term = |change: Value| {
        let mut term =
            json!({ "topologyKey": "topology.kubernetes.io/zone", "labelSelector": web });
        term.as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        term
    };
    let front = json!({ "matchLabels": { "tier": "front" } });
    let none = json!({ "matchLabels": { "tier": "none" } });
    let found = scenario(vec![
        namespace("shop", "front"),
        namespace("blog", "front"),
        namespace("db", "back"),
        pod("web-1", Some(("ReplicaSet", "web")), &|pod| {
            pod["spec"]["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": web,
            }]);
            pod["spec"]["affinity"] = json!({
                "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
                    term(json!({})),
                    term(json!({ "namespaces": ["db"], "namespaceSelector": front })),
                ] },
                "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
                    { "weight": 1, "podAffinityTerm": term(json!({ "namespaceSelector": {} })) },
                    { "weight": 2, "podAffinityTerm": term(json!({ "namespaceSelector": none })) },
                ] },
            });
        }),
    ]);
    let template = &found.document("Deployment", "shop.web")["spec"]["template"];
    assert_eq!(
        template["metadata"]["labels"],
        json!({
            "app": "web",
            "mortise.sh/simulated-namespace": "shop",
            "mortise.sh/simulated-workload": "shop.web",
        })
    );
    let asks = |selector: &Value| {
        let expressions = selector["matchExpressions"].as_array();
        expressions.map(|all| all[0]["values"].clone())
    };
    let spec = &template["spec"];
    let spread = &spec["topologySpreadConstraints"][0]["labelSelector"];
    assert_eq!(asks(spread), Some(json!(["shop"])));
    let with = &spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(asks(&with[0]["labelSelector"]), Some(json!(["shop"])));
    let both = json!(["blog", "db", "shop"]);
    assert_eq!(asks(&with[1]["labelSelector"]), Some(both));
    assert!(with[1].get("namespaces").is_none() && with[1].get("namespaceSelector").is_none());
    let without =
        &spec["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(without[0]["podAffinityTerm"]["labelSelector"], web);
    assert!(without[1]["podAffinityTerm"].get("labelSelector").is_none());
}

#[test]
fn volumes_become_claim_templates_or_a_zone() {
    let claim = |name: &str, class: &str, volume: &str| {
        (
            ObjectKind::VolumeClaim,
            json!({
                "metadata": { "name": name, "namespace": "shop" },
                "spec": { "storageClassName": class, "volumeName": volume },
            }),
        )
    };
    let volume = |name: &str, zones: &[&str]| {
        let zones =
            json!([{ "key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": zones }]);
        let terms = json!([{ "matchExpressions": zones }]);
        let affinity = json!({ "required": { "nodeSelectorTerms": terms } });
        (
            ObjectKind::Volume,
            json!({ "metadata": { "name": name }, "spec": { "nodeAffinity": affinity } }),
        )
    };
    let uses = |claims: &'static [(&'static str, &'static str)]| {
        move |pod: &mut Value| {
            let volumes = claims.iter().map(|(name, claim)| {
                json!({ "name": name, "persistentVolumeClaim": { "claimName": claim } })
            });
            pod["spec"]["volumes"] = volumes.collect();
        }
    };
    let found = scenario(vec![
        claim("data-db-0", "fast", "v0"),
        claim("cache", "slow", "v1"),
        claim("wide", "slow", "v2"),
        volume("v0", &["test-zone-a"]),
        volume("v1", &["test-zone-b"]),
        volume("v2", &["test-zone-a", "test-zone-b"]),
        pod(
            "db-0",
            Some(("StatefulSet", "db")),
            &uses(&[("data", "data-db-0"), ("shared", "wide")]),
        ),
        pod(
            "web-1",
            Some(("ReplicaSet", "web")),
            &uses(&[("cache", "cache"), ("wide", "wide")]),
        ),
        pod(
            "api-1",
            Some(("ReplicaSet", "api")),
            &uses(&[("wide", "wide")]),
        ),
    ]);
    let set = found.document("StatefulSet", "shop.db");
    assert_eq!(
        set["spec"]["volumeClaimTemplates"],
        json!([{ "metadata": { "name": "data" }, "spec": { "storageClassName": "fast" } }])
    );
    let selector = |kind: &str, name: &str| {
        let spec = &found.document(kind, name)["spec"]["template"]["spec"];
        assert!(spec.get("volumes").is_none(), "{spec}");
        spec["nodeSelector"]["topology.kubernetes.io/zone"].clone()
    };
    assert_eq!(selector("StatefulSet", "shop.db"), Value::Null);
    assert_eq!(selector("Deployment", "shop.web"), json!("test-zone-b"));
    assert_eq!(selector("Deployment", "shop.api"), Value::Null);
}

#[test]
fn budgets_are_numbers_of_one_workload() {
    let budget = |name: &str, spec: Value| {
        let metadata = json!({ "name": name, "namespace": "shop" });
        (
            ObjectKind::Pdb,
            json!({ "metadata": metadata, "spec": spec }),
        )
    };
    let of = |app: &str| json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": [app] }] });
    let mut objects = vec![
        budget("a", json!({ "selector": of("a"), "minAvailable": "50%" })),
        budget("b", json!({ "selector": of("b"), "maxUnavailable": "25%" })),
        budget("c", json!({ "selector": of("c"), "minAvailable": 9 })),
        budget("d", json!({ "selector": of("d"), "maxUnavailable": 2 })),
        budget("d2", json!({ "selector": of("d"), "maxUnavailable": 2 })),
    ];
    for app in ["a", "b", "c", "d", "e"] {
        for nth in 0..5 {
            let owner = Some(("ReplicaSet", app));
            let label = |pod: &mut Value| pod["metadata"]["labels"]["app"] = json!(app);
            objects.push(pod(&format!("{app}-{nth}"), owner, &label));
        }
    }
    let found = scenario(objects);
    let allowed = ["a", "b", "c", "d", "e"].map(|app| {
        let budget = found.document("PodDisruptionBudget", &format!("shop.{app}"));
        budget["spec"]["maxUnavailable"].clone()
    });
    assert_eq!(
        json!(allowed),
        json!([2, 2, 0, 0, null]),
        "3 of 5 must stay; 25 % of 5 are 2; 9 of 5; two budgets; none"
    );
}

#[test]
fn a_node_class_has_the_offerings_that_it_was_recorded_with() {
    let mut cluster = recorded(Vec::new());
    let small = instance_type("small", 2, &[("spot", 40), ("on-demand", 100)]);
    let mut short = small.clone();
    short
        .offerings
        .iter_mut()
        .for_each(|each| each.available = false);
    let large = instance_type("large", 8, &[("on-demand", 400)]);
    let class = |name: &str| NodeClassKey::new(GROUP, KIND, name);
    cluster.catalogs = BTreeMap::from([
        (class("a"), vec![instance_type("small", 2, &[("spot", 40)])]),
        (class("b"), vec![large, short]),
    ]);
    let cloud = RecordedScenario::of(&cluster).unwrap().cloud;
    let names: Vec<(&str, usize)> = cloud
        .instance_types
        .iter()
        .map(|each| (&*each.name, each.offerings.len()))
        .collect();
    let offerings = small.offerings.len();
    assert_eq!(names, [("large", offerings / 2), ("small", offerings)]);
    let all = cloud.instance_types.iter().flat_map(|each| &each.offerings);
    assert!(all.clone().all(|offering| offering.available));
    let zones = &cloud.instance_types[0].requirements;
    let large = zones.get(mortise_apis::labels::CAPACITY_TYPE).unwrap();
    assert!(large.has("on-demand") && !large.has("spot"));
    let kinds = &cloud.instance_types[1].requirements;
    let small = kinds.get(mortise_apis::labels::CAPACITY_TYPE).unwrap();
    assert!(small.has("on-demand") && small.has("spot"));
    let sizes: Vec<usize> = cloud.node_classes.values().map(Vec::len).collect();
    assert_eq!(sizes, [1, 2]);
}

#[test]
fn gangs_of_coscheduling_stay_together_and_others_are_named() {
    let named = |group: &'static str| {
        move |pod: &mut Value| {
            pod["metadata"]["labels"][COSCHEDULING_GROUP] = json!(group);
        }
    };
    let group = |name: &str, size: i64| {
        json!({
            "metadata": { "name": name, "namespace": "shop" },
            "spec": { "minMember": size, "minResources": { "cpu": "8" } },
        })
    };
    let found = scenario(vec![
        (ObjectKind::CoschedulingPodGroup, group("training", 2)),
        (ObjectKind::VolcanoPodGroup, group("other", 2)),
        pod("a-0", Some(("Job", "a")), &named("training")),
        pod("a-1", Some(("Job", "a")), &named("training")),
        pod("b-0", Some(("Job", "b")), &named("gone")),
    ]);
    let group = found.document("PodGroup", "shop.training");
    assert_eq!(group["spec"], json!({ "minMember": 2 }));
    let label = |job: &str| {
        let job = found.document("Job", job);
        job["spec"]["template"]["metadata"]["labels"][COSCHEDULING_GROUP].clone()
    };
    assert_eq!(label("shop.a"), json!("shop.training"));
    assert_eq!(label("shop.b"), Value::Null, "there is no such group");
    let said = "1 PodGroup of Kubernetes or Volcano, whose pods are placed one by one";
    assert!(
        found.left_out.iter().any(|left| left == said),
        "{:?}",
        found.left_out
    );
}
