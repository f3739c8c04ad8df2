//! Manifests as people paste them, converted by `mortise migrate` and applied to a real API server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use mortise_tests::harness::{ControlPlane, Mortise, StateDir};
use serde_json::Value;

use crate::command::{self, Said};
use crate::scene::turn;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/manifests");

async fn migrate(args: &[&str], stdin: Option<&str>) -> Result<Said> {
    command::run("migrate", args, stdin).await
}

/// The documents of a stream, read by the parser that the harness uses.
fn documents(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents)
}

async fn plane() -> Result<ControlPlane> {
    let crds = Mortise::output(&["manifests", "crds", "--provider", "aws"]).await?;
    Box::pin(ControlPlane::builder().manifests(&crds).start()).await
}

/// A pool and a class that parts of pools and classes are tried on.
const BASE: &str = "
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: base}
spec:
  template:
    spec:
      requirements: []
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: base}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: base}
spec:
  role: nodes
  amiFamily: AL2023
  amiSelectorTerms: [{id: ami-0}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
";

/// Applies a document without storing it, fields that are not known being errors.
async fn applies(plane: &ControlPlane, dir: &Path, document: &Value) -> Result<()> {
    let path: PathBuf = dir.join("document.json");
    let file = path.display().to_string();
    let patch = |kind: &'static str| {
        vec![
            "patch",
            kind,
            "base",
            "--type=merge",
            "--dry-run=server",
            "--patch-file",
        ]
    };
    let part_of_class = document.get("amiSelectorTerms").is_some();
    let mut document = document.clone();
    if part_of_class {
        document = serde_json::json!({ "spec": document });
    }
    let mut args = match (document.get("kind"), part_of_class) {
        (Some(_), _) => vec!["apply", "--dry-run=server", "--validate=strict", "-f"],
        (None, true) => patch("ec2nodeclass"),
        (None, false) => patch("nodepool"),
    };
    std::fs::write(&path, document.to_string())?;
    args.push(&file);
    let said = plane.kubectl(&args).await?;
    ensure!(
        said.code == 0 && !said.stderr.contains("unknown field"),
        "{}{}\nfor {document:#}",
        said.stdout,
        said.stderr
    );
    Ok(())
}

#[tokio::test]
async fn pasted_manifests_apply_once_converted() -> Result<()> {
    let _turn = turn().await?;
    let plane = plane().await?;
    plane.apply_yaml(BASE).await?;
    let mut tried = 0;
    let mut names: Vec<_> = std::fs::read_dir(DATA)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    names.sort();
    for path in names {
        if path.extension().is_none_or(|end| end != "yaml") {
            continue;
        }
        let name = path.display().to_string();
        let said = migrate(&[&name], None).await?;
        // Nothing of them is beyond conversion.
        ensure!(matches!(said.code, 0 | 7), "{name}: {said:?}");
        ensure!(
            (said.code == 7) == said.stderr.contains(": warning: "),
            "{name}: {said:?}"
        );
        for document in documents(&said.stdout)? {
            // A file of eksctl, which no API server knows; it passes through.
            if document["kind"] == "ClusterConfig" {
                ensure!(
                    document["managedNodeGroups"][0]["maxSize"] == 5,
                    "{document:#}"
                );
                continue;
            }
            applies(&plane, plane.dir(), &document)
                .await
                .with_context(|| format!("{name}: {}", said.stderr))?;
            tried += 1;
        }
    }
    ensure!(tried >= 25, "only {tried} documents");
    plane.stop().await;
    Ok(())
}

/// The kinds of the first releases, as far as a cluster that still has them is concerned.
const OLD_KINDS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: provisioners.karpenter.sh}
spec:
  group: karpenter.sh
  scope: Cluster
  names: {kind: Provisioner, plural: provisioners, singular: provisioner, listKind: ProvisionerList}
  versions: [{name: v1alpha5, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: awsnodetemplates.karpenter.k8s.aws}
spec:
  group: karpenter.k8s.aws
  scope: Cluster
  names: {kind: AWSNodeTemplate, plural: awsnodetemplates, singular: awsnodetemplate, listKind: AWSNodeTemplateList}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: one}
spec:
  providerRef: {name: shared}
  ttlSecondsUntilExpired: 86400
  kubeletConfiguration: {maxPods: 20, containerRuntime: containerd}
  limits: {resources: {cpu: 100}}
---
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: two}
spec:
  providerRef: {name: shared}
  consolidation: {enabled: true}
  labels: {team: two}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: shared}
spec:
  subnetSelector: {Name: 'a,b', cluster: mine}
  securityGroupSelector: {aws-ids: 'sg-1,sg-2'}
";

#[tokio::test]
async fn a_cluster_is_read_and_left_as_it_is() -> Result<()> {
    let _turn = turn().await?;
    let plane = plane().await?;
    plane.apply_yaml(OLD_KINDS).await?;
    plane.apply_yaml(BASE).await?;
    let mut dir = StateDir::create("migrate")?;
    let out = dir.path().join("out").display().to_string();
    let kubeconfig = plane.kubeconfig_path().display().to_string();
    let live = [
        "--live",
        "--kubeconfig",
        &kubeconfig,
        "--out",
        &out,
        "--report",
        "json",
    ];

    // The role of the instances was a setting of the old service.
    let said = migrate(&live, None).await?;
    ensure!(said.code == 8 && said.stdout.is_empty(), "{said:?}");
    let report: Value = serde_json::from_str(&said.stderr)?;
    let failed: Vec<&Value> = report["findings"]
        .as_array()
        .context("findings")?
        .iter()
        .filter(|finding| finding["level"] == "error")
        .collect();
    ensure!(
        failed.iter().all(|finding| finding["field"] == "spec.role") && !failed.is_empty(),
        "{failed:?}"
    );

    // What is there is not replaced without being asked for.
    let said = migrate(&live, None).await?;
    ensure!(
        said.code == 2 && said.stderr.contains("--overwrite"),
        "{said:?}"
    );
    let again: Vec<&str> = live
        .iter()
        .copied()
        .chain(["--overwrite", "--role", "nodes"])
        .collect();
    let said = migrate(&again, None).await?;
    ensure!(said.code == 7, "{said:?}");

    // With server fields gone, one file per object, and a class for the pool with kubelet settings of its own.
    let mut classes = Vec::new();
    for name in [
        "provisioner-one",
        "provisioner-two",
        "awsnodetemplate-shared",
        "nodepool-base",
        "ec2nodeclass-base",
    ] {
        let text = std::fs::read_to_string(dir.path().join("out").join(format!("{name}.yaml")))
            .with_context(|| format!("{name}: {}", said.stderr))?;
        ensure!(
            !text.contains("uid:") && !text.contains("resourceVersion"),
            "{text}"
        );
        for document in documents(&text)? {
            applies(&plane, dir.path(), &document)
                .await
                .with_context(|| text.clone())?;
            if document["kind"] == "EC2NodeClass" {
                classes.push(document["metadata"]["name"].clone());
            }
        }
    }
    ensure!(classes.len() == 3, "{classes:?}");
    let objects = plane
        .kubectl(&[
            "get",
            "provisioners,awsnodetemplates,nodepools,ec2nodeclasses",
            "-o",
            "name",
        ])
        .await?
        .ok()?;
    ensure!(
        objects.lines().count() == 5,
        "nothing was written: {objects}"
    );
    dir.discard();
    plane.stop().await;
    Ok(())
}

#[tokio::test]
async fn standard_input_and_directories() -> Result<()> {
    let old = "apiVersion: karpenter.sh/v1beta1\nkind: NodePool # mine\nmetadata:\n  name: x\nspec:\n  template:\n    spec:\n      requirements: []\n      expireAfter: Never\n      nodeClassRef: {name: y}\n";
    let said = migrate(&["-"], Some(old)).await?;
    ensure!(
        said.code == 0 && said.stdout.contains("kind: NodePool # mine"),
        "{said:?}"
    );
    ensure!(
        said.stderr
            .contains("1 object changed, 0 untouched; 0 warnings, 0 errors"),
        "{said:?}"
    );

    // What is not ours goes through untouched, whatever it is.
    let mut dir = StateDir::create("migrate")?;
    let (from, to) = (dir.path().join("in"), dir.path().join("out"));
    std::fs::create_dir_all(from.join("deep"))?;
    let values = "# values\nreplicas:   3\nimage: { tag: 'x' }\n";
    let template = "kind: Deployment\nspec:\n{{- if .Values.on }}\n  a: 1\n{{- end }}\n";
    std::fs::write(from.join("values.yaml"), values)?;
    std::fs::write(from.join("deep/template.yaml"), template)?;
    std::fs::write(from.join("deep/pool.yml"), old)?;
    std::fs::write(from.join("notes.txt"), "none of ours")?;
    let (from, out) = (from.display().to_string(), to.display().to_string());
    let said = migrate(&[&from, "--out", &out], None).await?;
    ensure!(said.code == 0, "{said:?}");
    ensure!(std::fs::read_to_string(to.join("values.yaml"))? == values);
    ensure!(std::fs::read_to_string(to.join("deep/template.yaml"))? == template);
    ensure!(std::fs::read_to_string(to.join("deep/pool.yml"))?.contains("karpenter.sh/v1\n"));
    ensure!(!to.join("notes.txt").exists());

    let said = migrate(&["/nonexistent.yaml"], None).await?;
    ensure!(
        said.code == 1 && said.stderr.contains("/nonexistent.yaml"),
        "{said:?}"
    );
    let said = migrate(&[], None).await?;
    ensure!(said.code == 2, "{said:?}");
    dir.discard();
    Ok(())
}

/// Node groups become manifests on standard output that an API server accepts, and the report is that of the test data.
#[tokio::test]
async fn node_groups_of_cluster_autoscaler_become_nodepools() -> Result<()> {
    const GROUPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/node_groups");
    let _turn = turn().await?;
    let from = ["--from", "cluster-autoscaler"];
    let files = ["cluster-autoscaler.yaml", "eksctl.yaml"].map(|name| format!("{GROUPS}/{name}"));
    let args: Vec<&str> = from
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    let said = migrate(&args, None).await?;
    let golden = |name: &str| std::fs::read_to_string(format!("{GROUPS}/migrated/{name}"));
    ensure!(said.code == 7, "{said:?}");
    ensure!(said.stdout == golden("eksctl.yaml")?, "{said:?}");
    ensure!(
        said.stderr.starts_with(&golden("eksctl.report")?),
        "{said:?}"
    );
    ensure!(
        said.stderr.contains("objects written, 1 left out; "),
        "{said:?}"
    );
    let plane = plane().await?;
    for document in documents(&said.stdout)? {
        applies(&plane, plane.dir(), &document)
            .await
            .with_context(|| said.stdout.clone())?;
    }
    plane.stop().await;

    // Files, and a report as JSON with the flags.
    let mut dir = StateDir::create("migrate")?;
    let out = dir.path().join("out");
    let path = out.display().to_string();
    let mut json = args.clone();
    json.extend(["--report", "json", "--out", &path]);
    let said = migrate(&json, None).await?;
    let report: Value = serde_json::from_str(&said.stderr)?;
    ensure!(
        report["flags"]
            .as_array()
            .is_some_and(|flags| flags.len() >= 4),
        "{report:#}"
    );
    ensure!(std::fs::read_to_string(out.join("nodepools.yaml"))? == golden("eksctl.yaml")?);
    dir.discard();

    // What makes no sense together, and a ClusterConfig without the option, which passes through.
    for wrong in [
        &["--from", "cluster-autoscaler", "--live"][..],
        &["--cluster-name", "x", "-"],
    ] {
        let said = migrate(wrong, Some("")).await?;
        ensure!(said.code == 2 && !said.stderr.is_empty(), "{said:?}");
    }
    let config = std::fs::read_to_string(format!("{GROUPS}/eksctl.yaml"))?;
    let said = migrate(&["-"], Some(&config)).await?;
    ensure!(
        said.code == 0 && said.stdout.trim() == config.trim(),
        "{said:?}"
    );
    Ok(())
}
