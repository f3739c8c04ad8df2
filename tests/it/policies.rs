//! NodePoolPolicies on a real control plane: limits on the price and on new nodes hold, the pods that wait say why, a share of the nodes
//! is on-demand, drift waits for the pods on new nodes, and what contradicts the cluster is said when it is applied.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use mortise_apis::NodePool;
use mortise_apis::node_pool_policy::Month;
use mortise_apis::values::since;
use mortise_tests::harness::wait_until;
use serde_json::{Value, json};

use crate::admission::{asked, kubectl, warnings};
use crate::command;
use crate::objects::{ON_DEMAND, deployment, kwok_class, never, pool, small_pool, types};
use crate::scene::{LaunchedNode, SOON, Scene, label, on_node, runs};

fn policy(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "mortise.sh/v1alpha1", "kind": "NodePoolPolicy", "metadata": { "name": name }, "spec": spec })
}

/// What `mortise explain pod` prints about the pending pod of this workload.
async fn explained(scene: &Scene, app: &str) -> Result<String> {
    let pods = scene.pods(app).await?;
    let pending = pods.iter().find(|pod| on_node(pod).is_none());
    let Some(name) = pending.and_then(|pod| pod.metadata.name.clone()) else {
        anyhow::bail!("no pod of {app} is pending");
    };
    scene.explained(&name).await
}

async fn waits_because(scene: &Scene, app: &str, parts: &[&str]) -> Result<()> {
    wait_until(&format!("{app} to wait"), SOON, || async {
        let text = explained(scene, app).await?;
        for part in parts {
            ensure!(text.contains(part), "no {part:?} in\n{text}");
        }
        Ok(())
    })
    .await
}

/// Waits until this field of a condition has this value.
async fn condition(scene: &Scene, name: &str, of: (&str, &str), value: &str) -> Result<()> {
    let (type_, field) = of;
    let path = format!("jsonpath={{.status.conditions[?(@.type=='{type_}')].{field}}}");
    let what = format!("{type_} of {name} to have {field} {value}");
    wait_until(&what, SOON, || async {
        let asked = ["get", "nodepoolpolicy", name, "-o", path.as_str()];
        let said = scene.plane.kubectl(&asked).await?.ok()?;
        ensure!(said == value, "{said}");
        Ok(())
    })
    .await
}

async fn has_claims(scene: &Scene, count: usize) -> Result<()> {
    let claims = scene.claims().await?;
    ensure!(claims.len() == count, "{claims:?}");
    Ok(())
}

/// What `mortise explain nodepool` prints has these parts.
async fn pool_says(scene: &Scene, pool: &str, parts: &[&str]) -> Result<()> {
    let url = scene.mortise.url("");
    let said = command::run("explain", &["nodepool", pool, "--url", &url], None).await?;
    ensure!(said.code == 0, "{said:?}");
    for part in parts {
        ensure!(said.stdout.contains(part), "no {part:?} in {said:?}");
    }
    Ok(())
}

/// Two nodes of the pool cost more than this, one does not.
const ONE_NODE: &str = "0.08";

#[tokio::test]
async fn limits_of_price_and_rate_hold_and_are_explained() -> Result<()> {
    let scene = Scene::kwok().await?;
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            policy(
                "team",
                json!({ "nodePools": ["general"], "limits": { "hourlyPrice": ONE_NODE } }),
            ),
        ])
        .await?;
    condition(&scene, "team", ("Ready", "status"), "True").await?;
    scene
        .apply(&[deployment("web", 2, ("1500m", "256Mi"), json!({}))])
        .await?;
    scene.settled(1).await?;
    let waiting = [
        "limits.hourlyPrice of NodePoolPolicy team is $0.0800/h",
        "the cheapest type that would do may cost",
        "to free it: raise spec.limits of the NodePool, or limits.hourlyPrice",
    ];
    waits_because(&scene, "web", &waiting).await?;
    has_claims(&scene, 1).await?;

    let parts = ["team: hourlyPrice: $", "of $0.0800/h"];
    pool_says(&scene, "general", &parts).await?;

    // More money, but no second node within ten minutes.
    let rate = |nodes: u32| json!({ "maxNewNodesPerWindow": { "nodes": nodes, "window": "10m" } });
    let slow = |nodes: u32| {
        let limits = json!({ "hourlyPrice": "1" });
        policy(
            "team",
            json!({ "nodePools": ["general"], "limits": limits, "scaling": rate(nodes) }),
        )
    };
    kubectl(&scene, &["replace"], &slow(1)).await?.ok()?;
    let waiting = [
        "scaling.maxNewNodesPerWindow of NodePoolPolicy team allows 1 in 10m0s",
        "earlier ones leave the window",
    ];
    waits_because(&scene, "web", &waiting).await?;
    has_claims(&scene, 1).await?;
    kubectl(&scene, &["replace"], &slow(2)).await?.ok()?;
    scene.running("web", 2).await?;

    contradictions_are_said(&scene).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn the_calendar_allows_more_nodes_when_its_time_comes() -> Result<()> {
    let scene = Scene::kwok().await?;
    // Late enough for the pods to wait before it comes.
    let begin = (Timestamp::now() + Duration::from_secs(110)).to_zoned(TimeZone::UTC);
    let schedule = format!("{} {} * * *", begin.minute(), begin.hour());
    let more =
        json!({ "name": "rush", "schedule": schedule, "duration": "1h", "limits": { "nodes": 2 } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            policy(
                "team",
                json!({ "nodePools": ["general"], "limits": { "nodes": 1 }, "calendar": [more] }),
            ),
            deployment("web", 3, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(1).await?;
    let waiting = ["limits.nodes of NodePoolPolicy team is 1, 1 are there"];
    waits_because(&scene, "web", &waiting).await?;
    let minute = begin.strftime("%Y-%m-%dT%H:%M:00Z");
    let changes = format!("calendar: its limits change at {minute}");
    pool_says(&scene, "general", &["team: nodes: 1 of 1", &changes]).await?;
    // Nothing is changed: it is the time that allows it.
    scene.settled(2).await?;
    let now = Timestamp::now().to_zoned(TimeZone::UTC);
    ensure!(
        (now.hour(), now.minute()) >= (begin.hour(), begin.minute()),
        "{now} is before {minute}"
    );
    let waiting = ["calendar[0] (rush).limits.nodes of NodePoolPolicy team is 2, 2 are there"];
    waits_because(&scene, "web", &waiting).await?;
    has_claims(&scene, 2).await?;
    scene.end().await;
    Ok(())
}

/// What a path of the service answers to a client that asks for text.
async fn page(scene: &Scene, path: &str) -> Result<String> {
    let http = scene.mortise.scheduler_http()?;
    let http = http.with_header("accept", "text/plain");
    http.get(&scene.mortise.url(path)).await?.ok()
}

#[tokio::test]
async fn a_limit_per_month_holds_and_costs_are_told_to_those_who_pay() -> Result<()> {
    let scene = Scene::kwok().await?;
    let per_month = |dollars: &str| {
        let spending = json!({ "perMonth": dollars });
        policy(
            "team",
            json!({ "nodePools": ["general"], "spending": spending }),
        )
    };
    // For one node until the month ends, whichever day it is, and not for two.
    let month = Month::of(Timestamp::now());
    let hours = since(month.end(), Timestamp::now()).max(7 * 24 * 3_600_000) / 3_600_000;
    let enough = format!("{}.0", 8 * hours / 100 + 1);
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            per_month(&enough),
            deployment("web", 2, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(1).await?;
    let waiting = [
        "spending.perMonth of NodePoolPolicy team is $",
        "which leaves $0.0",
        "the cheapest type that would do may cost",
        "or spending.perMonth of its NodePoolPolicy",
    ];
    waits_because(&scene, "web", &waiting).await?;
    let leaves = format!("in {month}, which leaves $0.0");
    let parts = ["team: spending: $0.0", leaves.as_str()];
    pool_says(&scene, "general", &parts).await?;

    // The status shows it, and a process that begins goes on with it.
    let shown = |field: &'static str| {
        let scene = &scene;
        async move {
            let path = format!("jsonpath={{.status.spending.{field}}}");
            let asked = ["get", "nodepoolpolicy", "team", "-o", path.as_str()];
            scene.plane.kubectl(&asked).await?.ok()
        }
    };
    wait_until(
        "the node in the status",
        Duration::from_secs(90),
        || async {
            let price = shown("hourlyPrice").await?;
            ensure!(price != "0.000000" && !price.is_empty(), "{price}");
            Ok(())
        },
    )
    .await?;
    ensure!(shown("month").await? == month.to_string());

    let costs = page(&scene, "debug/costs").await?;
    for part in [
        "nodepool     general",
        "namespace    default",
        "unrequested",
    ] {
        ensure!(costs.contains(part), "no {part:?} in\n{costs}");
    }
    let hours = page(&scene, "debug/costs.csv").await?;
    ensure!(
        hours.starts_with("hour,account,name,cost,on_demand_cost"),
        "{hours}"
    );
    let counters = scene.mortise.metrics().await?;
    for series in [
        "mortise_namespace_cost_total{namespace=\"default\"}",
        "mortise_nodepool_cost_total{nodepool=\"general\"}",
        "mortise_policy_month_cost_limit{policy=\"team\"}",
    ] {
        ensure!(counters.contains(series), "no {series} in\n{counters}");
    }

    // More money for the month, and the other pod gets its node.
    kubectl(&scene, &["replace"], &per_month("100000"))
        .await?
        .ok()?;
    scene.running("web", 2).await?;
    scene.end().await;
    Ok(())
}

/// Writes whether a pod is ready, as its kubelet does.
async fn set_ready(scene: &Scene, pod: &str, ready: &str) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(scene.plane.client());
    let now = Timestamp::now();
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": now }] } });
    pods.patch_status(pod, &PatchParams::default(), &Patch::Strategic(&status))
        .await?;
    Ok(())
}

#[tokio::test]
async fn drift_waits_until_the_pods_on_new_nodes_are_ready() -> Result<()> {
    let scene = Scene::kwok().await?;
    let waves = json!({ "nodePools": ["general"], "disruption": { "drift": { "firstWave": 1, "readyFor": "15s" } } });
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", never()),
            policy("team", waves),
            deployment("web", 3, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(3).await?;
    scene.running("web", 3).await?;
    let before = scene.claim_names().await?;
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let edit = json!({ "spec": { "template": { "metadata": { "labels": { "image": "new" } } } } });
    pools
        .patch("general", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;

    let first = wait_until("a pod on the first new node", SOON, || async {
        let (nodes, pods) = (scene.nodes().await?, scene.pods("web").await?);
        let is_new = |pod: &&Pod| {
            let node = on_node(pod).and_then(|name| nodes.get(name));
            node.is_some_and(|node| label(node, "image") == "new") && runs(pod)
        };
        let pod = pods.iter().find(is_new).context("none yet")?;
        pod.metadata.name.clone().context("a name")
    })
    .await?;
    set_ready(&scene, &first, "False").await?;
    let waits = format!("pod default/{first} is not ready");
    let event = scene.event("DisruptionBlocked", "", &waits).await?;
    let said = scene.explained_object(event).await?;
    ensure!(said.contains(&waits), "no {waits:?} in {said}");
    wait_until("one old node to be replaced", SOON, || async {
        let now = scene.claim_names().await?;
        let left = now.intersection(&before).count();
        ensure!(now.len() == 3 && left == 2, "{before:?} became {now:?}");
        Ok(())
    })
    .await?;
    // It stays so, however long the new pod is not ready.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let left = scene.claim_names().await?.intersection(&before).count();
    ensure!(left == 2, "{left} of the old nodes are left");

    set_ready(&scene, &first, "True").await?;
    scene.all_replaced(&before).await?;
    scene.running("web", 3).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn expired_nodes_wait_for_the_budgets_of_their_node_pool() -> Result<()> {
    let scene = Scene::kwok().await?;
    let within = json!({ "nodePools": ["general"], "disruption": { "expiration": { "withinBudgets": true } } });
    let over = json!({
        "template": { "spec": { "expireAfter": "40s" } },
        "disruption": { "consolidateAfter": "Never", "budgets": [{ "nodes": "0" }] },
    });
    scene
        .apply(&[
            kwok_class(),
            small_pool("general", over),
            policy("team", within),
            deployment("web", 3, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    scene.settled(3).await?;
    scene.running("web", 3).await?;
    let before = scene.claim_names().await?;
    let waits = "budget of pool general allows 0";
    let event = scene.event("DisruptionBlocked", "", waits).await?;
    let name = event.involved_object.name.context("a name")?;
    ensure!(before.contains(&name), "{name} is none of {before:?}");
    let url = scene.mortise.url("");
    let said = command::run("explain", &["nodeclaim", &name, "--url", &url], None).await?;
    ensure!(
        said.code == 0 && said.stdout.contains(waits),
        "no {waits:?} in {said:?}"
    );
    tokio::time::sleep(Duration::from_secs(15)).await;
    let now = scene.claim_names().await?;
    ensure!(now == before, "{before:?} became {now:?}");

    // One at a time, from the next look on.
    let pools: Api<NodePool> = Api::all(scene.plane.client());
    let edit = json!({ "spec": { "disruption": { "budgets": [{ "nodes": "1" }] } } });
    pools
        .patch("general", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    let end = tokio::time::Instant::now() + SOON;
    loop {
        let now = scene.claims().await?;
        let going = now.values().filter(|claim| {
            let terminates = claim.metadata.deletion_timestamp.is_some();
            terminates && claim.is_true("Initialized")
        });
        ensure!(going.count() <= 1, "more than one is deleted: {now:?}");
        if !now.keys().any(|name| before.contains(name)) {
            break;
        }
        ensure!(
            tokio::time::Instant::now() < end,
            "of {before:?} are left: {now:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    scene.end().await;
    Ok(())
}

/// Waits until this many nodes are there, half of them on-demand.
async fn half_on_demand(scene: &Scene, nodes: usize) -> Result<()> {
    let settled = scene.settled(nodes).await?;
    let of_type = |node: &&LaunchedNode| node.label("karpenter.sh/capacity-type") == "on-demand";
    let on_demand = settled.iter().filter(of_type).count();
    ensure!(on_demand == nodes / 2, "{on_demand} of {nodes}");
    Ok(())
}

#[tokio::test]
async fn a_share_of_the_nodes_is_on_demand() -> Result<()> {
    let scene = Scene::kwok().await?;
    let half =
        json!({ "nodePools": ["mixed"], "scaling": { "onDemand": { "percentageAboveBase": 50 } } });
    scene
        .apply(&[
            kwok_class(),
            policy("team", half),
            pool("mixed", &[types(&["c-2x-amd64-linux"])], never()),
            deployment("web", 4, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    half_on_demand(&scene, 4).await?;
    scene.scale("web", 6).await?;
    half_on_demand(&scene, 6).await?;
    // The capacity of a node of kwok is what its NodeClaim requests.
    let share = "on-demand: 4500m of 9 CPUs, at least 4500m";
    pool_says(&scene, "mixed", &[share]).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn new_nodes_go_to_the_zone_with_the_fewest() -> Result<()> {
    let scene = Scene::kwok().await?;
    let balanced = json!({ "nodePools": ["mixed"], "scaling": { "zoneBalance": {} } });
    scene
        .apply(&[
            kwok_class(),
            policy("team", balanced),
            pool("mixed", &[types(&["c-2x-amd64-linux"]), ON_DEMAND], never()),
            deployment("web", 6, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    let zones = |settled: &[LaunchedNode]| {
        let mut zones: BTreeMap<String, usize> = BTreeMap::new();
        for node in settled {
            let zone = node.label("topology.kubernetes.io/zone").to_owned();
            *zones.entry(zone).or_default() += 1;
        }
        zones.into_values().collect::<Vec<_>>()
    };
    let mut six = zones(&scene.settled(6).await?);
    six.sort_unstable();
    ensure!(six == [1, 1, 2, 2], "{six:?}");
    scene.scale("web", 8).await?;
    let eight = zones(&scene.settled(8).await?);
    ensure!(eight == [2, 2, 2, 2], "{eight:?}");
    // The capacity of a node of kwok is what its NodeClaim requests.
    let parts = [
        "zones: test-zone-a 3 CPUs, test-zone-b 3 CPUs, test-zone-c 3 CPUs",
        "test-zone-d 3 CPUs; new nodes go to the one with the fewest",
    ];
    pool_says(&scene, "mixed", &parts).await?;
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn what_is_paid_for_is_used_first_and_no_further() -> Result<()> {
    let scene = Scene::kwok().await?;
    let paid = json!({ "nodePools": ["mixed"], "commitments": [{ "name": "ri", "instances": 2 }] });
    let limits = json!({ "nodePools": ["mixed"], "limits": { "nodes": 10 } });
    scene
        .apply(&[
            kwok_class(),
            policy("paid", paid),
            policy("team", limits),
            pool("mixed", &[types(&["c-2x-amd64-linux"])], never()),
            deployment("web", 3, ("1500m", "256Mi"), json!({})),
        ])
        .await?;
    let on_demand = |settled: &[LaunchedNode]| {
        let nodes = settled.iter();
        let own = nodes.filter(|node| node.label("karpenter.sh/capacity-type") == "on-demand");
        own.map(|node| node.node_name().to_owned())
            .collect::<Vec<_>>()
    };
    let launched = on_demand(&scene.settled(3).await?);
    ensure!(launched.len() == 2, "{launched:?}");
    scene.scale("web", 5).await?;
    let later = on_demand(&scene.settled(5).await?);
    ensure!(later == launched, "{later:?} {launched:?}");
    let parts = [
        "ri of NodePoolPolicy paid: 2 of 2 instances in use by 2 nodes",
        "team: nodes: 5 of 10",
    ];
    pool_says(&scene, "mixed", &parts).await?;
    let url = scene.mortise.url("");
    let node = launched.first().context("a node")?;
    let pool = command::run(
        "explain",
        &["nodepool", "mixed", "-o", "json", "--url", &url],
        None,
    )
    .await?;
    let pool: Value = serde_json::from_str(&pool.stdout)?;
    let use_of = &pool["commitments"][0];
    ensure!(
        (&use_of["unit"], &use_of["used"], &use_of["nodes"])
            == (&json!("instances"), &json!(2.0), &json!(2)),
        "{pool}"
    );
    let said = command::run(
        "explain",
        &["node", node, "-o", "json", "--url", &url],
        None,
    )
    .await?;
    let by = "paid for by commitment ri of NodePoolPolicy paid";
    ensure!(said.stdout.contains(by), "{said:?}");
    for policy in ["paid", "team"] {
        condition(&scene, policy, ("Ready", "status"), "True").await?;
    }
    let metrics = scene.mortise.metrics().await?;
    for series in [
        "mortise_commitment_amount{policy=\"paid\",commitment=\"ri\",unit=\"instances\"} 2",
        "mortise_commitment_used{policy=\"paid\",commitment=\"ri\",unit=\"instances\"} 2",
    ] {
        ensure!(metrics.contains(series), "no {series} in\n{metrics}");
    }
    scene.end().await;
    Ok(())
}

/// What is wrong with a policy is said when it is applied.
async fn contradictions_are_said(scene: &Scene) -> Result<()> {
    asked(scene).await?;
    let refused = policy(
        "odd",
        json!({ "nodePools": ["general"], "limits": { "hourlyPrice": "$1" } }),
    );
    let said = kubectl(scene, &["create"], &refused).await?;
    let part = "spec.limits.hourlyPrice: \"$1\" is not a price in dollars per hour";
    ensure!(
        said.code != 0 && said.stderr.contains(part),
        "{}",
        said.stderr
    );
    let spec = json!({ "nodePools": ["general", "genral"], "limits": { "hourlyPrice": "5" } });
    let said = kubectl(scene, &["create"], &policy("second", spec)).await?;
    let all = warnings(&said).join("\n");
    for part in [
        "older NodePoolPolicy \"team\" holds for \"general\"",
        "there is no NodePool \"genral\"; did you mean \"general\"?",
    ] {
        ensure!(all.contains(part), "no {part:?} in {all}");
    }
    let reason = ("ValidationSucceeded", "reason");
    condition(scene, "second", reason, "Conflict").await?;
    let spec = json!({ "nodePools": ["general"], "limits": { "hourlyPrice": "0.01" } });
    let said = kubectl(scene, &["replace"], &policy("team", spec)).await?;
    let all = warnings(&said).join("\n");
    ensure!(all.contains("$0.0100/h is below the"), "{all}");
    Ok(())
}
