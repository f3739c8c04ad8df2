//! Boot data of a node: how it finds its cluster, with what labels and taints it registers, and how its kubelet is set. Pure.
//!
//! Every family has its own format; the user's own boot data is merged as the format allows. Lists and maps are written in a
//! fixed order, so that the same inputs give the same text.
//!
//! # Source
//! The formats are those of the image families' own documentation (nodeadm, Bottlerocket settings, the EKS bootstrap scripts); the
//! results are checked against recorded answers.

mod bottlerocket;
mod kubelet_args;
mod mime;
mod nodeadm;
mod yaml;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value};

use mortise_aws_catalog::ami_family::AmiFamily;

/// Most bytes of boot data that EC2 takes, before base64.
pub const MAX_BYTES: usize = 16_384;

/// What boot data is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BootInputs<'a> {
    /// Name of the cluster.
    pub cluster_name: &'a str,
    /// URL of the API server.
    pub cluster_endpoint: &'a str,
    /// CA certificate of the API server, base64 of PEM; empty when nodes need none.
    pub ca_bundle: &'a str,
    /// Address range of services; needed by AL2023.
    pub service_cidr: Option<&'a str>,
    /// Kubelet settings, with numbers filled in.
    pub kubelet: Map<String, Value>,
    /// Taints to register with, the unregistered taint included.
    pub taints: Vec<Taint>,
    /// Labels to register with; see [`kubelet_may_set`].
    pub labels: BTreeMap<String, String>,
    /// Whether local disks are joined.
    pub raid0: bool,
    /// The user's own boot data.
    pub user_data: &'a str,
    /// Version of the image, when it is known from its alias or name.
    pub image_version: Option<&'a str>,
}

/// Why there is no boot data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    /// AL2023 nodes must be told the address range of services.
    #[error(
        "the cluster's service address range is not known, and AL2023 nodes need it; eks:DescribeCluster gives it"
    )]
    NoServiceCidr,
    /// The user's part cannot be merged.
    #[error("spec.userData: {0}")]
    Invalid(String),
    /// It would be too long for EC2.
    #[error(
        "the user data has {bytes} bytes, the limit of EC2 is {MAX_BYTES}: shorten spec.userData"
    )]
    TooLong {
        /// Bytes of the whole text.
        bytes: usize,
    },
}

/// Boot data for a family, not yet base64.
/// # Errors
/// The user's part cannot be merged, something the family needs is not known, or the result is too long.
pub fn render(family: AmiFamily, inputs: &BootInputs<'_>) -> Result<String, UserDataError> {
    let text = match family {
        AmiFamily::Al2 => kubelet_args::al2(inputs)?,
        AmiFamily::Al2023 => nodeadm::render(inputs)?,
        AmiFamily::Bottlerocket => bottlerocket::render(inputs)?,
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => {
            kubelet_args::windows(inputs)
        }
        AmiFamily::Custom => inputs.user_data.to_owned(),
    };
    if text.len() > MAX_BYTES {
        Err(UserDataError::TooLong { bytes: text.len() })
    } else {
        Ok(text)
    }
}

/// Whether a kubelet may give its own node this label: keys of Kubernetes' own domains are reserved, the rest is free.
/// The others reach the node by the controller.
#[must_use]
pub fn kubelet_may_set(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else {
        return true;
    };
    !["kubernetes.io", "k8s.io", "node-restriction.kubernetes.io"]
        .iter()
        .any(|reserved| {
            domain
                .strip_suffix(reserved)
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        })
}

/// Labels as the kubelet's flag lists them: `key=value`, sorted, joined by commas.
fn label_list(labels: &BTreeMap<String, String>) -> String {
    labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// A kubelet setting that is a list of texts.
fn texts<'a>(kubelet: &'a Map<String, Value>, field: &str) -> Vec<&'a str> {
    kubelet
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// A kubelet setting that is a map of texts. Sorted by key.
fn pairs<'a>(kubelet: &'a Map<String, Value>, field: &str) -> Vec<(&'a str, &'a str)> {
    let entries = kubelet
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let mut pairs: Vec<_> = entries
        .filter_map(|(key, value)| value.as_str().map(|value| (&**key, value)))
        .collect();
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_domains_stay_with_the_controller() {
        for (key, allowed) in [
            ("team", true),
            ("k8s.io/a", false),
            ("a.k8s.io/b", false),
            ("notk8s.io/b", true),
            ("karpenter.k8s.aws/x", true),
        ] {
            assert_eq!(kubelet_may_set(key), allowed, "{key}");
        }
    }

    #[test]
    fn too_long_is_an_error() {
        let long = "x".repeat(MAX_BYTES + 1);
        let inputs = BootInputs {
            user_data: &long,
            ..BootInputs::default()
        };
        let error = render(AmiFamily::Custom, &inputs).unwrap_err().to_string();
        assert_eq!(
            error,
            "the user data has 16385 bytes, the limit of EC2 is 16384: shorten spec.userData"
        );
    }
}
