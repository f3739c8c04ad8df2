//! The extender's messages, exactly as kube-scheduler writes and reads them: Go field names outside, Kubernetes JSON inside.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mortise_apis::k8s;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Request of filter and prioritize. Null, missing and empty are the same.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Args<'a> {
    /// The pod that looks for a node.
    pub pod: k8s::Pod,
    /// Whole nodes (`nodeCacheCapable: false`).
    #[serde(default)]
    pub nodes: Option<NodeList>,
    /// Node names (`nodeCacheCapable: true`).
    #[serde(default, borrow, deserialize_with = "borrow_names")]
    pub node_names: Option<Vec<Cow<'a, str>>>,
}

/// Names that point into the body: serde borrows a `Cow` that is a field, but copies those inside a `Vec`.
fn borrow_names<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<Cow<'de, str>>>, D::Error> {
    #[derive(Deserialize)]
    struct Name<'a>(#[serde(borrow)] Cow<'a, str>);
    let names: Option<Vec<Name<'de>>> = Option::deserialize(deserializer)?;
    Ok(names.map(|names| names.into_iter().map(|name| name.0).collect()))
}

/// A list of whole nodes; they are handed back as they came.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct NodeList {
    /// List metadata.
    #[serde(default)]
    pub metadata: Value,
    /// Nodes.
    #[serde(default, deserialize_with = "read_null_as_empty")]
    pub items: Vec<Value>,
}

fn read_null_as_empty<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Value>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl NodeList {
    /// Name of a node of the list.
    #[must_use]
    pub fn name(node: &Value) -> &str {
        node.pointer("/metadata/name")
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

impl Args<'_> {
    /// The node names, in the caller's order, of whichever half is filled.
    #[must_use]
    pub fn names(&self) -> Vec<&str> {
        match (&self.node_names, &self.nodes) {
            (Some(names), _) => names.iter().map(AsRef::as_ref).collect(),
            (None, Some(nodes)) => nodes.items.iter().map(NodeList::name).collect(),
            (None, None) => Vec::new(),
        }
    }
}

/// Answer to filter. Never `{}`: that would reject every node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct FilterResult<'a> {
    /// Nodes that stay, in the whole-node mode.
    pub nodes: Option<NodeList>,
    /// Names that stay, in the name mode.
    pub node_names: Option<Vec<&'a str>>,
    /// Not used: all our denials are of the kind that eviction cannot cure.
    pub failed_nodes: Option<Failed<'a>>,
    /// Denied nodes with a constant message.
    pub failed_and_unresolvable_nodes: Option<Failed<'a>>,
    /// Error text; empty when all is well.
    pub error: String,
    /// Not part of the message: whether the node that the pod is nominated to was among the names.
    #[serde(skip)]
    pub nominated_node: Option<bool>,
}

/// Names with a message each, written as a map.
#[derive(Debug)]
pub struct Failed<'a>(pub Vec<(&'a str, &'static str)>);

impl Serialize for Failed<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// One entry of the answer to prioritize.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority<'a> {
    /// Node name.
    pub host: &'a str,
    /// 0 to 10; an integer, because one fraction would void the whole answer.
    pub score: i64,
}

/// Request of preempt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PreemptionArgs {
    /// The pod that wants to preempt.
    pub pod: k8s::Pod,
    /// Victims as whole pods (`nodeCacheCapable: false`).
    #[serde(default)]
    pub node_name_to_victims: Option<BTreeMap<String, Option<Victims>>>,
    /// Victims by UID.
    #[serde(default)]
    pub node_name_to_meta_victims: Option<BTreeMap<String, Option<MetaVictims>>>,
}

impl PreemptionArgs {
    /// How many nodes are named, of whichever half is filled.
    #[must_use]
    pub fn len(&self) -> usize {
        let whole = self.node_name_to_victims.as_ref().map_or(0, BTreeMap::len);
        let by_uid = self.node_name_to_meta_victims.as_ref();
        whole + by_uid.map_or(0, BTreeMap::len)
    }

    /// Whether no node is named.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Victims on one node, as whole pods of which only the UID matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Victims {
    /// Pods to be evicted; may be null or empty.
    #[serde(default)]
    pub pods: Option<Vec<VictimPod>>,
    /// How many budgets that breaks.
    #[serde(default, rename = "NumPDBViolations")]
    pub num_pdb_violations: i64,
}

/// A victim in the whole-pod mode.
#[derive(Debug, Default, Deserialize)]
pub struct VictimPod {
    /// Metadata, of which only the UID is read.
    #[serde(default)]
    pub metadata: VictimMeta,
}

/// Metadata of a victim.
#[derive(Debug, Default, Deserialize)]
pub struct VictimMeta {
    /// UID.
    #[serde(default)]
    pub uid: String,
}

/// Victims on one node by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetaVictims {
    /// Pods to be evicted; may be null or empty.
    #[serde(default)]
    pub pods: Option<Vec<MetaPod>>,
    /// How many budgets that breaks.
    #[serde(default, rename = "NumPDBViolations")]
    pub num_pdb_violations: i64,
}

/// A victim by UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct MetaPod {
    /// UID.
    #[serde(default, rename = "UID")]
    pub uid: String,
}

/// Answer to preempt.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct PreemptionResult {
    /// Nodes on which preemption may go on, with their victims.
    pub node_name_to_meta_victims: BTreeMap<String, MetaVictims>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_point_into_the_body() {
        let body = r#"{"Pod": {"metadata": {"name": "web"}}, "NodeNames": ["a", "b\u002d1"]}"#;
        let args: Args<'_> = serde_json::from_str(body).unwrap();
        let names = args.node_names.unwrap();
        assert!(matches!(names[0], Cow::Borrowed("a")), "{names:?}");
        assert_eq!(names[1], "b-1", "an escaped name must be copied");
        for none in [r#"{"Pod": {}, "NodeNames": null}"#, r#"{"Pod": {}}"#] {
            let args: Args<'_> = serde_json::from_str(none).unwrap();
            assert!(args.node_names.is_none() && args.names().is_empty());
        }
    }
}
