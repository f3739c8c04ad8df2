//! Recorded boot data.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde_json::Value;

use super::check;
use crate::user_data::{BootInputs, kubelet_may_set, render};
use mortise_aws_catalog::ami_family::AmiFamily;

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case[field].as_str().unwrap_or_default()
}

#[test]
fn boot_data_is_as_recorded() {
    check("user_data.jsonl", |case| {
        let given = &case["in"];
        let family = AmiFamily::parse(text(given, "amiFamily")).ok_or("unknown family")?;
        let taints: Option<Vec<Taint>> = serde_json::from_value(given["taints"].clone()).unwrap();
        let labels: Option<BTreeMap<String, String>> =
            serde_json::from_value(given["labels"].clone()).unwrap();
        let inputs = BootInputs {
            cluster_name: text(given, "clusterName"),
            cluster_endpoint: text(given, "clusterEndpoint"),
            ca_bundle: text(given, "caBundle"),
            service_cidr: given["clusterCIDR"].as_str(),
            kubelet: given["kubelet"].as_object().cloned().unwrap_or_default(),
            taints: taints.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
            raid0: given["instanceStorePolicy"] == "RAID0",
            user_data: text(given, "userData"),
            image_version: given["amiAlias"]
                .as_str()
                .and_then(|alias| alias.split_once('@'))
                .map(|(_, version)| version),
        };
        let ours = render(family, &inputs);
        match (ours, case["script"].as_str()) {
            (Err(_), None) => Ok(true),
            (Ok(ours), None) => Err(format!(
                "an error is recorded ({}), ours is\n{ours}",
                case["error"]
            )),
            (Err(error), Some(_)) => Err(format!("ours is an error: {error}")),
            (Ok(ours), Some(recorded)) if ours == recorded => Ok(true),
            // Settings mean the same in any order.
            (Ok(ours), Some(recorded))
                if family == AmiFamily::Bottlerocket
                    && ours.parse::<toml::Table>() == recorded.parse::<toml::Table>() =>
            {
                Ok(true)
            }
            (Ok(ours), Some(recorded)) => Err(format!("ours\n{ours}\nrecorded\n{recorded}")),
        }
    });
}

#[test]
fn labels_go_to_the_kubelet_as_recorded() {
    check("forbidden_labels.jsonl", |case| {
        let label = text(case, "label");
        if case["passedToKubelet"] == kubelet_may_set(label) {
            Ok(true)
        } else {
            Err(label.to_owned())
        }
    });
}
