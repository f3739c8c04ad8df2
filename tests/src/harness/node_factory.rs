//! Instances of the emulated AWS become nodes of a cluster, as kubelets and the cloud controller manager would have it.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, anyhow};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Error};
use serde_json::json;
use tokio::task::JoinHandle;

use super::control_plane::ControlPlane;
use super::http::Http;
use super::moto::Moto;
use super::moto_instance::{Instance, instances};
use super::progress;
use super::wait::wait_until;

/// How long a node's creation or deletion is tried, as long as the API server is away.
const TRIED_FOR: Duration = Duration::from_mins(2);

/// Registers a Node for every running instance, and deletes the Node of every instance that is gone; kwok makes the nodes
/// Ready. Ends when it is dropped or the emulator ends.
#[derive(Debug)]
pub struct NodeFactory {
    task: JoinHandle<()>,
}

impl NodeFactory {
    /// Starts with the instances that are there.
    #[must_use]
    pub fn start(moto: &Moto, plane: &ControlPlane) -> Self {
        let (http, control) = moto.control();
        let client = plane.client();
        let task = tokio::spawn(async move {
            if let Err(error) = follow(&http, &control, &client).await {
                progress(&format!("the node factory ended: {error:#}"));
            }
        });
        Self { task }
    }
}

impl Drop for NodeFactory {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(http: &Http, control: &str, client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let mut registered = BTreeSet::new();
    let mut generation = None;
    loop {
        // No answer: the emulator has ended, and its instances with it.
        let Ok(seen) = instances(http, control, generation).await else {
            return Ok(());
        };
        generation = Some(seen.generation);
        for instance in &seen.instances {
            let runs = instance.state == "running";
            if runs && registered.insert(instance.id.clone()) {
                register(&nodes, instance).await?;
            } else if !runs && registered.remove(&instance.id) {
                remove(&nodes, &instance.private_dns).await?;
            }
        }
    }
}

async fn register(nodes: &Api<Node>, instance: &Instance) -> Result<()> {
    let node = node(instance)?;
    wait_until(&format!("node of {}", instance.id), TRIED_FOR, || async {
        match nodes.create(&PostParams::default(), &node).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.is_already_exists() => Ok(()),
            Err(error) => Err(anyhow!(error)),
        }
    })
    .await
}

async fn remove(nodes: &Api<Node>, name: &str) -> Result<()> {
    wait_until(&format!("removal of node {name}"), TRIED_FOR, || async {
        match nodes.delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(anyhow!(error)),
        }
    })
    .await
}

/// The operating system of an image as kubelets name it, and what it calls itself.
fn system(image_name: &str) -> (&'static str, &'static str) {
    if image_name.starts_with("Windows") {
        ("windows", "Windows Server 2022 Datacenter")
    } else if image_name.starts_with("bottlerocket") {
        ("linux", "Bottlerocket OS 1.50.0 (aws-k8s)")
    } else {
        ("linux", "Amazon Linux 2023")
    }
}

/// What a kubelet on this instance would register.
fn node(instance: &Instance) -> Result<Node> {
    let architecture = if instance.architecture == "arm64" {
        "arm64"
    } else {
        "amd64"
    };
    let (system, system_name) = system(&instance.image_name);
    let name = &instance.private_dns;
    // The kubelet's reservations, roughly; a provider's estimate must be at most this.
    let allocatable_mib = instance.memory_mib * 85 / 100;
    let resources = |cpu: String, mib: u64| {
        let mut all = json!({ "cpu": cpu, "memory": format!("{mib}Mi"), "pods": "110", "ephemeral-storage": "20Gi" });
        if instance.gpus > 0 {
            // Of the device plugin, which is there at once.
            all["nvidia.com/gpu"] = json!(instance.gpus.to_string());
        }
        all
    };
    let mut labels = json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": architecture,
        "kubernetes.io/os": system,
        "node.kubernetes.io/instance-type": instance.instance_type,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": Moto::REGION,
        "kwok-partition": "a",
    });
    if system == "windows" {
        labels["node.kubernetes.io/windows-build"] = json!("10.0.20348");
    }
    Ok(serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": { "kwok.x-k8s.io/node": "fake" },
        },
        "spec": {
            "providerID": format!("aws:///{}/{}", instance.zone, instance.id),
            // User data makes the kubelet register with this; it comes off when the claim is registered.
            "taints": [{ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }],
        },
        "status": {
            "capacity": resources(instance.cpus.to_string(), instance.memory_mib),
            "allocatable": resources(format!("{}m", instance.cpus * 1000 - 80), allocatable_mib),
            "addresses": [
                { "type": "InternalIP", "address": instance.private_ip },
                { "type": "Hostname", "address": name },
            ],
            "nodeInfo": {
                "architecture": architecture, "operatingSystem": system, "kubeletVersion": super::recipe::KUBERNETES,
                "bootID": "", "machineID": "", "systemUUID": "", "kernelVersion": "", "osImage": system_name,
                "containerRuntimeVersion": "containerd://2.1", "kubeProxyVersion": "",
            },
        },
    }))?)
}
