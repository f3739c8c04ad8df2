//! Which crate may know what: laws 1 and 2 of the architecture, asked of cargo itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

fn workspace() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the crate lies in the workspace")
}

/// What cargo prints about the workspace, without network.
pub(crate) fn cargo(args: &[&str]) -> Result<String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(args)
        .args(["--offline", "--locked"])
        .current_dir(workspace()?)
        .output()
        .context("cannot run cargo")?;
    ensure!(
        output.status.success(),
        "cargo {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Every crate that `package` is linked with, itself left out.
fn tree(package: &str, depth: &str) -> Result<BTreeSet<String>> {
    let text = cargo(&[
        "tree", "-e", "normal", "--prefix", "none", "--depth", depth, "-p", package,
    ])?;
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    Ok(names
        .filter(|name| *name != package)
        .map(str::to_owned)
        .collect())
}

/// Packages of the workspace with their folders below its root, without tests, fuzz targets and benches, which may know everything.
pub(crate) fn packages() -> Result<Vec<(String, PathBuf)>> {
    let metadata: Value =
        serde_json::from_str(&cargo(&["metadata", "--no-deps", "--format-version", "1"])?)?;
    let root = metadata["workspace_root"].as_str().context("its root")?;
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().context("packages")? {
        let name = package["name"].as_str().context("a name")?;
        let manifest = package["manifest_path"].as_str().context("a manifest")?;
        let folder = Path::new(manifest).parent().context("its folder")?;
        if !["mortise-tests", "mortise-bench", "mortise-fuzz"].contains(&name) {
            found.push((name.to_owned(), folder.strip_prefix(root)?.to_owned()));
        }
    }
    ensure!(found.len() >= 13, "{found:?}");
    Ok(found)
}

fn members() -> Result<Vec<String>> {
    Ok(packages()?.into_iter().map(|(name, _)| name).collect())
}

/// Crates that do input or output, tell the time to sleep, or log.
fn is_impure(name: &str) -> bool {
    let exact = [
        "tokio",
        "hyper",
        "tracing",
        "log",
        "kube",
        "kube-client",
        "kube-runtime",
        "reqwest",
        "axum",
        "mio",
        "rustls",
    ];
    exact.contains(&name)
        || name.starts_with("aws-")
        || name.starts_with("tokio-")
        || name.starts_with("hyper-")
        || name.starts_with("tracing-")
}

#[test]
fn pure_crates_do_no_input_or_output() -> Result<()> {
    for package in [
        "mortise-apis",
        "mortise-cloudprovider",
        "mortise-state",
        "mortise-planning",
        "mortise-engine",
        "mortise-deciders",
        "mortise-sim",
        "mortise-aws-catalog",
        "mortise-aws-class",
        "mortise-kwok-class",
    ] {
        let all = tree(package, "1000")?;
        ensure!(
            all.contains("serde"),
            "{package}: the tree is not what it should be: {all:?}"
        );
        let impure: Vec<&String> = all.iter().filter(|name| is_impure(name)).collect();
        ensure!(impure.is_empty(), "{package} is linked with {impure:?}");
    }
    Ok(())
}

#[test]
fn one_crate_names_the_sdk_of_aws() -> Result<()> {
    let mut naming = Vec::new();
    for package in members()? {
        if tree(&package, "1")?
            .iter()
            .any(|name| name.starts_with("aws-sdk-") || name == "aws-config")
        {
            naming.push(package);
        }
    }
    ensure!(naming == ["mortise-aws"], "{naming:?}");
    Ok(())
}

/// Which crates of the workspace each crate names. A new edge is a decision about the architecture: it is made here, and so is one less.
const EDGES: [(&str, &[&str]); 18] = [
    ("mortise-apis", &[]),
    ("mortise-cloudprovider", &["apis"]),
    ("mortise-state", &["apis", "cloudprovider"]),
    ("mortise-planning", &["apis", "cloudprovider", "state"]),
    (
        "mortise-engine",
        &["apis", "cloudprovider", "planning", "state"],
    ),
    (
        "mortise-deciders",
        &["apis", "cloudprovider", "engine", "planning", "state"],
    ),
    ("mortise-aws-class", &["apis"]),
    ("mortise-kwok-class", &["apis"]),
    // Migration writes EC2NodeClasses: before v1 there was no other node class.
    (
        "mortise-manifests",
        &["apis", "aws-class", "state", "webhooks"],
    ),
    ("mortise-webhooks", &["apis", "planning", "state"]),
    (
        "mortise-sim",
        &["apis", "cloudprovider", "engine", "planning", "state"],
    ),
    (
        "mortise-controller",
        &[
            "apis",
            "cloudprovider",
            "engine",
            "planning",
            "state",
            "webhooks",
        ],
    ),
    (
        "mortise-aws-catalog",
        &["apis", "aws-class", "cloudprovider"],
    ),
    ("mortise-process", &["apis"]),
    (
        "mortise-demo",
        &[
            "apis",
            "aws-catalog",
            "aws-class",
            "cloudprovider",
            "controller",
            "deciders",
            "engine",
            "manifests",
            "planning",
            "process",
            "sim",
            "state",
            "webhooks",
        ],
    ),
    (
        "mortise-aws",
        &["apis", "aws-catalog", "aws-class", "cloudprovider"],
    ),
    ("mortise-kwok", &["apis", "cloudprovider", "kwok-class"]),
    // The composition root may name everything; what it does not need it does not name.
    (
        "mortise",
        &[
            "apis",
            "aws",
            "aws-catalog",
            "aws-class",
            "cloudprovider",
            "controller",
            "deciders",
            "demo",
            "engine",
            "kwok",
            "kwok-class",
            "manifests",
            "planning",
            "process",
            "sim",
            "state",
            "webhooks",
        ],
    ),
];

#[test]
fn crates_name_the_crates_below_them_and_no_others() -> Result<()> {
    let mut members = members()?;
    members.sort_unstable();
    let mut listed: Vec<&str> = EDGES.iter().map(|(package, _)| *package).collect();
    listed.sort_unstable();
    ensure!(members == listed, "crates {members:?}, listed {listed:?}");
    for (package, edges) in EDGES {
        let all = tree(package, "1")?;
        let named: Vec<&str> = all
            .iter()
            .filter_map(|name| name.strip_prefix("mortise-"))
            .collect();
        ensure!(
            named == edges,
            "{package} names {named:?}, the table says {edges:?}"
        );
    }
    Ok(())
}

/// Packages with their features, as cargo selects them for building these packages.
fn features(packages: &[&str], edges: &str) -> Result<BTreeSet<String>> {
    let mut args = vec!["tree", "-e", edges, "--prefix", "none", "-f", "{p} [{f}]"];
    args.extend(packages);
    let text = cargo(&args)?;
    Ok(text
        .lines()
        .map(|line| line.trim_end_matches(" (*)").to_owned())
        .collect())
}

/// The first command of the README builds the demo alone. What it compiles must serve the builds and tests that follow.
#[test]
fn the_demo_is_built_from_the_artifacts_of_the_workspace() -> Result<()> {
    let demo = features(&["-p", "mortise-demo"], "normal,build")?;
    ensure!(demo.len() > 100, "{demo:?}");
    ensure!(!demo.iter().any(|package| package.starts_with("aws-sdk")));
    for edges in ["normal,build", "normal,build,dev"] {
        let all = features(&["--workspace"], edges)?;
        let alone: Vec<_> = demo.difference(&all).collect();
        ensure!(
            alone.is_empty(),
            "with other features than in the workspace ({edges}): {alone:#?}"
        );
    }
    Ok(())
}

/// Files below `dir` that contain a word.
fn mentioning(dir: &Path, word: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(mentioning(&path, word)?);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && std::fs::read_to_string(&path)?.contains(word)
        {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

#[test]
fn one_file_of_the_webhooks_knows_http() -> Result<()> {
    let sources = workspace()?.join("webhooks/src");
    ensure!(mentioning(&sources, "axum::")? == [sources.join("router.rs")]);
    Ok(())
}
