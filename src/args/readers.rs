//! Verifies that each flag is read: a setting without effect would mislead its user.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;

use super::tests::{Probe, parse};

/// The reader of a flag.
enum Reader {
    /// The configuration or the settings, which differ if the flag has this value.
    Config(&'static str),
    /// The same, together with another flag only.
    ConfigWith(&'static str, &'static str),
    /// The command, which contains this text in its source.
    Command(&'static str),
    /// Nothing, as intended: Karpenter's charts pass the flag. Its help says so.
    Unread,
}

use Reader::{Command, Config as Configured, ConfigWith, Unread};

const READERS: [(&str, Reader); 92] = [
    ("admission_client_ca", Configured("/ca.crt")),
    (
        "admission_client_names",
        ConfigWith("--admission-client-ca=/ca.crt", "apiserver"),
    ),
    ("ami_refresh_interval", Unread),
    ("assumed_price_region", Command("args.assumed_price_region")),
    ("aws_endpoint_url", Command("args.endpoint_url()")),
    (
        "aws_endpoint_url_arc_zonal_shift",
        Command("args.service_endpoints()"),
    ),
    ("aws_endpoint_url_ec2", Command("args.service_endpoints()")),
    ("aws_endpoint_url_eks", Command("args.service_endpoints()")),
    ("aws_endpoint_url_iam", Command("args.service_endpoints()")),
    (
        "aws_endpoint_url_pricing",
        Command("args.service_endpoints()"),
    ),
    ("aws_endpoint_url_sqs", Command("args.service_endpoints()")),
    ("aws_endpoint_url_ssm", Command("args.service_endpoints()")),
    ("aws_feature_gates", Command("args.shape()")),
    ("aws_region", Command("args.region()")),
    ("aws_use_fips_endpoint", Command("args.use_fips()")),
    ("batch_idle_duration", Configured("2s")),
    ("batch_max_duration", Configured("20s")),
    ("bind_address", Configured("127.0.0.1")),
    ("bind_grace_period", Configured("3s")),
    ("cert_dir", Configured("/somewhere")),
    ("cluster_ca_bundle", Command("args.cluster_ca_bundle")),
    ("cluster_endpoint", Command("args.endpoint_of_cluster()")),
    ("cluster_name", Command("args.cluster_name")),
    ("consolidate_groups", Configured("")),
    ("consolidation_eviction_cost", Configured("1h")),
    ("conversion_webhook", Configured("")),
    ("cost_label", Configured("team")),
    ("cpu_requests", Unread),
    ("deny_unsatisfiable", Configured("")),
    ("disable_cluster_state_observability", Unread),
    ("disable_controller_warmup", Unread),
    ("disable_dry_run", Command("args.disable_dry_run")),
    ("disable_leader_election", Configured("true")),
    ("disruption_cooldown", Configured("1m")),
    ("disruption_validation_delay", Configured("1s")),
    ("eks_control_plane", Command("args.eks_control_plane")),
    ("enable_profiling", Unread),
    ("enable_zonal_shift", Command("args.enable_zonal_shift")),
    ("expiration_jitter_percent", Configured("5")),
    ("feature_gates", Configured("NodeRepair=true")),
    ("garbage_collection_interval", Configured("1m")),
    ("hand_over", Configured("true")),
    ("health_probe_port", Configured("1")),
    ("https_port", Configured("1")),
    ("ignore_dra_requests", Configured("false")),
    ("initialization_timeout", Configured("1m")),
    ("insecure_debug", Configured("")),
    (
        "instance_types_file_path",
        Command("args.instance_types_file_path"),
    ),
    ("interruption_queue", Command("args.interruption_queue")),
    ("isolated_vpc", Command("args.isolated_vpc")),
    ("karpenter_service", Configured("other")),
    ("kube_client_burst", Configured("1")),
    ("kube_client_qps", Configured("1")),
    ("kubeconfig", Command("args.kubeconfig")),
    ("launch_backoff", Configured("1m")),
    ("launch_failure_threshold", Configured("1")),
    ("launch_timeout", Configured("1m")),
    ("leader_election_name", Configured("other")),
    ("leader_election_namespace", Configured("other")),
    ("learn_boot_taints", Configured("false")),
    ("log_error_output_paths", Unread),
    ("log_level", Command("args.log_level()")),
    ("log_output_paths", Unread),
    ("max_unproven_launches", Configured("1")),
    ("memory_limit", Unread),
    ("metrics_port", Configured("1")),
    ("min_values_policy", Configured("BestEffort")),
    ("nodeclass_resync_interval", Configured("1m")),
    (
        "notification_format",
        ConfigWith("--notification-url-file=/somewhere", "slack"),
    ),
    (
        "notification_interval",
        ConfigWith("--notification-url-file=/somewhere", "1m"),
    ),
    (
        "notification_reasons",
        ConfigWith("--notification-url-file=/somewhere", "SpotInterrupted"),
    ),
    ("notification_url_file", Configured("/somewhere")),
    ("otlp_endpoint", Configured("http://collector:4318")),
    ("pod_deletion_costs", Configured("true")),
    ("preference_policy", Configured("Ignore")),
    ("prefix_delegation", Command("args.prefix_delegation()")),
    ("provider", Command("args.provider")),
    ("provisioning_requests", Configured("true")),
    ("rebalance_recommendation", Configured("cordon")),
    ("record", Configured("/somewhere")),
    ("record_max_size", ConfigWith("--record=/somewhere", "1Gi")),
    ("registration_timeout", Configured("1m")),
    ("reserved_enis", Command("args.shape()")),
    ("respect_cluster_autoscaler_annotations", Configured("true")),
    (
        "scheduler_config",
        Configured(
            "{podTopologySpread: {defaultConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]}}",
        ),
    ),
    ("seed", Configured("7")),
    ("server_names", Configured("other")),
    ("service_cidr", Command("args.service_cidr")),
    ("subnet_refresh_interval", Unread),
    ("telemetry_detail", Configured("full")),
    ("upgrade_drift_percent", Configured("50")),
    ("vm_memory_overhead_percent", Command("args.shape()")),
];

/// Settings and feature gates that nothing reads. [`ServeArgs::inert`] must report each of them.
const UNREAD: [&str; 0] = [];

/// The configuration without the copy of all flags that users see.
fn effect(args: &[String]) -> String {
    // Some flags are valid on loopback only.
    let loopback = ["--bind-address=127.0.0.2"];
    let args: Vec<&str> = loopback
        .into_iter()
        .chain(args.iter().map(String::as_str))
        .collect();
    let config = parse(&args).unwrap().config().unwrap();
    format!(
        "{:?}",
        mortise_controller::Config {
            effective: serde_json::Value::Null,
            ..config
        }
    )
}

#[test]
fn every_flag_has_a_reader() {
    let command = Probe::command();
    let flags: BTreeMap<String, String> = command
        .get_arguments()
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .map(|arg| {
            let long = arg.get_long().unwrap().to_owned();
            (arg.get_id().to_string(), long)
        })
        .collect();
    let readers: BTreeMap<&str, &Reader> = READERS.iter().map(|(id, who)| (*id, who)).collect();
    let known: Vec<&str> = readers.keys().copied().collect();
    assert_eq!(
        flags.keys().map(String::as_str).collect::<Vec<_>>(),
        known,
        "a flag without a reader, or a reader without its flag"
    );
    let source = [
        include_str!("../cli/serve.rs"),
        include_str!("../providers/aws.rs"),
        include_str!("../providers/kwok.rs"),
    ]
    .concat();
    let unset = effect(&[]);
    for (id, long) in &flags {
        match readers[id.as_str()] {
            Configured("") => assert_ne!(effect(&[format!("--{long}")]), unset, "{long}"),
            Configured(value) => {
                assert_ne!(effect(&[format!("--{long}={value}")]), unset, "{long}");
            }
            ConfigWith(other, value) => {
                let other = (*other).to_owned();
                let without = effect(std::slice::from_ref(&other));
                assert_ne!(
                    effect(&[other, format!("--{long}={value}")]),
                    without,
                    "{long}"
                );
            }
            Command(text) => assert!(source.contains(text), "{long}: {text} is nowhere"),
            Unread => {
                let arg = command.get_arguments().find(|arg| arg.get_id() == id);
                let help = arg.and_then(|arg| arg.get_help()).unwrap().to_string();
                assert!(help.starts_with("Accepted"), "{long}: {help}");
            }
        }
    }
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
}

/// The public fields that a file declares.
fn fields(source: &str) -> Vec<&str> {
    source
        .lines()
        .filter_map(|line| line.strip_prefix("    pub ")?.split_once(": "))
        .map(|(name, _)| name)
        .filter(|name| !name.contains(['(', ' ']))
        .collect()
}

#[test]
fn every_setting_and_gate_has_a_reader() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let declared = [
        "crates/planning/src/settings.rs",
        "crates/controller/src/config.rs",
    ];
    let mut files = Vec::new();
    for folder in [
        "crates/apis/src",
        "crates/planning/src",
        "crates/engine/src",
        "crates/deciders/src",
        "crates/controller/src",
        "crates/providers",
        "src/cli",
    ] {
        sources(&root.join(folder), &mut files);
    }
    let is_reader = |file: &PathBuf| {
        let is_declaration = declared.iter().any(|each| file.ends_with(each));
        !is_declaration && !file.to_string_lossy().contains("tests")
    };
    let texts: Vec<String> = files
        .iter()
        .filter(|file| is_reader(file))
        .map(|file| std::fs::read_to_string(file).unwrap())
        .collect();
    let mut unread = Vec::new();
    for file in declared {
        let source = std::fs::read_to_string(root.join(file)).unwrap();
        let names = fields(&source);
        assert!(names.len() > 4, "{file}: {names:?}");
        for name in names {
            let read = format!(".{name}");
            if !texts.iter().any(|text| text.contains(&read)) {
                unread.push(name.to_owned());
            }
        }
    }
    assert_eq!(unread, UNREAD, "settings that nothing reads");
}

#[test]
fn settings_without_effect_are_reported() {
    let told = |args: &[&str]| {
        let args = parse(args).unwrap();
        let inert = args.inert();
        inert.iter().map(|each| each.setting).collect::<Vec<_>>()
    };
    assert_eq!(told(&[]), [""; 0]);
    assert_eq!(
        told(&["--feature-gates=CapacityBuffer=true", "--enable-profiling"]),
        ["--enable-profiling"]
    );
}
