//! Amazon Linux 2023: a MIME archive whose last part is the NodeConfig that nodeadm reads. nodeadm merges several, the last one wins.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::mime::{self, MimePart};
use super::{BootInputs, UserDataError, label_list, yaml};

/// Content type of a NodeConfig.
const NODE_CONFIG: &str = "application/node.eks.aws";

/// The comment that heads our part, by which people (and Karpenter's tools) tell it from their own.
const HEADLINE: &str = "# Karpenter Generated NodeConfig\n";

pub(super) fn render(inputs: &BootInputs<'_>) -> Result<String, UserDataError> {
    let mut parts = match inputs.user_data {
        "" => Vec::new(),
        text if mime::is_archive(text) => {
            mime::read(text)?.into_iter().map(MimePart::bare).collect()
        }
        text if is_mapping(text) => vec![MimePart::new(NODE_CONFIG, text)],
        text => vec![MimePart::new(mime::SHELL, text)],
    };
    parts.push(MimePart::new(
        NODE_CONFIG,
        format!("{HEADLINE}{}", yaml::write(&node_config(inputs)?)),
    ));
    Ok(mime::write(&parts))
}

/// Whether the text is a YAML mapping; of several documents the first decides.
fn is_mapping(text: &str) -> bool {
    let first = text.split("\n---").next().unwrap_or(text);
    serde_saphyr::from_str::<BTreeMap<String, IgnoredAny>>(first).is_ok_and(|map| !map.is_empty())
}

fn node_config(inputs: &BootInputs<'_>) -> Result<Value, UserDataError> {
    let cidr = inputs.service_cidr.ok_or(UserDataError::NoServiceCidr)?;
    let mut cluster = json!({ "name": inputs.cluster_name, "apiServerEndpoint": inputs.cluster_endpoint, "cidr": cidr });
    if let (false, Value::Object(cluster)) = (inputs.ca_bundle.is_empty(), &mut cluster) {
        cluster.insert("certificateAuthority".to_owned(), inputs.ca_bundle.into());
    }
    let taints = inputs.taints.iter().map(|taint| {
        let mut entry = Map::new();
        entry.insert("key".to_owned(), taint.key.clone().into());
        entry.insert("effect".to_owned(), taint.effect.clone().into());
        if let Some(value) = taint.value.as_deref().filter(|value| !value.is_empty()) {
            entry.insert("value".to_owned(), value.into());
        }
        Value::Object(entry)
    });
    let mut config = inputs.kubelet.clone();
    if config.get("maxPods").is_some_and(Value::is_string) {
        config.remove("maxPods"); // an expression that was not resolved: nodeadm wants a number
    }
    config.insert("registerWithTaints".to_owned(), taints.collect());
    let mut kubelet = json!({ "config": config });
    if let (false, Value::Object(kubelet)) = (inputs.labels.is_empty(), &mut kubelet) {
        kubelet.insert(
            "flags".to_owned(),
            json!([format!("--node-labels=\"{}\"", label_list(&inputs.labels))]),
        );
    }
    let storage = if inputs.raid0 {
        json!({ "strategy": "RAID0" })
    } else {
        json!({})
    };
    Ok(json!({
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "metadata": {},
        "spec": { "cluster": cluster, "containerd": {}, "instance": { "localStorage": storage }, "kubelet": kubelet },
    }))
}
