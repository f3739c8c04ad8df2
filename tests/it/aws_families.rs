//! Image families and devices: nodes with GPUs, Bottlerocket and Windows each get their image, the form of user data that it reads, and
//! labels that say so.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::aws_account::{Account, class, ec2_pool};
use crate::objects::{ON_DEMAND, deployment, merged, types};
use crate::scene::LaunchedNode;

/// A family of images, and what its instances must have.
struct Family {
    /// Of class, pool, pods, and the image of the account.
    name: &'static str,
    alias: &'static str,
    instance_type: &'static str,
    system: &'static str,
    /// The pod's container requests this besides CPU.
    device: Option<&'static str>,
    /// Parts of the user data.
    user_data: &'static [&'static str],
    devices: &'static [&'static str],
    /// Labels of claim and node.
    labels: &'static [(&'static str, &'static str)],
}

const FAMILIES: [Family; 3] = [
    Family {
        name: "nvidia",
        alias: "al2023@latest",
        instance_type: "g4dn.xlarge",
        system: "linux",
        device: Some("nvidia.com/gpu"),
        user_data: &[
            "MIME-Version: 1.0",
            "application/node.eks.aws",
            "kind: NodeConfig",
        ],
        devices: &["/dev/xvda"],
        labels: &[
            ("karpenter.k8s.aws/instance-gpu-name", "t4"),
            ("karpenter.k8s.aws/instance-gpu-count", "1"),
            ("karpenter.k8s.aws/instance-gpu-manufacturer", "nvidia"),
        ],
    },
    Family {
        name: "bottlerocket",
        alias: "bottlerocket@latest",
        instance_type: "m5.large",
        system: "linux",
        device: None,
        user_data: &["[settings.kubernetes]", "cluster-name = ", "api-server = "],
        devices: &["/dev/xvda", "/dev/xvdb"],
        labels: &[("kubernetes.io/os", "linux")],
    },
    Family {
        name: "windows2022",
        alias: "windows2022@latest",
        instance_type: "m5.xlarge",
        system: "windows",
        device: None,
        user_data: &[
            "<powershell>",
            "Start-EKSBootstrap.ps1",
            "-EKSClusterName",
            "</powershell>",
        ],
        devices: &["/dev/sda1"],
        labels: &[
            ("kubernetes.io/os", "windows"),
            ("node.kubernetes.io/windows-build", "10.0.20348"),
        ],
    },
];

impl Family {
    /// Class, pool and a pod of this family.
    fn objects(&self, account: &Account) -> [Value; 3] {
        let over = json!({
            "metadata": { "name": self.name },
            "spec": { "amiSelectorTerms": [{ "alias": self.alias }] },
        });
        let class = merged(class(&account.fixtures), over);
        let instance_types = [self.instance_type];
        let systems = [self.system];
        let requirements = [
            types(&instance_types),
            ("kubernetes.io/os", "In", &systems[..]),
            ON_DEMAND,
        ];
        let pool = ec2_pool(self.name, self.name, &requirements);
        let mut pods = deployment(
            self.name,
            1,
            ("1", "1Gi"),
            json!({ "nodeSelector": { "karpenter.sh/nodepool": self.name, "kubernetes.io/os": self.system } }),
        );
        if let Some(device) = self.device {
            let container = &mut pods["spec"]["template"]["spec"]["containers"][0];
            container["resources"]["limits"] = json!({ device: "1" });
        }
        [class, pool, pods]
    }

    async fn check(&self, account: &Account, launched_node: &LaunchedNode) -> Result<()> {
        let name = self.name;
        let instance = account.instance_of(launched_node).await?;
        let image = account.fixtures.images.get(name).context("an image")?;
        ensure!(instance.image == *image, "{name}: {instance:?}");
        ensure!(
            launched_node.claim.status.image_id.as_ref() == Some(image),
            "{name}: {:?}",
            launched_node.claim.status
        );
        ensure!(
            instance.instance_type == self.instance_type,
            "{name}: {instance:?}"
        );
        ensure!(instance.devices == self.devices, "{name}: {instance:?}");
        let user_data = instance.plain_user_data();
        for part in self.user_data {
            ensure!(user_data.contains(part), "{name}: no {part} in {user_data}");
        }
        for (key, value) in self.labels {
            ensure!(
                launched_node.claim.label(key) == Some(value) && launched_node.label(key) == *value,
                "{name}: {key}: {:?} {:?}",
                launched_node.claim.label(key),
                launched_node.label(key)
            );
        }
        if let Some(device) = self.device {
            let all = serde_json::to_value(&launched_node.claim.status.allocatable)?;
            ensure!(all[device] == "1", "{name}: {all}");
        }
        Ok(())
    }
}

#[tokio::test]
async fn each_family_launches_with_its_image_and_user_data() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.bare_scene(&[], &[]).await?;
    for family in &FAMILIES {
        scene.apply(&family.objects(&account)).await?;
    }
    for family in &FAMILIES {
        scene.running(family.name, 1).await?;
    }
    for launched_node in scene.settled(FAMILIES.len()).await? {
        let pool = launched_node.label("karpenter.sh/nodepool").to_owned();
        let family = FAMILIES.iter().find(|family| family.name == pool);
        let family = family.with_context(|| format!("a node of pool {pool}"))?;
        family.check(&account, &launched_node).await?;
    }
    drop(factory);
    scene.end().await;
    account.end().await
}
