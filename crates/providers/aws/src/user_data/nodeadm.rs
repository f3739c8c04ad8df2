//! Amazon Linux 2023: a MIME archive whose last part is the NodeConfig that nodeadm reads. nodeadm merges several, the last one wins.

use std::collections::BTreeMap;

use base64::alphabet;
use base64::engine::{Engine as _, GeneralPurpose, GeneralPurposeConfig};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::mime::{self, MimePart};
use super::{BootInputs, UserDataError, label_list, yaml};

/// Content type of a NodeConfig.
const NODE_CONFIG: &str = "application/node.eks.aws";

/// The comment that heads our part, by which people (and Karpenter's tools) tell it from their own.
const HEADLINE: &str = "# Karpenter Generated NodeConfig\n";

pub(super) fn render(inputs: &BootInputs<'_>) -> Result<String, UserDataError> {
    let archive = mime::read(inputs.user_data);
    let mut parts = match inputs.user_data {
        "" => Vec::new(),
        // What is no archive is taken for what else it may be.
        _ if archive.is_ok() => archive
            .unwrap_or_default()
            .into_iter()
            .map(MimePart::bare)
            .collect(),
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

/// The certificate authority in canonical base64.
/// # Errors
/// It is no base64: nodeadm would not start.
fn certificate_authority(ca_bundle: &str) -> Result<String, UserDataError> {
    let config = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
    let engine = GeneralPurpose::new(&alphabet::STANDARD, config);
    let text: String = ca_bundle.split(['\r', '\n']).collect();
    match engine.decode(text) {
        Ok(bytes) => Ok(engine.encode(bytes)),
        Err(error) => Err(UserDataError::InvalidCertificateAuthority(
            error.to_string(),
        )),
    }
}

fn node_config(inputs: &BootInputs<'_>) -> Result<Value, UserDataError> {
    let cidr = inputs.service_cidr.ok_or(UserDataError::NoServiceCidr)?;
    let mut cluster = json!({ "name": inputs.cluster_name, "apiServerEndpoint": inputs.cluster_endpoint, "cidr": cidr });
    let authority = certificate_authority(inputs.ca_bundle)?;
    if let (false, Value::Object(cluster)) = (authority.is_empty(), &mut cluster) {
        cluster.insert("certificateAuthority".to_owned(), authority.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs<'a>(user_data: &'a str, ca_bundle: &'a str) -> BootInputs<'a> {
        BootInputs {
            user_data,
            ca_bundle,
            service_cidr: Some("10.0.0.0/16"),
            ..BootInputs::default()
        }
    }

    #[test]
    fn the_certificate_authority_must_be_base64() {
        let text = render(&inputs("", "Y2\nE=")).unwrap();
        assert!(text.contains("certificateAuthority: Y2E=\n"), "{text}");
        let error = render(&inputs("", "%%")).unwrap_err().to_string();
        assert!(
            error.starts_with("the cluster's certificate authority is not base64: "),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_archive_is_a_script() {
        let text = render(&inputs("MIME-Version: 1.0\necho", "")).unwrap();
        assert!(text.contains("text/x-shellscript"), "{text}");
        let archive = "X: y\nContent-Type: multipart/mixed; boundary=B\n\n--B\n\na\n--B--";
        let text = render(&inputs(archive, "")).unwrap();
        assert!(text.contains("--//\nContent-Type: \n\na\n--//\n"), "{text}");
    }
}
