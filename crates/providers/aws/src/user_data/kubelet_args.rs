//! The two families whose bootstrap scripts take kubelet flags: Amazon Linux 2 and Windows.

use serde_json::Value;

use super::mime::{self, MimePart};
use super::{BootInputs, UserDataError, label_list, pairs, texts};

/// Amazon Linux 2: a MIME archive whose last part is a shell script.
pub(super) fn al2(inputs: &BootInputs<'_>) -> Result<String, UserDataError> {
    let mut parts = match inputs.user_data {
        "" => Vec::new(),
        text if mime::is_archive(text) => mime::read(text)?,
        text => vec![MimePart::new(mime::SHELL, text)],
    };
    let mut lines = vec![
        "#!/bin/bash -xe".to_owned(),
        "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1"
            .to_owned(),
    ];
    let ca = if inputs.ca_bundle.is_empty() {
        String::new()
    } else {
        format!("--b64-cluster-ca '{}'", inputs.ca_bundle)
    };
    let mut command = vec![format!(
        "/etc/eks/bootstrap.sh '{}' --apiserver-endpoint '{}' {ca}",
        inputs.cluster_name, inputs.cluster_endpoint
    )];
    if let Some(address) = texts(&inputs.kubelet, "clusterDNS").first() {
        if address.contains(':') {
            command.push("--ip-family ipv6".to_owned());
        }
        command.push(format!("--dns-cluster-ip '{address}'"));
    }
    if inputs.kubelet.get("maxPods").is_some_and(Value::is_i64) {
        command.push("--use-max-pods false".to_owned());
    }
    command.push(format!("--kubelet-extra-args '{}'", flags(inputs)));
    if inputs.raid0 {
        command.push("--local-disks raid0".to_owned());
    }
    lines.push(command.join(" \\\n"));
    parts.push(MimePart::new(mime::SHELL, lines.join("\n")));
    Ok(mime::write(&parts))
}

/// Windows: a PowerShell block.
pub(super) fn windows(inputs: &BootInputs<'_>) -> String {
    let mut text = String::from("<powershell>\n");
    if !inputs.user_data.is_empty() {
        text.push_str(&inputs.user_data.replace('\r', ""));
        text.push('\n');
    }
    text.push_str("[string]$EKSBootstrapScriptFile = \"$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1\"\n");
    text.push_str(&format!(
        "& $EKSBootstrapScriptFile -EKSClusterName '{}' -APIServerEndpoint '{}'",
        inputs.cluster_name, inputs.cluster_endpoint
    ));
    if !inputs.ca_bundle.is_empty() {
        text.push_str(&format!(" -Base64ClusterCA '{}'", inputs.ca_bundle));
    }
    text.push_str(&format!(" -KubeletExtraArgs '{}'", flags(inputs)));
    if let Some(address) = texts(&inputs.kubelet, "clusterDNS").first() {
        text.push_str(&format!(" -DNSClusterIP '{address}'"));
    }
    text.push_str("\n</powershell>");
    text
}

/// The kubelet flags, in one line.
fn flags(inputs: &BootInputs<'_>) -> String {
    let mut flags = Vec::new();
    if !inputs.labels.is_empty() {
        flags.push(format!("--node-labels=\"{}\"", label_list(&inputs.labels)));
    }
    let taints = inputs
        .taints
        .iter()
        .map(|taint| match taint.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{}={value}:{}", taint.key, taint.effect),
            _ => format!("{}:{}", taint.key, taint.effect),
        });
    flags.push(format!(
        "--register-with-taints=\"{}\"",
        taints.collect::<Vec<_>>().join(",")
    ));
    let number = |field: &str, flag: &str| {
        inputs
            .kubelet
            .get(field)
            .and_then(Value::as_i64)
            .map(|value| format!("--{flag}={value}"))
    };
    let map = |field: &str, flag: &str, sign: char| {
        let all = pairs(&inputs.kubelet, field);
        let all: Vec<String> = all
            .into_iter()
            .map(|(key, value)| format!("{key}{sign}{value}"))
            .collect();
        (!all.is_empty()).then(|| format!("--{flag}=\"{}\"", all.join(",")))
    };
    let quota = inputs.kubelet.get("cpuCFSQuota").and_then(Value::as_bool);
    let more = [
        number("maxPods", "max-pods"),
        number("podsPerCore", "pods-per-core"),
        map("systemReserved", "system-reserved", '='),
        map("kubeReserved", "kube-reserved", '='),
        map("evictionHard", "eviction-hard", '<'),
        map("evictionSoft", "eviction-soft", '<'),
        map("evictionSoftGracePeriod", "eviction-soft-grace-period", '='),
        number("evictionMaxPodGracePeriod", "eviction-max-pod-grace-period"),
        number("imageGCHighThresholdPercent", "image-gc-high-threshold"),
        number("imageGCLowThresholdPercent", "image-gc-low-threshold"),
        quota.map(|on| format!("--cpu-cfs-quota={on}")),
    ];
    flags.extend(more.into_iter().flatten());
    flags.join(" ")
}
