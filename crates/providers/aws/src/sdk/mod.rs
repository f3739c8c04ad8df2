//! Clients of the services, and their errors in our words.

pub(crate) mod arguments;
pub(crate) mod batch;
pub(crate) mod call_budget;
mod charged_attempts;
pub(crate) mod cluster_info;
pub(crate) mod ssm_parameter_cache;
pub(crate) mod vpc_cni;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::config::{Credentials, SharedCredentialsProvider};
use aws_sdk_ec2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::config::{AwsConfig, AwsService};
use crate::failure::{Failure, FailureKind};
use crate::sdk::call_budget::CallBudget;
use crate::sdk::charged_attempts::ChargedAttempts;

/// Longest that one attempt of a call may take. Longer than the queue's long poll (20 s), shorter than a person's patience.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The services of one region.
#[derive(Clone, Debug)]
pub(crate) struct AwsClients {
    pub(crate) ec2: aws_sdk_ec2::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) ssm: aws_sdk_ssm::Client,
    pub(crate) eks: aws_sdk_eks::Client,
    pub(crate) iam: aws_sdk_iam::Client,
    /// The price list, which few regions serve for all.
    pub(crate) pricing: aws_sdk_pricing::Client,
    pub(crate) zonal_shift: aws_sdk_arczonalshift::Client,
    /// How many calls of EC2 may be made, for all that share these clients.
    pub(crate) budget: CallBudget,
    /// Region name.
    pub(crate) region: String,
    /// Where the services are, for errors: the endpoint if one is set, else the region.
    pub(crate) place: String,
    /// Services that are elsewhere.
    places: Arc<BTreeMap<AwsService, String>>,
}

/// Name of the program in the user agent of every call, as `app/mortise-0.1.0`; the characters allowed do not include a slash.
const APP_NAME: &str = concat!("mortise-", env!("CARGO_PKG_VERSION"));

/// The configuration of a service's client, at the endpoint of its own if it has one.
macro_rules! configuration {
    ($sdk:ident, $service:ident, $shared:expr, $endpoints:expr) => {{
        let mut builder = $sdk::config::Builder::from($shared);
        if let Some(url) = $endpoints.get(&AwsService::$service) {
            builder = builder.endpoint_url(url.clone());
        }
        builder
    }};
}

/// The region whose endpoint serves the price list of a region.
/// # Source
/// The endpoints of the Price List service: three in the commercial partition, one in China.
fn price_list_region(region: &str) -> &'static str {
    match region.split('-').next() {
        Some("ap") => "ap-south-1",
        Some("cn") => "cn-northwest-1",
        Some("eu") => "eu-central-1",
        _ => "us-east-1",
    }
}

/// There is no region to work in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no AWS region is set: give --aws-region or AWS_REGION, or run on an EC2 instance")]
pub struct NoRegion;

impl AwsClients {
    /// Makes the clients. Nothing is called yet, except for the region and credentials where the environment names none.
    pub(crate) async fn new(config: &AwsConfig) -> Result<Self, NoRegion> {
        Self::load(Self::loader(), config).await
    }

    /// The same with a key that no account has.
    pub(crate) async fn with_test_key(config: &AwsConfig) -> Result<Self, NoRegion> {
        let key = Credentials::builder()
            .access_key_id("test")
            .secret_access_key("test")
            .provider_name("test")
            .build();
        let key = SharedCredentialsProvider::new(key);
        Self::load(Self::loader().credentials_provider(key), config).await
    }

    fn loader() -> aws_config::ConfigLoader {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .build();
        // The version is named, so that a newer SDK does not change how often and how long it tries without a decision here.
        aws_config::defaults(BehaviorVersion::v2026_01_12())
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(3))
    }

    /// Completes a configuration by the settings.
    async fn load(
        mut loader: aws_config::ConfigLoader,
        config: &AwsConfig,
    ) -> Result<Self, NoRegion> {
        if let Some(region) = &config.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &config.endpoint_url {
            loader = loader.endpoint_url(endpoint.clone());
        }
        // Not `use_fips(false)`: that would overrule the profile.
        if config.use_fips {
            loader = loader.use_fips(true);
        }
        if let Ok(name) = AppName::new(APP_NAME) {
            loader = loader.app_name(name);
        }
        Self::with_endpoints(&loader.load().await, &config.service_endpoints)
    }

    /// The clients of a configuration.
    #[cfg(test)]
    pub(crate) fn of(shared: &SdkConfig) -> Result<Self, NoRegion> {
        Self::with_endpoints(shared, &BTreeMap::new())
    }

    /// The clients of a configuration, some of them elsewhere.
    pub(crate) fn with_endpoints(
        shared: &SdkConfig,
        endpoints: &BTreeMap<AwsService, String>,
    ) -> Result<Self, NoRegion> {
        let region = shared.region().map(ToString::to_string).ok_or(NoRegion)?;
        let place = shared.endpoint_url().map_or_else(
            || format!("region {region}"),
            |endpoint| format!("{endpoint} (region {region})"),
        );
        let price_list = Region::new(price_list_region(&region));
        let budget = CallBudget::default();
        Ok(Self {
            ec2: aws_sdk_ec2::Client::from_conf(
                configuration!(aws_sdk_ec2, Ec2, shared, endpoints)
                    .interceptor(ChargedAttempts(budget.clone()))
                    .build(),
            ),
            sqs: aws_sdk_sqs::Client::from_conf(
                configuration!(aws_sdk_sqs, Sqs, shared, endpoints).build(),
            ),
            ssm: aws_sdk_ssm::Client::from_conf(
                configuration!(aws_sdk_ssm, Ssm, shared, endpoints).build(),
            ),
            eks: aws_sdk_eks::Client::from_conf(
                configuration!(aws_sdk_eks, Eks, shared, endpoints).build(),
            ),
            iam: aws_sdk_iam::Client::from_conf(
                configuration!(aws_sdk_iam, Iam, shared, endpoints).build(),
            ),
            pricing: aws_sdk_pricing::Client::from_conf(
                configuration!(aws_sdk_pricing, Pricing, shared, endpoints)
                    .region(price_list)
                    .build(),
            ),
            zonal_shift: aws_sdk_arczonalshift::Client::from_conf(
                configuration!(aws_sdk_arczonalshift, ZonalShift, shared, endpoints).build(),
            ),
            budget,
            region,
            place,
            places: Arc::new(endpoints.clone()),
        })
    }

    fn place_of(&self, action: &str) -> String {
        let own = AwsService::of_action(action).and_then(|service| self.places.get(&service));
        own.unwrap_or(&self.place).clone()
    }

    /// Puts an SDK error into our words.
    pub(crate) fn failure<E, R>(&self, action: &'static str, error: SdkError<E, R>) -> Failure
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug + 'static,
    {
        let (kind, code, message) = match &error {
            SdkError::ServiceError(inner) => {
                let err = inner.err();
                match err.code() {
                    Some(code) => (
                        FailureKind::Service,
                        code.to_owned(),
                        err.message().unwrap_or("no message").to_owned(),
                    ),
                    None => (
                        FailureKind::Unreadable,
                        String::new(),
                        DisplayErrorContext(&error).to_string(),
                    ),
                }
            }
            SdkError::TimeoutError(_) => (
                FailureKind::Timeout,
                String::new(),
                format!("no response within {} s", ATTEMPT_TIMEOUT.as_secs()),
            ),
            SdkError::DispatchFailure(inner) => {
                let text = causes(&error);
                let credentials = !inner.is_io()
                    && !inner.is_timeout()
                    && text.to_lowercase().contains("credentials");
                (
                    if credentials {
                        FailureKind::Credentials
                    } else {
                        FailureKind::Unreachable
                    },
                    String::new(),
                    text,
                )
            }
            SdkError::ConstructionFailure(_) => {
                (FailureKind::Credentials, String::new(), causes(&error))
            }
            _ => (FailureKind::Unreadable, String::new(), causes(&error)),
        };
        let failure = Failure {
            action,
            place: self.place_of(action),
            kind,
            code,
            message,
        };
        if failure.is_throttled() {
            self.budget.throttled(action);
        }
        failure
    }
}

/// The innermost cause, which is what says something ("Connection refused"); the SDK's outer layers only say that a call failed.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(inner) = innermost.source() {
        innermost = inner;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use aws_config::retry::RetryConfig;
    use aws_smithy_runtime_api::client::http::{
        HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
    };
    use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
    use aws_smithy_runtime_api::client::result::ConnectorError;

    use super::*;

    /// Host and user agent of every call; answers none.
    #[derive(Clone, Debug, Default)]
    struct Hosts(Arc<Mutex<Vec<(String, String)>>>);

    impl HttpConnector for Hosts {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            let agent = request.headers().get("x-amz-user-agent");
            let host = request.uri().split('/').nth(2).unwrap_or_default();
            let call = (host.to_owned(), agent.unwrap_or_default().to_owned());
            self.0.lock().unwrap().push(call);
            HttpConnectorFuture::ready(Err(ConnectorError::io("cut".into())))
        }
    }

    /// The hosts that EC2, EKS and the price list are called at, with what every user agent contains.
    async fn hosts(shared: aws_config::ConfigLoader, config: &AwsConfig) -> Vec<String> {
        let hosts = Hosts::default();
        let connection = hosts.clone();
        let credentials = Credentials::new("test", "test", None, None, "test");
        let shared = shared
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .retry_config(RetryConfig::disabled())
            .http_client(http_client_fn(move |_, _| {
                SharedHttpConnector::new(connection.clone())
            }));
        let clients = AwsClients::load(shared, config).await.unwrap();
        let error = clients.ec2.describe_subnets().send().await.unwrap_err();
        assert_eq!(
            clients.failure("ec2:DescribeSubnets", error).place,
            config
                .service_endpoints
                .get(&AwsService::Ec2)
                .unwrap_or(&clients.place)
                .clone()
        );
        clients.eks.list_clusters().send().await.unwrap_err();
        let products = clients.pricing.get_products().service_code("AmazonEC2");
        products.send().await.unwrap_err();
        let calls = hosts.0.lock().unwrap().clone();
        assert!(
            calls
                .iter()
                .all(|(_, agent)| agent.contains(&format!("app/{APP_NAME}"))),
            "{calls:?}"
        );
        calls.into_iter().map(|(host, _)| host).collect()
    }

    fn loader() -> aws_config::ConfigLoader {
        aws_config::defaults(BehaviorVersion::v2026_01_12())
    }

    #[tokio::test]
    async fn a_service_is_called_at_its_own_endpoint_else_at_the_common_one_else_in_the_region() {
        let mut config = AwsConfig {
            region: Some("eu-west-1".to_owned()),
            ..AwsConfig::default()
        };
        assert_eq!(
            hosts(loader(), &config).await,
            [
                "ec2.eu-west-1.amazonaws.com",
                "eks.eu-west-1.amazonaws.com",
                "api.pricing.eu-central-1.amazonaws.com"
            ]
        );
        config.use_fips = true;
        config.region = Some("us-east-1".to_owned());
        let at = hosts(loader(), &config).await;
        assert_eq!(at[0], "ec2-fips.us-east-1.amazonaws.com");
        assert!(at[1].contains("fips"), "{at:?}");
        config.use_fips = false;
        config.endpoint_url = Some("https://all.test".to_owned());
        config
            .service_endpoints
            .insert(AwsService::Ec2, "https://vpce.test".to_owned());
        assert_eq!(
            hosts(loader(), &config).await,
            ["vpce.test", "all.test", "all.test"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn every_attempt_is_charged() {
        let hosts = Hosts::default();
        let connection = hosts.clone();
        let credentials = Credentials::new("test", "test", None, None, "test");
        let shared = loader()
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .region(Region::new("us-east-1"))
            .retry_config(
                RetryConfig::standard()
                    .with_max_attempts(3)
                    .with_initial_backoff(Duration::ZERO),
            )
            .http_client(http_client_fn(move |_, _| {
                SharedHttpConnector::new(connection.clone())
            }));
        let clients = AwsClients::of(&shared.load().await).unwrap();
        clients.ec2.create_tags().send().await.unwrap_err();
        clients.ec2.describe_subnets().send().await.unwrap_err();
        assert_eq!(hosts.0.lock().unwrap().len(), 6, "three attempts each");
        // The first attempt to tag is charged where it waits.
        assert_eq!(clients.budget.left("ec2:CreateTags"), 100 - 2);
        assert_eq!(clients.budget.left("ec2:DescribeSubnets"), 100 - 3);
    }
}
