//! The life of nodes from one table, on kwok and on EC2: provisioned, drifted, expired, static, repaired, consolidated, terminated.
//! Each row has a pool and pods of its own, and all rows run at once in one cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::{NodeClaim, NodePool};
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::aws_account::{Account, class, ec2_pool};
use crate::objects::{ON_DEMAND, deployment, kwok_class, merged, never, pool, types};
use crate::scene::{LaunchedNode, SOON, Scene, label, pairs};

/// Where the table is run.
struct Cloud {
    /// A pool of this name with these two instance types, which consolidates nothing.
    pool: fn(&str, [&'static str; 2]) -> Value,
    small: &'static str,
    /// Twice as large, at twice the price.
    large: &'static str,
}

const EC2: Cloud = Cloud {
    pool: |name, of_types| ec2_pool(name, "default", &[types(&of_types), ON_DEMAND]),
    small: "m5.large",
    large: "m5.xlarge",
};
const KWOK: Cloud = Cloud {
    pool: |name, of_types| pool(name, &[types(&of_types), ON_DEMAND], never()),
    small: "c-2x-amd64-linux",
    large: "c-4x-amd64-linux",
};

/// What is done to a pool that has its nodes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Nothing,
    /// The labels of the pool's template change.
    EditTemplate,
    /// The pool has this number of nodes.
    SetReplicas(i64),
    /// The kubelet says that the node is not ready.
    MakeUnhealthy,
    /// The pods become this many.
    ScalePods(usize),
    DeleteClaim,
}

/// What the pool's nodes are afterwards.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// Those that were there, and no others.
    Kept,
    /// As many, but others.
    Replaced,
    /// This many of those that were there.
    Left(usize),
    /// One of the small type.
    OneSmall,
}

struct Scenario {
    /// Of pool and pods.
    name: &'static str,
    /// Merged into the pool.
    pool: fn() -> Value,
    pods: usize,
    /// CPU of each pod.
    cpu: &'static str,
    /// Nodes before the act.
    nodes: usize,
    act: Act,
    expected: Expected,
}

fn unchanged() -> Value {
    json!({})
}

const SCENARIOS: [Scenario; 7] = [
    Scenario {
        name: "provisioned",
        pool: unchanged,
        pods: 2,
        cpu: "1500m",
        // One large node costs as much as two small ones, and is one node less.
        nodes: 1,
        act: Act::Nothing,
        expected: Expected::Kept,
    },
    Scenario {
        name: "drifted",
        pool: unchanged,
        pods: 1,
        cpu: "1",
        nodes: 1,
        act: Act::EditTemplate,
        expected: Expected::Replaced,
    },
    Scenario {
        name: "expired",
        pool: || json!({ "spec": { "template": { "spec": { "expireAfter": "40s" } } } }),
        pods: 1,
        cpu: "1",
        nodes: 1,
        act: Act::Nothing,
        expected: Expected::Replaced,
    },
    Scenario {
        name: "static",
        pool: || json!({ "spec": { "replicas": 2 } }),
        pods: 0,
        cpu: "1",
        nodes: 2,
        act: Act::SetReplicas(1),
        expected: Expected::Left(1),
    },
    Scenario {
        name: "repaired",
        pool: || {
            json!({ "metadata": { "annotations": {
                "mortise.sh/repair-toleration-duration": "1s", "mortise.sh/repair-max-unhealthy": "100%",
            } } })
        },
        pods: 1,
        cpu: "1",
        nodes: 1,
        act: Act::MakeUnhealthy,
        expected: Expected::Replaced,
    },
    Scenario {
        name: "consolidated",
        pool: || json!({ "spec": { "disruption": { "consolidateAfter": "0s" } } }),
        pods: 2,
        cpu: "1500m",
        nodes: 1,
        act: Act::ScalePods(1),
        expected: Expected::OneSmall,
    },
    Scenario {
        name: "terminated",
        pool: unchanged,
        pods: 1,
        cpu: "1",
        nodes: 1,
        act: Act::DeleteClaim,
        expected: Expected::Replaced,
    },
];

impl Scenario {
    fn pool(&self, cloud: &Cloud) -> Value {
        let pool = (cloud.pool)(self.name, [cloud.small, cloud.large]);
        merged(pool, (self.pool)())
    }

    /// Its pods, all of them, before there is a pool for them: when one comes later than the others, it gets a node of its own.
    async fn create_pods(&self, scene: &Scene) -> Result<()> {
        let selector = json!({ "nodeSelector": { "karpenter.sh/nodepool": self.name } });
        let pods = deployment(self.name, self.pods, (self.cpu, "1Gi"), selector);
        scene.apply(&[pods]).await?;
        let what = format!("{} pods of {}", self.pods, self.name);
        wait_until(&what, SOON, || async {
            let pods = scene.pods(self.name).await?;
            let refused = |pod: &Pod| {
                let status = pod.status.as_ref();
                let mut conditions = status
                    .into_iter()
                    .flat_map(|it| it.conditions.iter().flatten());
                conditions.any(|it| it.reason.as_deref() == Some("Unschedulable"))
            };
            let count = pods.iter().filter(|pod| refused(pod)).count();
            ensure!(count == self.pods, "{count} wait for a node");
            Ok(())
        })
        .await
    }

    /// The nodes of its pool, when all of them are up.
    async fn nodes(&self, scene: &Scene) -> Result<Vec<LaunchedNode>> {
        let (mut claims, mut nodes) = (scene.claims().await?, scene.nodes().await?);
        claims.retain(|_, claim| claim.pool().as_deref() == Some(self.name));
        nodes.retain(|_, node| label(node, "karpenter.sh/nodepool") == self.name);
        ensure!(
            claims.len() == nodes.len(),
            "{}: {:?} {:?}",
            self.name,
            claims.keys(),
            nodes.keys()
        );
        pairs(claims, nodes)
    }

    /// Waits for the nodes that it begins with.
    async fn begin(&self, scene: &Scene) -> Result<Vec<LaunchedNode>> {
        scene.running(self.name, self.pods).await?;
        let what = format!("{} nodes of {}", self.nodes, self.name);
        wait_until(&what, SOON, || async {
            let nodes = self.nodes(scene).await?;
            ensure!(nodes.len() == self.nodes, "{} nodes", nodes.len());
            Ok(nodes)
        })
        .await
    }

    async fn act(&self, scene: &Scene, before: &[LaunchedNode]) -> Result<()> {
        let client = scene.plane.client();
        let pools: Api<NodePool> = Api::all(client.clone());
        let params = PatchParams::default();
        let first = before.first().context("a node")?;
        match self.act {
            Act::Nothing => {}
            Act::EditTemplate => {
                let labels = json!({ "spec": { "template": { "metadata": { "labels": { "edited": "true" } } } } });
                pools
                    .patch(self.name, &params, &Patch::Merge(&labels))
                    .await?;
            }
            Act::SetReplicas(count) => {
                let replicas = json!({ "spec": { "replicas": count } });
                pools
                    .patch(self.name, &params, &Patch::Merge(&replicas))
                    .await?;
            }
            Act::MakeUnhealthy => {
                let nodes: Api<Node> = Api::all(client);
                let stage =
                    json!({ "metadata": { "labels": { "kwok.x-k8s.io/stage": "unhealthy" } } });
                nodes
                    .patch(first.node_name(), &params, &Patch::Merge(&stage))
                    .await?;
            }
            Act::ScalePods(count) => scene.scale(self.name, count).await?,
            Act::DeleteClaim => {
                let claims: Api<NodeClaim> = Api::all(client);
                claims
                    .delete(&first.claim.name(), &DeleteParams::default())
                    .await?;
            }
        }
        Ok(())
    }

    /// Waits until its nodes are as expected, and its pods run.
    async fn end(
        &self,
        scene: &Scene,
        cloud: &Cloud,
        before: &[LaunchedNode],
    ) -> Result<Vec<LaunchedNode>> {
        let names = |nodes: &[LaunchedNode]| -> BTreeSet<String> {
            let all = nodes.iter();
            all.map(|node| node.claim.name().to_string()).collect()
        };
        let before = names(before);
        let what = format!("{}: {:?}", self.name, self.expected);
        let nodes = wait_until(&what, SOON, || async {
            let nodes = self.nodes(scene).await?;
            let now = names(&nodes);
            let holds = match self.expected {
                Expected::Kept => now == before,
                Expected::Replaced => now.len() == before.len() && now.is_disjoint(&before),
                Expected::Left(count) => now.len() == count && now.is_subset(&before),
                Expected::OneSmall => {
                    let mut nodes = nodes.iter();
                    now.len() == 1 && nodes.all(|node| node.instance_type() == cloud.small)
                }
            };
            ensure!(holds, "{now:?}");
            Ok(nodes)
        })
        .await?;
        let pods = match self.act {
            Act::ScalePods(count) => count,
            _ => self.pods,
        };
        scene.running(self.name, pods).await?;
        Ok(nodes)
    }
}

/// Runs the whole table. Returns how many nodes there are in the end.
async fn run(scene: &Scene, cloud: &Cloud, class: Value) -> Result<usize> {
    scene.apply(&[class]).await?;
    for scenario in &SCENARIOS {
        scenario.create_pods(scene).await?;
    }
    for scenario in &SCENARIOS {
        scene.apply(&[scenario.pool(cloud)]).await?;
    }
    let mut before = Vec::new();
    for scenario in &SCENARIOS {
        before.push(scenario.begin(scene).await?);
    }
    for (scenario, nodes) in SCENARIOS.iter().zip(&before) {
        scenario.act(scene, nodes).await?;
    }
    let mut count = 0;
    for (scenario, nodes) in SCENARIOS.iter().zip(&before) {
        count += scenario.end(scene, cloud, nodes).await?.len();
    }
    Ok(count)
}

const GATES: &str = "--feature-gates=StaticCapacity=true,NodeRepair=true";

#[tokio::test]
async fn each_scenario_of_the_table_ends_as_it_should_on_kwok() -> Result<()> {
    let scene = Scene::with(&[GATES]).await?;
    let expected = run(&scene, &KWOK, kwok_class()).await?;
    scene.settled(expected).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn each_scenario_of_the_table_ends_as_it_should_on_ec2() -> Result<()> {
    let account = Account::open().await?;
    let (scene, factory) = account.bare_scene(&[], &[GATES]).await?;
    let expected = run(&scene, &EC2, class(&account.fixtures)).await?;
    // And on the side of EC2: an instance for each node, and no others.
    wait_until("an instance for each node", SOON, || async {
        let running = account.moto.instances().await?.len();
        ensure!(running == expected, "{running} of {expected}");
        Ok(())
    })
    .await?;
    drop(factory);
    scene.end().await;
    account.end().await
}
