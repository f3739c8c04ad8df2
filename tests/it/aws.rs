//! EC2: pods become a fleet, an instance and a node; an interruption becomes a replacement and a drain.

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{Fault, Fixtures, Instance, Moto, wait_until};
use serde_json::json;

use crate::aws_account::{Account, CLUSTER, class};
use crate::objects::deployment;
use crate::scene::{LaunchedNode, SOON, Scene};

#[tokio::test]
async fn an_interrupted_instance_is_replaced_and_drained() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.scene(&[]).await?;
    wait_until("the class to be ready", SOON, || async {
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let status = classes.get("default").await?.status;
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .context("no condition")?;
        ensure!(ready.status.to_string() == "True", "{ready:?}");
        ensure!(
            status.subnets.len() == 3
                && status.security_groups.len() == 1
                && !status.amis.is_empty(),
            "{status:?}"
        );
        Ok(())
    })
    .await?;

    scene
        .apply(&[deployment("web", 2, ("700m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 2).await?;
    let before = scene.settled(1).await?;
    let before = before.first().context("one")?;
    ensure!(
        account.moto.calls("ec2:CreateFleet").await? == 1,
        "one fleet for two pods"
    );
    let instance = account.instance_of(before).await?;
    is_as_told(&account.fixtures, before, &instance)?;
    joins_this_cluster(&scene, &instance).await?;

    // EC2 says that it takes the instance back; the pods move to another one before it does.
    account.moto.put_spot_interruption(&instance.id).await?;
    wait_until("the node to be gone", SOON, || async {
        let claims = scene.claims().await?;
        ensure!(
            !claims.contains_key(&*before.claim.name()),
            "claim {} is there",
            before.claim.name()
        );
        Ok(())
    })
    .await?;
    scene.running("web", 2).await?;
    let after = scene.settled(1).await?;
    let after = after.first().context("one")?;
    let replacement = account.instance_of(after).await?;
    ensure!(replacement.id != instance.id);
    let instances = account.moto.instances().await?;
    ensure!(
        instances.len() == 1,
        "the old instance is terminated: {instances:?}"
    );
    wait_until("the message to be deleted", SOON, || async {
        let left = account
            .moto
            .queued_messages(&account.fixtures.queue_name)
            .await?;
        ensure!(left.is_empty(), "{left:?}");
        Ok(())
    })
    .await?;
    scene
        .event("SpotInterrupted", &before.claim.name(), "")
        .await?;
    scene
        .event("TerminatingOnInterruption", &before.claim.name(), "")
        .await?;

    // And to nothing: the class waits for its claims, instances, launch templates, the class itself.
    let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
    classes.delete("default", &DeleteParams::default()).await?;
    let waits_for = format!(
        "Waiting on NodeClaim termination for {}",
        after.claim.name()
    );
    scene
        .event("WaitingOnNodeClaimTermination", "default", &waits_for)
        .await?;
    ensure!(
        classes.get_opt("default").await?.is_some(),
        "its claim holds it"
    );
    scene.scale("web", 0).await?;
    scene.empty().await?;
    ensure!(account.moto.instances().await?.is_empty());
    wait_until("the class to be gone", SOON, || async {
        ensure!(
            classes.get_opt("default").await?.is_none(),
            "its finalizer holds it"
        );
        Ok(())
    })
    .await?;
    let left = account.moto.instance_profiles().await?;
    ensure!(left.is_empty(), "the class leaves {left:?}");
    drop(factory);
    scene.end().await;
    account.end().await
}

/// The class as the API server has it, when `what` holds for it.
async fn class_when(
    scene: &Scene,
    what: &str,
    holds: impl Fn(&Ec2NodeClass) -> bool,
) -> Result<Ec2NodeClass> {
    wait_until(what, SOON, || async {
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let class = classes.get("default").await?;
        ensure!(holds(&class), "{:?}", class.status);
        Ok(class)
    })
    .await
}

#[tokio::test]
async fn a_class_with_a_role_has_a_profile_of_its_own() -> Result<()> {
    let account = Account::open().await?;
    let moto = &account.moto;
    // EC2 does not know a new profile for a while, and the answer that one was made is lost.
    moto.set_profile_delay(5.0).await?;
    let lost = [
        Fault::lose_answer("CreateInstanceProfile"),
        Fault::lose_answer("AddRoleToInstanceProfile"),
    ];
    moto.set_faults(&lost).await?;
    let (scene, factory) = account.scene(&[]).await?;
    scene
        .apply(&[deployment("web", 1, ("700m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 1).await?;
    let node = scene.settled(1).await?;
    let node = node.first().context("one")?;
    let instance = account.instance_of(node).await?;

    // The instance has the profile of the status, and IAM has it as Karpenter would have made it.
    let made = class_when(&scene, "the profile", |class| {
        class.status.instance_profile.is_some()
    })
    .await?;
    let name = made.status.instance_profile.context("a profile")?;
    let uid = made.metadata.uid.context("a UID")?;
    ensure!(
        instance.instance_profile.as_ref() == Some(&name),
        "{instance:?}"
    );
    let profiles = moto.instance_profiles().await?;
    ensure!(profiles.len() == 1, "{profiles:?}");
    let profile = profiles.get(&name).context("it is in IAM")?;
    let path = format!("/karpenter/{}/{CLUSTER}/{uid}/", Moto::REGION);
    ensure!(profile.path == path, "{profile:?}");
    ensure!(
        profile.roles == [account.fixtures.role.clone()],
        "{profile:?}"
    );
    for (key, value) in [
        (&*format!("kubernetes.io/cluster/{CLUSTER}"), "owned"),
        ("eks:eks-cluster-name", CLUSTER),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("topology.kubernetes.io/region", Moto::REGION),
        ("story", "told"),
    ] {
        ensure!(
            profile.tags.get(key).is_some_and(|has| has == value),
            "{key}: {profile:?}"
        );
    }
    let annotations = node.claim.metadata.annotations.clone().unwrap_or_default();
    ensure!(annotations.get("karpenter.k8s.aws/instance-profile-name") == Some(&name));

    // A role that is not the installation's: the class is not ready, its status names what is there, and nothing is left behind.
    let mut wrong = class(&account.fixtures);
    wrong["spec"]["role"] = json!("no-such-role");
    scene.apply(&[wrong]).await?;
    class_when(&scene, "the class not to be ready", |class| {
        let ready = class
            .status
            .conditions
            .iter()
            .find(|each| each.type_ == "Ready");
        ready.is_some_and(|each| each.status.to_string() != "True")
            && class.status.instance_profile.as_ref() == Some(&name)
    })
    .await?;
    wait_until("the half-made profile to go", SOON, || async {
        let profiles = moto.instance_profiles().await?;
        ensure!(profiles.keys().eq([&name]), "{profiles:?}");
        Ok(())
    })
    .await?;
    let made = moto.calls("iam:CreateInstanceProfile").await?;
    ensure!(made <= 4, "{made} profiles for a role that does not exist");
    drop(factory);
    scene.end().await;
    // Instances get the role of the installation and no other.
    account
        .end_with_denials(&["iam:PassRole on arn:aws:iam::123456789012:role/no-such-role"])
        .await
}

/// The instance is told this cluster's CA and the address of its DNS service.
async fn joins_this_cluster(scene: &Scene, instance: &Instance) -> Result<()> {
    let data = instance.plain_user_data();
    let kubeconfig = kube::config::Kubeconfig::read_from(scene.plane.kubeconfig_path())?;
    let cluster = kubeconfig
        .clusters
        .into_iter()
        .next()
        .context("a cluster")?;
    let cluster = cluster.cluster.context("its address")?;
    let authority = match (
        cluster.certificate_authority_data,
        cluster.certificate_authority,
    ) {
        (Some(text), _) => text,
        (None, Some(file)) => {
            base64::engine::general_purpose::STANDARD.encode(std::fs::read(file)?)
        }
        (None, None) => anyhow::bail!("the kubeconfig has no CA"),
    };
    ensure!(data.contains(&authority), "no CA in {data}");
    let services: Api<Service> = Api::namespaced(scene.plane.client(), "kube-system");
    let dns = services.get("kube-dns").await?.spec.context("a spec")?;
    let address = dns.cluster_ip.context("an address")?;
    ensure!(data.contains(&address), "no {address} in {data}");
    Ok(())
}

/// The instance is what class, pool and claim say, and the node is the instance.
fn is_as_told(
    fixtures: &Fixtures,
    launched_node: &LaunchedNode,
    instance: &Instance,
) -> Result<()> {
    let tag = |key: &str| instance.tags.get(key).map(String::as_str);
    ensure!(
        tag("karpenter.sh/nodeclaim") == Some(&*launched_node.claim.name()),
        "{:?}",
        instance.tags
    );
    ensure!(
        tag("karpenter.sh/nodepool") == Some("default"),
        "{:?}",
        instance.tags
    );
    ensure!(tag("story") == Some("told"), "{:?}", instance.tags);
    ensure!(
        tag(&format!("kubernetes.io/cluster/{CLUSTER}")) == Some("owned"),
        "{:?}",
        instance.tags
    );
    ensure!(
        instance.capacity_type == "spot"
            && launched_node.label("karpenter.sh/capacity-type") == "spot"
    );
    ensure!(
        launched_node.instance_type() == instance.instance_type,
        "{} on {}",
        launched_node.instance_type(),
        instance.instance_type
    );
    ensure!(launched_node.label("topology.kubernetes.io/zone") == instance.zone);
    ensure!(
        instance.security_groups == [fixtures.security_group.clone()],
        "{:?}",
        instance.security_groups
    );
    ensure!(
        Some(&instance.image) == fixtures.images.get("amd64"),
        "{}",
        instance.image
    );
    ensure!(
        fixtures.subnets.get(&instance.zone) == Some(&instance.subnet),
        "{} in {}",
        instance.subnet,
        instance.zone
    );
    ensure!(
        instance
            .user_data
            .as_ref()
            .is_some_and(|data| !data.is_empty()),
        "user data"
    );
    Ok(())
}
