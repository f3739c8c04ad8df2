//! The manifests in `examples/`: lint finds nothing in them, and a real control plane with our CRDs and webhooks takes each
//! without a warning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{Mortise, wait_until};
use serde_json::Value;

use crate::admission::{asked, kubectl, warnings};
use crate::aws_account::Account;
use crate::command;
use crate::scene::{SOON, Scene};

/// The name that the examples give the cluster; network and role of the account have it too.
const CLUSTER: &str = "my-cluster";

/// Folders that are used together: what one object says of another is looked up in all of them.
const TOGETHER: [&[&str]; 3] = [&["aws", "workloads"], &["kwok"], &["control-plane"]];

/// Folder of what is simulated, and not applied to a cluster.
const SCENARIOS: &str = "scenarios";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples")
}

fn all_folders() -> impl Iterator<Item = &'static str> {
    TOGETHER.concat().into_iter().chain([SCENARIOS])
}

/// Entries of a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut all = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    all.sort();
    Ok(all)
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path)?;
    let all: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| path.display().to_string())?;
    Ok(all.into_iter().filter(|each| !each.is_null()).collect())
}

#[tokio::test]
async fn lint_finds_nothing() -> Result<()> {
    let folders: BTreeSet<String> = entries(&root())?
        .iter()
        .filter(|path| path.is_dir())
        .map(|path| name(path))
        .collect();
    let linted: BTreeSet<String> = all_folders().map(str::to_owned).collect();
    ensure!(
        folders == linted,
        "folders {folders:?}, linted or simulated are {linted:?}"
    );
    for folders in TOGETHER {
        let paths: Vec<String> = folders
            .iter()
            .map(|folder| root().join(folder).display().to_string())
            .collect();
        let args: Vec<&str> = paths
            .iter()
            .map(String::as_str)
            .chain(["--strict", "-o", "json", "--from", "2026-01-05"])
            .collect();
        let said = command::run("lint", &args, None).await?;
        let report: Value =
            serde_json::from_str(&said.stdout).with_context(|| format!("{said:?}"))?;
        let findings = report["findings"].as_array().context("findings")?;
        ensure!(findings.is_empty() && said.code == 0, "{findings:#?}");
    }
    Ok(())
}

#[test]
fn each_is_in_the_list() -> Result<()> {
    let list = std::fs::read_to_string(root().join("README.md"))?;
    let mut count = 0;
    for folder in all_folders() {
        for file in entries(&root().join(folder))? {
            let link = format!("({folder}/{})", name(&file));
            ensure!(list.contains(&link), "examples/README.md has no {link}");
            count += 1;
        }
    }
    ensure!(
        list.matches(".yaml)").count() == count,
        "examples/README.md lists a file that does not exist"
    );
    Ok(())
}

#[tokio::test]
async fn what_is_generated_is_up_to_date() -> Result<()> {
    let folder = root().join("control-plane");
    for (file, args) in [
        (
            "webhooks.yaml",
            &[
                "manifests",
                "webhooks",
                "--namespace=kube-system",
                "--own-user=system:serviceaccount:kube-system:mortise",
            ][..],
        ),
        ("kube-scheduler.yaml", &["manifests", "scheduler"]),
    ] {
        let written = Mortise::output(args).await?;
        let generated: Vec<Value> = serde_saphyr::from_multiple::<Value>(&written)?
            .into_iter()
            .filter(|each| !each.is_null())
            .collect();
        ensure!(
            documents(&folder.join(file))? == generated,
            "examples/control-plane/{file} is not what `mortise {}` writes:\n{written}",
            args.join(" ")
        );
    }
    let file = folder.join("kube-scheduler.yaml").display().to_string();
    let said = command::run("check", &["scheduler", &file], None).await?;
    ensure!(said.code == 0, "{said:?}");
    Ok(())
}

/// Registers the webhooks, and waits until all node classes of a folder are ready and their instance types are known: from
/// then on nothing is to be said about NodePools that refer to them.
async fn classes_are_ready(scene: &Scene, folder: &Path, plural: &str) -> Result<()> {
    asked(scene).await?;
    let mut classes = 0;
    for file in entries(folder)? {
        for object in documents(&file)? {
            if object["kind"]
                .as_str()
                .is_some_and(|kind| kind.ends_with("NodeClass"))
            {
                kubectl(scene, &["apply"], &object).await?.ok()?;
                classes += 1;
            }
        }
    }
    ensure!(classes > 0, "{} has no node class", folder.display());
    are_ready(scene, plural).await?;
    wait_until("the catalogs", SOON, || async {
        let snapshot = scene.mortise.debug("snapshot").await?;
        ensure!(
            snapshot["counts"]["catalogs"].as_u64() == Some(classes),
            "{snapshot}"
        );
        Ok(())
    })
    .await
}

/// Waits until all objects of a kind are Ready.
async fn are_ready(scene: &Scene, plural: &str) -> Result<()> {
    let args = [
        "wait",
        "--for=condition=Ready",
        plural,
        "--all",
        "--timeout=1s",
    ];
    wait_until(&format!("{plural} to be ready"), SOON, || async {
        scene.plane.kubectl(&args).await?.ok()
    })
    .await?;
    Ok(())
}

/// Applies a file as a user would. The API server says nothing about it.
async fn apply(scene: &Scene, file: &Path, flags: &[&str]) -> Result<()> {
    let path = file.display().to_string();
    let args: Vec<&str> = ["apply", "-f", path.as_str()]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let said = scene.plane.kubectl(&args).await?;
    ensure!(
        said.code == 0 && warnings(&said).is_empty() && said.stderr.is_empty(),
        "{path}: {said:?}"
    );
    Ok(())
}

#[tokio::test]
async fn those_for_aws_are_taken_without_a_warning() -> Result<()> {
    let account = Account::of_cluster(CLUSTER, &[]).await?;
    let gates = ["--feature-gates=NodeOverlay=true,StaticCapacity=true"];
    let (scene, _factory) = account.bare_scene(&[], &gates).await?;
    let folder = root().join("aws");
    classes_are_ready(&scene, &folder, "ec2nodeclasses").await?;
    for file in entries(&folder)? {
        apply(&scene, &file, &[]).await?;
    }
    for plural in ["nodepools", "nodeoverlays"] {
        are_ready(&scene, plural).await?;
    }
    scene.end().await;
    account.end().await
}

/// Nodes are launched for the pods of the quick start, and the workload that is safe to drain gets its three zones.
#[tokio::test]
async fn those_for_kwok_run() -> Result<()> {
    let scene = Scene::kwok().await?;
    // Before the scene's own registration, whose objects have the same names.
    let webhooks = root().join("control-plane/webhooks.yaml");
    apply(&scene, &webhooks, &["--dry-run=server"]).await?;
    let folder = root().join("kwok");
    classes_are_ready(&scene, &folder, "kwoknodeclasses").await?;
    let workloads = root().join("workloads");
    for file in [entries(&folder)?, entries(&workloads)?].concat() {
        apply(&scene, &file, &[]).await?;
    }
    are_ready(&scene, "nodepools").await?;
    scene.running("sleepers", 5).await?;
    scene.running("checkout", 3).await?;
    scene.end().await;
    Ok(())
}
