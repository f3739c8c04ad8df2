//! Clients of the services, and their errors in our words.

pub(crate) mod arguments;
pub(crate) mod batch;
pub(crate) mod call_budget;
pub(crate) mod cluster_info;
pub(crate) mod ssm_parameter_cache;

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::config::AwsConfig;
use crate::failure::{Failure, FailureKind};
use crate::sdk::call_budget::CallBudget;

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
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .operation_attempt_timeout(ATTEMPT_TIMEOUT)
            .build();
        // The version is named, so that a newer SDK does not change how often and how long it tries without a decision here.
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard().with_max_attempts(3));
        if let Some(region) = &config.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &config.endpoint_url {
            loader = loader.endpoint_url(endpoint.clone());
        }
        Self::of(&loader.load().await)
    }

    /// The clients of a configuration.
    pub(crate) fn of(shared: &SdkConfig) -> Result<Self, NoRegion> {
        let region = shared.region().map(ToString::to_string).ok_or(NoRegion)?;
        let place = shared.endpoint_url().map_or_else(
            || format!("region {region}"),
            |endpoint| format!("{endpoint} (region {region})"),
        );
        Ok(Self {
            ec2: aws_sdk_ec2::Client::new(shared),
            sqs: aws_sdk_sqs::Client::new(shared),
            ssm: aws_sdk_ssm::Client::new(shared),
            eks: aws_sdk_eks::Client::new(shared),
            iam: aws_sdk_iam::Client::new(shared),
            pricing: aws_sdk_pricing::Client::from_conf(
                aws_sdk_pricing::config::Builder::from(shared)
                    .region(Region::new(price_list_region(&region)))
                    .build(),
            ),
            zonal_shift: aws_sdk_arczonalshift::Client::new(shared),
            budget: CallBudget::default(),
            region,
            place,
        })
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
            place: self.place.clone(),
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
