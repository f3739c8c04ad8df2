//! From Karpenter to mortise and back on EC2: what Karpenter 1.14 leaves is taken over as it is, and what mortise leaves is Karpenter's.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use mortise_apis::NodeClaim;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_tests::harness::{Caller, Instance, Moto, NodeFactory, wait_until};
use serde_json::{Value, json};

use crate::aws_account::{Account, CLUSTER, class, spot_pool};
use crate::crash_matrix::forget_lease;
use crate::objects::{deployment, merged};
use crate::scene::{LaunchedNode, SOON, Scene};

const ZONE: &str = "us-east-1a";
const CLAIM: &str = "default-7xk2p";
/// Names as Karpenter makes them, with hashes that mortise would not come to.
const TEMPLATE: &str = "karpenter.k8s.aws/4205648375029341781";
const PROFILE: &str = "story_11111111111111111111";
/// Karpenter's finalizers. Objects with another one would never go.
const FINALIZERS: [&str; 2] = ["karpenter.sh/termination", "karpenter.k8s.aws/termination"];

/// What Karpenter 1.14 tags everything with that it makes for a launch.
fn owned_tags() -> Vec<(String, String)> {
    [
        (&*format!("kubernetes.io/cluster/{CLUSTER}"), "owned"),
        ("karpenter.sh/nodepool", "default"),
        ("eks:eks-cluster-name", CLUSTER),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("story", "told"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .to_vec()
}

/// Parameters of a query API: `{prefix}.1.Key`, `{prefix}.1.Value`, and so on.
fn tag_parameters(prefix: &str, tags: &[(String, String)]) -> Vec<(String, String)> {
    let numbered = tags.iter().enumerate();
    numbered
        .flat_map(|(index, (key, value))| {
            let number = index + 1;
            [
                (format!("{prefix}.{number}.Key"), key.clone()),
                (format!("{prefix}.{number}.Value"), value.clone()),
            ]
        })
        .collect()
}

async fn as_owner(
    moto: &Moto,
    service: &str,
    fixed: &[(&str, &str)],
    tags: &[(String, String)],
) -> Result<String> {
    let tags = tags
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()));
    let all: Vec<(&str, &str)> = fixed.iter().copied().chain(tags).collect();
    moto.query(Caller::Owner, service, &all).await
}

/// The profile of a class.
async fn make_profile(account: &Account, uid: &str) -> Result<()> {
    let name = ("InstanceProfileName", PROFILE);
    let path = format!("/karpenter/{}/{CLUSTER}/{uid}/", Moto::REGION);
    let mut tags = owned_tags();
    tags.retain(|(key, _)| key != "karpenter.sh/nodepool");
    tags.push((
        "topology.kubernetes.io/region".to_owned(),
        Moto::REGION.to_owned(),
    ));
    let create = [("Action", "CreateInstanceProfile"), name, ("Path", &*path)];
    let tags = tag_parameters("Tags.member", &tags);
    as_owner(&account.moto, "iam", &create, &tags).await?;
    let role = ("RoleName", account.fixtures.role.as_str());
    let add = [("Action", "AddRoleToInstanceProfile"), name, role];
    as_owner(&account.moto, "iam", &add, &[]).await?;
    account.moto.set_profile_delay(0.0).await
}

/// The template of a launch, and the launch.
async fn launch(account: &Account) -> Result<Instance> {
    let (moto, fixtures) = (&account.moto, &account.fixtures);
    let image = fixtures.images.get("amd64").context("an image")?;
    let group = fixtures.security_group.as_str();
    let create = [
        ("Action", "CreateLaunchTemplate"),
        ("LaunchTemplateName", TEMPLATE),
        ("LaunchTemplateData.ImageId", image),
        (
            "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1",
            group,
        ),
        ("LaunchTemplateData.SecurityGroupId.1", group),
        ("LaunchTemplateData.IamInstanceProfile.Name", PROFILE),
        ("TagSpecification.1.ResourceType", "launch-template"),
    ];
    let tags = tag_parameters("TagSpecification.1.Tag", &owned_tags());
    as_owner(moto, "ec2", &create, &tags).await?;
    let subnet = fixtures.subnets.get(ZONE).context("a subnet")?;
    let config = "LaunchTemplateConfigs.1.LaunchTemplateSpecification";
    let (name, version) = (
        format!("{config}.LaunchTemplateName"),
        format!("{config}.Version"),
    );
    let fleet = [
        ("Action", "CreateFleet"),
        ("Type", "instant"),
        (&*name, TEMPLATE),
        (&*version, "$Latest"),
        (
            "LaunchTemplateConfigs.1.Overrides.1.InstanceType",
            "m5.large",
        ),
        ("LaunchTemplateConfigs.1.Overrides.1.SubnetId", subnet),
        ("TargetCapacitySpecification.TotalTargetCapacity", "1"),
        (
            "TargetCapacitySpecification.DefaultTargetCapacityType",
            "spot",
        ),
        ("TagSpecification.1.ResourceType", "instance"),
    ];
    let mut tags = owned_tags();
    tags.push(("karpenter.sh/nodeclaim".to_owned(), CLAIM.to_owned()));
    as_owner(
        moto,
        "ec2",
        &fleet,
        &tag_parameters("TagSpecification.1.Tag", &tags),
    )
    .await?;
    moto.instances().await?.pop().context("an instance")
}

fn condition(type_: &str) -> Value {
    json!({
        "type": type_, "status": "True", "reason": type_, "message": "", "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}

/// Labels that Karpenter gives claim and node.
fn labels() -> Value {
    json!({
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "m5.large",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": Moto::REGION,
        "topology.kubernetes.io/zone": ZONE,
        "karpenter.k8s.aws/instance-family": "m5",
        "karpenter.k8s.aws/instance-size": "large",
    })
}

/// Class, profile, template, instance, claim and node as Karpenter leaves them. `pool` is there already.
async fn as_karpenter_leaves_it(account: &Account, scene: &Scene) -> Result<Instance> {
    let client = scene.plane.client();
    let class_of_karpenter = json!({ "metadata": {
        "finalizers": ["karpenter.k8s.aws/termination"],
        "annotations": {
            "karpenter.k8s.aws/ec2nodeclass-hash": "1234567890",
            "karpenter.k8s.aws/ec2nodeclass-hash-version": "v5",
        },
    } });
    scene
        .apply(&[merged(class(&account.fixtures), class_of_karpenter)])
        .await?;
    let classes: Api<Ec2NodeClass> = Api::all(client.clone());
    let uid = classes.get("default").await?.uid().context("a UID")?;
    make_profile(account, &uid).await?;
    let types = [
        "AMIsReady",
        "SubnetsReady",
        "SecurityGroupsReady",
        "InstanceProfileReady",
        "ValidationSucceeded",
        "Ready",
    ];
    let status =
        json!({ "status": { "instanceProfile": PROFILE, "conditions": types.map(condition) } });
    classes
        .patch_status("default", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let instance = launch(account).await?;

    let pool = scene.pool("default").await?;
    let hash = pool.annotations().get("karpenter.sh/nodepool-hash");
    let reference =
        json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" });
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": CLAIM, "labels": labels(), "finalizers": ["karpenter.sh/termination"],
            "annotations": {
                "karpenter.k8s.aws/ec2nodeclass-hash": "1234567890",
                "karpenter.k8s.aws/ec2nodeclass-hash-version": "v5",
                "karpenter.k8s.aws/instance-profile-name": PROFILE,
                "karpenter.k8s.aws/tagged": "true",
                "compatibility.karpenter.k8s.aws/cluster-name-tagged": "true",
                "karpenter.sh/nodepool-hash": hash,
                "karpenter.sh/nodepool-hash-version": "v3",
            },
            "ownerReferences": [{
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": pool.uid(), "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "nodeClassRef": reference, "expireAfter": "Never",
            "requirements": [{ "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"] }],
            "resources": { "requests": { "cpu": "1400m", "memory": "2Gi", "pods": "2" } },
        },
    });
    scene.apply(&[claim]).await?;
    let types = ["Launched", "Registered", "Initialized", "Ready"];
    let status = json!({ "status": {
        "providerID": format!("aws:///{ZONE}/{}", instance.id), "imageID": instance.image, "nodeName": instance.private_dns,
        "capacity": { "cpu": "2", "memory": "7577Mi", "pods": "29" },
        "allocatable": { "cpu": "1930m", "memory": "6903Mi", "pods": "29" },
        "conditions": types.map(condition),
    } });
    let claims: Api<NodeClaim> = Api::all(client);
    claims
        .patch_status(CLAIM, &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    register(scene, &instance).await?;
    Ok(instance)
}

/// The node as Karpenter has registered it.
async fn register(scene: &Scene, instance: &Instance) -> Result<()> {
    let nodes: Api<Node> = Api::all(scene.plane.client());
    let mut all = labels();
    all["karpenter.sh/registered"] = json!("true");
    all["karpenter.sh/initialized"] = json!("true");
    let patch = json!({
        "metadata": { "labels": all, "finalizers": ["karpenter.sh/termination"] },
        "spec": { "taints": [] },
    });
    wait_until("the node of Karpenter's instance", SOON, || async {
        let params = PatchParams::default();
        nodes
            .patch(&instance.private_dns, &params, &Patch::Merge(&patch))
            .await?;
        Ok(())
    })
    .await
}

/// Nothing on an object holds or directs it that Karpenter does not know.
fn is_understood<K: Resource>(object: &K) -> Result<()> {
    let name = object.name_any();
    let meta = object.meta();
    let finalizers = meta.finalizers.iter().flatten();
    let strange = finalizers.filter(|each| !FINALIZERS.contains(&each.as_str()));
    ensure!(strange.count() == 0, "{name}: {:?}", meta.finalizers);
    let labels = meta.labels.iter().flatten();
    let strange = labels.filter(|(key, _)| key.contains("mortise.sh"));
    ensure!(strange.count() == 0, "{name}: {:?}", meta.labels);
    Ok(())
}

/// Everything that Karpenter looks at when it finds a claim and its instance.
fn can_go_on_with(node: &LaunchedNode, instance: &Instance) -> Result<()> {
    let claim = &node.claim;
    for annotation in [
        "karpenter.k8s.aws/ec2nodeclass-hash",
        "karpenter.k8s.aws/ec2nodeclass-hash-version",
        "karpenter.k8s.aws/instance-profile-name",
        "karpenter.sh/nodepool-hash",
        "karpenter.sh/nodepool-hash-version",
    ] {
        let has = claim.annotation(annotation).is_some();
        ensure!(has, "{}: no {annotation}", claim.name());
    }
    let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
    ensure!(finalizers == [FINALIZERS[0]], "{finalizers:?}");
    for (key, value) in owned_tags() {
        ensure!(
            instance.tags.get(&key) == Some(&value),
            "{key}: {:?}",
            instance.tags
        );
    }
    let tag = instance.tags.get("karpenter.sh/nodeclaim");
    ensure!(tag.map(String::as_str) == Some(&*claim.name()), "{tag:?}");
    let strange = claim.status.conditions.iter().find(|each| {
        let known = [
            "Launched",
            "Registered",
            "Initialized",
            "Ready",
            "Consolidatable",
            "ConsistentStateFound",
        ];
        !known.contains(&each.type_.as_str())
    });
    ensure!(strange.is_none(), "{strange:?}");
    let taints = node.node.spec.as_ref().and_then(|spec| spec.taints.clone());
    ensure!(
        taints.unwrap_or_default().is_empty(),
        "{:?}",
        node.node.spec
    );
    is_understood(claim)?;
    is_understood(&node.node)
}

/// mortise as Karpenter's successor: it has hashed the pool as Karpenter does, and has seen nothing else.
async fn begun(account: &Account) -> Result<(Scene, NodeFactory)> {
    let (mut scene, factory) = account.bare_scene(&[], &[]).await?;
    scene.apply(&[spot_pool()]).await?;
    wait_until("the hash of the pool", SOON, || async {
        let pool = scene.pool("default").await?;
        let hash = pool.annotations().get("karpenter.sh/nodepool-hash");
        ensure!(hash.is_some(), "{:?}", pool.annotations());
        Ok(())
    })
    .await?;
    scene.mortise.kill9().await;
    Ok((scene, factory))
}

#[tokio::test]
async fn a_cluster_of_karpenter_is_taken_over_and_left_to_it_again() -> Result<()> {
    let account = Account::open().await?;
    let (mut scene, factory) = begun(&account).await?;
    let instance = as_karpenter_leaves_it(&account, &scene).await?;
    scene
        .apply(&[deployment("web", 2, ("700m", "1Gi"), json!({}))])
        .await?;
    scene.running("web", 2).await?;

    forget_lease(&scene).await?;
    scene.mortise.start_again(&[]).await?;
    scene.mortise.wait_ready().await?;
    // The third pod needs another node: what was there has been judged when that is up.
    scene.scale("web", 3).await?;
    scene.running("web", 3).await?;
    let nodes = scene.settled(2).await?;
    let adopted = nodes.iter().find(|node| &*node.claim.name() == CLAIM);
    let adopted = adopted.context("Karpenter's claim")?;
    ensure!(account.instance_of(adopted).await?.id == instance.id);
    ensure!(
        account.moto.launched_instances().await?.len() == 2,
        "nothing was launched again"
    );
    let profiles = account.moto.instance_profiles().await?;
    ensure!(profiles.keys().eq([PROFILE]), "{profiles:?}");
    let templates = account.moto.launch_templates().await?;
    ensure!(templates.contains_key(TEMPLATE), "{templates:?}");
    wait_until("the claim to have the hash of the class", SOON, || async {
        let claims: Api<NodeClaim> = Api::all(scene.plane.client());
        let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
        let key = "karpenter.k8s.aws/ec2nodeclass-hash";
        let (claim, class) = (claims.get(CLAIM).await?, classes.get("default").await?);
        let hashes = (claim.annotations().get(key), class.annotations().get(key));
        ensure!(hashes.0.is_some() && hashes.0 == hashes.1, "{hashes:?}");
        ensure!(!claim.is_true("Drifted"), "{:?}", claim.status.conditions);
        Ok(())
    })
    .await?;

    // And back: mortise ends, and everything is as Karpenter would have made it.
    let code = scene.mortise.terminate().await;
    ensure!(code == 0, "ended with {code}");
    for node in scene.settled(2).await? {
        let instance = account.instance_of(&node).await?;
        ensure!(instance.instance_profile.as_deref() == Some(PROFILE));
        can_go_on_with(&node, &instance)?;
    }
    let classes: Api<Ec2NodeClass> = Api::all(scene.plane.client());
    is_understood(&classes.get("default").await?)?;
    is_understood(&scene.pool("default").await?)?;
    for (name, tags) in account.moto.launch_templates().await? {
        ensure!(name.starts_with("karpenter.k8s.aws/"), "{name}");
        for (key, value) in owned_tags() {
            // The template of the class's own check is for no pool.
            let is_free = key == "karpenter.sh/nodepool";
            ensure!(
                is_free || tags.get(&key) == Some(&value),
                "{name}: {tags:?}"
            );
        }
    }
    drop(factory);
    scene.end().await;
    account.end().await
}
