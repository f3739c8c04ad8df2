//! `migrate`: what becomes of manifests of every age, with their comments, and what is said about them.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: a panic is its failure"
)]

mod any_text;
mod forms;
mod node_groups;

use std::path::Path;

use expect_test::{Expect, expect, expect_file};
use mortise_manifests::migrate::{MigrateOptions, Migrated, MigrationLevel, SourceFile, migrate};
use serde_json::{Value, json};

fn source(name: &str, text: &str) -> SourceFile {
    SourceFile {
        name: name.to_owned(),
        text: text.to_owned(),
    }
}

fn run(text: &str) -> Migrated {
    migrate(&[source("in.yaml", text)], &MigrateOptions::default())
}

fn report(migrated: &Migrated) -> String {
    let lines: Vec<String> = migrated
        .findings
        .iter()
        .map(|each| {
            let field = if each.field.is_empty() {
                "-"
            } else {
                &each.field
            };
            format!(
                "{} {}:{} {} {field}: {}\n",
                each.level.label(),
                each.file,
                each.line,
                each.object,
                each.text
            )
        })
        .collect();
    lines.concat()
}

/// The text after it, and the findings after that.
#[track_caller]
fn becomes(text: &str, want: &Expect) {
    let migrated = run(text);
    want.assert_eq(&format!(
        "{}======\n{}",
        migrated.files[0].text,
        report(&migrated)
    ));
    settled(&migrated);
}

/// Converting what was converted changes nothing more.
#[track_caller]
fn settled(migrated: &Migrated) {
    let again = migrate(&migrated.files, &MigrateOptions::default());
    assert_eq!(again.files, migrated.files, "{}", report(&again));
    assert_eq!(again.changed, 0);
}

/// The objects in a text.
fn objects(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The one object that it becomes.
#[track_caller]
fn object(text: &str) -> Value {
    let mut all = objects(&run(text).files[0].text);
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn pasted_manifests() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/manifests");
    let mut names: Vec<String> = std::fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".yaml"))
        .collect();
    names.sort();
    assert!(names.len() >= 7, "{names:?}");
    for name in names {
        let text = std::fs::read_to_string(data.join(&name)).unwrap();
        let migrated = migrate(&[source(&name, &text)], &MigrateOptions::default());
        let stem = name.trim_end_matches(".yaml");
        expect_file![data.join(format!("migrated/{stem}.yaml"))].assert_eq(&migrated.files[0].text);
        expect_file![data.join(format!("migrated/{stem}.report"))].assert_eq(&report(&migrated));
        settled(&migrated);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn a_provisioner_with_its_template() {
    becomes(
        r#"# team: web
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner   # the old kind
metadata:
  name: web
spec:
  providerRef:
    name: web   # its template
  labels:
    team: web
  taints:
    - key: web
      effect: NoSchedule
  requirements:
    - key: node.kubernetes.io/instance-type
      operator: In
      values: [m5.large]
    - key: kubernetes.io/arch
      operator: In
      values: [arm64]
  limits:
    resources:
      cpu: 100 # cores
      memory: 1000Gi
  weight: 10
  # a day
  ttlSecondsUntilExpired: 86400
  consolidation:
    enabled: true # save
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata:
  name: web
spec:
  amiFamily: Bottlerocket
  instanceProfile: web-nodes
  subnetSelector: # private ones
    karpenter.sh/discovery: mine
    zone: a,b
  securityGroupSelector:
    aws-ids: sg-1, sg-2
  amiSelector:
    aws::name: img-*
    aws::owners: self,123456789012
"#,
        &expect![[r##"
            # team: web
            apiVersion: karpenter.sh/v1
            kind: NodePool   # the old kind
            metadata:
              name: web
            spec:
              template:
                metadata:
                  labels:
                    team: web
                spec:
                  taints:
                    - key: web
                      effect: NoSchedule
                  requirements:
                    - key: node.kubernetes.io/instance-type
                      operator: In
                      values: [m5.large]
                    - key: kubernetes.io/arch
                      operator: In
                      values: [arm64]
                    - key: kubernetes.io/os
                      operator: In
                      values: [linux]
                    - key: karpenter.sh/capacity-type
                      operator: In
                      values: [on-demand]
                  nodeClassRef:
                    name: web   # its template
                    group: karpenter.k8s.aws
                    kind: EC2NodeClass
                  expireAfter: 86400s  # a day
              limits:
                cpu: 100 # cores
                memory: 1000Gi
              weight: 10
              disruption:
                consolidationPolicy: WhenEmptyOrUnderutilized
                consolidateAfter: 0s  # save
            ---
            apiVersion: karpenter.k8s.aws/v1
            kind: EC2NodeClass
            metadata:
              name: web
            spec:
              amiFamily: Bottlerocket
              instanceProfile: web-nodes
              # private ones
              subnetSelectorTerms:
                - tags:
                    karpenter.sh/discovery: mine
                    zone: a
                - tags:
                    karpenter.sh/discovery: mine
                    zone: b
              securityGroupSelectorTerms:
                - id: sg-1
                - id: sg-2
              amiSelectorTerms:
                - name: "img-*"
                  owner: self
                - name: "img-*"
                  owner: "123456789012"
              metadataOptions:
                httpPutResponseHopLimit: 2
            ======
            converted in.yaml:2 Provisioner web -: Provisioner of karpenter.sh/v1alpha5 is NodePool of karpenter.sh/v1 now
            converted in.yaml:8 Provisioner web spec.providerRef: is spec.template.spec.nodeClassRef now
            converted in.yaml:8 Provisioner web spec.template.spec.nodeClassRef.group: karpenter.k8s.aws, the previous default
            converted in.yaml:8 Provisioner web spec.template.spec.nodeClassRef.kind: EC2NodeClass, the previous default
            converted in.yaml:10 Provisioner web spec.labels: is spec.template.metadata.labels now
            converted in.yaml:12 Provisioner web spec.taints: is spec.template.spec.taints now
            converted in.yaml:15 Provisioner web spec.requirements: is spec.template.spec.requirements now
            converted in.yaml:23 Provisioner web spec.limits.resources: is spec.limits now
            converted in.yaml:27 Provisioner web spec.ttlSecondsUntilExpired: is spec.template.spec.expireAfter: 86400s now
            converted in.yaml:29 Provisioner web spec.consolidation: is spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized and consolidateAfter: 0s now
            warning in.yaml:0 Provisioner web spec.template.spec.expireAfter: since v1 a node that reaches its age is replaced regardless of budgets, and a change of the age replaces existing nodes; terminationGracePeriod limits the drain duration
            converted in.yaml:0 Provisioner web spec.template.spec.expireAfter: 86400s is 24h
            converted in.yaml:0 Provisioner web spec.disruption.budgets: none: at most 10% of the nodes are disrupted at a time, the default
            converted in.yaml:0 Provisioner web spec.template.spec.requirements: kubernetes.io/os In linux: the default of a Provisioner
            converted in.yaml:0 Provisioner web spec.template.spec.requirements: karpenter.sh/capacity-type In on-demand: the default of a Provisioner
            converted in.yaml:31 AWSNodeTemplate web -: AWSNodeTemplate of karpenter.k8s.aws/v1alpha1 is EC2NodeClass of karpenter.k8s.aws/v1 now
            converted in.yaml:39 AWSNodeTemplate web spec.subnetSelector: is 2 terms, any of which may match, of spec.subnetSelectorTerms now
            converted in.yaml:42 AWSNodeTemplate web spec.securityGroupSelector: is 2 terms, any of which may match, of spec.securityGroupSelectorTerms now
            converted in.yaml:44 AWSNodeTemplate web spec.amiSelector: is 2 terms, any of which may match, of spec.amiSelectorTerms now
            warning in.yaml:44 AWSNodeTemplate web spec.amiSelector: AMI tags for an architecture or instance type are ignored: the newest compatible AMI is used
            converted in.yaml:0 AWSNodeTemplate web spec.metadataOptions.httpPutResponseHopLimit: 2, the previous default: pods reach the metadata service. The default is 1 now
        "##]],
    );
}

#[test]
fn a_provisioner_that_takes_nothing_away() {
    becomes(
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata:\n  name: plain\nspec:\n  provider:\n    apiVersion: extensions.karpenter.sh/v1alpha1\n    kind: AWS\n    # where\n    subnetSelector: {a: b}\n    securityGroupSelector: {a: b}\n    tags: {cost: 12}\n",
        &expect![[r#"
            apiVersion: karpenter.sh/v1
            kind: NodePool
            metadata:
              name: plain
            spec:
              template:
                spec:
                  nodeClassRef:
                    group: karpenter.k8s.aws
                    kind: EC2NodeClass
                    name: plain
                  expireAfter: Never
                  requirements:
                    - key: kubernetes.io/os
                      operator: In
                      values: [linux]
                    - key: kubernetes.io/arch
                      operator: In
                      values: [amd64]
                    - key: karpenter.sh/capacity-type
                      operator: In
                      values: [on-demand]
                    - key: karpenter.k8s.aws/instance-category
                      operator: In
                      values: [c, m, r]
                    - key: karpenter.k8s.aws/instance-generation
                      operator: Gt
                      values: ["2"]
              disruption:
                consolidationPolicy: WhenEmpty
                consolidateAfter: Never
            ---
            apiVersion: karpenter.k8s.aws/v1
            kind: EC2NodeClass
            metadata:
              name: plain
            spec:
              amiSelectorTerms:
                - alias: al2@latest
              # where
              subnetSelectorTerms:
                - tags:
                    a: b
              securityGroupSelectorTerms:
                - tags:
                    a: b
              tags: {cost: "12"}
              metadataOptions:
                httpPutResponseHopLimit: 2
            ======
            converted in.yaml:1 Provisioner plain -: Provisioner of karpenter.sh/v1alpha5 is NodePool of karpenter.sh/v1 now
            converted in.yaml:7 Provisioner plain spec.provider: is an EC2NodeClass "plain" of its own now
            converted in.yaml:10 Provisioner plain spec.subnetSelector: is one term of spec.subnetSelectorTerms now
            converted in.yaml:11 Provisioner plain spec.securityGroupSelector: is one term of spec.securityGroupSelectorTerms now
            converted in.yaml:0 Provisioner plain spec.disruption.consolidateAfter: spec.disruption.consolidationPolicy: WhenEmpty and consolidateAfter: Never: a Provisioner without ttlSecondsAfterEmpty and consolidation took no nodes away; by default a NodePool does
            converted in.yaml:0 Provisioner plain spec.template.spec.expireAfter: Never: nodes of a Provisioner without ttlSecondsUntilExpired did not expire; by default those of a NodePool do after 720h
            converted in.yaml:0 Provisioner plain spec.disruption.budgets: none: at most 10% of the nodes are disrupted at a time, the default
            converted in.yaml:0 Provisioner plain spec.template.spec.requirements: kubernetes.io/os In linux: the default of a Provisioner
            converted in.yaml:0 Provisioner plain spec.template.spec.requirements: kubernetes.io/arch In amd64: the default of a Provisioner
            converted in.yaml:0 Provisioner plain spec.template.spec.requirements: karpenter.sh/capacity-type In on-demand: the default of a Provisioner
            converted in.yaml:0 Provisioner plain spec.template.spec.requirements: karpenter.k8s.aws/instance-category In c, m, r and karpenter.k8s.aws/instance-generation Gt 2: a Provisioner meant it where no type was chosen
            converted in.yaml:0 Provisioner plain spec.amiFamily: AL2, the previous default, is the image alias al2@latest now
            warning in.yaml:0 Provisioner plain spec.amiFamily: there are no AL2 images for Kubernetes 1.33 and later: AL2023 (alias al2023@latest) takes user data in another form
            error in.yaml:0 Provisioner plain spec.role: the IAM role was a setting of the cluster: set it with --role or --instance-profile
            converted in.yaml:0 Provisioner plain spec.metadataOptions.httpPutResponseHopLimit: 2, the previous default: pods reach the metadata service. The default is 1 now
        "#]],
    );
}

#[test]
fn kubelet_settings_go_to_classes() {
    let pool = |name: &str, kubelet: &str| {
        format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: {name}}}\nspec:\n  template:\n    spec:\n      requirements: []\n      expireAfter: Never\n      nodeClassRef: {{name: shared}}\n{kubelet}"
        )
    };
    let class = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: shared}\nspec:\n  role: r\n  amiSelectorTerms: [{alias: al2023@latest}]\n  subnetSelectorTerms: [{id: subnet-1}]\n  securityGroupSelectorTerms: [{id: sg-1}]\n";
    let small = "      kubelet: {maxPods: 10}\n";
    let large = "      kubelet:\n        maxPods: 200   # many\n";
    let classes = |text: &str| -> Vec<(String, Value)> {
        objects(&run(text).files[0].text)
            .into_iter()
            .filter(|each| each["kind"] == "EC2NodeClass")
            .map(|each| {
                (
                    each["metadata"]["name"].as_str().unwrap().to_owned(),
                    each["spec"]["kubelet"].clone(),
                )
            })
            .collect()
    };
    let of = |text: &str| -> Vec<String> {
        objects(&run(text).files[0].text)
            .into_iter()
            .filter(|each| each["kind"] == "NodePool")
            .map(|each| {
                each["spec"]["template"]["spec"]["nodeClassRef"]["name"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect()
    };
    // All pools of the class say the same: the class says it.
    let alike = [pool("a", small), pool("b", small), class.to_owned()].join("---\n");
    assert_eq!(
        classes(&alike),
        [("shared".to_owned(), json!({ "maxPods": 10 }))]
    );
    assert_eq!(of(&alike), ["shared", "shared"]);
    // Each its own: a copy for each, the same at every run, whatever the order.
    let unlike = [
        class.to_owned(),
        pool("a", small),
        pool("b", large),
        pool("c", ""),
        pool("d", small),
    ]
    .join("---\n");
    let found = classes(&unlike);
    assert_eq!(found.len(), 3, "{found:?}");
    assert_eq!(found[0], ("shared".to_owned(), Value::Null));
    let named = of(&unlike);
    assert_eq!(named[0], named[3]);
    assert_eq!(named[2], "shared");
    let reversed = [
        pool("d", small),
        pool("c", ""),
        pool("b", large),
        pool("a", small),
        class.to_owned(),
    ]
    .join("---\n");
    let mut backwards = of(&reversed);
    backwards.reverse();
    assert_eq!(backwards, named);
    // A class that is not here: the settings stay, and the user has to check them.
    let alone = run(&pool("a", small));
    assert_eq!(alone.worst(), MigrationLevel::Error);
    assert!(alone.files[0].text.contains("maxPods: 10"));
}

#[test]
fn traps() {
    let beta = |disruption: &str| {
        object(&format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: x}}\nspec:\n  disruption: {disruption}\n  template: {{spec: {{requirements: [], nodeClassRef: {{name: y}}}}}}\n"
        ))
    };
    // Switched off stays switched off.
    let off = beta("{consolidationPolicy: WhenUnderutilized, consolidateAfter: Never}");
    assert_eq!(
        off["spec"]["disruption"],
        json!({ "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "Never" })
    );
    let on = beta("{consolidationPolicy: WhenUnderutilized}");
    assert_eq!(on["spec"]["disruption"]["consolidateAfter"], "0s");
    // What says nothing about disruption means the same in both versions.
    let quiet = object(
        "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: x}\nspec:\n  template: {spec: {requirements: [], nodeClassRef: {name: y}}}\n",
    );
    assert_eq!(
        quiet["spec"]
            .as_object()
            .unwrap()
            .keys()
            .collect::<Vec<_>>(),
        ["template"]
    );
    // A Provisioner that says nothing takes no node away.
    let old = object(
        "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: x}\nspec: {providerRef: {name: y}}\n",
    );
    assert_eq!(old["spec"]["disruption"]["consolidateAfter"], "Never");
    assert_eq!(old["spec"]["template"]["spec"]["expireAfter"], "Never");
    let keys: Vec<&str> = old["spec"]["template"]["spec"]["requirements"]
        .as_array()
        .unwrap()
        .iter()
        .map(|each| each["key"].as_str().unwrap())
        .collect();
    assert_eq!(
        keys,
        [
            "kubernetes.io/os",
            "kubernetes.io/arch",
            "karpenter.sh/capacity-type",
            "karpenter.k8s.aws/instance-category",
            "karpenter.k8s.aws/instance-generation"
        ]
    );
    // The metadata service answered pods.
    let class = "kind: EC2NodeClass\nmetadata: {name: x}\nspec: {role: r, amiFamily: AL2023, subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}]}\n";
    let hops = |version: &str| {
        object(&format!("apiVersion: karpenter.k8s.aws/{version}\n{class}"))["spec"]["metadataOptions"].clone()
    };
    assert_eq!(hops("v1beta1"), json!({ "httpPutResponseHopLimit": 2 }));
    assert_eq!(hops("v1"), Value::Null);
}

#[test]
fn half_right_pools() {
    becomes(
        "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata:\n  name: mixed\nspec:\n  ttlSecondsAfterEmpty: 30   # soon\n  expireAfter: 30d\n  template:\n    spec:\n      nodeClassRef: mine\n      requirements:\n        - key: karpenter.k8s.aws/instance-generation\n          operator: Gt\n          values: [2]\n  limits: {cpu: 10}\ndisruption:\n  consolidationPolicy: WhenUnderutilised\n  budgets:\n    - nodes: 10\n      schedule: '@daily'\n      duration: 3600s\n      reasons: [Empty, drifted]\n    - schedule: '@daily'\n",
        &expect![[r#"
            apiVersion: karpenter.sh/v1
            kind: NodePool
            metadata:
              name: mixed
            spec:
              template:
                spec:
                  nodeClassRef:
                    name: mine
                    group: karpenter.k8s.aws
                    kind: EC2NodeClass
                  requirements:
                    - key: karpenter.k8s.aws/instance-generation
                      operator: Gt
                      values: ["2"]
                  expireAfter: 720h
              limits: {cpu: 10}
              disruption:
                consolidationPolicy: WhenUnderutilised
                budgets:
                  - nodes: "10"
                    schedule: '@daily'
                    duration: 3600s
                    reasons: [Empty, Drifted]
                  - schedule: '@daily'
                    nodes: "10%"
                consolidateAfter: 30s  # soon
            ======
            warning in.yaml:6 NodePool mixed spec.ttlSecondsAfterEmpty: is not a field of a NodePool and has no effect on consolidation; it is spec.disruption.consolidationPolicy: WhenEmpty and consolidateAfter: 30s now
            warning in.yaml:7 NodePool mixed spec.expireAfter: is spec.template.spec.expireAfter now; its old path is ignored
            warning in.yaml:7 NodePool mixed spec.template.spec.expireAfter: "30d" is not a duration of the API (like 30s, 5m, 720h); interpreted as 720h
            warning in.yaml:10 NodePool mixed spec.template.spec.nodeClassRef: is a group, a kind and a name
            warning in.yaml:17 NodePool mixed disruption: is spec.disruption now; its old path is ignored
            error in.yaml:17 NodePool mixed spec.disruption.consolidationPolicy: "WhenUnderutilised" is none of WhenEmpty, WhenEmptyOrUnderutilized, Balanced
            warning in.yaml:22 NodePool mixed spec.disruption.budgets[0].reasons: "drifted" is none of Underutilized, Empty, Drifted; interpreted as Drifted
            converted in.yaml:23 NodePool mixed spec.disruption.budgets[1].nodes: 10%, the default
            error in.yaml:23 NodePool mixed spec.disruption.budgets[1].duration: a schedule requires a duration (like 8h); add one, or remove the schedule
            converted in.yaml:0 NodePool mixed spec.template.spec.nodeClassRef.group: karpenter.k8s.aws, the previous default
            converted in.yaml:0 NodePool mixed spec.template.spec.nodeClassRef.kind: EC2NodeClass, the previous default
        "#]],
    );
}

#[test]
fn other_kinds_pass_through() {
    let text = "# ours\napiVersion: apps/v1\nkind:   Deployment\nmetadata: { name: web }\nspec:\n  template:\n    metadata:\n      annotations: { karpenter.sh/do-not-evict: 'true' }\n    spec:\n      nodeSelector:\n          karpenter.sh/provisioner-name: web\n---\nkind: ConfigMap\nmetadata: {name: karpenter-global-settings}\ndata:\n  aws.clusterName: mine\n---\n\napiVersion: container.example.com/v1beta1\nkind: NodePool\nspec: {disruption: {}}\n...\n";
    let migrated = run(text);
    assert_eq!(migrated.files[0].text, text);
    assert_eq!((migrated.changed, migrated.untouched), (0, 3));
    assert_eq!(migrated.worst(), MigrationLevel::Warning);
    let said = report(&migrated);
    for part in [
        "in.yaml:8 Deployment web",
        "karpenter.sh/do-not-disrupt now",
        "karpenter.sh/nodepool now",
        "CLUSTER_NAME",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

#[test]
fn what_cannot_be_converted_says_so() {
    let class = |spec: &str| {
        format!(
            "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {{name: x}}\nspec:\n  instanceProfile: p\n  subnetSelector: {{a: b}}\n  securityGroupSelector: {{a: b}}\n  {spec}\n"
        )
    };
    let pool = |spec: &str| {
        format!(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {{name: x}}\nspec:\n  {spec}\n"
        )
    };
    for (text, parts) in [
        (class("launchTemplate: mine"), vec!["spec.launchTemplate", "not supported"]),
        (class("amiFamily: Custom"), vec!["spec.amiSelectorTerms", "Custom"]),
        (class("amiFamily: Ubuntu"), vec!["Ubuntu", "amiSelectorTerms"]),
        (class("tags: {karpenter.sh/nodepool: x}"), vec!["spec.tags", "karpenter.sh/nodepool"]),
        (class("amiSelector: {a: ''}"), vec!["spec.amiSelector", "no value"]),
        ("apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nmetadata: {name: x}\nspec: {amiFamily: AL2023}\n".to_owned(), vec!["spec.role", "--role", "spec.subnetSelectorTerms"]),
        (pool("disruption: now"), vec!["spec.disruption", "\"now\"", "no map"]),
        (pool("template: {spec: {requirements: {}, nodeClassRef: {name: y}}}"), vec!["requirements", "no list"]),
        (pool("disruption: {consolidateAfter: soon}"), vec!["consolidateAfter", "\"soon\"", "or Never"]),
        (pool("disruption: {consolidateAfter: 1m, budgets: [{nodes: '1', schedule: '@daily'}]}"), vec!["budgets[0].duration", "8h"]),
        ("apiVersion: karpenter.sh/v1alpha5\nkind: Machine\nmetadata: {name: x}\n".to_owned(), vec!["Machine x", "not converted"]),
        ("apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: {{ .Values.name }}}\n".to_owned(), vec!["in.yaml:3", "helm template"]),
        ("apiVersion: karpenter.sh/v1\nkind: NodePool\nkind: NodePool\n".to_owned(), vec!["in.yaml:3", "\"kind\"", "twice"]),
    ] {
        let migrated = run(&text);
        assert_eq!(migrated.worst(), MigrationLevel::Error, "{text}{}", report(&migrated));
        let said = report(&migrated);
        for part in parts {
            assert!(said.contains(part), "{part:?} is not in {said} of {text}");
        }
    }
}

#[test]
fn a_role_that_was_asked_for() {
    let text = "apiVersion: karpenter.k8s.aws/v1alpha1\nkind: AWSNodeTemplate\nmetadata: {name: x}\nspec:\n  instanceProfile: p # old\n  subnetSelector: {a: b}\n  securityGroupSelector: {a: b}\n";
    let with = |role: Option<&str>, profile: Option<&str>| {
        let options = MigrateOptions {
            role: role.map(str::to_owned),
            instance_profile: profile.map(str::to_owned),
            ..MigrateOptions::default()
        };
        migrate(&[source("in.yaml", text)], &options).files[0]
            .text
            .clone()
    };
    assert!(
        with(Some("r"), None).contains("role: r  # old")
            && !with(Some("r"), None).contains("instanceProfile")
    );
    assert!(with(None, Some("q")).contains("instanceProfile: p # old"));
}
