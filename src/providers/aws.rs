//! Amazon EC2.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use kube::api::Api;
use mortise_aws::{AwsConfig, AwsProvider};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_cloudprovider::CloudProvider;
use mortise_controller::{Clients, RunError};

use super::{Provider, connect_error};
use crate::args::ServeArgs;

/// Amazon EC2.
pub(crate) const AWS: Provider = Provider {
    name: "aws",
    class: &Ec2NodeClassApi,
    creates_nodes: false,
    connect: |args, clients| Box::pin(connect(args, clients)),
};

async fn connect(args: &ServeArgs, clients: &Clients) -> Result<Arc<dyn CloudProvider>, RunError> {
    let args = &args.aws;
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
        .map_err(|error| connect_error("aws", &error))?;
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
