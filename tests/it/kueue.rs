//! Kueue itself starts a job when mortise says that there is room for all its pods.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{Authority, Launch, Port, Process, StateDir, kueue, wait_until};
use serde_json::{Value, json};

use crate::objects::{deployment, kwok_class, limited_pool};
use crate::scene::{Scene, Setting};

/// One such pod fits on a node.
const SIZE: (&str, &str) = ("1500m", "256Mi");
const SOON: Duration = Duration::from_secs(180);

/// Starts Kueue with certificates at the one place where it looks for those of its metrics, visible to itself alone.
const START: &str = "mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s \"$2\" /etc/kueue/metrics/certs \
    && exec \"$1\" --config=\"$3\" --feature-gates=VisibilityOnDemand=false";

/// The definitions that Kueue comes with.
fn definitions(root: &std::path::Path) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(root.join("crds"))? {
        let path = entry?.path();
        all.push(std::fs::read_to_string(&path).with_context(|| path.display().to_string())?);
    }
    Ok(all)
}

/// A cluster with a queue whose jobs need a ProvisioningRequest, and Kueue. Kueue's webhooks are not called: objects are given whole.
async fn with_kueue(folder: &StateDir, limit: &str) -> Result<(Scene, Process)> {
    let root = kueue().await?;
    let scene = Scene::start(Setting {
        manifests: definitions(&root)?,
        flags: vec!["--provisioning-requests".to_owned()],
        extender: true,
        ..Setting::default()
    })
    .await?;
    let authority = Authority::new("kueue")?;
    authority
        .server("kueue", &[])?
        .write(folder.path(), "tls")?;
    let port = Port::claim()?;
    let number = port.address();
    let number = number.rsplit(':').next().context("a port")?.to_owned();
    drop(port);
    let config = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "health": { "healthProbeBindAddress": "0" }, "metrics": { "bindAddress": "0" },
        "webhook": { "port": number.parse::<u16>()?, "certDir": folder.path() },
        "leaderElection": { "leaderElect": false },
        "internalCertManagement": { "enable": false },
        "integrations": { "frameworks": ["batch/job"] },
    });
    let path = folder.join("config.yaml");
    std::fs::write(&path, config.to_string())?;
    let [program, certificates, config] =
        [&root.join("bin/kueue"), folder.path(), &path].map(|path| path.display().to_string());
    let kubeconfig = scene.plane.kubeconfig_path().display().to_string();
    let process = Process::start(&Launch {
        name: "kueue".to_owned(),
        program: "unshare".into(),
        args: [
            "-rm",
            "sh",
            "-c",
            START,
            "sh",
            &program,
            &certificates,
            &config,
        ]
        .map(str::to_owned)
        .into(),
        env: vec![("KUBECONFIG".to_owned(), kubeconfig)],
        log: folder.join("kueue.log"),
        dir: None,
    })
    .await?;
    let of = |kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": { "name": name }, "spec": spec,
        })
    };
    let quota = |name: &str| json!({ "name": name, "nominalQuota": "100" });
    let memory = json!({ "name": "memory", "nominalQuota": "100Gi" });
    let class = "best-effort-atomic-scale-up.autoscaling.x-k8s.io";
    let parameters = json!({ "apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "room" });
    scene
        .apply(&[
            kwok_class(),
            limited_pool(&json!({ "nodes": limit })),
            of("ResourceFlavor", "any", json!({})),
            of("ProvisioningRequestConfig", "room", json!({ "provisioningClassName": class })),
            of(
                "AdmissionCheck",
                "room",
                json!({ "controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters }),
            ),
            of(
                "ClusterQueue",
                "all",
                json!({
                    "namespaceSelector": {},
                    "resourceGroups": [{
                        "coveredResources": ["cpu", "memory"],
                        "flavors": [{ "name": "any", "resources": [quota("cpu"), memory] }],
                    }],
                    "admissionChecksStrategy": { "admissionChecks": [{ "name": "room" }] },
                }),
            ),
            of("LocalQueue", "jobs", json!({ "clusterQueue": "all" })),
        ])
        .await?;
    Ok((scene, process))
}

/// A job of this number of pods that run together, in the queue.
fn job(name: &str, pods: usize) -> Value {
    let mut template =
        deployment(name, 1, SIZE, json!({ "restartPolicy": "Never" }))["spec"]["template"].take();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "labels": { "kueue.x-k8s.io/queue-name": "jobs" } },
        "spec": { "suspend": true, "parallelism": pods, "completions": pods, "template": template.take() },
    })
}

/// Waits until all pods of a job have nodes. Returns how many nodes these are.
async fn placed(scene: &Scene, name: &str, pods: usize) -> Result<usize> {
    wait_until(
        &format!("{pods} pods of {name} on nodes"),
        SOON,
        || async move {
            let all = scene.pods(name).await?;
            let nodes = all
                .iter()
                .filter_map(|pod| pod.spec.as_ref()?.node_name.as_deref());
            let nodes: Vec<&str> = nodes.collect();
            ensure!(nodes.len() == pods, "{} of {} pods", nodes.len(), all.len());
            Ok(std::collections::BTreeSet::from_iter(nodes).len())
        },
    )
    .await
}

#[tokio::test]
async fn kueue_starts_a_job_when_there_is_room_for_all_its_pods() -> Result<()> {
    let mut folder = StateDir::create("kueue")?;
    let (scene, kueue) = with_kueue(&folder, "3").await?;
    scene.apply(&[job("small", 3)]).await?;
    let nodes = placed(&scene, "small", 3).await?;
    ensure!(nodes == 3, "{nodes} nodes");
    scene.settled(3).await?;

    // There cannot be four more: none is launched, and the job does not start.
    scene.apply(&[job("large", 4)]).await?;
    wait_until("a request without capacity", SOON, || async {
        let args = ["get", "provisioningrequests", "-o", "json"];
        let requests = scene.plane.kubectl(&args).await?.ok()?;
        ensure!(requests.contains("CapacityIsNotFound"), "{requests}");
        Ok(())
    })
    .await?;
    scene.stays_at(3).await?;
    let pods = scene.pods("large").await?;
    ensure!(pods.is_empty(), "{} pods", pods.len());

    scene.limit("general", &json!({ "nodes": "7" })).await?;
    let nodes = placed(&scene, "large", 4).await?;
    ensure!(nodes == 4, "{nodes} nodes");
    scene.settled(7).await?;
    drop(kueue);
    scene.end().await;
    folder.discard();
    Ok(())
}
