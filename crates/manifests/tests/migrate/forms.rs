//! The forms in which manifests come: lists, JSON, anchors.

use mortise_apis::schema::absent::without_nulls;
use mortise_manifests::migrate::{MigrateOptions, Migrated, MigrationLevel, from_cluster, migrate};
use serde_json::{Value, json};

use super::{object, objects, run, source};

#[test]
fn lists_and_json() {
    let list = json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            { "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": { "name": "a", "uid": "1" },
              "spec": { "template": { "spec": { "nodeClassRef": { "name": "c" }, "requirements": [] } } }, "status": {} },
            { "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b" } },
        ],
    });
    let text = serde_json::to_string_pretty(&list).unwrap();
    let as_json = migrate(&[source("in.json", &text)], &MigrateOptions::default());
    let read: Vec<Value> =
        serde_json::Deserializer::from_str(&as_json.files[0].text.replace("---\n", ""))
            .into_iter()
            .map(Result::unwrap)
            .collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0]["apiVersion"], "karpenter.sh/v1");
    assert_eq!(read[0]["metadata"], json!({ "name": "a" }));
    assert_eq!(read[1]["kind"], "ConfigMap");
    assert_eq!(objects(&run(&text).files[0].text), read);
    let live = from_cluster(&list["items"][0]);
    assert_eq!(live.name, "nodepool-a.yaml");
    assert!(!live.text.contains("uid"));
}

#[test]
fn anchors_are_written_out() {
    let text = "x-common: &common\n  operator: In\nkind: NodePool\napiVersion: karpenter.sh/v1beta1\nmetadata: {name: x}\nspec:\n  template:\n    spec:\n      nodeClassRef: {name: y}\n      requirements:\n        - <<: *common\n          key: a\n          values: &v [b]\n        - {key: c, operator: In, values: *v}\n";
    let requirements = object(text)["spec"]["template"]["spec"]["requirements"].clone();
    assert_eq!(
        requirements,
        json!([{ "operator": "In", "key": "a", "values": ["b"] }, { "key": "c", "operator": "In", "values": ["b"] }])
    );
}

/// A colon without a blank makes a text of what looks like a field.
#[test]
fn an_object_of_another_shape_is_left_as_it_is() {
    for text in [
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: x}\nspec:\n  requirements:1[]\n",
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: x}\nspec: [a]\n",
        "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: x}\nspec: none\n",
    ] {
        let migrated = run(text);
        assert_eq!(migrated.worst(), MigrationLevel::Error, "{text}");
        assert_eq!(migrated.files[0].text, text);
        assert_eq!(migrated.changed, 0, "{text}");
    }
}

/// A set of fields in which there is none says nothing.
fn without_empty(value: &Value) -> Value {
    let Value::Object(fields) = value else {
        return value.clone();
    };
    let fields = fields
        .iter()
        .map(|(name, field)| (name.clone(), without_empty(field)));
    Value::Object(fields.filter(|(_, field)| *field != json!({})).collect())
}

/// Go programs write `null` for what they leave out: it is converted as if it were not there.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn null_is_absent() {
    let cases = [
        (
            json!({ "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": { "name": "a" }, "spec": {
                "template": { "spec": { "nodeClassRef": { "name": "c" }, "requirements": [{ "key": "a", "operator": "Exists" }] } },
            } }),
            &[
                "/metadata/annotations",
                "/spec/disruption",
                "/spec/limits",
                "/spec/weight",
                "/spec/template/metadata",
                "/spec/template/spec/kubelet",
                "/spec/template/spec/taints",
                "/spec/template/spec/startupTaints",
                "/spec/template/spec/nodeClassRef/apiVersion",
                "/spec/template/spec/nodeClassRef/kind",
                "/spec/template/spec/requirements/0/values",
                "/spec/template/spec/requirements/0/minValues",
                "/status",
            ][..],
        ),
        (
            json!({ "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": { "name": "a" }, "spec": { "providerRef": { "name": "c" } } }),
            &[
                "/spec/annotations",
                "/spec/consolidation",
                "/spec/kubeletConfiguration",
                "/spec/labels",
                "/spec/limits",
                "/spec/provider",
                "/spec/requirements",
                "/spec/taints",
                "/spec/startupTaints",
                "/spec/ttlSecondsAfterEmpty",
                "/spec/ttlSecondsUntilExpired",
                "/spec/weight",
                "/status",
            ],
        ),
        (
            json!({ "apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "metadata": { "name": "c" }, "spec": {
                "amiFamily": "AL2023", "role": "r", "subnetSelectorTerms": [{ "id": "subnet-1" }], "securityGroupSelectorTerms": [{ "id": "sg-1" }],
            } }),
            &[
                "/spec/amiSelectorTerms",
                "/spec/blockDeviceMappings",
                "/spec/context",
                "/spec/detailedMonitoring",
                "/spec/instanceProfile",
                "/spec/instanceStorePolicy",
                "/spec/metadataOptions",
                "/spec/tags",
                "/spec/userData",
                "/spec/associatePublicIPAddress",
                "/spec/subnetSelectorTerms/0/tags",
                "/status",
            ],
        ),
        (
            json!({ "apiVersion": "karpenter.k8s.aws/v1alpha1", "kind": "AWSNodeTemplate", "metadata": { "name": "c" }, "spec": {
                "amiFamily": "AL2", "subnetSelector": { "a": "b" }, "securityGroupSelector": { "a": "b" },
            } }),
            &[
                "/spec/amiSelector",
                "/spec/blockDeviceMappings",
                "/spec/context",
                "/spec/detailedMonitoring",
                "/spec/instanceProfile",
                "/spec/launchTemplate",
                "/spec/metadataOptions",
                "/spec/tags",
                "/spec/userData",
                "/status",
            ],
        ),
    ];
    for (bare, optional) in cases {
        let want = run(&bare.to_string());
        for path in optional {
            let mut with_null = bare.clone();
            let (parent, name) = path.rsplit_once('/').unwrap();
            let parent = with_null.pointer_mut(parent).unwrap();
            parent
                .as_object_mut()
                .unwrap()
                .insert(name.to_owned(), Value::Null);
            let got = run(&with_null.to_string());
            let plain = |migrated: &Migrated| -> Vec<Value> {
                let all = objects(&migrated.files[0].text);
                all.iter()
                    .map(|each| without_empty(&without_nulls(each)))
                    .collect()
            };
            assert_eq!(plain(&got), plain(&want), "{path} of {}", bare["kind"]);
            assert_eq!(
                got.worst(),
                want.worst(),
                "{path} of {}: {:?}",
                bare["kind"],
                got.findings
            );
        }
    }
}
