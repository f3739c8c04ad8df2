//! Fault injection: the API server rejects, delays, forgets, falls behind, forbids and freezes; each time one node must be
//! deleted and another launched. Everything is retried or reported, nothing is lost and nothing is created twice.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use mortise_apis::NodeClaim;
use mortise_tests::harness::{
    Bad, Component, FaultProxy, Mortise, MortiseOptions, Requests, Rule, Signal, wait_until,
};
use serde_json::json;

use crate::census::Census;
use crate::objects::{deployment, kwok_class, small_pool};
use crate::scene::{GROUPS, SOON, Scene, Setting, USER, leads};

/// A kind of weather: the rules of the proxy.
type Weather = (&'static str, &'static [Rule]);

const fn rule(on: Requests, every: u64, bad: Bad) -> Rule {
    Rule { on, every, bad }
}

const WEATHERS: [Weather; 5] = [
    (
        "writes are refused",
        &[
            rule(
                Requests::Writes,
                4,
                Bad::Refused(429, "TooManyRequests", "please try again later"),
            ),
            rule(
                Requests::Writes,
                3,
                Bad::Refused(500, "InternalError", "etcdserver: request timed out"),
            ),
            rule(
                Requests::Patches,
                3,
                Bad::Refused(409, "Conflict", "the object has been modified"),
            ),
        ],
    ),
    (
        "nothing for a third of all requests",
        &[rule(
            Requests::All,
            3,
            Bad::Refused(503, "ServiceUnavailable", "apiserver is shutting down"),
        )],
    ),
    (
        "answers are lost or late",
        &[
            rule(Requests::Writes, 2, Bad::AnswerLost),
            rule(Requests::All, 1, Bad::Late(Duration::from_millis(300))),
        ],
    ),
    ("watches break", &[rule(Requests::Watches, 1, Bad::Cut)]),
    (
        "watches are too old",
        &[rule(Requests::Watches, 2, Bad::Expired)],
    ),
];

fn settings() -> Setting {
    Setting {
        proxied: true,
        flags: vec!["--batch-idle-duration=100ms".to_owned()],
        ..Setting::default()
    }
}

async fn one_node(scene: &Scene) -> Result<()> {
    scene
        .apply(&[
            kwok_class(),
            small_pool("default", json!({})),
            deployment("web", 1, ("1", "1Gi"), json!({})),
        ])
        .await?;
    moved(scene, None).await.map(drop)
}

/// Deletes the only claim. Returns its name.
async fn delete_claim(scene: &Scene) -> Result<String> {
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let there = scene.claims().await?;
    let name = there.keys().next().cloned().unwrap_or_default();
    ensure!(there.len() == 1, "one claim, not {:?}", there.keys());
    claims.delete(&name, &DeleteParams::default()).await?;
    Ok(name)
}

/// Waits until the pod runs on one node, which is not that of this claim.
async fn moved(scene: &Scene, from: Option<&str>) -> Result<String> {
    wait_until("the pod to run on the next node", SOON, || async move {
        let claims = scene.claims().await?;
        let name = claims.keys().next().cloned().unwrap_or_default();
        ensure!(
            claims.len() == 1 && Some(name.as_str()) != from,
            "claims {:?}",
            claims.keys()
        );
        Ok(name)
    })
    .await?;
    scene.running("web", 1).await?;
    let launched_nodes = scene.settled(1).await?;
    Ok(launched_nodes[0].claim.name().to_string())
}

#[tokio::test]
async fn every_fault_is_weathered() -> Result<()> {
    let scene = Scene::start(settings()).await?;
    let census = Census::begin(&scene.plane.client());
    one_node(&scene).await?;
    let mut launched_nodes = 1;
    for (weather, rules) in WEATHERS {
        let proxy = scene.proxy()?;
        proxy.set(rules);
        let from = delete_claim(&scene).await?;
        let next = moved(&scene, Some(&from)).await;
        let next = next.map_err(|error| error.context(weather));
        next?;
        launched_nodes += 1;
        let hits = proxy.hits();
        ensure!(hits.iter().all(|hits| *hits > 0), "{weather}: {hits:?}");
        ensure!(
            census.claims()? == launched_nodes,
            "{weather}: {} claims, not {launched_nodes}",
            census.claims()?
        );
        proxy.set(&[]);
    }
    forbidden(&scene, &census, launched_nodes).await?;
    scene.end().await;
    Ok(())
}

/// A policy and a missing right: what cannot be done is told, and done when it can be.
async fn forbidden(scene: &Scene, census: &Census, launched_nodes: usize) -> Result<()> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": { "name": "freeze" },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["karpenter.sh"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nodeclaims"] }] },
            "validations": [{ "expression": "false", "message": "no launches this week" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": { "name": "freeze" },
        "spec": { "policyName": "freeze", "validationActions": ["Deny"] },
    });
    scene.apply(&[policy, binding]).await?;
    // The policy holds from some moment on: a claim of ours is the way to see it.
    let probe = json!({ "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": { "name": "probe" },
        "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "none" }, "requirements": [] } });
    let dry = kube::api::PostParams {
        dry_run: true,
        field_manager: None,
    };
    let claims: Api<NodeClaim> = Api::all(scene.plane.client());
    let probe: NodeClaim = serde_json::from_value(probe)?;
    wait_until("the policy to hold", SOON, || async {
        ensure!(claims.create(&dry, &probe).await.is_err(), "not yet");
        Ok(())
    })
    .await?;
    let from = delete_claim(scene).await?;
    let told = |what: &'static str| async move {
        wait_until(&format!("{what:?} to be told"), SOON, || async {
            let decisions = scene.mortise.debug("decisions?limit=200").await?;
            ensure!(decisions.to_string().contains(what), "not in {decisions}");
            Ok(())
        })
        .await
    };
    told("no launches this week").await?;
    scene
        .plane
        .kubectl(&["delete", "validatingadmissionpolicybinding", "freeze"])
        .await?
        .ok()?;
    let from = moved(scene, Some(&from)).await?;
    ensure!(
        census.claims()? == launched_nodes + 1,
        "{} claims",
        census.claims()?
    );

    let roles: Api<ClusterRole> = Api::all(scene.plane.client());
    let role = roles.get("mortise").await?;
    let mut without = role.clone();
    for rule in without.rules.iter_mut().flatten() {
        let nodes = rule.resources.iter().flatten().any(|each| each == "nodes");
        if nodes {
            rule.verbs.retain(|verb| verb != "patch");
        }
    }
    without.metadata = kube::api::ObjectMeta::default();
    let rules = |role: &ClusterRole| Patch::Merge(json!({ "rules": role.rules }));
    roles
        .patch("mortise", &PatchParams::default(), &rules(&without))
        .await?;
    ensure!(delete_claim(scene).await? == from, "the claim is another");
    told("cannot patch resource").await?;
    roles
        .patch("mortise", &PatchParams::default(), &rules(&role))
        .await?;
    moved(scene, Some(&from)).await?;
    ensure!(
        census.claims()? == launched_nodes + 2,
        "{} claims",
        census.claims()?
    );
    Ok(())
}

/// Waits until it leads, or does not any more.
async fn leading(mortise: &Mortise, wanted: bool) -> Result<()> {
    let what = format!("leading to be {wanted}");
    wait_until(&what, SOON, || async {
        ensure!(leads(mortise).await? == wanted, "not yet");
        Ok(())
    })
    .await
}

/// How long the API server hangs: longer than the Lease. `MORTISE_FREEZE_SECONDS` says otherwise.
fn freeze() -> Result<Duration> {
    let given = std::env::var("MORTISE_FREEZE_SECONDS").ok();
    let seconds = given.map_or(Ok(17), |text| text.parse())?;
    Ok(Duration::from_secs(seconds))
}

/// Longest time from an API server that answers again to the next thing done. It is a second until the Lease is asked for
/// again; back-offs of the last term are forgotten with it.
const RESUMES: Duration = Duration::from_secs(5);

/// Effects that were executed.
async fn done(mortise: &Mortise) -> Result<f64> {
    let labels = ["result=\"done\""];
    mortise.metric("mortise_effects_total", &labels).await
}

/// A hanging API server, in the middle of a launch and a termination; then a leader that is cut off; then one that hangs.
#[tokio::test]
async fn only_the_leader_acts_whatever_hangs() -> Result<()> {
    let mut scene = Scene::start(settings()).await?;
    let census = Census::begin(&scene.plane.client());
    one_node(&scene).await?;

    let from = delete_claim(&scene).await?;
    scene
        .plane
        .signal_component(Component::ApiServer, Signal::Stop)?;
    // Not a wait for something to happen: the freeze itself is what is tried.
    tokio::time::sleep(freeze()?).await;
    let before = done(&scene.mortise).await?;
    scene
        .plane
        .signal_component(Component::ApiServer, Signal::Cont)?;
    let thawed = Instant::now();
    wait_until("it to act again", SOON, || async {
        let resumed = leads(&scene.mortise).await? && done(&scene.mortise).await? > before;
        ensure!(resumed, "not yet");
        Ok(())
    })
    .await?;
    let resumed = thawed.elapsed();
    moved(&scene, Some(&from)).await?;
    say(&format!(
        "after a freeze of {:?} it acted again after {resumed:?}, and the pod ran on its next node after {:?}",
        freeze()?,
        thawed.elapsed()
    ))?;
    ensure!(resumed < RESUMES, "it acted again only after {resumed:?}");
    ensure!(census.claims()? == 2, "{} claims", census.claims()?);

    // A second process, with a way of its own to the API server.
    let way = FaultProxy::start(&scene.plane, USER, &GROUPS).await?;
    let kubeconfig = format!("--kubeconfig={}", way.kubeconfig().display());
    let options = MortiseOptions::with_flags(&[
        "--batch-idle-duration=100ms",
        "--disruption-validation-delay=1s",
        &kubeconfig,
    ]);
    let mut second = Mortise::start(&scene.plane, options).await?;
    second.wait_ready().await?;
    ensure!(!leads(&second).await?, "two lead");

    // The first is cut off. It stops before the second begins: both never lead at once.
    scene.proxy()?.set(&[rule(Requests::All, 1, Bad::Silent)]);
    let from = delete_claim(&scene).await?;
    wait_until("the second to lead", SOON, || async {
        // In this order: the first may only stop in between.
        let (begun, still) = (leads(&second).await?, leads(&scene.mortise).await?);
        ensure!(!(begun && still), "both lead");
        ensure!(begun, "not yet");
        Ok(())
    })
    .await?;
    ensure!(!leads(&scene.mortise).await?, "both lead");
    moved(&scene, Some(&from)).await?;
    ensure!(census.claims()? == 3, "{} claims", census.claims()?);

    // The second hangs in the middle of its work; the first takes over; the second comes back and writes nothing.
    scene.proxy()?.set(&[]);
    let from = delete_claim(&scene).await?;
    second.signal(Signal::Stop);
    leading(&scene.mortise, true).await?;
    moved(&scene, Some(&from)).await?;
    let before = way.writes().len();
    second.signal(Signal::Cont);
    leading(&second, false).await?;
    let late = way.writes().split_off(before);
    ensure!(late.is_empty(), "it wrote when it led no more: {late:?}");
    ensure!(census.claims()? == 4, "{} claims", census.claims()?);
    second.kill9().await;
    scene.end().await;
    Ok(())
}

/// A figure for people who read the log of a test run.
fn say(line: &str) -> Result<()> {
    use std::io::Write as _;
    writeln!(std::io::stderr(), "{line}")?;
    Ok(())
}
