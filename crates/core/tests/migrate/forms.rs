//! The forms in which manifests come: lists, JSON, anchors.

use mortise_core::migrate::{Level, Options, migrate, of_cluster};
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
    let as_json = migrate(&[source("in.json", &text)], &Options::default());
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
    let live = of_cluster(&list["items"][0]);
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
        assert_eq!(migrated.worst(), Level::Failed, "{text}");
        assert_eq!(migrated.files[0].text, text);
        assert_eq!(migrated.changed, 0, "{text}");
    }
}
