//! `mortise simulate` and `mortise demo --scenario` as a user runs them.

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::StateDir;
use serde_json::{Value, json};

use crate::command;
use crate::objects::{ON_DEMAND, budget, daemon_set, deployment, kwok_class, never, pool, types};
use crate::scene::{Scene, Setting};

/// A small cluster for an hour.
const SCENARIO: &str = "\
apiVersion: mortise.sh/v1alpha1
kind: Scenario
spec:
  duration: 1h
  timeline:
    - { at: 20m, scale: { deployment: web, replicas: 12 } }
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: { name: general }
spec:
  disruption: { consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 1m }
  template:
    spec:
      nodeClassRef: { group: karpenter.k8s.aws, kind: EC2NodeClass, name: default }
      requirements:
        - { key: karpenter.k8s.aws/instance-family, operator: In, values: [m5] }
        - { key: karpenter.sh/capacity-type, operator: In, values: [on-demand] }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 4
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: main, resources: { requests: { cpu: 900m, memory: 1Gi } } }] }
";

/// A Deployment with half of the requests.
fn halved() -> Result<String> {
    let web = SCENARIO.split("---\n").last().context("the Deployment")?;
    Ok(web.replace("900m", "450m").replace("1Gi", "512Mi"))
}

/// The report of a simulation, as JSON.
async fn reported(args: &[&str], input: Option<&str>) -> Result<Value> {
    let said = command::run("simulate", args, input).await?;
    ensure!(said.code == 0, "{said:?}");
    Ok(serde_json::from_str(&said.stdout)?)
}

#[tokio::test]
async fn other_settings_and_manifests_are_compared_side_by_side() -> Result<()> {
    let mut folder = StateDir::create("simulate")?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (scenario, changed, page) = (file("s.yaml"), file("halved.yaml"), file("page.html"));
    std::fs::write(&scenario, SCENARIO)?;
    std::fs::write(&changed, halved()?)?;
    let args = [
        scenario.as_str(),
        "--compare",
        "karpenter",
        "--compare-apply",
        &changed,
        "--compare-set",
        "batch-idle-duration=2s",
        "--report",
        &page,
    ];
    let said = command::run("simulate", &args, None).await?;
    ensure!(said.code == 0, "{said:?}");
    let header = said.stdout.lines().next().unwrap_or_default();
    let names: Vec<&str> = header.split_whitespace().collect();
    ensure!(names == ["mortise", "karpenter", "changed"], "{said:?}");
    let last = said.stdout.lines().last().unwrap_or_default();
    ensure!(
        last == format!("changed: batch-idle-duration=2s, {changed}"),
        "{said:?}"
    );

    let json = [&args[..], &["-o", "json"]].concat();
    let played = command::run("simulate", &json, None).await?;
    let columns: Value = serde_json::from_str(&played.stdout)?;
    let spent = |nth: usize| columns[nth]["scores"]["spentMicroUsd"].as_i64();
    ensure!(
        spent(2).context("spent")? < spent(0).context("spent")?,
        "half of the requests cost less: {columns}"
    );
    ensure!(
        columns[2]["changes"][0] == "batch-idle-duration=2s",
        "{columns}"
    );

    let seeds = [scenario.as_str(), "--seeds", "3", "--seed", "4"];
    let several = command::run("simulate", &seeds, None).await?;
    ensure!(
        several.stdout.contains("means of the seeds 4 to 6;"),
        "{several:?}"
    );

    let html = std::fs::read_to_string(&page)?;
    ensure!(html.matches("<svg ").count() == 4 + 4, "{html}");
    ensure!(html.contains("scale web to 12"), "{html}");
    let outside = [
        "src=", "href=", "url(", "http:", "https:", "@import", "<script",
    ];
    let found = outside.iter().find(|part| html.contains(**part));
    ensure!(found.is_none(), "the page needs {found:?}");
    // One seed gives one page.
    std::fs::remove_file(&page)?;
    command::run("simulate", &args, None).await?;
    ensure!(std::fs::read_to_string(&page)? == html, "another page");
    folder.discard();
    Ok(())
}

#[tokio::test]
async fn pods_of_a_trace_come_and_go_by_its_clock() -> Result<()> {
    let mut folder = StateDir::create("trace")?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (scenario, trace) = (file("s.yaml"), file("pods.csv"));
    // Without the Deployment, and nothing happens but the trace.
    let timeline = "  timeline:\n    - { at: 20m, scale: { deployment: web, replicas: 12 } }\n";
    let alone: Vec<&str> = SCENARIO.split("---\n").take(2).collect();
    let alone = alone.join("---\n").replace(timeline, "");
    ensure!(!alone.contains("web"), "{alone}");
    std::fs::write(&scenario, alone)?;
    // Three pods at once for four hours, three more after an hour until the end, ten times as fast.
    let rows: Vec<String> = (0..6)
        .map(|at| match at {
            0..3 => format!("pod-{at},1500,2048,0,,1000,15400"),
            _ => format!("pod-{at},1500,2048,0,LS,4600,"),
        })
        .collect();
    let heading = "name,cpu_milli,memory_mib,num_gpu,qos,creation_time,deletion_time";
    std::fs::write(&trace, format!("{heading}\n{}\n", rows.join("\n")))?;
    let args = [
        scenario.as_str(),
        "--trace",
        &trace,
        "--trace-speed",
        "10",
        "-o",
        "json",
    ];
    let report = reported(&args, None).await?;
    let running = |seconds: i64| {
        let samples = report["samples"].as_array()?;
        let at = samples
            .iter()
            .rfind(|each| each["seconds"].as_i64().is_some_and(|own| own <= seconds))?;
        at["podsRunning"].as_u64()
    };
    let minutes = [5, 10, 20, 30, 60].map(|minute| running(minute * 60));
    let [five, ten, twenty, thirty, hour] = minutes;
    ensure!(
        five == Some(3)
            && ten == Some(6)
            && twenty == Some(6)
            && thirty == Some(3)
            && hour == Some(3),
        "{minutes:?} in {report}"
    );
    std::fs::write(&trace, format!("{heading}\na,1500,many,0,,0,5\n"))?;
    let said = command::run("simulate", &args, None).await?;
    let problem = format!("{trace}:2: memory_mib is \"many\"; a whole number from 0 on is allowed");
    ensure!(
        said.code == 8 && said.stderr.contains(&problem),
        "no {problem:?} in {said:?}"
    );
    folder.discard();
    Ok(())
}

/// A Deployment whose pods stay away from those of their own namespace, with a disruption budget.
fn apart(namespace: &str, replicas: usize) -> [Value; 2] {
    let apart = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } },
    }] } });
    let mut web = deployment("web", replicas, ("1", "1Gi"), json!({ "affinity": apart }));
    let mut budget = budget("web", replicas - 1);
    web["metadata"]["namespace"] = json!(namespace);
    budget["metadata"]["namespace"] = json!(namespace);
    [web, budget]
}

#[tokio::test]
async fn a_snapshot_of_a_cluster_is_simulated() -> Result<()> {
    // kube-scheduler alone may bind a pod of `default` to the node that has room for one of `blog` only.
    let scene = Scene::start(Setting {
        extender: true,
        ..Setting::default()
    })
    .await?;
    let requirements = [types(&["c-2x-amd64-linux", "c-4x-amd64-linux"]), ON_DEMAND];
    let [blog, blog_budget] = apart("blog", 4);
    let [shop, shop_budget] = apart("default", 3);
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "blog" } });
    let objects = [
        namespace,
        kwok_class(),
        pool("general", &requirements, never()),
        daemon_set("agent", "100m"),
        blog,
        blog_budget,
        shop,
        shop_budget,
    ];
    scene.apply(&objects).await?;
    scene.running("web", 7).await?;
    let real = scene.settled(4).await?;
    let mut folder = StateDir::create("recorded")?;
    let file = |name: &str| folder.join(name).display().to_string();
    let (snapshot, changes) = (file("cluster.snapshot"), file("changes.yaml"));
    let kubeconfig = scene.plane.kubeconfig_path().display().to_string();
    let args = ["-o", &snapshot, "--kubeconfig", &kubeconfig];
    let wrote = command::run("snapshot", &args, None).await?;
    ensure!(wrote.code == 0, "{wrote:?}");

    // The same nodes, in a day in which nothing happens.
    let quiet = command::run("simulate", &["--cluster", &snapshot, "-o", "json"], None).await?;
    ensure!(quiet.code == 0 && quiet.stderr.is_empty(), "{quiet:?}");
    let report: Value = serde_json::from_str(&quiet.stdout)?;
    ensure!(
        report["totals"]["virtual_seconds"] == 86_400,
        "{}",
        report["totals"]
    );
    let types_of = |nodes: &Value| -> Vec<String> {
        let nodes = nodes.as_array().into_iter().flatten();
        let mut types: Vec<String> = nodes
            .filter_map(|node| Some(node["instanceType"].as_str()?.to_owned()))
            .collect();
        types.sort();
        types
    };
    let mut launched: Vec<String> = real
        .iter()
        .map(|node| node.instance_type().to_owned())
        .collect();
    launched.sort();
    let simulated = types_of(&report["nodes"]);
    ensure!(
        simulated == launched,
        "simulated {simulated:?}, real {launched:?}"
    );
    let last = report["samples"].as_array().and_then(|all| all.last());
    ensure!(
        last.is_some_and(|sample| sample["podsRunning"] == 7),
        "{last:?}"
    );

    // Something happens in it, and its NodePool is another one.
    let other = pool(
        "general",
        &[types(&["c-4x-amd64-linux"]), ON_DEMAND],
        never(),
    );
    let scenario = json!({
        "apiVersion": "mortise.sh/v1alpha1", "kind": "Scenario",
        "spec": { "duration": "1h", "timeline": [{ "at": "10m", "scale": { "deployment": "blog.web", "replicas": 6 } }] },
    });
    std::fs::write(&changes, format!("{other}\n---\n{scenario}\n"))?;
    let args = ["--cluster", &snapshot, &changes, "-o", "json"];
    let report = reported(&args, None).await?;
    let simulated = types_of(&report["nodes"]);
    ensure!(simulated == ["c-4x-amd64-linux"; 6], "{simulated:?}");

    // A workload that the cluster does not have.
    let wrong = scenario.to_string().replace("blog.web", "blog.wbe");
    std::fs::write(&changes, wrong)?;
    let said = command::run("simulate", &args, None).await?;
    ensure!(
        said.code == 8 && said.stderr.contains("did you mean \"blog.web\"?"),
        "{said:?}"
    );
    folder.discard();
    scene.end().await;
    Ok(())
}

#[tokio::test]
async fn instances_boot_as_slowly_as_the_scenario_says() -> Result<()> {
    let waited = async |scenario: &str| -> Result<i64> {
        let report = reported(&["-", "-o", "json"], Some(scenario)).await?;
        let most = report["scores"]["pendingS"]["most"].as_i64();
        most.context("how long pods waited")
    };
    let slow = "duration: 1h\n  bootTime: { from: 4m, to: 5m, slowPercent: 10, slowTo: 6m }\n";
    let slow = SCENARIO.replace("duration: 1h\n", slow);
    let (usual, slow) = (waited(SCENARIO).await?, waited(&slow).await?);
    ensure!(
        usual < 90 && (240..420).contains(&slow),
        "{usual} s, {slow} s"
    );
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_simulated_is_named() -> Result<()> {
    let mut folder = StateDir::create("simulate")?;
    let changed = folder.join("c.yaml").display().to_string();
    std::fs::write(&changed, halved()?.replace("replicas: 4", "replicas: many"))?;
    let apply = ["-", "--compare-apply", &changed];
    let set = ["-", "--compare-set", "batch-idle-durration=2s"];
    let report = ["-", "--report", "/there/is/no/such/folder/page.html"];
    let boots =
        |time: &str| SCENARIO.replace("duration: 1h", &format!("duration: 1h\n  bootTime: {time}"));
    for (args, scenario, code, says) in [
        (
            &apply as &[&str],
            SCENARIO.to_owned(),
            8,
            "c.yaml:5: spec.replicas",
        ),
        (
            &set,
            SCENARIO.to_owned(),
            2,
            "did you mean batch-idle-duration?",
        ),
        (
            &report,
            SCENARIO.to_owned(),
            1,
            "cannot write /there/is/no/such",
        ),
        (
            &["-"],
            boots("{ from: 2m, to: 1m }"),
            8,
            "<stdin>:5: spec.bootTime.to: must be from 2m",
        ),
        (
            &["-"],
            boots("{ from: 1m, to: 2m, slowPercent: 5 }"),
            8,
            "spec.bootTime.slowTo: missing",
        ),
        (
            &["-"],
            boots("{ from: 1m, to: 2m, slowTo: 5m }"),
            8,
            "spec.bootTime.slowPercent",
        ),
        (&["-"], boots("{ from: 1m, until: 2m }"), 8, "spec.bootTime"),
    ] {
        let said = command::run("simulate", args, Some(&scenario)).await?;
        ensure!(
            said.code == code && said.stderr.contains(says),
            "{args:?}: {said:?}"
        );
    }
    folder.discard();
    Ok(())
}

#[tokio::test]
async fn the_demo_plays_a_scenario_of_the_gallery() -> Result<()> {
    let args = [
        "--scenario",
        "busy-morning",
        "--for",
        "62m",
        "--virtual",
        "--speed",
        "max",
        "--json",
    ];
    let said = command::run("demo", &args, None).await?;
    ensure!(said.code == 0, "{said:?}");
    let summary: Value = serde_json::from_str(said.stdout.trim())?;
    ensure!(
        summary["scenario"] == "busy-morning" && summary["virtual_seconds"] == 3_720,
        "{summary}"
    );
    ensure!(
        said.stderr.contains("Scenario busy-morning: The morning"),
        "{said:?}"
    );
    ensure!(said.stderr.contains(" -- scale "), "{said:?}");
    let wrong = command::run("demo", &["--scenario", "busy-mornign"], None).await?;
    ensure!(
        wrong.code == 2 && wrong.stderr.contains("busy-morning"),
        "{wrong:?}"
    );
    Ok(())
}
