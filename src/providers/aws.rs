//! Amazon EC2.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::api::Api;
use mortise_aws::{ApiServer, ApiServerError, AwsConfig, AwsProvider};
use mortise_aws_class::Ec2NodeClassApi;
use mortise_cloudprovider::{BoxFuture, CloudProvider};
use mortise_controller::{Clients, RunError};

use super::{Provider, connect_error};
use crate::args::ServeArgs;

/// Amazon EC2.
pub(crate) const AWS: Provider = Provider {
    name: "aws",
    class: &Ec2NodeClassApi,
    creates_nodes: false,
    reads_service_ranges: true,
    connect: |args, clients| Box::pin(connect(args, clients)),
};

/// Longest that a question to the API server may take.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn connect(args: &ServeArgs, clients: &Clients) -> Result<Arc<dyn CloudProvider>, RunError> {
    let usage = |error: anyhow::Error| RunError::Usage(format!("{error:#}"));
    let settings = args.settings().map_err(usage)?;
    let read_only = args.read_only;
    let args = &args.aws;
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let api_server = KubeApiServer(clients.main.clone());
    let cluster_dns = api_server.cluster_dns().await;
    let config = AwsConfig {
        cluster_name: args.cluster_name.clone(),
        region: args.region(),
        endpoint_url: args.endpoint_url(),
        service_endpoints: args.service_endpoints(),
        use_fips: args.use_fips(),
        cluster_endpoint: args.endpoint_of_cluster(),
        cluster_ca_bundle: given(&args.cluster_ca_bundle)
            .or_else(|| clients.cluster_ca().map(str::to_owned)),
        service_cidr: args.service_cidr.clone(),
        ipv6: is_ipv6(cluster_dns.as_deref(), args.service_cidr.as_deref()),
        cluster_dns,
        interruption_queue: given(&args.interruption_queue),
        isolated_vpc: args.isolated_vpc,
        assumed_price_region: args.assumed_price_region.clone(),
        eks_control_plane: args.eks_control_plane,
        disable_dry_run: args.disable_dry_run,
        read_only,
        zonal_shift: args.enable_zonal_shift,
        reserved_capacity: settings.gates.reserved_capacity,
        min_values_best_effort: settings.min_values_best_effort,
        shape: args.shape().map_err(usage)?,
        prefix_delegation: args.prefix_delegation(),
        api_server: Some(Arc::new(api_server)),
        ..AwsConfig::default()
    };
    let provider = AwsProvider::connect(config)
        .await
        .map_err(|error| connect_error("aws", &error))?;
    Ok(Arc::new(provider))
}

/// Whether the cluster is one of IPv6: by the address of its DNS service, else by the range of Services.
fn is_ipv6(cluster_dns: Option<&str>, service_cidr: Option<&str>) -> bool {
    let range = service_cidr.and_then(|range| Some(range.split_once('/')?.0));
    let address = cluster_dns.or(range).and_then(|text| text.parse().ok());
    address.is_some_and(|address: IpAddr| address.is_ipv6())
}

/// The API server, by our own client of it.
#[derive(Clone)]
struct KubeApiServer(kube::Client);

impl std::fmt::Debug for KubeApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KubeApiServer")
    }
}

/// An answer in time, or why there is none.
async fn in_time<T>(
    what: &str,
    answer: impl Future<Output = kube::Result<T>>,
) -> Result<T, ApiServerError> {
    match tokio::time::timeout(TIMEOUT, answer).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(ApiServerError(format!("{what}: {error}"))),
        Err(_) => Err(ApiServerError(format!(
            "{what}: no response within {} s",
            TIMEOUT.as_secs()
        ))),
    }
}

/// `1` and `36+` are version `1.36`.
fn version(major: &str, minor: &str) -> Result<String, ApiServerError> {
    let digits = |text: &str| -> String { text.chars().take_while(char::is_ascii_digit).collect() };
    let (of_major, of_minor) = (digits(major), digits(minor));
    if of_major.is_empty() || of_minor.is_empty() {
        return Err(ApiServerError(format!(
            "GET /version: expected numbers in major and minor, got {major:?} and {minor:?}"
        )));
    }
    Ok(format!("{of_major}.{of_minor}"))
}

impl ApiServer for KubeApiServer {
    fn version(&self) -> BoxFuture<'_, Result<String, ApiServerError>> {
        Box::pin(async {
            let found = in_time("GET /version", self.0.apiserver_version()).await?;
            version(&found.major, &found.minor)
        })
    }

    /// From the object for the ranges that the API server was started with, which exists since Kubernetes 1.33.
    fn service_ranges(&self) -> BoxFuture<'_, Result<Vec<String>, ApiServerError>> {
        Box::pin(async {
            let ranges: Api<ServiceCIDR> = Api::all(self.0.clone());
            let found = in_time("ServiceCIDR kubernetes", ranges.get_opt("kubernetes")).await?;
            let spec = found.and_then(|found| found.spec);
            Ok(spec.and_then(|spec| spec.cidrs).unwrap_or_default())
        })
    }

    fn vpc_cni(&self) -> BoxFuture<'_, Result<Option<BTreeMap<String, String>>, ApiServerError>> {
        Box::pin(async {
            let sets: Api<DaemonSet> = Api::namespaced(self.0.clone(), "kube-system");
            let found = in_time("DaemonSet aws-node", sets.get_opt("aws-node")).await?;
            Ok(found.map(|found| environment(found, "aws-node")))
        })
    }
}

/// Variables of a container that have a plain value.
fn environment(set: DaemonSet, container: &str) -> BTreeMap<String, String> {
    let pod = set.spec.and_then(|spec| spec.template.spec);
    let containers = pod.map(|pod| pod.containers).unwrap_or_default();
    let own = containers.into_iter().filter(|each| each.name == container);
    own.flat_map(|each| each.env.unwrap_or_default())
        .filter_map(|variable| Some((variable.name, variable.value?)))
        .collect()
}

impl KubeApiServer {
    /// IP address of the cluster DNS service, for nodes whose class sets none; without it a node uses the default of its
    /// image.
    async fn cluster_dns(&self) -> Option<String> {
        let services: Api<Service> = Api::namespaced(self.0.clone(), "kube-system");
        match in_time("Service kube-dns", services.get_opt("kube-dns")).await {
            Ok(service) => service?
                .spec?
                .cluster_ip
                .filter(|address| !address.is_empty() && address != "None"),
            Err(error) => {
                tracing::warn!(%error, "failed to read address of DNS service, nodes use the default of their image");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(version("1", "36").unwrap(), "1.36");
        assert_eq!(version("1", "34+").unwrap(), "1.34");
        for (major, minor) in [("", "36"), ("1", ""), ("1", "x")] {
            version(major, minor).unwrap_err();
        }
    }

    #[test]
    fn plain_variables_of_a_container_are_its_environment() {
        let containers = serde_json::json!([
            { "name": "aws-node", "env": [
                { "name": "ENABLE_PREFIX_DELEGATION", "value": "true" },
                { "name": "MY_NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
            ] },
            { "name": "aws-eks-nodeagent", "env": [{ "name": "OTHER", "value": "1" }] },
        ]);
        let set = serde_json::json!({ "spec": {
            "selector": {}, "template": { "spec": { "containers": containers } },
        } });
        let found = environment(serde_json::from_value(set).unwrap(), "aws-node");
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        assert_eq!(names, ["ENABLE_PREFIX_DELEGATION"]);
    }

    #[test]
    fn the_family_is_that_of_the_dns_service() {
        for (dns, range, ipv6) in [
            (Some("10.100.0.10"), Some("fd00::/108"), false),
            (Some("fd00::a"), None, true),
            (None, Some("fd00::/108"), true),
            (None, Some("10.100.0.0/16"), false),
            (None, None, false),
        ] {
            assert_eq!(is_ipv6(dns, range), ipv6, "{dns:?} {range:?}");
        }
    }
}
