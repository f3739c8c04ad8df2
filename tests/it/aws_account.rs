//! An account of the emulated AWS with a cluster of its own, where everything that the generated policy does not allow is denied.

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{ControlPlane, Fixtures, Instance, Mortise, Moto, NodeFactory};
use serde_json::{Value, json};

use crate::objects::{merged, never, pool};
use crate::scene::{LaunchedNode, Scene, Setting};

/// Name of the cluster in AWS.
pub(crate) const CLUSTER: &str = "story";
/// Number of the emulator's account.
const NUMBER: &str = "123456789012";

/// A class of what the account has.
pub(crate) fn class(fixtures: &Fixtures) -> Value {
    let discovery = json!([{ "tags": { "karpenter.sh/discovery": fixtures.cluster } }]);
    json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "default" },
        "spec": {
            "amiSelectorTerms": [{ "alias": "al2023@latest" }],
            "role": fixtures.role,
            "subnetSelectorTerms": discovery,
            "securityGroupSelectorTerms": discovery,
            "tags": { "story": "told" },
        },
    })
}

/// A NodePool of that class: spot instances of three types.
pub(crate) fn spot_pool() -> Value {
    let reference =
        json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default" });
    pool(
        "default",
        &[
            (
                "node.kubernetes.io/instance-type",
                "In",
                &["m5.large", "m5.xlarge", "c5.xlarge"],
            ),
            ("karpenter.sh/capacity-type", "In", &["spot"]),
            ("kubernetes.io/arch", "In", &["amd64"]),
        ],
        json!({ "template": { "spec": { "nodeClassRef": reference } } }),
    )
}

/// A NodePool of an EC2 class that keeps its nodes.
pub(crate) fn ec2_pool(name: &str, class: &str, requirements: &[(&str, &str, &[&str])]) -> Value {
    let reference = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class });
    let over = json!({ "template": { "spec": { "nodeClassRef": reference } } });
    pool(name, requirements, merged(never(), over))
}

/// The Service whose address nodes are told for DNS.
pub(crate) fn dns_service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "kube-dns", "namespace": "kube-system" },
        "spec": { "selector": { "k8s-app": "kube-dns" }, "ports": [{ "port": 53, "protocol": "UDP" }] },
    })
}

/// What a story on AWS consists of.
pub(crate) struct Account {
    pub(crate) moto: Moto,
    pub(crate) fixtures: Fixtures,
}

impl Account {
    /// An account whose controller has the generated policy, and no other rights.
    pub(crate) async fn open() -> Result<Self> {
        Self::of_cluster(CLUSTER, &[]).await
    }

    /// The same for a cluster of this name, with further flags of `mortise manifests iam`.
    pub(crate) async fn of_cluster(name: &str, flags: &[&str]) -> Result<Self> {
        let moto = Moto::start().await?;
        let fixtures = moto.fixtures(name).await?;
        moto.set_policy(&policies(&fixtures, flags).await?).await?;
        Ok(Self { moto, fixtures })
    }

    /// All went well: nothing was denied.
    pub(crate) async fn end(self) -> Result<()> {
        self.end_with_denials(&[]).await
    }

    /// All went well: what was denied is this, and nothing else; each text begins one or more denials.
    pub(crate) async fn end_with_denials(self, expected: &[&str]) -> Result<()> {
        let denied = self.moto.denials().await?.denied;
        let is_expected = |text: &String| expected.iter().any(|begin| text.starts_with(begin));
        ensure!(denied.iter().all(is_expected), "{denied:#?}");
        for begin in expected {
            let has_come = denied.iter().any(|text| text.starts_with(begin));
            ensure!(has_come, "no denial of {begin}");
        }
        self.moto.stop().await;
        Ok(())
    }

    /// mortise of this account, with the class and the pool, on a new control plane whose nodes are the account's instances.
    pub(crate) async fn scene(&self, env: &[(&str, &str)]) -> Result<(Scene, NodeFactory)> {
        self.scene_with(env, &[]).await
    }

    /// The same with further flags of mortise.
    pub(crate) async fn scene_with(
        &self,
        env: &[(&str, &str)],
        flags: &[&str],
    ) -> Result<(Scene, NodeFactory)> {
        let (scene, factory) = self.bare_scene(env, flags).await?;
        scene.apply(&[class(&self.fixtures), spot_pool()]).await?;
        Ok((scene, factory))
    }

    /// The same without class and pool.
    pub(crate) async fn bare_scene(
        &self,
        env: &[(&str, &str)],
        flags: &[&str],
    ) -> Result<(Scene, NodeFactory)> {
        let flags = flags.iter().map(|flag| (*flag).to_owned());
        let mut all = self.moto.env();
        all.extend(
            env.iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
        );
        let setting = Setting {
            provider: "aws",
            env: all,
            flags: [
                format!("--cluster-name={}", self.fixtures.cluster),
                format!("--aws-region={}", Moto::REGION),
                format!("--aws-endpoint-url={}", self.moto.endpoint()),
                format!("--interruption-queue={}", self.fixtures.queue_name),
            ]
            .into_iter()
            .chain(flags)
            .collect(),
            manifests: vec![dns_service().to_string()],
            ..Setting::default()
        };
        let scene = Scene::start(setting).await?;
        let factory = self.factory(&scene.plane);
        Ok((scene, factory))
    }

    fn factory(&self, plane: &ControlPlane) -> NodeFactory {
        NodeFactory::start(&self.moto, plane)
    }

    /// The instance of a node.
    pub(crate) async fn instance_of(&self, launched_node: &LaunchedNode) -> Result<Instance> {
        let id = launched_node
            .claim
            .status
            .provider_id
            .clone()
            .context("an id")?;
        let instances = self.moto.instances().await?;
        let found = instances
            .into_iter()
            .find(|instance| id.ends_with(&format!("/{}", instance.id)));
        found.with_context(|| format!("{id} is no instance that runs"))
    }
}

/// The policies of the controller for the emulated account.
async fn policies(fixtures: &Fixtures, flags: &[&str]) -> Result<Vec<Value>> {
    let of_account = [
        format!("--account={NUMBER}"),
        format!("--region={}", Moto::REGION),
        format!("--cluster-name={}", fixtures.cluster),
        format!("--node-role={}", fixtures.role),
        format!("--interruption-queue={}", fixtures.queue_name),
    ];
    let of_account: Vec<&str> = of_account.iter().map(String::as_str).collect();
    let args = [&["manifests", "iam", "--format=json"], &*of_account, flags].concat();
    let written = Mortise::output(&args).await?;
    let written: Value = serde_json::from_str(&written)?;
    let policies = written["controllerRole"]["policies"].as_array();
    let documents = policies.context("policies")?.iter();
    Ok(documents.map(|each| each["document"].clone()).collect())
}
