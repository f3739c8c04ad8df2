//! Volumes and their zones.

use serde_json::{Value, json};

use super::{ALL, ZONE, asks, check};

fn claim(name: &str, spec: Value) -> Value {
    json!({"kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn volume(name: &str, zone: &str, over: Value) -> Value {
    let term = json!({"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]});
    let mut own = json!({
        "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"storageClassName": "local", "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
    });
    json_patch::merge(&mut own, &over);
    own
}

fn class(name: &str, over: Value) -> Value {
    let mut own = json!({
        "kind": "StorageClass", "metadata": {"name": name}, "provisioner": "disk.test",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    json_patch::merge(&mut own, &over);
    own
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn volumes_and_their_zones() {
    let uses = || {
        asks(
            "x",
            json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}),
        )
    };
    let made = || asks("x", json!({"volumes": [{"name": "data", "ephemeral": {}}]}));
    let fast = || claim("data", json!({"storageClassName": "fast"}));
    let local = || claim("data", json!({"storageClassName": "local"}));
    let zones = |zones: &[&str]| json!({"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": zones}]}]});
    let static_class = || {
        class(
            "local",
            json!({"provisioner": "kubernetes.io/no-provisioner"}),
        )
    };
    check(vec![
        (
            "no volume",
            vec![],
            asks("x", json!({"volumes": [{"name": "tmp"}]})),
            ALL,
        ),
        ("a claim that is not there", vec![], uses(), &[]),
        (
            "a bound volume's zone",
            vec![
                volume("v", "b", json!({})),
                claim("data", json!({"volumeName": "v"})),
            ],
            uses(),
            &["b1"],
        ),
        (
            "a volume that is not there",
            vec![claim("data", json!({"volumeName": "v"}))],
            uses(),
            &[],
        ),
        (
            "a volume that can be reached everywhere",
            vec![
                volume("v", "b", json!({"spec": {"nodeAffinity": null}})),
                claim("data", json!({"volumeName": "v"})),
            ],
            uses(),
            ALL,
        ),
        (
            "a class that binds at once",
            vec![
                class("fast", json!({"volumeBindingMode": "Immediate"})),
                fast(),
            ],
            uses(),
            &[],
        ),
        (
            "a class without a mode binds at once",
            vec![class("fast", json!({"volumeBindingMode": null})), fast()],
            uses(),
            &[],
        ),
        (
            "a class that waits",
            vec![class("fast", json!({})), fast()],
            uses(),
            ALL,
        ),
        (
            "its zones",
            vec![class("fast", zones(&["a", "c"])), fast()],
            uses(),
            &["a1", "a2", "c1"],
        ),
        (
            "one of its terms",
            vec![
                class(
                    "fast",
                    json!({"allowedTopologies": [
                        {"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}, {"matchLabelExpressions": [{"key": "rack", "values": ["1"]}]},
                    ]}),
                ),
                fast(),
            ],
            uses(),
            &["b1"],
        ),
        (
            "an ephemeral volume's claim",
            vec![
                class("fast", zones(&["b"])),
                claim("new-data", json!({"storageClassName": "fast"})),
            ],
            made(),
            &["b1"],
        ),
        (
            "the default class",
            vec![
                class(
                    "fast",
                    json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "allowedTopologies": zones(&["b"])["allowedTopologies"]}),
                ),
                claim("data", json!({})),
            ],
            uses(),
            &["b1"],
        ),
        (
            "a class that makes none, and no volume",
            vec![static_class(), local()],
            uses(),
            &[],
        ),
        (
            "one of its volumes",
            vec![static_class(), volume("v", "c", json!({})), local()],
            uses(),
            &["c1"],
        ),
        (
            "one that is claimed",
            vec![
                static_class(),
                volume(
                    "v",
                    "c",
                    json!({"spec": {"claimRef": {"name": "other", "namespace": "default"}}}),
                ),
                local(),
            ],
            uses(),
            &[],
        ),
        (
            "two volumes in one zone each",
            vec![
                volume("v", "a", json!({})),
                volume("w", "b", json!({})),
                claim("data", json!({"volumeName": "v"})),
                claim("more", json!({"volumeName": "w"})),
            ],
            asks(
                "x",
                json!({"volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "more", "persistentVolumeClaim": {"claimName": "more"}},
                ]}),
            ),
            &[],
        ),
    ]);
}
