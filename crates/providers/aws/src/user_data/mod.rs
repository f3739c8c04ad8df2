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
    /// AL2023 nodes cannot read the certificate authority.
    #[error("the cluster's certificate authority is not base64: {0}")]
    InvalidCertificateAuthority(String),
    /// A kubelet setting has another type than the kubelet's, and the family cannot hand it on.
    #[error("spec.kubelet.{field}: expected {allowed}, got {found}")]
    InvalidKubelet {
        /// The field.
        field: String,
        /// What it can be.
        allowed: &'static str,
        /// What it is.
        found: String,
    },
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
    let reads_settings = !matches!(family, AmiFamily::Al2023 | AmiFamily::Custom);
    if reads_settings {
        check_kubelet(&inputs.kubelet)?;
    }
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

/// The settings that the controller reads, with their kinds.
const READ_SETTINGS: [(&str, SettingKind); 12] = [
    ("clusterDNS", SettingKind::Texts),
    ("maxPods", SettingKind::NumberOrExpression),
    ("podsPerCore", SettingKind::Number),
    ("systemReserved", SettingKind::Pairs),
    ("kubeReserved", SettingKind::Pairs),
    ("evictionHard", SettingKind::Pairs),
    ("evictionSoft", SettingKind::Pairs),
    ("evictionSoftGracePeriod", SettingKind::Pairs),
    ("evictionMaxPodGracePeriod", SettingKind::Number),
    ("imageGCHighThresholdPercent", SettingKind::Number),
    ("imageGCLowThresholdPercent", SettingKind::Number),
    ("cpuCFSQuota", SettingKind::Switch),
];

#[derive(Clone, Copy, Debug)]
enum SettingKind {
    Texts,
    Pairs,
    Number,
    NumberOrExpression,
    Switch,
}

impl SettingKind {
    const fn allowed(self) -> &'static str {
        match self {
            Self::Texts => "a list of texts",
            Self::Pairs => "an object of texts",
            Self::Number => "a whole number of 32 bits",
            Self::NumberOrExpression => "a whole number of 32 bits or an expression",
            Self::Switch => "true or false",
        }
    }

    fn takes(self, value: &Value) -> bool {
        let is_number = || {
            let number = value.as_i64();
            number.is_some_and(|number| i32::try_from(number).is_ok())
        };
        match self {
            Self::Texts => value
                .as_array()
                .is_some_and(|list| list.iter().all(Value::is_string)),
            Self::Pairs => value
                .as_object()
                .is_some_and(|entries| entries.values().all(Value::is_string)),
            Self::Number => is_number(),
            Self::NumberOrExpression => is_number() || value.is_string(),
            Self::Switch => value.is_boolean(),
        }
    }
}

/// Whether the settings that the controller reads have the kubelet's types.
fn check_kubelet(kubelet: &Map<String, Value>) -> Result<(), UserDataError> {
    for (field, kind) in READ_SETTINGS {
        let value = kubelet.get(field).filter(|value| !value.is_null());
        if let Some(value) = value
            && !kind.takes(value)
        {
            return Err(UserDataError::InvalidKubelet {
                field: field.to_owned(),
                allowed: kind.allowed(),
                found: value.to_string(),
            });
        }
    }
    Ok(())
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
    fn settings_of_another_type_are_named() {
        let rendered = |family: AmiFamily, kubelet: Value| {
            let Value::Object(kubelet) = kubelet else {
                panic!("an object")
            };
            let inputs = BootInputs {
                service_cidr: Some("10.0.0.0/16"),
                kubelet,
                ..BootInputs::default()
            };
            render(family, &inputs).map_err(|error| error.to_string())
        };
        let wrong = serde_json::json!({ "kubeReserved": { "cpu": 100 } });
        for family in [
            AmiFamily::Al2,
            AmiFamily::Bottlerocket,
            AmiFamily::Windows2022,
        ] {
            assert_eq!(
                rendered(family, wrong.clone()).unwrap_err(),
                "spec.kubelet.kubeReserved: expected an object of texts, got {\"cpu\":100}"
            );
        }
        assert!(rendered(AmiFamily::Al2023, wrong).is_ok(), "handed on");
        let large = serde_json::json!({ "maxPods": 2_147_483_648_i64 });
        assert!(rendered(AmiFamily::Al2, large).is_err());
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
