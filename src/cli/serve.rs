//! `mortise serve`: the service on a cluster.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use mortise_aws::{AwsConfig, AwsProvider};
use mortise_cloudprovider::CloudProvider;
use mortise_controller::{Clients, RunError};
use mortise_kwok::KwokProvider;
use mortise_process as process;

use crate::args::{AwsArgs, Inert, ProviderName, ServeArgs, variables};
use crate::providers::node_classes;

/// Runs until a signal arrives.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<()> {
    process::init_logging(args.log_level())?;
    process::install_crypto()?;
    let all = std::env::vars_os().filter_map(|(name, value)| {
        let value = value.to_string_lossy().into_owned();
        Some((name.to_str()?.to_owned(), value))
    });
    for doubtful in variables::check(all).map_err(RunError::Usage)? {
        let variables::MisspelledVariable { name, meant } = doubtful;
        tracing::warn!(
            variable = name,
            meant,
            "unknown environment variable, possibly misspelled"
        );
    }
    let mut config = args
        .config()
        .map_err(|error| RunError::Usage(format!("{error:#}")))?;
    config.node_classes = node_classes();
    for Inert {
        setting,
        consequence,
    } in args.inert(&config.settings)
    {
        tracing::error!(setting, consequence, "setting has no effect");
    }
    process::runtime()?.block_on(async {
        let clients = Clients::from_kubeconfig(args.kubeconfig.as_deref(), None).await?;
        let mut providers: Vec<Arc<dyn CloudProvider>> = Vec::new();
        for name in &args.provider {
            providers.push(match name {
                ProviderName::Kwok => kwok(args, &clients).await?,
                ProviderName::Aws => aws(&args.aws, &clients).await?,
            });
        }
        mortise_controller::run(config, clients, providers, mortise_deciders::all()).await?;
        Ok(())
    })
}

async fn kwok(args: &ServeArgs, clients: &Clients) -> Result<Arc<dyn CloudProvider>, RunError> {
    let provider = KwokProvider::new(
        clients.main.clone(),
        args.instance_types_file_path.as_deref(),
    )
    .map_err(|error| provider_error("kwok", &error))?;
    let recovering = provider.clone();
    tokio::spawn(async move {
        if let Err(error) = recovering.recover().await {
            tracing::warn!(%error, "failed to list missing nodes, their NodeClaims are deleted after --registration-timeout");
        }
    });
    Ok(Arc::new(provider))
}

async fn aws(args: &AwsArgs, clients: &Clients) -> Result<Arc<dyn CloudProvider>, RunError> {
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let config = AwsConfig {
        cluster_name: args.cluster_name.clone(),
        region: given(&args.aws_region),
        endpoint_url: args.aws_endpoint_url.clone(),
        cluster_endpoint: given(&args.cluster_endpoint),
        cluster_ca_bundle: given(&args.cluster_ca_bundle)
            .or_else(|| clients.cluster_ca().map(str::to_owned)),
        cluster_dns: cluster_dns(clients).await,
        interruption_queue: given(&args.interruption_queue),
        shape: args.shape(),
        ..AwsConfig::default()
    };
    let provider = AwsProvider::connect(config)
        .await
        .map_err(|error| provider_error("aws", &error))?;
    Ok(Arc::new(provider))
}

/// IP address of the cluster DNS service, for nodes whose class sets none; without it a node uses the default of its
/// image.
async fn cluster_dns(clients: &Clients) -> Option<String> {
    let services: Api<Service> = Api::namespaced(clients.main.clone(), "kube-system");
    let answer = tokio::time::timeout(Duration::from_secs(10), services.get_opt("kube-dns")).await;
    match answer {
        Ok(Ok(service)) => service?
            .spec?
            .cluster_ip
            .filter(|address| !address.is_empty() && address != "None"),
        Ok(Err(error)) => {
            tracing::warn!(%error, "failed to read address of DNS service, nodes use the default of their image");
            None
        }
        Err(_) => {
            tracing::warn!("reading DNS service timed out, nodes use the default of their image");
            None
        }
    }
}

fn provider_error(provider: &str, error: &dyn std::error::Error) -> RunError {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        message = format!("{message}: {inner}");
        cause = inner.source();
    }
    RunError::Provider {
        provider: provider.to_owned(),
        message,
    }
}

/// The documented exit code of an error.
pub(super) fn exit_code(error: &anyhow::Error) -> u8 {
    error
        .downcast_ref::<RunError>()
        .map_or(1, RunError::exit_code)
}
