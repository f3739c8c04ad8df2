//! Bodies that would be more expensive to process than to send, if the work were not bounded. They are too long for
//! files, so they are generated.

use serde_json::{Map, Value, json};

/// A body and the target that it is for.
#[derive(Debug)]
pub struct Heavy {
    /// What is expensive about it.
    pub name: &'static str,
    /// Name of the target.
    pub target: &'static str,
    /// The body.
    pub body: Vec<u8>,
}

fn review(kind: &str, spec: &Value, old: Option<&Value>) -> Vec<u8> {
    let group = if kind == "EC2NodeClass" {
        "karpenter.k8s.aws"
    } else {
        "karpenter.sh"
    };
    let object = |spec: &Value| json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": { "name": "heavy" }, "spec": spec });
    let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": operation, "kind": { "group": group, "version": "v1", "kind": kind },
        "object": object(spec), "oldObject": old.map(object),
    } })
    .to_string()
    .into_bytes()
}

fn pool(inner: &Value) -> Value {
    let mut spec = json!({ "nodeClassRef": { "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" }, "requirements": [] });
    for (name, value) in inner.as_object().into_iter().flatten() {
        if let Some(spec) = spec.as_object_mut() {
            spec.insert(name.clone(), value.clone());
        }
    }
    json!({ "template": { "spec": spec } })
}

fn many(count: usize, each: impl Fn(usize) -> Value) -> Value {
    Value::Array((0..count).map(each).collect())
}

fn names(count: usize, value: &Value) -> Value {
    let names = (0..count).map(|n| (format!("name{n}"), value.clone()));
    Value::Object(names.collect::<Map<String, Value>>())
}

fn conversion(objects: &[Value], desired: &str) -> Vec<u8> {
    json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
        "uid": "1", "desiredAPIVersion": desired, "objects": objects,
    } })
    .to_string()
    .into_bytes()
}

/// Every known kind of expensive body, with `count` repetitions.
#[must_use]
pub fn heavy(count: usize) -> Vec<Heavy> {
    let admission = reviews(count).into_iter().map(|(name, body)| Heavy {
        name,
        target: "admission",
        body,
    });
    let conversion = conversions(count).into_iter().map(|(name, body)| Heavy {
        name,
        target: "conversion",
        body,
    });
    admission.chain(conversion).collect()
}

/// Admission reviews, each with a description.
fn reviews(count: usize) -> [(&'static str, Vec<u8>); 9] {
    let list = |value: i64| pool(&json!({ "requirements": many(count, |_| json!(value)) }));
    let zone = |n: usize| json!({ "key": "topology.kubernetes.io/zone", "operator": "Inn", "values": [format!("z{n}")] });
    let unknown = json!([{ "key": "node.kubernetes.io/instance-type", "operator": "In",
        "values": many(count, |n| json!(format!("m5.l{n}"))) }]);
    let taint = |n: usize| json!({ "key": format!("a/b/{n}"), "effect": "NoSchedule" });
    let mut moved_fields = pool(&json!({}));
    for n in 0..count {
        if let Some(spec) = moved_fields.as_object_mut() {
            spec.insert(format!("templates{n}"), json!([n]));
        }
    }
    [
        (
            "a list far too long, every item new and wrong",
            review("NodePool", &list(1), Some(&list(0))),
        ),
        (
            "requirements, each wrong in several ways",
            review(
                "NodePool",
                &pool(&json!({ "requirements": many(count, zone) })),
                Some(&list(0)),
            ),
        ),
        (
            "values that no instance type has",
            review("NodePool", &pool(&json!({ "requirements": unknown })), None),
        ),
        (
            "taints that cannot be",
            review(
                "NodePool",
                &pool(&json!({ "taints": many(count, taint) })),
                None,
            ),
        ),
        (
            "limits on what no node has",
            review(
                "NodePool",
                &json!({ "limits": names(count, &json!("1")), "template": pool(&json!({}))["template"] }),
                None,
            ),
        ),
        ("unknown fields", review("NodePool", &moved_fields, None)),
        (
            "unknown kubelet settings",
            review(
                "EC2NodeClass",
                &json!({ "kubelet": names(count, &json!(1)) }),
                None,
            ),
        ),
        (
            "tags that are set for every instance",
            review(
                "EC2NodeClass",
                &json!({ "tags": names(count, &json!(7)) }),
                Some(&json!({ "tags": names(count, &json!(8)) })),
            ),
        ),
        (
            "one long name",
            review("NodePool", &json!({ "x".repeat(count * 10): 1 }), None),
        ),
    ]
}

/// Conversion reviews, each with a description.
fn conversions(count: usize) -> [(&'static str, Vec<u8>); 3] {
    let kept = many(
        7_000,
        |n| json!({ "at": "/spec/tags", "item": n, "was": 1, "is": 2 }),
    )
    .to_string();
    let class = json!({ "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": { "name": "heavy", "annotations": { "mortise.sh/v1beta1-fields": kept } },
        "spec": { "tags": many(count, |_| json!(0)) } });
    let small = json!({ "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": { "name": "p" }, "spec": {} });
    [
        (
            "kept items that are nowhere",
            conversion(&[class], "karpenter.k8s.aws/v1beta1"),
        ),
        (
            "many objects",
            conversion(&vec![small; count / 10], "karpenter.sh/v1"),
        ),
        (
            "numbers instead of objects",
            conversion(&vec![json!(0); count], "karpenter.sh/v1"),
        ),
    ]
}
