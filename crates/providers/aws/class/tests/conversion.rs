//! Conversion between `v1beta1` and `v1`: what the rules do, and that nothing is lost either way.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: a panic is its failure"
)]

mod any_object;

use mortise_apis::CrdSet;
use mortise_apis::conversion::{
    self, ConversionError, KUBELET, NODE_CLASS_REFERENCE, V1_FIELDS, V1BETA1_FIELDS,
    converted_kinds,
};
use mortise_apis::crds::with_conversion;
use mortise_apis::node_class::NodeClassRegistry;
use mortise_apis::schema::absent::without_nulls;
use mortise_aws_class::Ec2NodeClassApi;
use mortise_aws_class::conversion::{ALIAS_VERSION, UBUNTU};
use mortise_aws_class::spec::KIND;
use mortise_kwok_class::KwokNodeClassApi;
use proptest::prelude::*;
use serde_json::{Value, json};

use any_object::{Tape, any_object, strangers};

fn classes() -> NodeClassRegistry {
    NodeClassRegistry::new([&Ec2NodeClassApi, &KwokNodeClassApi])
}

fn convert(object: Value, desired: &str) -> Result<Value, ConversionError> {
    conversion::convert(&classes(), object, desired)
}

/// The schema of a version of a kind, from the definitions that serve both.
fn schema(kind: &str, version: &str) -> Value {
    let definitions = with_conversion(
        &CrdSet::for_classes(&classes(), &[KIND]),
        &json!({ "url": "https://127.0.0.1" }),
    );
    let definition = definitions
        .iter()
        .find(|each| each["spec"]["names"]["kind"] == kind)
        .unwrap();
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|each| each["name"] == version);
    found.unwrap()["schema"]["openAPIV3Schema"].clone()
}

fn to(version: &str, object: &Value) -> Value {
    let group = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap()
        .0;
    convert(object.clone(), &format!("{group}/{version}")).unwrap()
}

/// There and back again is where it began, and on the way nothing stands where the other version would drop it.
fn round_trip(kind: &str, group: &str, from: &str, over: &str, tape: &[u32]) {
    let mut object = any_object(&schema(kind, from), &mut Tape::new(tape));
    object["apiVersion"] = json!(format!("{group}/{from}"));
    object["kind"] = json!(kind);
    let other = to(over, &object);
    assert_eq!(other["metadata"]["name"], object["metadata"]["name"]);
    let dropped = strangers(&schema(kind, over), &other);
    assert!(dropped.is_empty(), "{over} drops {dropped:?} of {other:#}");
    let back = to(from, &other);
    assert_eq!(back, object, "over {other:#}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_is_lost_over_the_older_version(tape in prop::collection::vec(any::<u32>(), 0..300)) {
        for (group, kind) in converted_kinds(&classes()) {
            round_trip(kind, group, "v1", "v1beta1", &tape);
        }
    }

    #[test]
    fn nothing_is_lost_over_the_newer_version(tape in prop::collection::vec(any::<u32>(), 0..300)) {
        for (group, kind) in converted_kinds(&classes()) {
            round_trip(kind, group, "v1beta1", "v1", &tape);
        }
    }

    #[test]
    fn fields_that_no_version_knows_are_kept(name in "[a-z]{1,8}[A-Z][a-z]{1,8}", number in any::<i64>()) {
        for (group, kind) in converted_kinds(&classes()) {
            for (from, over) in [("v1", "v1beta1"), ("v1beta1", "v1")] {
                let object = json!({
                    "apiVersion": format!("{group}/{from}"),
                    "kind": kind,
                    "metadata": { "name": "x", "resourceVersion": "7" },
                    "spec": { &name: number, "disruption": { &name: [number] }, "metadataOptions": { &name: "x" } },
                    "status": { &name: { "deep": number } },
                    &name: true,
                });
                let other = to(over, &object);
                prop_assert_eq!(&other["spec"][&name], &json!(number));
                prop_assert_eq!(&other["spec"]["disruption"][&name], &json!([number]));
                prop_assert_eq!(&other["status"], &object["status"]);
                prop_assert_eq!(&other[&name], &json!(true));
                prop_assert_eq!(to(from, &other), object);
            }
        }
    }

    #[test]
    fn any_text_in_our_annotations_is_survived(text in ".{0,40}", inner in "[\\[\\]{}\"a-z:/,0-9]{0,60}") {
        for (group, kind) in converted_kinds(&classes()) {
            for (from, over, key) in [("v1", "v1beta1", V1BETA1_FIELDS), ("v1beta1", "v1", V1_FIELDS)] {
                for text in [&text, &inner] {
                    let object = json!({
                        "apiVersion": format!("{group}/{from}"),
                        "kind": kind,
                        "metadata": { "name": "x", "annotations": { key: text } },
                        "spec": { "amiFamily": "AL2" },
                    });
                    let other = to(over, &object);
                    prop_assert_eq!(&other["kind"], &object["kind"]);
                }
            }
        }
    }
}

fn pool(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": format!("karpenter.sh/{version}"), "kind": "NodePool", "metadata": { "name": "p" }, "spec": spec })
}

fn class(version: &str, spec: &Value) -> Value {
    json!({ "apiVersion": format!("karpenter.k8s.aws/{version}"), "kind": "EC2NodeClass", "metadata": { "name": "c" }, "spec": spec })
}

#[track_caller]
fn gives(version: &str, object: &Value, at: &str, want: &Value) {
    let converted = to(version, object);
    let got = converted.pointer(at).unwrap_or(&Value::Null);
    assert_eq!(got, want, "{at} of {converted:#}");
}

#[test]
fn pools_to_v1() {
    let disruption = |value: Value| {
        pool(
            "v1beta1",
            &json!({ "disruption": value, "template": { "spec": {} } }),
        )
    };
    let after = "/spec/disruption/consolidateAfter";
    let policy = "/spec/disruption/consolidationPolicy";
    let plain =
        disruption(json!({ "consolidationPolicy": "WhenUnderutilized", "expireAfter": "48h" }));
    gives("v1", &plain, policy, &json!("WhenEmptyOrUnderutilized"));
    gives("v1", &plain, after, &json!("0s"));
    gives(
        "v1",
        &plain,
        "/spec/template/spec/expireAfter",
        &json!("48h"),
    );
    gives("v1", &plain, "/spec/disruption/expireAfter", &json!(null));
    // Switched off stays switched off.
    let off = disruption(
        json!({ "consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "Never" }),
    );
    gives("v1", &off, after, &json!("Never"));
    let empty =
        disruption(json!({ "consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s" }));
    gives("v1", &empty, policy, &json!("WhenEmpty"));
    gives("v1", &empty, after, &json!("30s"));

    let template = |value: Value| pool("v1beta1", &json!({ "template": { "spec": value } }));
    let reference = "/spec/template/spec/nodeClassRef";
    for (old, group, kind) in [
        (json!({ "name": "c" }), "karpenter.k8s.aws", "EC2NodeClass"),
        (
            json!({ "name": "c", "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass" }),
            "karpenter.k8s.aws",
            "EC2NodeClass",
        ),
        (
            json!({ "name": "c", "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass" }),
            "karpenter.kwok.sh",
            "KWOKNodeClass",
        ),
        (
            json!({ "name": "c", "apiVersion": "v1", "kind": "Odd" }),
            "karpenter.k8s.aws",
            "Odd",
        ),
        (
            json!({ "name": "c", "apiVersion": "/v1" }),
            "karpenter.k8s.aws",
            "EC2NodeClass",
        ),
    ] {
        let want = json!({ "group": group, "kind": kind, "name": "c" });
        gives(
            "v1",
            &template(json!({ "nodeClassRef": old })),
            reference,
            &want,
        );
    }
    let kubelet = template(json!({ "kubelet": { "maxPods": 20 } }));
    gives("v1", &kubelet, "/spec/template/spec/kubelet", &json!(null));
    let key = format!("/metadata/annotations/{}", KUBELET.replace('/', "~1"));
    gives("v1", &kubelet, &key, &json!("{\"maxPods\":20}"));
}

#[test]
fn pools_to_v1beta1() {
    let now = pool(
        "v1",
        &json!({
            "replicas": 3,
            "disruption": {
                "consolidationPolicy": "Balanced",
                "consolidateAfter": "5m",
                "budgets": [{ "nodes": "10%", "reasons": ["Drifted"] }],
            },
            "template": { "spec": {
                "expireAfter": "Never",
                "terminationGracePeriod": "1h",
                "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c" },
                "requirements": [
                    { "key": "cpu", "operator": "Gte", "values": ["4"] },
                    { "key": "cpu", "operator": "Lte", "values": ["8"] },
                    { "key": "cpu", "operator": "Gte", "values": ["0"] },
                ],
            } },
        }),
    );
    let older = to("v1beta1", &now);
    assert_eq!(
        older["spec"],
        json!({
            "disruption": { "consolidationPolicy": "WhenUnderutilized", "expireAfter": "Never", "budgets": [{ "nodes": "10%" }] },
            "template": { "spec": {
                "nodeClassRef": { "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "c" },
                "requirements": [
                    { "key": "cpu", "operator": "Gt", "values": ["3"] },
                    { "key": "cpu", "operator": "Lt", "values": ["9"] },
                    { "key": "cpu", "operator": "Exists" },
                ],
            } },
        })
    );
    assert_eq!(to("v1", &older), now);
}

#[test]
fn an_edit_in_the_other_version_wins() {
    let now = pool(
        "v1",
        &json!({
            "weight": 3,
            "disruption": {
                "consolidationPolicy": "Balanced",
                "consolidateAfter": "5m",
                "budgets": [{ "nodes": "10%", "reasons": ["Drifted"] }, { "nodes": "1", "reasons": ["Empty"] }],
            },
            "template": { "spec": { "terminationGracePeriod": "1h" } },
        }),
    );
    let mut older = to("v1beta1", &now);
    older["spec"]["weight"] = json!(5);
    older["spec"]["disruption"]["budgets"] = json!([{ "nodes": "50%" }, { "nodes": "1" }]);
    older["spec"]["disruption"]["consolidationPolicy"] = json!("WhenEmpty");
    older["spec"]["disruption"]["consolidateAfter"] = json!("30s");
    let edited = to("v1", &older);
    let disruption = &edited["spec"]["disruption"];
    assert_eq!(edited["spec"]["weight"], 5);
    assert_eq!(disruption["consolidationPolicy"], "WhenEmpty");
    assert_eq!(disruption["consolidateAfter"], "30s");
    assert_eq!(
        disruption["budgets"],
        json!([{ "nodes": "50%" }, { "nodes": "1", "reasons": ["Empty"] }])
    );
    assert_eq!(
        edited["spec"]["template"]["spec"]["terminationGracePeriod"],
        "1h"
    );
}

#[test]
fn what_karpenter_left_in_annotations_is_read() {
    let mut now = pool(
        "v1",
        &json!({ "template": { "spec": {
        "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c" },
    } } }),
    );
    let reference =
        "{\"kind\": \"EC2NodeClass\", \"name\": \"c\", \"apiVersion\": \"karpenter.k8s.aws/v1\"}";
    now["metadata"]["annotations"] =
        json!({ KUBELET: "{ \"maxPods\": 20 }", NODE_CLASS_REFERENCE: reference });
    let spec = "/spec/template/spec";
    gives(
        "v1beta1",
        &now,
        &format!("{spec}/kubelet"),
        &json!({ "maxPods": 20 }),
    );
    gives(
        "v1beta1",
        &now,
        &format!("{spec}/nodeClassRef/apiVersion"),
        &json!("karpenter.k8s.aws/v1"),
    );
    assert_eq!(to("v1", &to("v1beta1", &now)), now, "the text too");
}

#[test]
fn claims() {
    let claim = |version: &str, spec: Value| {
        json!({
            "apiVersion": format!("karpenter.sh/{version}"), "kind": "NodeClaim", "metadata": { "name": "n" }, "spec": spec,
        })
    };
    // Nothing takes a node by force that its pool would have kept.
    gives(
        "v1",
        &claim("v1beta1", json!({})),
        "/spec/expireAfter",
        &json!("Never"),
    );
    let now = claim(
        "v1",
        json!({ "expireAfter": "24h", "terminationGracePeriod": "1h" }),
    );
    gives("v1beta1", &now, "/spec", &json!({}));
    assert_eq!(to("v1", &to("v1beta1", &now)), now);
}

#[test]
fn classes_to_v1() {
    let terms = "/spec/amiSelectorTerms";
    for (family, alias) in [
        ("AL2", "al2@latest"),
        ("AL2023", "al2023@latest"),
        ("Bottlerocket", "bottlerocket@latest"),
        ("Windows2022", "windows2022@latest"),
    ] {
        let old = class("v1beta1", &json!({ "amiFamily": family }));
        gives("v1", &old, terms, &json!([{ "alias": alias }]));
    }
    let chosen = json!([{ "tags": { "a": "b" } }]);
    gives(
        "v1",
        &class(
            "v1beta1",
            &json!({ "amiFamily": "AL2", "amiSelectorTerms": chosen }),
        ),
        terms,
        &chosen,
    );
    gives(
        "v1",
        &class(
            "v1beta1",
            &json!({ "amiFamily": "Custom", "amiSelectorTerms": chosen }),
        ),
        terms,
        &chosen,
    );
    let hops = "/spec/metadataOptions/httpPutResponseHopLimit";
    gives(
        "v1",
        &class("v1beta1", &json!({ "amiFamily": "AL2" })),
        hops,
        &json!(2),
    );
    gives(
        "v1",
        &class(
            "v1beta1",
            &json!({ "metadataOptions": { "httpPutResponseHopLimit": 1 } }),
        ),
        hops,
        &json!(1),
    );
    let ubuntu = class("v1beta1", &json!({ "amiFamily": "Ubuntu" }));
    gives("v1", &ubuntu, "/spec/amiFamily", &json!("AL2"));
    gives("v1", &ubuntu, terms, &json!([{ "id": "ami-placeholder" }]));
    gives(
        "v1",
        &ubuntu,
        "/spec/blockDeviceMappings/0/deviceName",
        &json!("/dev/sda1"),
    );
    let key = format!("/metadata/annotations/{}", UBUNTU.replace('/', "~1"));
    gives(
        "v1",
        &ubuntu,
        &key,
        &json!("amiFamily,blockDeviceMappings,incompatible"),
    );
    let mut pinned = class("v1beta1", &json!({ "amiFamily": "AL2023" }));
    pinned["metadata"]["annotations"] = json!({ ALIAS_VERSION: "v20240807" });
    gives(
        "v1",
        &pinned,
        terms,
        &json!([{ "alias": "al2023@v20240807" }]),
    );
    assert_eq!(to("v1beta1", &to("v1", &pinned)), pinned);
}

#[test]
fn classes_to_v1beta1() {
    let now = class(
        "v1",
        &json!({
            "amiSelectorTerms": [{ "alias": "al2023@v20240807" }],
            "kubelet": { "maxPods": 30 },
            "ipPrefixCount": 1,
        }),
    );
    let older = to("v1beta1", &now);
    assert_eq!(
        older["spec"],
        json!({ "amiFamily": "AL2023", "metadataOptions": { "httpPutResponseHopLimit": 1 } })
    );
    assert_eq!(older["metadata"]["annotations"][ALIAS_VERSION], "v20240807");
    assert_eq!(to("v1", &older), now);
}

#[test]
fn errors_name_field_and_value() {
    let cases = [
        (
            json!("x"),
            "karpenter.sh/v1",
            vec!["object", "\"x\"", "an object"],
        ),
        (
            json!({ "kind": "NodePool" }),
            "karpenter.sh/v1",
            vec!["apiVersion", "nothing"],
        ),
        (
            json!({ "kind": "NodePol", "apiVersion": "karpenter.sh/v1" }),
            "karpenter.sh/v1",
            vec!["kind", "NodePol", "did you mean NodePool?"],
        ),
        (
            pool("v1beta2", &json!({})),
            "karpenter.sh/v1",
            vec![
                "apiVersion",
                "karpenter.sh/v1beta2",
                "karpenter.sh/v1beta1 and karpenter.sh/v1",
            ],
        ),
        (
            pool("v1beta1", &json!({})),
            "karpenter.k8s.aws/v1",
            vec!["desiredAPIVersion", "karpenter.k8s.aws/v1"],
        ),
        (
            pool("v1beta1", &json!({ "disruption": "no" })),
            "karpenter.sh/v1",
            vec!["spec.disruption", "\"no\"", "an object"],
        ),
        (
            pool(
                "v1beta1",
                &json!({ "disruption": { "consolidationPolicy": 3 } }),
            ),
            "karpenter.sh/v1",
            vec!["spec.disruption.consolidationPolicy", "3", "a text"],
        ),
        (
            pool(
                "v1beta1",
                &json!({ "template": { "spec": { "nodeClassRef": "c" } } }),
            ),
            "karpenter.sh/v1",
            vec!["spec.template.spec.nodeClassRef", "\"c\""],
        ),
        (
            pool("v1", &json!({ "disruption": { "budgets": {} } })),
            "karpenter.sh/v1beta1",
            vec!["spec.disruption.budgets", "{}", "a list"],
        ),
        (
            class("v1", &json!({ "metadataOptions": [] })),
            "karpenter.k8s.aws/v1beta1",
            vec!["spec.metadataOptions", "[]"],
        ),
    ];
    for (object, desired, parts) in cases {
        let error = convert(object.clone(), desired).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in {error:?}");
        }
    }
    let same = pool("v1", &json!({ "disruption": "whatever" }));
    assert_eq!(convert(same.clone(), "karpenter.sh/v1").unwrap(), same);
}

/// An API server hands no null on, but files and other clients may: it means what an absent field means, both ways.
#[test]
fn null_is_absent() {
    let pool = |disruption: Value, template: Value| {
        json!({ "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": { "name": "p" },
            "spec": { "disruption": disruption, "template": { "spec": template } } })
    };
    let reference = json!({ "name": "c" });
    let bare = pool(json!({}), json!({ "nodeClassRef": reference }));
    let nulls = pool(
        json!({ "consolidateAfter": null, "expireAfter": null, "budgets": null }),
        json!({ "nodeClassRef": { "name": "c", "kind": null, "apiVersion": null }, "kubelet": null, "taints": null }),
    );
    let [bare, nulls] = [bare, nulls].map(|each| to("v1", &each));
    assert_eq!(
        nulls["metadata"], bare["metadata"],
        "nothing is kept for a null"
    );
    assert_eq!(*without_nulls(&nulls), bare);
    let class = |spec: Value| json!({ "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "metadata": { "name": "c" }, "spec": spec });
    let bare = to("v1", &class(json!({ "role": "r" })));
    let nulls = to(
        "v1",
        &class(json!({ "role": "r", "metadataOptions": null, "amiSelectorTerms": null })),
    );
    assert_eq!(*without_nulls(&nulls), bare);
}

/// Items that moved are found by their value, each once, and in a list of any length.
#[test]
fn kept_items_are_found_where_they_are_now() {
    let requirement = |operator: &str, value: &str| json!({ "key": "a", "operator": operator, "values": [value] });
    let pool = |requirements: Value| {
        json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": { "name": "p" }, "spec": { "template": { "spec": {
            "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": requirements,
        } } } })
    };
    let (four, five) = (requirement("Gte", "4"), requirement("Gte", "5"));
    let mut older = to("v1beta1", &pool(json!([four, five, four])));
    let list = older
        .pointer_mut("/spec/template/spec/requirements")
        .unwrap();
    list.as_array_mut().unwrap().reverse();
    list.as_array_mut()
        .unwrap()
        .insert(0, requirement("In", "x"));
    let newer = to("v1", &older);
    assert_eq!(
        newer["spec"]["template"]["spec"]["requirements"],
        json!([requirement("In", "x"), four, five, four])
    );
}
