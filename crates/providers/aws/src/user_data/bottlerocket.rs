//! Bottlerocket: settings in TOML. The user's settings stay, except those that the controller must decide.

use k8s_openapi::api::core::v1::Taint;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::{BootInputs, UserDataError, pairs, texts};

/// Keys of `settings.kubernetes` that Bottlerocket knows. Others are dropped: the whole boot would fail on one of them.
/// # Source
/// The Bottlerocket settings reference.
const KUBERNETES: [&str; 56] = [
    "allowed-unsafe-sysctls",
    "api-server",
    "authentication-mode",
    "bootstrap-token",
    "cloud-provider",
    "cluster-certificate",
    "cluster-dns-ip",
    "cluster-domain",
    "cluster-name",
    "container-log-max-files",
    "container-log-max-size",
    "cpu-cfs-quota-enforced",
    "cpu-manager-policy",
    "cpu-manager-policy-options",
    "cpu-manager-reconcile-period",
    "credential-providers",
    "device-ownership-from-security-context",
    "event-burst",
    "event-qps",
    "eviction-hard",
    "eviction-max-pod-grace-period",
    "eviction-soft",
    "eviction-soft-grace-period",
    "hostname-override",
    "hostname-override-source",
    "ids-per-pod",
    "image-gc-high-threshold-percent",
    "image-gc-low-threshold-percent",
    "kube-api-burst",
    "kube-api-qps",
    "kube-reserved",
    "log-level",
    "max-pods",
    "memory-manager-policy",
    "memory-manager-reserved-memory",
    "node-ip",
    "node-labels",
    "node-taints",
    "pod-infra-container-image",
    "pod-pids-limit",
    "provider-id",
    "registry-burst",
    "registry-qps",
    "reserved-cpus",
    "seccomp-default",
    "server-certificate",
    "server-key",
    "server-tls-bootstrap",
    "shutdown-grace-period",
    "shutdown-grace-period-for-critical-pods",
    "single-process-oom-kill",
    "standalone-mode",
    "static-pods",
    "system-reserved",
    "topology-manager-policy",
    "topology-manager-scope",
];
/// From this version on the disks are bound to the right places without being told.
const BINDS_BY_ITSELF: (u32, u32) = (1, 46);

pub(super) fn render(inputs: &BootInputs<'_>) -> Result<String, UserDataError> {
    let mut all: Table = inputs.user_data.parse().map_err(|error: toml::de::Error| {
        UserDataError::Invalid(format!(
            "it is not TOML, which Bottlerocket needs: {}",
            error.message()
        ))
    })?;
    all.retain(|key, _| {
        let known = key == "settings";
        if !known {
            tracing::warn!(
                key,
                "spec.userData: Bottlerocket reads nothing but settings, omitted"
            );
        }
        known
    });
    let settings = table(&mut all, "settings")?;
    if inputs.raid0 {
        let commands = table(settings, "bootstrap-commands")?;
        commands.insert(
            "000-mount-instance-storage".to_owned(),
            Value::Table(mount(inputs.image_version)),
        );
    }
    let kubernetes = table(settings, "kubernetes")?;
    kubernetes.retain(|key, _| {
        let known = KUBERNETES.contains(&key);
        if !known {
            tracing::warn!(
                key,
                "spec.userData: Bottlerocket has no such setting in settings.kubernetes, omitted"
            );
        }
        known
    });
    kubernetes.extend(cluster_settings(inputs));
    let labels = table(kubernetes, "node-labels")?;
    labels.extend(
        inputs
            .labels
            .iter()
            .map(|(key, value)| (key.clone(), Value::String(value.clone()))),
    );
    if labels.is_empty() {
        kubernetes.remove("node-labels");
    }
    // Taints are the claim's alone: one more, and the node would never count as registered.
    let taints = taint_table(&inputs.taints);
    kubernetes.remove("node-taints");
    if !taints.is_empty() {
        kubernetes.insert("node-taints".to_owned(), Value::Table(taints));
    }
    let mut out = String::new();
    write(&mut out, &all, "");
    Ok(out)
}

/// What the controller decides of `settings.kubernetes`, labels and taints apart: the cluster and its kubelet settings.
fn cluster_settings(inputs: &BootInputs<'_>) -> impl Iterator<Item = (String, Value)> {
    let kubelet = &inputs.kubelet;
    let text = |text: &str| (!text.is_empty()).then(|| Value::String(text.to_owned()));
    let number = |field: &str| kubelet.get(field).and_then(Json::as_i64);
    let percent = |field: &str| number(field).map(|percent| Value::String(percent.to_string()));
    let dns = texts(kubelet, "clusterDNS").first().copied();
    let quota = kubelet.get("cpuCFSQuota").and_then(Json::as_bool);
    let settings = [
        ("api-server", text(inputs.cluster_endpoint)),
        ("cluster-name", text(inputs.cluster_name)),
        ("cluster-certificate", text(inputs.ca_bundle)),
        ("cluster-dns-ip", dns.and_then(text)),
        ("max-pods", number("maxPods").map(Value::Integer)),
        (
            "eviction-max-pod-grace-period",
            number("evictionMaxPodGracePeriod").map(Value::Integer),
        ),
        (
            "image-gc-high-threshold-percent",
            percent("imageGCHighThresholdPercent"),
        ),
        (
            "image-gc-low-threshold-percent",
            percent("imageGCLowThresholdPercent"),
        ),
        ("cpu-cfs-quota-enforced", quota.map(Value::Boolean)),
        ("kube-reserved", text_table(kubelet, "kubeReserved")),
        ("system-reserved", text_table(kubelet, "systemReserved")),
        ("eviction-hard", text_table(kubelet, "evictionHard")),
        ("eviction-soft", text_table(kubelet, "evictionSoft")),
        (
            "eviction-soft-grace-period",
            text_table(kubelet, "evictionSoftGracePeriod"),
        ),
    ];
    settings
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
}

/// A kubelet setting that is a map of texts; `None` when it is empty.
fn text_table(kubelet: &Map<String, Json>, field: &str) -> Option<Value> {
    let entries = pairs(kubelet, field);
    (!entries.is_empty()).then(|| {
        let entries = entries.into_iter();
        Value::Table(
            entries
                .map(|(key, value)| (key.to_owned(), Value::String(value.to_owned())))
                .collect(),
        )
    })
}

/// Taints by key, each with all its values and effects.
fn taint_table(taints: &[Taint]) -> Table {
    let mut table = Table::new();
    for taint in taints {
        let entry = Value::String(format!(
            "{}:{}",
            taint.value.as_deref().unwrap_or_default(),
            taint.effect
        ));
        if let Value::Array(list) = table
            .entry(&*taint.key)
            .or_insert_with(|| Value::Array(Vec::new()))
        {
            list.push(entry);
        }
    }
    table
}

/// The table under a key, made if it is missing.
fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table, UserDataError> {
    let entry = parent
        .entry(key)
        .or_insert_with(|| Value::Table(Table::new()));
    let kind = entry.type_str();
    entry.as_table_mut().ok_or_else(|| {
        UserDataError::Invalid(format!("{key:?} must be a table, it is of type {kind}"))
    })
}

/// The command that joins and binds local disks at boot.
fn mount(version: Option<&str>) -> Table {
    let mut bind = vec!["apiclient", "ephemeral-storage", "bind"];
    if !binds_by_itself(version) {
        bind.extend([
            "--dirs",
            "/var/lib/containerd",
            "/var/lib/kubelet",
            "/var/log/pods",
        ]);
    }
    let command = |words: &[&str]| {
        Value::Array(
            words
                .iter()
                .map(|word| Value::String((*word).to_owned()))
                .collect(),
        )
    };
    let commands = Value::Array(vec![
        command(&["apiclient", "ephemeral-storage", "init"]),
        command(&bind),
    ]);
    let mode = Value::String("always".to_owned());
    [
        ("commands", commands),
        ("mode", mode),
        ("essential", Value::Boolean(true)),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect()
}

fn binds_by_itself(version: Option<&str>) -> bool {
    let Some(version) = version else { return false };
    let mut numbers = version
        .trim_start_matches('v')
        .split('.')
        .map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        _ if version == "latest" => true,
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= BINDS_BY_ITSELF,
        _ => false,
    }
}

/// Writes a table: its own values first, then its tables, each under its full name. Keys are sorted.
fn write(out: &mut String, table: &Table, path: &str) {
    let mut keys: Vec<&String> = table.keys().collect();
    keys.sort();
    let entries = || {
        keys.iter()
            .filter_map(|key| Some((*key, table.get(key.as_str())?)))
    };
    let plain = entries().filter(|(_, value)| !value.is_table());
    let mut any = false;
    for (key, value) in plain {
        out.push_str(&format!("{} = {}\n", quoted_key(key), inline(value)));
        any = true;
    }
    if any {
        out.push('\n');
    }
    for (key, value) in entries() {
        if let Value::Table(inner) = value {
            let path = if path.is_empty() {
                quoted_key(key)
            } else {
                format!("{path}.{}", quoted_key(key))
            };
            out.push_str(&format!("[{path}]\n"));
            write(out, inner, &path);
        }
    }
}

fn quoted_key(key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    if bare { key.to_owned() } else { quoted(key) }
}

/// A text in single quotes; in double quotes with escapes where that cannot be.
fn quoted(text: &str) -> String {
    if text.contains('\'') || text.chars().any(char::is_control) {
        Json::from(text).to_string()
    } else {
        format!("'{text}'")
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(list) => format!(
            "[{}]",
            list.iter().map(inline).collect::<Vec<_>>().join(", ")
        ),
        Value::Table(table) => {
            let entries = table
                .iter()
                .map(|(key, value)| format!("{} = {}", quoted_key(key), inline(value)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        Value::Integer(number) => number.to_string(),
        Value::Float(number) if number.is_finite() && number.fract() == 0.0 => {
            format!("{number:.1}")
        }
        Value::Float(number) => number.to_string(),
        Value::Boolean(yes) => yes.to_string(),
        Value::Datetime(time) => time.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let text = "a = 1\nb = [1.0, 2.5, inf]\nc = 1979-05-27T07:32:00Z\n'd e' = \"it's \\n\"\n[x]\ny = [{ z = true }]\n[x.'q.r']\ns = ''\n";
        let table: Table = text.parse().unwrap();
        let mut out = String::new();
        write(&mut out, &table, "");
        assert_eq!(out.parse::<Table>().unwrap(), table, "\n{out}");
    }

    #[test]
    fn nothing_but_settings_is_kept() {
        let inputs = BootInputs {
            user_data: "x = 1\n[other]\ny = 2\n[settings.motd]\ntext = 'grüß'\n",
            ..BootInputs::default()
        };
        let out: Table = render(&inputs).unwrap().parse().unwrap();
        assert_eq!(out.keys().collect::<Vec<_>>(), ["settings"]);
        assert_eq!(out["settings"]["motd"]["text"].as_str(), Some("grüß"));
    }

    #[test]
    fn tables_must_be_tables() {
        let inputs = BootInputs {
            user_data: "settings = 1",
            ..BootInputs::default()
        };
        assert_eq!(
            render(&inputs).unwrap_err().to_string(),
            "spec.userData: \"settings\" must be a table, it is of type integer"
        );
    }

    #[test]
    fn disks_are_bound_by_newer_versions() {
        for (version, by_itself) in [
            (None, false),
            (Some("latest"), true),
            (Some("v1.46.0"), true),
            (Some("1.45.9"), false),
            (Some("v2.0.0"), true),
            (Some("x"), false),
        ] {
            assert_eq!(binds_by_itself(version), by_itself, "{version:?}");
        }
    }
}
