//! Recorded objects, and intended denials of mortise.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};

use super::lines;
use super::node_classes::DefinitionSet;

const RECORDED: &[u8] = include_bytes!("../../../tests/data/facts/crd_admission.jsonl.gz");
const TYPED: &[u8] = include_bytes!("../../../tests/data/facts/crd_admission_typed.jsonl.gz");
const ON_PURPOSE: &str = include_str!("../../../tests/data/own_refusals.yaml");

/// An intended denial: a part of its text, and its reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Own {
    pub(crate) says: String,
    #[expect(dead_code, reason = "for those who read the list")]
    because: String,
}

/// The list of intended denials.
pub(crate) fn on_purpose() -> Vec<Own> {
    serde_saphyr::from_str(ON_PURPOSE).unwrap()
}

/// An object, with the recorded response of the API server, if any.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) set: DefinitionSet,
    pub(crate) taken: Option<bool>,
    pub(crate) object: Value,
    /// The object before an update.
    pub(crate) old: Option<Value>,
}

/// Every recorded object; the same in the encoding of Go types, if that differs; and objects with an almost empty
/// spec.
pub(crate) fn cases() -> Vec<Case> {
    let mut all = read(RECORDED);
    let recorded: BTreeSet<String> = all.iter().map(|case| case.object.to_string()).collect();
    let typed = read(TYPED).into_iter();
    all.extend(typed.filter(|case| !recorded.contains(&case.object.to_string())));
    for spec in [None, Some(json!(null)), Some(json!({}))] {
        for (api_version, kind, set) in [
            (
                "karpenter.kwok.sh/v1alpha1",
                "KWOKNodeClass",
                DefinitionSet::Kwok,
            ),
            ("karpenter.k8s.aws/v1", "EC2NodeClass", DefinitionSet::Aws),
            ("karpenter.sh/v1", "NodePool", DefinitionSet::Kwok),
        ] {
            let mut object =
                json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": "obj" } });
            if let Some(spec) = &spec {
                object["spec"] = spec.clone();
            }
            all.push(Case {
                id: format!("{kind} with spec {spec:?}"),
                kind: kind.to_owned(),
                set,
                taken: None,
                object,
                old: None,
            });
        }
    }
    all
}

fn read(packed: &[u8]) -> Vec<Case> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let case = |row: &Value| Case {
        id: text(&row["id"]),
        kind: text(&row["kind"]),
        set: if row["crds"] == "aws" {
            DefinitionSet::Aws
        } else {
            DefinitionSet::Kwok
        },
        taken: row["accepted"].as_bool(),
        object: row["object"].clone(),
        old: row.get("previous").filter(|old| !old.is_null()).cloned(),
    };
    lines(packed).iter().map(case).collect()
}
