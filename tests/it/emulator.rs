//! The emulated AWS: it launches as EC2 does, fails as told, and its instances become nodes.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use mortise_tests::harness::{Caller, ControlPlane, Fault, Moto, NodeFactory, Pool, wait_until};
use serde_json::{Value, json};

use crate::harness::{SOON, wait_for_node};

/// A call of EC2's query API.
async fn ec2(moto: &Moto, parameters: &[(&str, &str)]) -> Result<String> {
    moto.query(Caller::Controller, "ec2", parameters).await
}

/// A call of IAM's query API.
async fn iam(moto: &Moto, parameters: &[(&str, &str)]) -> Result<String> {
    moto.query(Caller::Controller, "iam", parameters).await
}

async fn create_fleet(
    moto: &Moto,
    subnet: &str,
    types: &[&str],
    capacity_type: &str,
    token: &str,
) -> Result<String> {
    let mut parameters = vec![
        ("Action".to_owned(), "CreateFleet"),
        ("Type".to_owned(), "instant"),
        ("ClientToken".to_owned(), token),
        (
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName".to_owned(),
            "lt-test",
        ),
        (
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version".to_owned(),
            "$Latest",
        ),
        (
            "TargetCapacitySpecification.TotalTargetCapacity".to_owned(),
            "1",
        ),
        (
            "TargetCapacitySpecification.DefaultTargetCapacityType".to_owned(),
            capacity_type,
        ),
        ("TagSpecification.1.ResourceType".to_owned(), "instance"),
        (
            "TagSpecification.1.Tag.1.Key".to_owned(),
            "karpenter.sh/nodeclaim",
        ),
        ("TagSpecification.1.Tag.1.Value".to_owned(), "default-abcde"),
    ];
    for (index, instance_type) in types.iter().enumerate() {
        let prefix = format!("LaunchTemplateConfigs.1.Overrides.{}", index + 1);
        parameters.push((format!("{prefix}.InstanceType"), instance_type));
        parameters.push((format!("{prefix}.SubnetId"), subnet));
    }
    let parameters: Vec<(&str, &str)> = parameters
        .iter()
        .map(|(key, value)| (key.as_str(), *value))
        .collect();
    ec2(moto, &parameters).await
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn the_emulated_fleet_behaves() -> Result<()> {
    let moto = Moto::start().await?;
    let fixtures = moto.fixtures("test").await?;
    let (zone, subnet) = fixtures.subnets.first_key_value().context("subnet")?;
    ec2(
        &moto,
        &[
            ("Action", "CreateLaunchTemplate"),
            ("LaunchTemplateName", "lt-test"),
            ("LaunchTemplateData.ImageId", &fixtures.images["amd64"]),
            (
                "LaunchTemplateData.SecurityGroupId.1",
                &fixtures.security_group,
            ),
            ("LaunchTemplateData.IamInstanceProfile.Name", "profile"),
            ("LaunchTemplateData.UserData", "aGVsbG8="),
        ],
    )
    .await?;

    // A new profile is refused until EC2 knows it, and without a role.
    let named = [("InstanceProfileName", "profile"), ("Path", "/a/b/")];
    moto.set_profile_delay(3600.0).await?;
    iam(
        &moto,
        &[&[("Action", "CreateInstanceProfile")], &named[..]].concat(),
    )
    .await?;
    let refused = create_fleet(&moto, subnet, &["m5.large"], "on-demand", "new").await?;
    assert!(
        refused.contains("Invalid IAM Instance Profile name"),
        "{refused}"
    );
    let template = ("LaunchTemplate.LaunchTemplateName", "lt-test");
    let dry_run = [("Action", "RunInstances"), ("DryRun", "true"), template];
    let refused = ec2(&moto, &dry_run).await.unwrap_err().to_string();
    assert!(
        refused.contains("Invalid IAM Instance Profile name"),
        "{refused}"
    );
    moto.set_profile_delay(0.0).await?;
    let refused = create_fleet(&moto, subnet, &["m5.large"], "on-demand", "bare").await?;
    assert!(refused.contains("no associated IAM Roles"), "{refused}");
    let role = ("RoleName", fixtures.role.as_str());
    iam(
        &moto,
        &[&[("Action", "AddRoleToInstanceProfile"), role], &named[..1]].concat(),
    )
    .await?;
    let refused = ec2(&moto, &dry_run).await.unwrap_err().to_string();
    assert!(refused.contains("DryRunOperation"), "{refused}");
    for (prefix, listed) in [("/a/", true), ("/b/", false)] {
        let prefix = ("PathPrefix", prefix);
        let found = iam(&moto, &[("Action", "ListInstanceProfiles"), prefix]).await?;
        let name = "<InstanceProfileName>profile<";
        assert_eq!(found.contains(name), listed, "{found}");
    }

    // The cheapest override wins, wherever it stands; the instance has what template and fleet say.
    create_fleet(
        &moto,
        subnet,
        &["m5.4xlarge", "m5.large"],
        "on-demand",
        "one",
    )
    .await?;
    let instances = moto.instances().await?;
    let [instance] = instances.as_slice() else {
        anyhow::bail!("one instance expected: {instances:?}")
    };
    assert_eq!(
        (
            instance.instance_type.as_str(),
            instance.capacity_type.as_str()
        ),
        ("m5.large", "on-demand")
    );
    assert_eq!(instance.tags["karpenter.sh/nodeclaim"], "default-abcde");
    assert_eq!(
        instance.security_groups,
        std::slice::from_ref(&fixtures.security_group)
    );
    assert_eq!(instance.instance_profile.as_deref(), Some("profile"));
    assert_eq!(instance.user_data.as_deref(), Some("aGVsbG8="));
    assert!(instance.tags.contains_key("aws:ec2:fleet-id"));

    // The same token gives the same instance.
    let again = create_fleet(
        &moto,
        subnet,
        &["m5.4xlarge", "m5.large"],
        "on-demand",
        "one",
    )
    .await?;
    assert!(again.contains(&instance.id), "{again}");
    assert_eq!(moto.instances().await?.len(), 1);

    // A price set by a test turns the order round.
    moto.set_price("m5.4xlarge", "*", "spot", 0.001).await?;
    let reply = create_fleet(&moto, subnet, &["m5.large", "m5.4xlarge"], "spot", "two").await?;
    assert!(
        reply.contains("<instanceType>m5.4xlarge</instanceType>"),
        "{reply}"
    );
    let spot = moto
        .instances()
        .await?
        .into_iter()
        .find(|instance| instance.capacity_type == "spot")
        .context("a spot instance")?;
    assert_eq!(spot.instance_type, "m5.4xlarge");

    // A pool without capacity is an entry of the errors; the next override is taken, or none.
    moto.set_pools(&[
        Pool::empty("m5.large", zone, "on-demand"),
        Pool::empty("c5.large", "*", "*").with_code("UnfulfillableCapacity"),
    ])
    .await?;
    let reply = create_fleet(
        &moto,
        subnet,
        &["m5.large", "m5.xlarge"],
        "on-demand",
        "three",
    )
    .await?;
    assert!(
        reply.contains("InsufficientInstanceCapacity")
            && reply.contains("<instanceType>m5.xlarge</instanceType>"),
        "{reply}"
    );
    let reply = create_fleet(
        &moto,
        subnet,
        &["m5.large", "c5.large"],
        "on-demand",
        "four",
    )
    .await?;
    assert!(
        reply.contains("UnfulfillableCapacity") && !reply.contains("<instanceIds>"),
        "{reply}"
    );
    assert_eq!(moto.instances().await?.len(), 3);

    // Calls fail, or are executed and their responses lost.
    let calls = moto.calls("ec2:CreateFleet").await?;
    moto.set_faults(&[Fault::fail("CreateFleet", "RequestLimitExceeded", 1)])
        .await?;
    let refused = create_fleet(&moto, subnet, &["m5.xlarge"], "on-demand", "five").await;
    assert!(
        refused.is_err_and(|error| error.to_string().contains("status 503")
            && error.to_string().contains("RequestLimitExceeded"))
    );
    moto.set_faults(&[Fault::lose_answer("CreateFleet")])
        .await?;
    assert!(
        create_fleet(&moto, subnet, &["m5.xlarge"], "on-demand", "five")
            .await
            .is_err()
    );
    assert_eq!(moto.instances().await?.len(), 4, "it was executed");
    assert_eq!(moto.calls("ec2:CreateFleet").await?, calls + 2);

    // A held call is executed when it is released.
    moto.set_faults(&[Fault::hold_before("CreateFleet")])
        .await?;
    let held = create_fleet(&moto, subnet, &["m5.xlarge"], "on-demand", "six");
    let released = async {
        wait_until("a held call", SOON, || async {
            ensure!(moto.held_calls().await? == 1, "none yet");
            Ok(())
        })
        .await?;
        assert_eq!(moto.instances().await?.len(), 4, "not executed yet");
        moto.set_faults(&[]).await
    };
    let (held, released) = tokio::join!(held, released);
    held?;
    released?;
    assert_eq!(moto.instances().await?.len(), 5);

    // A spot interruption warning goes through EventBridge into the queue, in AWS's own envelope.
    moto.put_spot_interruption(&spot.id).await?;
    let messages = moto.queued_messages(&fixtures.queue_name).await?;
    assert_eq!(messages.len(), 1);
    assert_eq!(
        messages[0]["detail-type"],
        "EC2 Spot Instance Interruption Warning"
    );
    assert_eq!(messages[0]["source"], "aws.ec2");
    assert_eq!(
        messages[0]["detail"],
        json!({ "instance-id": spot.id, "instance-action": "terminate" })
    );
    moto.reset().await?;
    assert!(moto.instances().await?.is_empty());
    the_policy_decides(&moto).await?;
    moto.stop().await;
    Ok(())
}

/// A policy allows profiles of one path, and to pass one role; the owner may do everything.
async fn the_policy_decides(moto: &Moto) -> Result<()> {
    let role = moto.fixtures("test").await?.role;
    let statement = |actions: Value, resource: &str| json!({ "Effect": "Allow", "Action": actions, "Resource": format!("arn:aws:iam::123456789012:{resource}") });
    let profiles = json!([
        "iam:CreateInstanceProfile",
        "iam:AddRoleToInstanceProfile",
        "iam:GetInstanceProfile"
    ]);
    let document = json!({ "Statement": [
        statement(profiles, "instance-profile/karpenter/*"),
        statement(json!("iam:PassRole"), &format!("role/{role}")),
    ] });
    moto.set_policy(&[document]).await?;
    let create = |name: &'static str, path: &'static str| {
        [
            ("Action", "CreateInstanceProfile"),
            ("InstanceProfileName", name),
            ("Path", path),
        ]
    };
    let add = |name: &'static str, role: &'static str| {
        [
            ("Action", "AddRoleToInstanceProfile"),
            ("InstanceProfileName", name),
            ("RoleName", role),
        ]
    };
    iam(moto, &create("inside", "/karpenter/us-east-1/")).await?;
    moto.query(Caller::Owner, "iam", &create("outside", "/"))
        .await?;
    let get = [
        ("Action", "GetInstanceProfile"),
        ("InstanceProfileName", "outside"),
    ];
    // By its own path, which the call does not name.
    for (call, on) in [
        (&create("other", "/other/"), "instance-profile/other/other"),
        (
            &add("outside", "KarpenterNodeRole-test"),
            "instance-profile/outside",
        ),
        (
            &add("inside", "admin"),
            "iam:PassRole on arn:aws:iam::123456789012:role/admin",
        ),
    ] {
        let refused = iam(moto, call).await.err().context("it is allowed")?;
        let refused = refused.to_string();
        ensure!(
            refused.contains("AccessDenied") && refused.contains(on),
            "{refused}"
        );
    }
    ensure!(iam(moto, &get).await.is_err());
    iam(moto, &add("inside", "KarpenterNodeRole-test")).await?;
    ensure!(moto.denials().await?.denied.len() == 4);
    Ok(())
}

#[tokio::test]
async fn an_instance_becomes_a_node_and_goes_with_it() -> Result<()> {
    let plane = ControlPlane::builder().full().start().await?;
    let moto = Moto::start().await?;
    let fixtures = moto.fixtures("test").await?;
    let _factory = NodeFactory::start(&moto, &plane);
    let (zone, subnet) = fixtures.subnets.first_key_value().context("subnet")?;
    let image = &fixtures.images["arm64"];
    ec2(
        &moto,
        &[
            ("Action", "CreateLaunchTemplate"),
            ("LaunchTemplateName", "lt-test"),
            ("LaunchTemplateData.ImageId", image),
        ],
    )
    .await?;
    create_fleet(&moto, subnet, &["m7g.large"], "spot", "one").await?;
    let instance = moto.instances().await?.pop().context("an instance")?;
    let client = plane.client();
    let node = wait_for_node(&client, &instance.private_dns, "True").await?;
    assert_eq!(
        node.spec.and_then(|spec| spec.provider_id),
        Some(format!("aws:///{zone}/{}", instance.id))
    );
    assert_eq!(
        node.metadata.labels.context("labels")?["kubernetes.io/arch"],
        "arm64"
    );

    moto.announce_state_changes(true).await?;
    moto.terminate(&instance.id).await?;
    let nodes: Api<Node> = Api::all(client);
    wait_until("the node to go", SOON, || async {
        ensure!(
            nodes.get_opt(&instance.private_dns).await?.is_none(),
            "still there"
        );
        Ok(())
    })
    .await?;
    wait_until("the news of it", SOON, || async {
        let messages = moto.queued_messages(&fixtures.queue_name).await?;
        let states: Vec<&Value> = messages
            .iter()
            .map(|message| &message["detail"]["state"])
            .collect();
        ensure!(states == ["shutting-down", "terminated"], "{states:?}");
        Ok(())
    })
    .await?;
    moto.stop().await;
    plane.stop().await;
    Ok(())
}
