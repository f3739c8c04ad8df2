//! Node groups and flags of Cluster Autoscaler: what becomes of each form, and what is said about bad ones.

use std::path::{Path, PathBuf};

use expect_test::expect_file;
use mortise_manifests::lint::{LintOptions, lint};
use mortise_manifests::migrate::{
    MigrateOptions, Migrated, MigrationLevel, from_cluster_autoscaler,
};
use proptest::prelude::*;
use serde_json::Value;

use self::node_classes::{EC2, crds};
use super::{objects, source};

#[path = "../../../../webhooks/tests/node_classes/mod.rs"]
mod node_classes;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/node_groups")
}

fn with(texts: &[(&str, &str)], options: &MigrateOptions) -> Migrated {
    let sources: Vec<_> = texts
        .iter()
        .map(|(name, text)| source(name, text))
        .collect();
    from_cluster_autoscaler(&sources, options)
}

fn run(text: &str) -> Migrated {
    with(&[("in.yaml", text)], &MigrateOptions::default())
}

fn report(migrated: &Migrated) -> String {
    let lines: Vec<String> = migrated
        .findings
        .iter()
        .map(|finding| format!("{finding}\n"))
        .collect();
    lines.concat()
}

/// What admission says of the result, without instance types.
fn linted(migrated: &Migrated) -> Vec<String> {
    let crds = crds(&[EC2]);
    let options = LintOptions {
        well_known: crds.served().well_known(),
        crds,
        catalog: None,
        from: "2026-01-05T00:00:00Z".parse().unwrap(),
        nodes: None,
    };
    let report = lint(&migrated.files, &options);
    let line = |finding: &mortise_manifests::lint::LintFinding| {
        format!(
            "{} {}: {}",
            finding.level.label(),
            finding.field,
            finding.message()
        )
    };
    report.findings.iter().map(line).collect()
}

/// The objects of a kind.
fn of_kind(migrated: &Migrated, kind: &str) -> Vec<Value> {
    let all = migrated.files.iter().flat_map(|file| objects(&file.text));
    all.filter(|object| object["kind"] == kind).collect()
}

/// The result passes `lint`, once nothing is missing: no errors here means no findings there.
#[test]
fn each_form_has_its_result() {
    let cases: [(&str, &[&str]); 5] = [
        ("eksctl", &["cluster-autoscaler.yaml", "eksctl.yaml"]),
        ("eks", &["eks.json"]),
        (
            "scaling-groups",
            &["kube-system.yaml", "scaling-groups.json"],
        ),
        ("unmanaged", &["unmanaged.yaml"]),
        ("cluster-api", &["cluster-api.yaml"]),
    ];
    for (stem, names) in cases {
        let texts: Vec<String> = names
            .iter()
            .map(|name| std::fs::read_to_string(data().join(name)).unwrap())
            .collect();
        let sources: Vec<(&str, &str)> = names
            .iter()
            .copied()
            .zip(texts.iter().map(String::as_str))
            .collect();
        let migrated = with(&sources, &MigrateOptions::default());
        assert_eq!(
            migrated,
            with(&sources, &MigrateOptions::default()),
            "{stem}"
        );
        if let Some(file) = migrated.files.first() {
            expect_file![data().join(format!("migrated/{stem}.yaml"))].assert_eq(&file.text);
        }
        expect_file![data().join(format!("migrated/{stem}.report"))].assert_eq(&report(&migrated));
        if migrated.worst() != MigrationLevel::Error {
            assert_eq!(linted(&migrated), Vec::<String>::new(), "{stem}");
        }
    }
}

/// A file of eksctl with one group.
fn eksctl(fields: &str) -> String {
    format!(
        "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {{name: shop}}\nmanagedNodeGroups:\n- name: one\n  minSize: 0\n  maxSize: 4\n  instanceType: m5.large\n  iam: {{instanceRoleName: nodes}}\n{fields}"
    )
}

#[test]
fn bad_groups_have_errors_that_say_what_is_allowed() {
    let cases = [
        (eksctl("  amiFamily: Solaris\n"), "in.yaml:10: error: managedNodeGroups one amiFamily: \"Solaris\" is no family of images"),
        (eksctl("  amiFamily: AmazonLinux2032\n"), "in.yaml:10: warning: managedNodeGroups one amiFamily: \"AmazonLinux2032\" is not known; interpreted as AmazonLinux2023"),
        (eksctl("  amiFamily: Ubuntu2204\n"), "error: managedNodeGroups one amiFamily: there is no alias for images of Ubuntu2204"),
        (eksctl("  taints: [{key: a, value: b, effect: NoShedule}]\n"), "warning: managedNodeGroups one taints: a: effect \"NoShedule\" is none of NoSchedule, NoExecute, PreferNoSchedule; interpreted as NoSchedule"),
        (eksctl("  taints: {a: 'b:Whatever'}\n"), "error: managedNodeGroups one taints: a: effect \"Whatever\" is none of"),
        (eksctl("  taints: [{value: b, effect: NoSchedule}]\n"), "error: managedNodeGroups one taints: has a taint without a key"),
        (eksctl("  desiredCapcity: 3\n"), "error: managedNodeGroups one desiredCapcity: is not a field that is known here, and is not converted; desiredCapacity is meant, perhaps"),
        (eksctl("").replace("minSize: 0", "minSize: 5"), "in.yaml:5: error: managedNodeGroups one: its minimum size 5 is above its maximum size 4"),
        (eksctl("").replace("maxSize: 4", "maxSize: four"), "error: managedNodeGroups one maxSize: \"four\" must be an integer"),
        (eksctl("").replace("instanceType: m5.large", "launchTemplate: {id: lt-1}"), "error: managedNodeGroups one: has no instance types that are known"),
        (eksctl("").replace("  iam: {instanceRoleName: nodes}\n", ""), "error: EC2NodeClass shop spec.role: the IAM role of the nodes is not part of the input: set it with --role"),
        (eksctl("").replace("v1alpha5", "v1alpha4"), "warning: ClusterConfig shop apiVersion: \"eksctl.io/v1alpha4\" is not eksctl.io/v1alpha5; interpreted as it"),
        ("{\"nodegroup\": {\"nodegroupName\": \"a\",}\n".to_owned(), "error: document: is neither YAML nor JSON"),
        ("a: [\n".to_owned(), "error: document: is neither YAML nor JSON"),
        ("{\"nodegroups\": [\"a\", \"b\"]}".to_owned(), "error: nodegroups: has names alone: pass the output of `aws eks describe-nodegroup`"),
        ("autoDiscovery: {clusterName: x}\n".to_owned(), "looks like values of the chart cluster-autoscaler: render it"),
        (String::new(), "error: input: has no node groups: pass a ClusterConfig of eksctl"),
        ("{\"AutoScalingGroups\": [{\"AutoScalingGroupName\": \"a\", \"MinSize\": 0, \"MaxSize\": 1}]}".to_owned(), "error: AutoScalingGroup a: has no instance types that are known"),
    ];
    for (text, want) in cases {
        let report = report(&run(&text));
        assert!(report.contains(want), "{want}\n{report}\n{text}");
    }
}

#[test]
fn minimum_sizes_are_replicas() {
    let pools = |low: u64, high: u64| {
        let text = eksctl("  privateNetworking: true\n")
            .replace("minSize: 0", &format!("minSize: {low}"))
            .replace("maxSize: 4", &format!("maxSize: {high}"));
        let migrated = run(&text);
        let gate = migrated
            .flags
            .iter()
            .any(|flag| flag == "--feature-gates=StaticCapacity=true");
        assert_eq!(gate, low > 0);
        assert_eq!(linted(&migrated), Vec::<String>::new());
        of_kind(&migrated, "NodePool")
            .iter()
            .map(|pool| {
                format!(
                    "{} {} {}",
                    pool["metadata"]["name"].as_str().unwrap(),
                    pool["spec"]["replicas"],
                    pool["spec"]["limits"]["nodes"]
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(pools(0, 4), ["one null 4"]);
    assert_eq!(pools(0, 0), ["one null 0"]);
    assert_eq!(pools(4, 4), ["one 4 null"]);
    assert_eq!(pools(1, 4), ["one-minimum 1 null", "one null 3"]);
}

#[test]
fn the_same_group_in_two_forms_is_one() {
    let asg = r#"{"AutoScalingGroups": [{"AutoScalingGroupName": "eks-one-0a", "MinSize": 0, "MaxSize": 4, "Tags": [{"Key": "eks:nodegroup-name", "Value": "one"}]}]}"#;
    let migrated = with(
        &[("a.yaml", &eksctl("")), ("b.json", asg)],
        &MigrateOptions::default(),
    );
    assert_eq!(of_kind(&migrated, "NodePool").len(), 1);
    let said = report(&migrated);
    assert!(said.contains("b.json:1: converted: AutoScalingGroup eks-one-0a: is managedNodeGroups one, which is converted"), "{said}");
}

#[test]
fn what_only_the_user_knows_is_an_option() {
    let text = r#"{"AutoScalingGroupName": "a", "MinSize": 0, "MaxSize": 1, "MixedInstancesPolicy": {"LaunchTemplate": {"Overrides": [{"InstanceType": "m5.large"}]}}}"#;
    let options = MigrateOptions {
        role: Some("nodes".to_owned()),
        cluster_name: Some("shop".to_owned()),
        ..MigrateOptions::default()
    };
    let migrated = with(&[("in.json", text)], &options);
    let class = &of_kind(&migrated, "EC2NodeClass")[0];
    assert_eq!(class["metadata"]["name"], "shop");
    assert_eq!(class["spec"]["role"], "nodes");
    assert_eq!(
        class["spec"]["subnetSelectorTerms"][0]["tags"]["karpenter.sh/discovery"],
        "shop"
    );
    assert!(migrated.flags.contains(&"--cluster-name=shop".to_owned()));
    // The images are in the launch template.
    let missing: Vec<&str> = migrated
        .findings
        .iter()
        .filter(|finding| finding.level == MigrationLevel::Error)
        .map(|finding| finding.field.as_str())
        .collect();
    assert_eq!(missing, ["spec.amiSelectorTerms"]);
}

/// Parts that few groups have: reservations, other disks, settings of one group, several shares of on-demand nodes.
#[test]
fn rare_settings_are_converted() {
    let mut text = eksctl(
        "  capacityReservation: {capacityReservationTarget: {capacityReservationID: cr-0a1}}\n  amiFamily: Bottlerocket\n  volumeSize: 30\n  disablePodIMDS: true\n  placement: {groupName: near}\n  updateConfig: {maxUnavailable: 3}\n  subnets: [subnet-0a]\n  securityGroups: {withShared: false, attachIDs: [sg-0a]}\n",
    );
    text.push_str("nodeGroups:\n- name: two\n  minSize: 0\n  maxSize: 2\n  instanceSelector: {vCPUs: 4, memory: 8GiB}\n  instancesDistribution: {onDemandPercentageAboveBaseCapacity: 30}\n  iam: {instanceRoleName: nodes}\n");
    text.push_str("---\nkind: Deployment\nmetadata: {name: ca}\nspec: {template: {spec: {containers: [{image: cluster-autoscaler, args: [--max-nodes-total=9, --max-drain-parallelism=2, --max-scale-down-parallelism=5]}]}}}\n");
    let migrated = run(&text);
    // Two groups that take the same pods are reported by both.
    let linted = linted(&migrated);
    let overlap = |line: &String| line.starts_with("warning spec.weight: overlaps NodePool");
    assert!(
        linted.len() == 2 && linted.iter().all(overlap),
        "{linted:?}"
    );
    let rivals = "warning: NodePools spec.weight: one, two take the same pods at equal weight";
    assert!(report(&migrated).contains(rivals));
    let class = &of_kind(&migrated, "EC2NodeClass")[0]["spec"];
    assert_eq!(class["capacityReservationSelectorTerms"][0]["id"], "cr-0a1");
    assert_eq!(class["blockDeviceMappings"][1]["ebs"]["volumeSize"], "30Gi");
    assert_eq!(class["placementGroupSelector"]["name"], "near");
    assert_eq!(
        class["securityGroupSelectorTerms"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert!(class.get("metadataOptions").is_none());
    let pools = of_kind(&migrated, "NodePool");
    assert_eq!(
        pools[0]["spec"]["template"]["spec"]["requirements"][1]["values"][0],
        "reserved"
    );
    let budgets = &pools[0]["spec"]["disruption"]["budgets"];
    let nodes: Vec<&str> = budgets
        .as_array()
        .unwrap()
        .iter()
        .map(|budget| budget["nodes"].as_str().unwrap())
        .collect();
    assert_eq!(nodes, ["5", "2", "3"]);
    let of_two = &pools[1]["spec"]["template"]["spec"]["requirements"];
    assert_eq!(
        (&of_two[0]["values"][0], &of_two[1]["values"][0]),
        (&"4".into(), &"8192".into())
    );
    let policies = of_kind(&migrated, "NodePoolPolicy");
    assert_eq!(policies.len(), 2);
    assert_eq!(
        policies[1]["spec"]["scaling"]["onDemand"]["percentageAboveBase"],
        30
    );
    let said = report(&migrated);
    assert!(
        said.contains("--max-nodes-total: each of 2 NodePoolPolicies has limits.nodes: 9"),
        "{said}"
    );
}

const LINES: &[&str] = &[
    "apiVersion: eksctl.io/v1alpha5",
    "kind: ClusterConfig",
    "metadata: {name: x}",
    "managedNodeGroups:",
    "nodeGroups:",
    "- name: a",
    "  instanceType: m5.large",
    "  minSize: 3",
    "  maxSize: 1",
    "  taints: {a: b}",
    "  labels: [1]",
    "  iam: 3",
    "- 4",
    "kind: List",
    "items:",
    "- kind: Deployment",
    "  spec: {template: {spec: {containers: [{image: cluster-autoscaler, args: [--nodes=1:2:a, --expander, -v]}]}}}",
    "AutoScalingGroups: [{AutoScalingGroupName: a, MinSize: x, Tags: [{Key: 'k8s.io/cluster-autoscaler/node-template/taint/a'}]}]",
    "nodegroup: {nodegroupName: a, taints: [{}], scalingConfig: 3}",
    "---",
    "{}",
    "[]",
];

proptest! {
    /// Whatever is pasted: no panic, the same result twice, and every finding has something to say.
    #[test]
    fn any_text_is_survived(lines in prop::collection::vec(0..LINES.len(), 0..16)) {
        let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let migrated = run(&text);
        prop_assert_eq!(&migrated, &run(&text));
        for finding in &migrated.findings {
            prop_assert!(!finding.text.is_empty() && finding.line <= text.lines().count() + 1, "{}", finding);
        }
    }
}
