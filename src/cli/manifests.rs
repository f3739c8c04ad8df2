//! `mortise manifests`: manifests that a cluster needs, as YAML; and what an AWS account needs, in several forms.

mod iam;
mod queue;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use clap::{Args, Subcommand};
use mortise_apis::conversion::converted_definitions;
use mortise_apis::crds::with_conversion;
use mortise_manifests::render::{
    self, DASHBOARDS, Endpoint, SchedulerFiles, SecondScheduler, ServiceAccount, WebhookOptions,
    conversion_client_config, dashboard_config_maps, prometheus_rule, rule_groups,
    scheduler_configuration, second_scheduler, webhook_configurations,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::line;
use crate::providers::{Provider, node_classes};

/// URL of the service for a kube-scheduler on the same host.
const FIRST_URL: &str = "https://127.0.0.1:8443";

/// Which manifests.
#[derive(Args)]
pub(super) struct ManifestsArgs {
    #[command(subcommand)]
    what: ManifestTarget,
}

#[derive(Subcommand)]
enum ManifestTarget {
    Crds(CrdsArgs),
    Webhooks(WebhooksArgs),
    Rbac(RbacArgs),
    Scheduler(SchedulerArgs),
    Iam(iam::IamArgs),
    Queue(queue::QueueArgs),
    Alerts(AlertsArgs),
    Dashboards(DashboardsArgs),
}

/// CustomResourceDefinitions
#[derive(Args)]
struct CrdsArgs {
    /// Provider; the restricted label domains differ
    #[arg(long, default_value = "kwok", value_parser = ["kwok", "aws"])]
    provider: String,
    /// Serve v1beta1 in addition to v1, converted by the service (v1 is stored); apply it only while the service runs with
    /// --conversion-webhook
    #[arg(long)]
    conversion: bool,
    /// Conversion: base URL of the service; default: a reference to the Service
    #[arg(long, requires = "conversion")]
    url: Option<String>,
    /// Conversion: namespace of the Service
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Conversion: name of the Service
    #[arg(long, default_value = "mortise")]
    service: String,
    /// Conversion: CA certificate file (PEM); default: a CA injector must set it
    #[arg(long, value_name = "FILE", requires = "conversion")]
    ca_file: Option<PathBuf>,
}

/// Admission webhook configurations
#[derive(Args)]
struct WebhooksArgs {
    /// Base URL of the service; default: a reference to the Service
    #[arg(long)]
    url: Option<String>,
    /// Namespace of the Service
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Name of the Service
    #[arg(long, default_value = "mortise")]
    service: String,
    /// CA certificate file (PEM)
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Reject creations and updates while the webhook is unavailable (default: accept them; CEL rules and conditions still apply)
    #[arg(long)]
    fail: bool,
    /// User name of the service, whose own requests are excluded
    #[arg(long)]
    own_user: Option<String>,
    /// Set schedulerName of new pods in namespaces with the label mortise.sh/scheduler-name to its value
    #[arg(long)]
    scheduler_names: bool,
}

/// ServiceAccount and RBAC permissions of the service
#[derive(Args)]
struct RbacArgs {
    /// Namespace of the service account
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Name of the service account
    #[arg(long, default_value = "mortise")]
    name: String,
    /// Add permission to update the CA of CRDs written with --conversion
    #[arg(long)]
    conversion: bool,
    /// Add permission to write deletion costs to pods, for `mortise serve --pod-deletion-costs`
    #[arg(long)]
    pod_deletion_costs: bool,
    /// Add permission to restart Deployments, for `mortise serve --hand-over`
    #[arg(long)]
    hand_over: bool,
    /// Enabled providers: kwok creates Node objects, aws does not
    #[arg(long, value_delimiter = ',', default_value = "kwok,aws", value_parser = ["kwok", "aws"])]
    provider: Vec<String>,
    /// The service's --karpenter-service: its Secret is NAME-cert
    #[arg(long, default_value = "mortise", value_name = "NAME")]
    service: String,
    /// The service's --leader-election-name
    #[arg(long, default_value = mortise_controller::LEASE_NAME, value_name = "NAME")]
    lease: String,
    /// Omit permissions for the Secret: the service reads its certificates from --cert-dir
    #[arg(long)]
    certificates_given: bool,
}

/// KubeSchedulerConfiguration with the extender, or a second scheduler that uses it
#[derive(Args)]
struct SchedulerArgs {
    /// Base URL of the service; default with --second-scheduler: the Service in the namespace
    #[arg(long, default_value = FIRST_URL)]
    url: String,
    /// Directory of the service's --cert-dir, source of the three files
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ca_file", "cert_file", "key_file", "second_scheduler"])]
    cert_dir: Option<PathBuf>,
    /// CA of the service's certificate
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/mortise/ca.crt"
    )]
    ca_file: String,
    /// Client certificate for kube-scheduler
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/mortise/client.crt"
    )]
    cert_file: String,
    /// Key of the client certificate
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/mortise/client.key"
    )]
    key_file: String,
    /// Name in the service's certificate, if it is not the host of the URL
    #[arg(long, value_name = "NAME")]
    server_name: Option<String>,
    /// kubeconfig of kube-scheduler
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/etc/kubernetes/scheduler.conf"
    )]
    kubeconfig: String,
    /// Write a Deployment of a second kube-scheduler with RBAC, for clusters whose kube-scheduler cannot be configured
    #[arg(long)]
    second_scheduler: bool,
    /// Second scheduler: name of all objects, and value of schedulerName
    #[arg(
        long,
        default_value = "mortise-scheduler",
        requires = "second_scheduler"
    )]
    name: String,
    /// Second scheduler: namespace of all objects
    #[arg(long, default_value = "kube-system", requires = "second_scheduler")]
    namespace: String,
    /// Second scheduler: kube-scheduler image with the cluster's version
    #[arg(
        long,
        default_value = "registry.k8s.io/kube-scheduler:v1.36.3",
        requires = "second_scheduler"
    )]
    image: String,
    /// Second scheduler: Secret with ca.crt, extender-client.crt and extender-client.key
    #[arg(long, default_value = "mortise-cert", requires = "second_scheduler")]
    secret: String,
    /// Second scheduler: number of replicas, one of which leads
    #[arg(long, default_value_t = 2, requires = "second_scheduler")]
    replicas: u32,
}

/// Alerts for Prometheus, each with a runbook in docs/tasks/alerts.md, and metrics under their earlier names
#[derive(Args)]
struct AlertsArgs {
    /// Namespace of the PrometheusRule
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Write a rule file of Prometheus instead of a PrometheusRule, an object of Prometheus Operator
    #[arg(long, conflicts_with = "namespace")]
    rule_file: bool,
}

/// Dashboards for Grafana, in ConfigMaps that the sidecar of its chart loads
#[derive(Args)]
struct DashboardsArgs {
    /// Namespace of the ConfigMaps
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Write the JSON of one dashboard, to be imported by hand
    #[arg(long, value_name = "NAME", conflicts_with = "namespace", value_parser = DASHBOARDS.map(|each| each.name))]
    json: Option<String>,
}

fn endpoint(url: Option<&str>, namespace: &str, service: &str) -> Endpoint {
    match url {
        Some(url) => Endpoint::Url(url.to_owned()),
        None => in_cluster(namespace, service),
    }
}

/// The Service in the cluster, with its port.
pub(super) fn in_cluster(namespace: &str, service: &str) -> Endpoint {
    Endpoint::Service {
        namespace: namespace.to_owned(),
        name: service.to_owned(),
        port: 8443,
    }
}

/// Reads a file with certificates: an API server stops serving a resource whose CA bundle is invalid.
fn ca_bundle(path: &Path) -> anyhow::Result<String> {
    let place = || format!("--ca-file {}", path.display());
    let text = std::fs::read_to_string(path).with_context(place)?;
    let certificates: Result<Vec<CertificateDer<'_>>, _> =
        CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let certificates = certificates.with_context(place)?;
    ensure!(
        !certificates.is_empty(),
        "{}: there is no certificate (BEGIN CERTIFICATE) in it",
        place()
    );
    Ok(text)
}

/// An absolute path, which does not depend on the working directory of kube-scheduler.
fn absolute(path: &Path) -> anyhow::Result<String> {
    let absolute = std::path::absolute(path).with_context(|| path.display().to_string())?;
    Ok(absolute.display().to_string())
}

impl CrdsArgs {
    fn documents(&self) -> anyhow::Result<Vec<Value>> {
        let provider = Provider::of_name(&self.provider).context("--provider")?;
        let set = provider.crds();
        if !self.conversion {
            let manifests = set.manifests().iter();
            return Ok(manifests
                .map(|manifest| manifest.definition.clone())
                .collect());
        }
        let endpoint = endpoint(self.url.as_deref(), &self.namespace, &self.service);
        let ca_bundle = self.ca_file.as_deref().map(ca_bundle).transpose()?;
        let client = conversion_client_config(&endpoint, ca_bundle.as_deref());
        Ok(with_conversion(&set, &client))
    }
}

impl WebhooksArgs {
    fn documents(&self) -> anyhow::Result<Vec<Value>> {
        let ca_bundle = self.ca_file.as_deref().map(ca_bundle).transpose()?;
        Ok(webhook_configurations(&WebhookOptions {
            endpoint: endpoint(self.url.as_deref(), &self.namespace, &self.service),
            ca_bundle,
            fail: self.fail,
            own_user: self.own_user.clone(),
            node_classes: node_classes().kinds().collect(),
            scheduler_names: self.scheduler_names.then(|| self.namespace.clone()),
        }))
    }
}

impl RbacArgs {
    fn documents(&self) -> Vec<Value> {
        let named = self.provider.iter();
        let providers: Vec<_> = named
            .filter_map(|name| Some(Provider::of_name(name)?.permissions()))
            .collect();
        render::service_account(&ServiceAccount {
            namespace: &self.namespace,
            account: &self.name,
            name: &self.name,
            lease: &self.lease,
            secret: &format!("{}-cert", self.service),
            providers: &providers,
            definitions: &converted_definitions(&node_classes()),
            conversion: self.conversion,
            own_certificates: !self.certificates_given,
            pod_deletion_costs: self.pod_deletion_costs,
            hand_over: self.hand_over,
        })
    }
}

impl SchedulerArgs {
    fn documents(&self) -> anyhow::Result<Vec<Value>> {
        if self.second_scheduler {
            return Ok(self.second_scheduler_documents());
        }
        let files = self.files()?;
        Ok(vec![scheduler_configuration(&self.url, &files)])
    }

    fn second_scheduler_documents(&self) -> Vec<Value> {
        let given = Some(&self.url).filter(|url| *url != FIRST_URL);
        let service = format!("https://mortise.{}.svc:8443", self.namespace);
        second_scheduler(&SecondScheduler {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            image: self.image.clone(),
            secret: self.secret.clone(),
            url: given.cloned().unwrap_or(service),
            server_name: self.server_name.clone(),
            replicas: self.replicas,
        })
    }

    fn files(&self) -> anyhow::Result<SchedulerFiles> {
        let made = |name: &str| Some(self.cert_dir.as_ref()?.join(name));
        let of = |name: &str, file: &String| absolute(&made(name).unwrap_or_else(|| file.into()));
        Ok(SchedulerFiles {
            ca: of("ca.crt", &self.ca_file)?,
            cert: of("extender-client.crt", &self.cert_file)?,
            key: of("extender-client.key", &self.key_file)?,
            server_name: self.server_name.clone(),
            kubeconfig: absolute(Path::new(&self.kubeconfig))?,
        })
    }
}

pub(super) fn run(args: &ManifestsArgs) -> anyhow::Result<()> {
    let documents = match &args.what {
        ManifestTarget::Crds(args) => args.documents()?,
        ManifestTarget::Webhooks(args) => args.documents()?,
        ManifestTarget::Rbac(args) => args.documents(),
        ManifestTarget::Scheduler(args) => args.documents()?,
        ManifestTarget::Iam(args) => {
            line(args.text()?.trim_end());
            return Ok(());
        }
        ManifestTarget::Queue(args) => {
            line(args.text()?.trim_end());
            return Ok(());
        }
        ManifestTarget::Alerts(args) => vec![if args.rule_file {
            rule_groups()
        } else {
            prometheus_rule(&args.namespace)
        }],
        ManifestTarget::Dashboards(args) => match &args.json {
            None => dashboard_config_maps(&args.namespace),
            Some(name) => {
                let named = DASHBOARDS.iter().filter(|each| each.name == name);
                named.for_each(|dashboard| line(dashboard.text().trim_end()));
                return Ok(());
            }
        },
    };
    for document in documents {
        line("---");
        line(yaml(&document)?.trim_end());
    }
    Ok(())
}

fn yaml(document: &Value) -> anyhow::Result<String> {
    serde_saphyr::to_string(document).context("manifest cannot be written as YAML")
}

#[cfg(test)]
mod tests;
