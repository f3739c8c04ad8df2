//! Findings of `lint`: manifests with one mistake each, recorded decisions of API servers, and pasted manifests.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::string_slice,
    reason = "a test fails by panicking where its expectation stands, and its score is its output"
)]

#[path = "../../../webhooks/tests/test_cluster/mod.rs"]
mod test_cluster;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use expect_test::{expect, expect_file};
use mortise_apis::node_class::NodeClassKind;
use mortise_manifests::lint::{
    LintFinding, LintLevel, LintOptions, LintReport, lint, render_json, render_sarif, render_table,
};
use mortise_manifests::migrate::{self, SourceFile, migrate};
use mortise_webhooks::admission::Check;
use serde_json::{Value, json};
use test_cluster::node_classes::{EC2, KWOK, crds};
use test_cluster::{catalog, good, merged};

const BAD_MANIFESTS: &str = include_str!("../../../webhooks/tests/data/bad_manifests.yaml");

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data")
        .join(name)
}

fn options(kinds: &[NodeClassKind]) -> LintOptions {
    let crds = crds(kinds);
    LintOptions {
        well_known: crds.served().well_known(),
        crds,
        catalog: Some(catalog()),
        // A Monday.
        from: "2026-01-05T00:00:00Z".parse().unwrap(),
        nodes: None,
    }
}

fn source(name: &str, text: impl Into<String>) -> SourceFile {
    SourceFile {
        name: name.to_owned(),
        text: text.into(),
    }
}

fn run(text: &str) -> LintReport {
    lint(&[source("in.yaml", text)], &options(&[EC2]))
}

/// `error spec.weight: message`.
fn finding_text(finding: &LintFinding) -> String {
    format!(
        "{} {}: {}",
        finding.level.label(),
        finding.field,
        finding.message()
    )
}

#[test]
fn bad_manifests_have_the_findings_of_a_cluster() {
    let rows: Vec<Value> = serde_saphyr::from_str(BAD_MANIFESTS).unwrap();
    let (mut passed, mut wrong, mut updates) = (0, Vec::new(), Vec::new());
    for row in &rows {
        let name = row["name"].as_str().unwrap();
        if row.get("from").is_some() {
            // Updates exist in a cluster only.
            updates.push(name);
            continue;
        }
        let kind = row["kind"].as_str().unwrap();
        let object = merged(good(kind), &row["change"]);
        let mut sources = vec![source("bad.json", object.to_string())];
        if kind != "EC2NodeClass" {
            sources.push(source("class.json", good("EC2NodeClass").to_string()));
        }
        let kinds = if row["set"] == "kwok" { [KWOK] } else { [EC2] };
        let report = lint(&sources, &options(&kinds));
        let parts: Vec<&str> = row["says"]
            .as_array()
            .unwrap()
            .iter()
            .map(|part| match part.as_str().unwrap() {
                "does not exist (yet)" => "is not defined in the files",
                part => part,
            })
            .collect();
        let holds = |finding: &&LintFinding| {
            let text = finding_text(finding);
            parts.iter().all(|part| text.contains(part))
                && finding.line == 1
                && finding.kind == kind
        };
        let found = report.findings.iter().find(holds);
        let level = if row["answer"] == "warning" {
            LintLevel::Warning
        } else {
            LintLevel::Error
        };
        let fits = found.is_some_and(|found| {
            found.level == level
                || found.check == Check::UnknownField
                || found.check == Check::Deprecated
        });
        if fits && report.count(LintLevel::Error) <= 1 {
            passed += 1;
        } else {
            wrong.push(format!(
                "{name}: {parts:?} is not in {:#?}",
                report.findings.iter().map(finding_text).collect::<Vec<_>>()
            ));
        }
    }
    println!(
        "bad manifests: {passed} passed, {} failed; not to be seen in files: {}",
        wrong.len(),
        updates.join(", ")
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(passed >= 60 && updates.len() <= 5);
}

#[test]
fn valid_manifests_have_no_findings() {
    let kinds = ["NodePool", "NodeClaim", "CapacityBuffer", "EC2NodeClass"];
    let text: Vec<String> = kinds.iter().map(|kind| good(kind).to_string()).collect();
    let report = run(&text.join("\n---\n"));
    assert_eq!(report.findings, Vec::new());
    assert_eq!((report.objects, report.calendars.len()), (4, 1));
}

/// Every case of a recorded file. `MORTISE_FACTS_DIR` sets another directory with the same schema.
fn facts(name: &str) -> Vec<Value> {
    let folder = std::env::var_os("MORTISE_FACTS_DIR").map_or_else(|| data("facts"), PathBuf::from);
    let (plain, packed) = (
        folder.join(format!("{name}.jsonl")),
        folder.join(format!("{name}.jsonl.gz")),
    );
    let text = if plain.exists() {
        std::fs::read_to_string(&plain).unwrap()
    } else {
        let mut text = String::new();
        let bytes =
            std::fs::read(&packed).unwrap_or_else(|error| panic!("{}: {error}", packed.display()));
        flate2::read::GzDecoder::new(&*bytes)
            .read_to_string(&mut text)
            .unwrap();
        text
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// An object that an API server accepts has no error, and one that it rejects has an error. An accepted object that
/// can never be used has an error of mortise, which is excluded here.
#[test]
fn api_servers_agree() {
    let (mut passed, mut failed, mut updates) = (0, Vec::new(), Vec::new());
    for case in facts("crd_admission") {
        let id = case["id"].as_str().unwrap_or_default().to_owned();
        if !case["previous"].is_null() {
            // Transition rules do not apply to a single file.
            updates.push(id);
            continue;
        }
        let kinds: &[NodeClassKind] = if case["crds"] == "aws" { &[EC2] } else { &[] };
        let options = LintOptions {
            well_known: mortise_apis::labels::WellKnown::core(),
            catalog: None,
            ..options(kinds)
        };
        let report = lint(&[source("case.json", case["object"].to_string())], &options);
        let errors: Vec<String> = report
            .findings
            .iter()
            .filter(|finding| finding.level == LintLevel::Error && finding.check != Check::Unusable)
            .map(finding_text)
            .collect();
        if report.objects == 1 && errors.is_empty() == (case["accepted"] == json!(true)) {
            passed += 1;
        } else {
            failed.push(format!("{id}: {errors:#?} {report:?}\n    {case}"));
        }
    }
    println!(
        "crd_admission: {passed} passed, {} failed; updates, which files cannot show: {}",
        failed.len(),
        updates.join(" ")
    );
    assert!(
        failed.is_empty(),
        "{} failed\n{}",
        failed.len(),
        failed.join("\n")
    );
    assert!(passed > 0, "no cases");
}

/// Pasted manifests without conversion: for every change that `migrate` makes to an object, `lint` reports a finding
/// with a fix.
#[test]
fn pasted_manifests_get_their_replacements() {
    let folder = data("manifests");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    names.sort();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        let sources = [source(&name, text)];
        let options = LintOptions {
            catalog: None,
            ..options(&[EC2])
        };
        let report = lint(&sources, &options);
        let migrated = migrate(&sources, &migrate::MigrateOptions::default());
        for change in &migrated.findings {
            let object = |finding: &&LintFinding| {
                let label = format!("{} {}", finding.kind, finding.name);
                label.trim() == change.object
                    || change.object.starts_with("part of") && finding.kind.is_empty()
            };
            let answered = report
                .findings
                .iter()
                .filter(object)
                .any(|finding| !finding.fix.is_empty());
            assert!(answered, "{name}: nothing is said about {change:?}");
        }
        let stem = name.trim_end_matches(".yaml");
        let mut text = render_table(&report).join("\n");
        text.push('\n');
        expect_file![folder.join(format!("linted/{stem}.txt"))].assert_eq(&text);
        // A converted manifest has no deprecated part, and its remaining problems need a decision of its author.
        let again = lint(&migrated.files, &options);
        let old = again
            .findings
            .iter()
            .find(|finding| finding.check == Check::Deprecated);
        assert_eq!(old, None, "{name}");
        for finding in again
            .findings
            .iter()
            .filter(|finding| finding.level == LintLevel::Error)
        {
            assert!(finding.kind.is_empty(), "{name}: {}", finding_text(finding));
        }
    }
}

const POOLS: &str = r#"# two pools
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: first
spec:
  weight: 10
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gone}
      requirements:
        - key: node.kubernetes.io/instance-type
          operator: In
          values:
            - m5.large
            - m5.lagre
  disruption:
    consolidateAfter: 1m
    budgets:
      - nodes: 10%
      - nodes: "0"
        schedule: 0 9 * * mon-fri
        duration: 8h
        reasons: [Drifted]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: second}
spec:
  weight: 10
  limit: {cpu: 10}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
  disruption:
    budgets: [{nodes: "0"}]
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: first}
spec:
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {template: {spec: {nodeSelector: {karpenter.sh/provisioner-name: x}}}}
"#;

#[test]
fn files_are_checked_together() {
    let sources = [
        source("pools.yaml", POOLS),
        source("class.yaml", good("EC2NodeClass").to_string()),
        source(
            "torn.yaml",
            "apiVersion: karpenter.sh/v1\nkind: [NodePool\nmetadata: {}\n",
        ),
        source(
            "chart/pool.yaml",
            "{{- if .Values.on }}\nkind: Deployment\n{{- end }}\n",
        ),
        source("values.yaml", "replicas: 3\n"),
    ];
    let report = lint(
        &sources,
        &LintOptions {
            nodes: Some(25),
            ..options(&[EC2])
        },
    );
    let mut text = render_table(&report).join("\n");
    text.push('\n');
    expect![[r#"
        pools.yaml:7: warning: NodePool first spec.weight: overlaps NodePool "second" at equal weight 10: the last by name is used; give them different weights [overlap]
        pools.yaml:10: warning: NodePool first spec.template.spec.nodeClassRef.name: EC2NodeClass "gone" is not defined in the files [node-class]
        pools.yaml:12: warning: NodePool first spec.template.spec.requirements[0]: instance-type: no instance type has "m5.lagre"; did you mean "m5.large"? [catalog]
        pools.yaml:30: warning: NodePool second spec.weight: overlaps NodePool "first" at equal weight 10: the last by name is used; give them different weights [overlap]
        pools.yaml:31: error: NodePool second spec.limit: {"cpu":10} is dropped: there is no such field; the fields are disruption, limits, replicas, template, weight; did you mean "limits"? [unknown-field]
        pools.yaml:35: warning: NodePool second spec.template.spec.requirements: arch: nodes may be of 2 architectures, and pods that name none run on any; require one, or name all that images have [architectures]
        pools.yaml:36: error: NodePool second spec.disruption.consolidateAfter: absent but required (text); add consolidateAfter: 1m [schema]
        pools.yaml:37: warning: NodePool second spec.disruption.budgets: no node may ever be disrupted (only expiry and interruption end nodes) for any reason [budgets]
        pools.yaml:41: warning: NodePool first metadata.name: is duplicated (pools.yaml:2): the one that is applied last takes effect; rename or remove one of them [duplicate]
        pools.yaml:42: error: NodePool first spec: absent but required (set of fields); add "spec" with set of fields [schema]
        pools.yaml:47: warning: Deployment web: passed through, but karpenter.sh/provisioner-name is karpenter.sh/nodepool now; write the new name [deprecated]
        torn.yaml:3: error: is not YAML: illegal placement of ':' indicator; fix indentation, quotes and brackets around this line [unreadable]

        Budgets of NodePool first (pools.yaml:2), Mon 2026-01-05 00:00 to Mon 2026-01-12 00:00 UTC
          [0] nodes 10%, any reason, holds always
          [1] nodes 0, Drifted, "0 9 * * mon-fri" for 8h
          Underutilized, Empty: 10% = 3 throughout these days  [0]
          Drifted:
            Mon 2026-01-05 00:00 - Mon 09:00  10% = 3  [0]
            Mon 2026-01-05 09:00 - Mon 17:00  none  [0] [1]
            Mon 2026-01-05 17:00 - Tue 09:00  10% = 3  [0]
            Tue 2026-01-06 09:00 - Tue 17:00  none  [0] [1]
            Tue 2026-01-06 17:00 - Wed 09:00  10% = 3  [0]
            Wed 2026-01-07 09:00 - Wed 17:00  none  [0] [1]
            Wed 2026-01-07 17:00 - Thu 09:00  10% = 3  [0]
            Thu 2026-01-08 09:00 - Thu 17:00  none  [0] [1]
            Thu 2026-01-08 17:00 - Fri 09:00  10% = 3  [0]
            Fri 2026-01-09 09:00 - Fri 17:00  none  [0] [1]
            Fri 2026-01-09 17:00 - Mon 00:00  10% = 3  [0]

        Budgets of NodePool second (pools.yaml:26), Mon 2026-01-05 00:00 to Mon 2026-01-12 00:00 UTC
          [0] nodes 0, any reason, holds always
          Underutilized, Empty, Drifted: never allows a node

        4 objects in 5 files: 4 errors, 8 warnings; passed over: 1 Deployment, 1 document without a kind, 1 template that is not rendered; no calendar of 1 NodePool, because of errors
    "#]].assert_eq(&text);
}

/// Budgets and workloads that block a drain indefinitely, alone or together with other objects in the files.
#[test]
fn blocked_drains_are_found() {
    let pdb = |name: &str, spec: &str| {
        format!(
            "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{selector: {{matchLabels: {{app: {name}}}}}, {spec}}}\n"
        )
    };
    let workload = |name: &str, more: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{more}template: {{metadata: {{labels: {{app: {name}}}}}}}}}\n"
        )
    };
    let of = |documents: &[String]| {
        let report = run(&documents.join("---\n"));
        report
            .findings
            .iter()
            .map(|found| format!("{} {}", found.line, finding_text(found)))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of(&[pdb("a", "maxUnavailable: 1"), workload("a", "")]),
        [""; 0]
    );
    for never in [
        "maxUnavailable: 0",
        "maxUnavailable: 0%",
        "minAvailable: 100%",
    ] {
        assert_eq!(of(&[pdb("a", never)]).len(), 1, "{never}");
    }
    let one = pdb("a", "minAvailable: 1");
    assert_eq!(
        of(std::slice::from_ref(&one)),
        [""; 0],
        "its pods are elsewhere"
    );
    assert_eq!(
        of(&[one.clone(), workload("a", "")]),
        [
            "4 warning spec.minAvailable: never allows an eviction (minAvailable 1 of 1 pod): nodes with such pods are never drained; write maxUnavailable: 1, or run more replicas"
        ]
    );
    assert_eq!(of(&[one.clone(), workload("a", "replicas: 2, ")]), [""; 0]);
    assert_eq!(of(&[one.clone(), workload("b", "")]), [""; 0], "other pods");
    let scaled = "apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a, namespace: shop}\nspec: {minReplicas: 3, scaleTargetRef: {kind: Deployment, name: a}}\n";
    assert_eq!(of(&[one, workload("a", ""), scaled.to_owned()]), [""; 0]);

    let protected = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\nspec:\n  template:\n    metadata:\n      annotations: {karpenter.sh/do-not-disrupt: \"true\"}\n".to_owned();
    let pool = |more: Value| {
        let mut pool = good("NodePool");
        pool["spec"]["template"]["spec"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        format!("{pool}\n")
    };
    let about = |pool: String| {
        let mut all = of(&[protected.clone(), pool]);
        all.retain(|line| line.contains("spec.template.metadata.annotations"));
        all
    };
    assert_eq!(about(pool(json!({ "expireAfter": "720h" }))).len(), 1);
    assert_eq!(about(pool(json!({ "expireAfter": "Never" }))), [""; 0]);
    assert_eq!(
        about(pool(
            json!({ "expireAfter": "720h", "terminationGracePeriod": "1h" })
        )),
        [""; 0]
    );
}

/// Requirements of SARIF 2.1.0: a version, runs with a tool that has a name; results with a message, a rule that the
/// tool has at the given index, one of four levels, and locations with relative references and lines from 1.
#[test]
fn sarif_meets_its_schema() {
    let report = lint(
        &[
            source("my pools.yaml", POOLS),
            source("torn.yaml", "kind: [NodePool of karpenter.sh\n"),
        ],
        &options(&[EC2]),
    );
    let log = render_sarif(&report, "1.2.3");
    assert_eq!(
        (&log["version"], &log["runs"][0]["tool"]["driver"]["name"]),
        (&json!("2.1.0"), &json!("mortise"))
    );
    let rules = log["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .unwrap();
    let results = log["runs"][0]["results"].as_array().unwrap();
    assert_eq!(results.len(), report.findings.len());
    assert!(results.len() > 5);
    for result in results {
        assert!(!result["message"]["text"].as_str().unwrap().is_empty());
        let index = usize::try_from(result["ruleIndex"].as_u64().unwrap()).unwrap();
        assert_eq!(rules[index]["id"], result["ruleId"]);
        assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
        let place = &result["locations"][0]["physicalLocation"];
        assert!(
            !place["artifactLocation"]["uri"]
                .as_str()
                .unwrap()
                .contains(' ')
        );
        assert!(place["region"]["startLine"].as_u64().unwrap() >= 1);
    }
    let json = render_json(&report);
    assert_eq!(json["findings"].as_array().unwrap().len(), results.len());
    assert_eq!(json["calendars"][0]["nodePool"], "first");
    let typed = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|each| each["check"] == "catalog")
        .unwrap();
    assert_eq!(
        (&typed["line"], &typed["nearest"], &typed["name"]),
        (&json!(12), &json!("m5.large"), &json!("first"))
    );
}

/// Every text yields a report.
#[test]
fn any_text_yields_a_report() {
    let options = LintOptions {
        catalog: None,
        ..options(&[EC2])
    };
    let mut ends = 0;
    for (end, _) in POOLS.char_indices().step_by(5) {
        let report = lint(&[source("cut.yaml", &POOLS[..end])], &options);
        assert!(
            report.findings.iter().all(|finding| finding.line > 0),
            "{end}"
        );
        ends += 1;
    }
    assert!(ends > 100);
    let ours = |kind: &str, rest: Value| {
        merged(
            json!({ "apiVersion": "karpenter.sh/v1", "kind": kind }),
            &rest,
        )
    };
    let odd = [
        json!(null),
        json!(7),
        json!("text"),
        json!([1, [2]]),
        json!({ "kind": 7, "apiVersion": [] }),
        json!({ "kind": "List", "items": "none" }),
        json!({ "kind": "List", "items": [7, { "kind": "NodePool" }] }),
        json!({ "spec": "text", "disruption": { "consolidateAfter": "1m" } }),
        json!({ "disruption": { "budgets": 7 } }),
        ours("NodePool", json!({ "metadata": 7, "spec": 7 })),
        ours(
            "NodePool",
            json!({ "metadata": { "name": {} , "labels": 7 }, "spec": { "template": [], "disruption": { "budgets": [7, {}] } } }),
        ),
        ours(
            "NodePool",
            json!({ "metadata": { "name": "x", "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{" } } }),
        ),
        ours("NodeClaim", json!({ "spec": [] })),
        json!({ "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": { "name": "x" }, "spec": { "kubelet": [], "amiSelectorTerms": 7 } }),
        json!({ "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": { "name": "x" }, "spec": { "requirements": {} } }),
    ];
    for value in odd {
        let report = lint(&[source("odd.json", value.to_string())], &options);
        let said = report.findings.len() + report.passed_over.values().sum::<usize>();
        assert!(said > 0 || value.is_null(), "{value}");
    }
}
