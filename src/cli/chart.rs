//! The templates and files of the Helm chart that are generated from the code of `mortise manifests`.
//!
//! `UPDATE_EXPECT=1 cargo test --workspace chart` regenerates them.

use std::path::PathBuf;

use mortise_apis::conversion::converted_definitions;
use mortise_manifests::render::{
    self, ServiceAccount, WebhookOptions, When, webhook_configurations,
};
use serde_json::Value;

use super::manifests::in_cluster;
use crate::providers::{AWS, KWOK, node_classes};

/// Placeholders for the values of a release.
const NAMESPACE: &str = "release-namespace";
const ACCOUNT: &str = "release-account";
const NAME: &str = "release-name";

/// One document as YAML with the placeholders replaced by template expressions.
fn template(document: &Value) -> String {
    let yaml = serde_saphyr::to_string(document).unwrap();
    let mut text = String::from("---\n");
    for line in yaml.trim_end().lines() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start() == "app.kubernetes.io/name: mortise" {
            text.push_str(&format!(
                "{}{{{{- include \"mortise.labels\" . | nindent {indent} }}}}\n",
                " ".repeat(indent)
            ));
            continue;
        }
        text.push_str(line);
        text.push('\n');
    }
    text.replace(
        "failurePolicy: Fail\n",
        "failurePolicy: {{ .Values.webhooks.failurePolicy }}\n",
    )
    .replace(
        &format!("namespace: {NAMESPACE}\n"),
        "namespace: {{ .Release.Namespace | quote }}\n",
    )
    .replace(NAMESPACE, "{{ .Release.Namespace }}")
    .replace(ACCOUNT, "{{ include \"mortise.serviceAccountName\" . }}")
    .replace(NAME, "{{ include \"mortise.fullname\" . }}")
}

fn webhooks() -> String {
    let documents = webhook_configurations(&WebhookOptions {
        endpoint: in_cluster(NAMESPACE, NAME),
        ca_bundle: None,
        fail: true,
        own_user: Some(format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT}")),
        node_classes: node_classes().kinds().collect(),
        scheduler_names: Some(NAMESPACE.to_owned()),
    });
    let is_of_pods = |document: &&Value| document["metadata"]["name"] == "schedulers.mortise.sh";
    let of_objects = documents.iter().filter(|each| !is_of_pods(each));
    let of_objects: String = of_objects.map(template).collect();
    let of_pods: String = documents.iter().filter(is_of_pods).map(template).collect();
    format!(
        "{{{{- if .Values.webhooks.enabled }}}}\n{of_objects}{{{{- end }}}}\n{{{{- if .Values.webhooks.schedulerNames }}}}\n{of_pods}{{{{- end }}}}\n"
    )
}

/// The condition of a rule, as an expression over the chart values.
fn condition(when: When) -> Option<String> {
    match when {
        When::Always => None,
        When::Provider(name) => Some(format!("contains \"{name}\" (toString .Values.provider)")),
        When::Conversion => Some(".Values.conversion.enabled".to_owned()),
        When::PodDeletionCosts => Some(".Values.podDeletionCosts.enabled".to_owned()),
        When::HandOver => Some(".Values.handOver.enabled".to_owned()),
        When::OwnCertificates => Some("not .Values.certificates.secretName".to_owned()),
    }
}

/// The roles with every rule, each within its condition.
fn roles() -> String {
    let providers = [KWOK, AWS].map(|each| each.permissions());
    let definitions = converted_definitions(&node_classes());
    let documents = render::service_account(&ServiceAccount {
        namespace: NAMESPACE,
        account: ACCOUNT,
        name: NAME,
        lease: mortise_controller::LEASE_NAME,
        secret: &format!("{NAME}-cert"),
        providers: &providers,
        definitions: &definitions,
        conversion: true,
        own_certificates: true,
        pod_deletion_costs: true,
        hand_over: true,
    });
    let mut text = String::new();
    for document in &documents {
        let rules = match document["kind"].as_str() {
            Some("ServiceAccount") => continue,
            Some("ClusterRole") => render::cluster_rules(&providers, &definitions),
            Some("Role") => {
                render::local_rules(mortise_controller::LEASE_NAME, &format!("{NAME}-cert"))
            }
            _ => {
                text.push_str(&template(document));
                continue;
            }
        };
        let mut without = document.clone();
        without["rules"] = serde_json::json!([]);
        let frame = template(&without);
        text.push_str(frame.trim_end().strip_suffix(" []").unwrap());
        text.push('\n');
        for (when, rule) in rules {
            let yaml = template(&serde_json::json!([rule]));
            let yaml = yaml.strip_prefix("---\n").unwrap();
            match condition(when) {
                None => text.push_str(yaml),
                Some(condition) => {
                    text.push_str(&format!(
                        "{{{{- if {condition} }}}}\n{yaml}{{{{- end }}}}\n"
                    ));
                }
            }
        }
    }
    text
}

/// Generated files by their path in the chart. JSON has no comments, so that nothing in it says that it is generated.
fn generated() -> Vec<(String, String)> {
    let marked =
        |text: String| format!("# Generated: UPDATE_EXPECT=1 cargo test --workspace chart\n{text}");
    let rules = serde_saphyr::to_string(&render::rule_groups()).unwrap();
    let mut all = vec![
        ("templates/webhooks.yaml".to_owned(), marked(webhooks())),
        ("templates/rbac.yaml".to_owned(), marked(roles())),
        ("files/alerts.yaml".to_owned(), marked(rules)),
    ];
    all.extend(render::DASHBOARDS.iter().map(|dashboard| {
        let path = format!("files/dashboards/{}.json", dashboard.name);
        (path, dashboard.text())
    }));
    all
}

#[test]
fn generated_files_are_current() {
    let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("manifests/chart/mortise");
    for (file, text) in generated() {
        let path = chart.join(file);
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == text,
            "{} is not what the code generates; run: UPDATE_EXPECT=1 cargo test --workspace chart",
            path.display()
        );
    }
}
