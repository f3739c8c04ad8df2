//! What AWS's answers to dry runs mean for a class.

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::facts::api::wire::{ApiCall, ApiError};
use crate::facts::api::{self, Answers};
use crate::launch::tests::class;
use crate::node_class::amis;
use mortise_aws_catalog::ami_family::AmiFamily;
use mortise_aws_catalog::{CatalogRow, embedded, embedded_catalog};
use mortise_aws_class::status::{Ami, SecurityGroup};

/// Answers dry runs in subnets with the codes given, and everything else as a success.
#[derive(Debug, Default)]
struct Ec2 {
    template: Option<&'static str>,
    fleet: Option<&'static str>,
    /// Code by subnet.
    instances: Vec<(&'static str, &'static str, &'static str)>,
    calls: Mutex<Vec<String>>,
}

fn service(code: &str, message: &str) -> Result<Value, ApiError> {
    Err(ApiError::Service {
        code: code.to_owned(),
        message: message.to_owned(),
    })
}

impl Answers for Ec2 {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        self.calls.lock().unwrap().push(call.op.clone());
        match &*call.op {
            "DescribeLaunchTemplates" => service("InvalidLaunchTemplateName.NotFoundException", ""),
            "CreateLaunchTemplate" => match self.template {
                None => Ok(json!({ "LaunchTemplate": {} })),
                Some(code) => service(code, "User data is limited to 16384 bytes"),
            },
            "CreateFleet" => service(self.fleet.unwrap_or(PASSED), ""),
            "RunInstances" => {
                let subnet = &call.input["NetworkInterfaces"][0]["SubnetId"];
                let mut codes = self.instances.iter();
                let found = codes.find(|(id, _, _)| subnet == id);
                found.map_or_else(
                    || service(PASSED, ""),
                    |(_, code, text)| service(code, text),
                )
            }
            other => Err(ApiError::Transport(format!("unexpected {other}"))),
        }
    }
}

/// A class with two subnets, whose only type is m5.large.
fn usual(profile: Option<&str>) -> CachedNodeClass {
    let mut types = embedded("us-east-1", &["us-east-1a"]).unwrap();
    types.retain(|each| &*each.name == "m5.large");
    let ami = Ami {
        id: "ami-1".to_owned(),
        ..Ami::default()
    };
    let mut class = CachedNodeClass {
        images: amis::positions(std::slice::from_ref(&ami), &types),
        amis: vec![ami],
        types,
        groups: vec![SecurityGroup {
            id: "sg-1".to_owned(),
            name: None,
        }],
        profile: Some("profile".to_owned()),
        ..class()
    };
    class.object.spec.ami_family = Some("Custom".to_owned());
    class.settings.family = AmiFamily::Custom;
    class.object.spec.instance_profile = profile.map(str::to_owned);
    class.object.status.subnets = ["subnet-1", "subnet-2"]
        .map(|id| Subnet {
            id: id.to_owned(),
            ..Subnet::default()
        })
        .into();
    class
}

async fn run(ec2: Ec2, class: &CachedNodeClass) -> (Verdict, Vec<String>) {
    let ec2 = Arc::new(ec2);
    let clients = Arc::new(api::clients(Arc::clone(&ec2) as Arc<dyn Answers>));
    let config = Arc::new(AwsConfig::default());
    let templates = LaunchTemplates::new(Arc::clone(&clients), Arc::clone(&config));
    let runs = DryRuns::new(clients, config, Arc::new(templates));
    let catalog = embedded_catalog().unwrap();
    let known: Vec<InstanceTypeInfo> = catalog
        .rows()
        .iter()
        .map(|row: &CatalogRow| row.info.clone())
        .collect();
    let verdict = runs.run(class, &ClusterInfo::default(), &known, &[]).await;
    let calls = ec2.calls.lock().unwrap().clone();
    (verdict, calls)
}

#[tokio::test]
async fn one_subnet_that_is_accepted_is_enough() {
    let ec2 = Ec2 {
        instances: vec![("subnet-1", "UnauthorizedOperation", "")],
        ..Ec2::default()
    };
    let (verdict, calls) = run(ec2, &usual(None)).await;
    assert_eq!(verdict, Verdict::Passed);
    let tries = calls.iter().filter(|call| *call == "RunInstances").count();
    assert_eq!(tries, 2, "each is asked for once: {calls:?}");
}

#[tokio::test]
async fn refusals_have_their_reason() {
    let reason = |verdict: Verdict| match verdict {
        Verdict::Refused(problem) => (problem.reason, true),
        Verdict::RefusedForNow(problem) => (problem.reason, false),
        other => panic!("{other:?}"),
    };
    let denied = "UnauthorizedOperation";
    let template = Ec2 {
        template: Some("InvalidUserData.Malformed"),
        ..Ec2::default()
    };
    let fleet = Ec2 {
        fleet: Some(denied),
        ..Ec2::default()
    };
    let both = |code, text| Ec2 {
        instances: vec![("subnet-1", code, text), ("subnet-2", code, text)],
        ..Ec2::default()
    };
    let instances = both(denied, "");
    let profile = both("InvalidParameterValue", NO_PROFILE);
    for (ec2, expected) in [
        (template, (TOO_LARGE, true)),
        (fleet, ("CreateFleetAuthCheckFailed", true)),
        (instances, ("RunInstancesAuthCheckFailed", true)),
        (profile, ("InstanceProfileNotFound", false)),
    ] {
        assert_eq!(reason(run(ec2, &usual(Some("mine"))).await.0), expected);
    }
}

#[tokio::test]
async fn what_passes_says_nothing_about_the_class() {
    let throttled = Ec2 {
        fleet: Some("RequestLimitExceeded"),
        ..Ec2::default()
    };
    assert_eq!(run(throttled, &usual(None)).await.0, Verdict::Unknown(None));
    let text = NO_PROFILE;
    let unseen = Ec2 {
        instances: vec![
            ("subnet-1", "InvalidParameterValue", text),
            ("subnet-2", "InvalidParameterValue", text),
        ],
        ..Ec2::default()
    };
    let (verdict, _) = run(unseen, &usual(None)).await;
    assert_eq!(verdict, Verdict::Unknown(None), "a profile of ours is new");
    let other = Ec2 {
        fleet: Some("MaxFleetCountExceeded"),
        ..Ec2::default()
    };
    let (verdict, _) = run(other, &usual(None)).await;
    assert!(matches!(verdict, Verdict::Unknown(Some(_))), "{verdict:?}");
}

#[tokio::test]
async fn images_that_fit_no_type_are_said() {
    let nothing = CachedNodeClass {
        images: vec![None],
        ..usual(None)
    };
    let (verdict, calls) = run(Ec2::default(), &nothing).await;
    assert!(
        matches!(&verdict, Verdict::RefusedForNow(problem) if problem.reason == "NoCompatibleAMI"),
        "{verdict:?}"
    );
    assert!(calls.is_empty(), "{calls:?}");
}
