//! `mortise lint` from the outside: what it prints for manifests as people write and paste them, and its exit codes.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use json_patch::merge;
use mortise_tests::harness::StateDir;
use serde_json::{Value, json};

use crate::command::{self, Said};
use crate::objects::good;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/data/manifests");
const BAD: &str = include_str!("../../webhooks/tests/data/bad_manifests.yaml");

async fn lint(args: &[&str], stdin: Option<&str>) -> Result<Said> {
    command::run("lint", args, stdin).await
}

/// The report as JSON.
async fn report(path: &Path) -> Result<(i32, Value)> {
    let path = path.display().to_string();
    let said = lint(&[&path, "-o", "json", "--from", "2026-01-05"], None).await?;
    let report = serde_json::from_str(&said.stdout).with_context(|| format!("{said:?}"))?;
    Ok((said.code, report))
}

fn findings(report: &Value) -> &[Value] {
    report["findings"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn pasted_manifests_get_an_answer() -> Result<()> {
    for (name, code, least) in [
        // One pool without a class, some classes that stand elsewhere.
        ("current", 8, 3),
        ("deployment", 0, 0),
        ("first-release", 8, 4),
        ("gpu", 8, 1),
        ("images", 8, 3),
        ("old-pools", 8, 12),
        ("parts", 8, 10),
    ] {
        let (ended, report) = report(&Path::new(DATA).join(format!("{name}.yaml"))).await?;
        ensure!(ended == code, "{name}: {ended}, {report:#}");
        ensure!(findings(&report).len() >= least, "{name}: {report:#}");
        for finding in findings(&report) {
            // The types and families that they name exist, and together leave an instance type to launch.
            let check = finding["check"].as_str().unwrap_or_default();
            ensure!(
                !["catalog", "unsatisfiable"].contains(&check),
                "{name}: {finding:#}"
            );
            let told = ["file", "problem", "message", "check"];
            ensure!(
                told.iter()
                    .all(|field| finding[field].as_str().is_some_and(|text| !text.is_empty()))
                    && finding["line"].as_u64().is_some_and(|line| line > 0)
                    && (finding["level"] == "warning" || finding["fix"] != ""),
                "{name}: {finding:#}"
            );
        }
    }
    Ok(())
}

/// Each manifest with one mistake in a file of its own, with the class it refers to.
#[tokio::test]
async fn manifests_with_one_mistake_each() -> Result<()> {
    let mut dir = StateDir::create("lint")?;
    let rows: Vec<Value> = serde_saphyr::from_str(BAD)?;
    let mut expected = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let kind = row["kind"].as_str().context("kind")?;
        // A file does not show what an update changes; simulated instances belong to another provider.
        if row.get("from").is_some() || row["set"] == "kwok" {
            continue;
        }
        // Nine families are out of reach in a catalogue of three; EC2 has more.
        if row["name"] == "minValues out of reach" {
            continue;
        }
        let mut object = good(kind)?;
        merge(&mut object, &row["change"]);
        // A name of its own, so that none of them overlaps or repeats another.
        object["metadata"]["name"] = json!(format!("case-{at}"));
        if kind == "NodePool"
            && object["spec"].get("replicas").is_none_or(Value::is_null)
            && object["spec"].get("weight").is_none()
        {
            object["spec"]["weight"] = json!(at + 1);
        }
        let file = format!("case-{at}.json");
        std::fs::write(dir.join(&file), object.to_string())?;
        expected.push((file, row["name"].clone()));
    }
    std::fs::write(dir.join("class.json"), good("EC2NodeClass")?.to_string())?;
    let (code, report) = report(dir.path()).await?;
    ensure!(code == 8, "{code}");
    let mut silent = Vec::new();
    for (file, name) in &expected {
        let here = |finding: &&Value| {
            finding["file"]
                .as_str()
                .is_some_and(|path| path.ends_with(&format!("/{file}")))
        };
        if !findings(&report).iter().any(|finding| here(&finding)) {
            silent.push(name);
        }
    }
    ensure!(
        silent.is_empty() && expected.len() >= 70,
        "nothing is said about {silent:?} of {}",
        expected.len()
    );
    let class = findings(&report)
        .iter()
        .find(|finding| finding["kind"] == "EC2NodeClass" && finding["name"] == "default");
    ensure!(class.is_none(), "{class:?}");
    dir.discard();
    Ok(())
}

#[tokio::test]
async fn exit_codes_and_forms() -> Result<()> {
    let pool = good("NodePool")?;
    let class = good("EC2NodeClass")?;
    let both = format!("{pool}\n---\n{class}\n");
    let clean = lint(&["-", "--strict"], Some(&both)).await?;
    ensure!(clean.code == 0, "{clean:?}");
    ensure!(
        clean
            .stdout
            .contains("2 objects in 1 file: 0 errors, 0 warnings")
            && clean.stdout.contains("Budgets of NodePool default"),
        "{clean:?}"
    );

    let alone = pool.to_string();
    let said = lint(&["-"], Some(&alone)).await?;
    ensure!(
        said.code == 0
            && said.stdout.contains("<stdin>:1: warning:")
            && said.stdout.contains("not defined in the files"),
        "{said:?}"
    );
    let said = lint(&["-", "--strict"], Some(&alone)).await?;
    ensure!(said.code == 7, "{said:?}");

    let mut wrong = pool.clone();
    wrong["spec"]["weight"] = json!("10");
    let said = lint(&["-", "-o", "sarif", "--strict"], Some(&wrong.to_string())).await?;
    let log: Value = serde_json::from_str(&said.stdout)?;
    ensure!(said.code == 8 && log["version"] == "2.1.0", "{said:?}");
    ensure!(
        log["runs"][0]["results"]
            .as_array()
            .is_some_and(|results| results.iter().any(|each| each["level"] == "error")),
        "{log:#}"
    );

    let torn = "apiVersion: karpenter.sh/v1\nkind: NodePool\nspec:\n  weight: [1\n";
    let said = lint(&["-"], Some(torn)).await?;
    let lines: Vec<&str> = said
        .stdout
        .lines()
        .filter(|line| line.contains("error"))
        .collect();
    ensure!(
        said.code == 8 && lines.len() == 2 && lines[0].starts_with("<stdin>:"),
        "{said:?}"
    );

    // Zones of a region that is not in the program are taken as they stand, and that is said.
    let mut far = pool.clone();
    far["spec"]["template"]["spec"]["requirements"] = json!([
        { "key": "topology.kubernetes.io/zone", "operator": "In", "values": ["ap-south-2a"] },
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] },
    ]);
    let said = lint(&["-", "--strict"], Some(&format!("{far}\n---\n{class}\n"))).await?;
    ensure!(
        said.code == 0 && said.stderr.contains("region ap-south-2"),
        "{said:?}"
    );
    let said = lint(&["-", "--region", "eu-west-1"], Some(&far.to_string())).await?;
    ensure!(
        said.stdout.contains("no instance type has \"ap-south-2a\""),
        "{said:?}"
    );

    let kwok = json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": { "name": "default" }, "spec": {} });
    let said = lint(&["-", "-o", "json"], Some(&kwok.to_string())).await?;
    ensure!(
        said.code == 0 && said.stdout.contains("\"objects\": 1"),
        "{said:?}"
    );

    let mut dir = StateDir::create("lint")?;
    let empty = dir.path().display().to_string();
    for (args, code, part) in [
        (&["/nonexistent.yaml"][..], 1, "/nonexistent.yaml"),
        (&[empty.as_str()][..], 2, "there is no *.yaml"),
        (&[][..], 2, "PATH"),
        (&["-", "--from", "monday"][..], 2, "2026-01-05"),
        (&["-", "-o", "xml"][..], 2, "sarif"),
        (&["-", "--region", "west"][..], 2, "us-east-1"),
        (
            &["-", "--provider", "kwok", "--region", "us-east-1"][..],
            2,
            "--region",
        ),
    ] {
        let said = lint(args, Some("")).await?;
        ensure!(
            said.code == code && said.stderr.contains(part),
            "{args:?}: {said:?}"
        );
    }
    dir.discard();
    Ok(())
}
