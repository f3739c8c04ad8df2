//! AWS inside of a test: the SDK's own clients, with a connection that answers from memory. Everything but the socket is what
//! production uses: serialization, classification of errors, paging.

pub(crate) mod wire;

use std::fmt;
use std::sync::Arc;

use aws_config::retry::RetryConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_sdk_ec2::config::{Credentials, SharedCredentialsProvider};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use serde_json::Value;

use self::wire::{ApiCall, ApiError};
use crate::sdk::AwsClients;

/// Region of all recorded cases.
pub(crate) const REGION: &str = "us-west-2";

/// What answers the calls.
pub(crate) trait Answers: Send + Sync + fmt::Debug + 'static {
    /// The answer to a call, in the API's names.
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError>;
}

#[derive(Clone, Debug)]
struct Connection(Arc<dyn Answers>);

impl HttpConnector for Connection {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let body = request.body().bytes().unwrap_or_default();
        let call = wire::read(request.headers().get("x-amz-target"), request.uri(), body);
        let op = call.op.clone();
        HttpConnectorFuture::ready(match self.0.answer(call) {
            Ok(value) => Ok(response(wire::write(&op, &Ok(value)))),
            Err(ApiError::Service { code, message }) => {
                Ok(response(wire::write(&op, &Err((code, message)))))
            }
            Err(ApiError::Transport(message)) => Err(ConnectorError::io(message.into())),
        })
    }
}

fn response((status, body): (u16, String)) -> HttpResponse {
    HttpResponse::new(status.try_into().unwrap(), SdkBody::from(body))
}

/// Clients whose calls `answers` answers. Nothing is tried twice.
pub(crate) fn clients(answers: Arc<dyn Answers>) -> AwsClients {
    let connection = Connection(answers);
    let credentials = Credentials::new("test", "test", None, None, "test");
    let shared = SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .retry_config(RetryConfig::disabled())
        .http_client(http_client_fn(move |_, _| {
            SharedHttpConnector::new(connection.clone())
        }))
        .build();
    AwsClients::of(&shared).unwrap()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;
    use crate::sdk::arguments::filter;

    #[derive(Debug)]
    struct Fixed {
        calls: Mutex<Vec<ApiCall>>,
        answer: Result<Value, ApiError>,
    }

    impl Answers for Fixed {
        fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
            self.calls.lock().unwrap().push(call);
            self.answer.clone()
        }
    }

    fn fixed(answer: Result<Value, ApiError>) -> (Arc<Fixed>, AwsClients) {
        let fixed = Arc::new(Fixed {
            calls: Mutex::default(),
            answer,
        });
        (Arc::clone(&fixed), clients(fixed))
    }

    #[tokio::test]
    async fn calls_and_answers_of_ec2_pass_unchanged() {
        let subnet = json!({ "SubnetId": "subnet-1", "AvailableIpAddressCount": 7, "Tags": [{ "Key": "a&b", "Value": "c" }] });
        let (log, clients) = fixed(Ok(json!({ "Subnets": [subnet] })));
        let call = clients.ec2.describe_subnets();
        let call = call
            .filters(filter("tag:a b", ["x+y", "z"]))
            .max_results(500);
        let answer = call.send().await.unwrap();
        let [found] = answer.subnets() else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (found.subnet_id(), found.available_ip_address_count()),
            (Some("subnet-1"), Some(7))
        );
        assert_eq!(found.tags()[0].key(), Some("a&b"));
        assert_eq!(
            log.calls.lock().unwrap()[..],
            [ApiCall {
                op: "DescribeSubnets".to_owned(),
                input: json!({ "Filters": [{ "Name": "tag:a b", "Values": ["x+y", "z"] }], "MaxResults": 500 }),
            }]
        );
    }

    #[tokio::test]
    async fn every_protocol_is_spoken() {
        let profile = json!({ "InstanceProfileName": "p", "Path": "/", "InstanceProfileId": "i", "Arn": "arn", "CreateDate": "2026-01-01T00:00:00Z", "Roles": [] });
        let (_, clients) = fixed(Ok(json!({ "InstanceProfile": profile })));
        let answer = clients.iam.get_instance_profile();
        let answer = answer.instance_profile_name("p").send().await.unwrap();
        assert_eq!(
            answer.instance_profile().unwrap().instance_profile_name(),
            "p"
        );

        let (log, clients) = fixed(Ok(json!({ "Parameter": { "Value": "ami-1" } })));
        let answer = clients.ssm.get_parameter().name("n").send().await.unwrap();
        assert_eq!(answer.parameter().unwrap().value(), Some("ami-1"));
        assert_eq!(log.calls.lock().unwrap()[0].input, json!({ "Name": "n" }));

        let (log, clients) = fixed(Ok(json!({ "cluster": { "version": "1.36" } })));
        let answer = clients
            .eks
            .describe_cluster()
            .name("c/d")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.cluster().unwrap().version(), Some("1.36"));
        assert_eq!(log.calls.lock().unwrap()[0].input, json!({ "name": "c/d" }));

        let (_, clients) = fixed(Ok(json!({ "PriceList": ["{}"] })));
        let answer = clients
            .pricing
            .get_products()
            .service_code("AmazonEC2")
            .send();
        assert_eq!(answer.await.unwrap().price_list(), ["{}"]);

        let (_, clients) = fixed(Ok(
            json!({ "Messages": [{ "MessageId": "m", "Attributes": { "SentTimestamp": "1" } }] }),
        ));
        let answer = clients
            .sqs
            .receive_message()
            .queue_url("https://q/1/2")
            .send();
        assert_eq!(answer.await.unwrap().messages()[0].message_id(), Some("m"));
    }

    #[tokio::test]
    async fn errors_have_their_code() {
        let service = |code: &str| ApiError::Service {
            code: code.to_owned(),
            message: "said".to_owned(),
        };
        let (_, clients) = fixed(Err(service("UnauthorizedOperation")));
        let error = clients.ec2.describe_subnets().send().await.unwrap_err();
        assert_eq!(
            clients.failure("ec2:DescribeSubnets", error).code,
            "UnauthorizedOperation"
        );
        let (_, clients) = fixed(Err(service("NoSuchEntity")));
        let call = clients
            .iam
            .get_instance_profile()
            .instance_profile_name("p");
        let error = call.send().await.unwrap_err();
        assert!(
            clients
                .failure("iam:GetInstanceProfile", error)
                .is_not_found()
        );
        let (_, clients) = fixed(Err(ApiError::Transport("cut".to_owned())));
        let error = clients.ec2.describe_subnets().send().await.unwrap_err();
        assert_eq!(
            clients.failure("ec2:DescribeSubnets", error).label(),
            "unreachable"
        );
    }
}
