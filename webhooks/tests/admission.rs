//! Admission of manifests with one mistake each, and in a cluster with nodes and pods.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking where its expectation stands"
)]

mod test_cluster;

use serde::Deserialize;
use serde_json::{Value, json};
use test_cluster::{TestCluster, WARNING_MAX, good, merged, pool, warned};

const BAD_MANIFESTS: &str = include_str!("data/bad_manifests.yaml");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bad {
    name: String,
    kind: String,
    /// `kwok` for its CRDs.
    #[serde(default)]
    set: String,
    #[serde(default)]
    answer: String,
    change: Value,
    from: Option<Value>,
    says: [String; 4],
}

#[test]
fn bad_manifests_are_denied_with_field_value_allowed_values_and_a_fix() {
    let rows: Vec<Bad> = serde_saphyr::from_str(BAD_MANIFESTS).unwrap();
    assert!(rows.len() >= 60, "{} manifests", rows.len());
    let mut wrong = Vec::new();
    for row in &rows {
        let mut cluster = if row.set == "kwok" {
            TestCluster::kwok()
        } else {
            TestCluster::new()
        };
        let object = merged(good(&row.kind), &row.change);
        let answer = match &row.from {
            Some(from) => {
                let old = merged(good(&row.kind), from);
                cluster.admit("UPDATE", &object, Some(&old))
            }
            None => cluster.admit("CREATE", &object, None),
        };
        let warnings = if row.answer == "warning" {
            &answer.warnings
        } else {
            &answer.denied
        };
        let holds = |text: &&String| row.says.iter().all(|part| text.contains(part.as_str()));
        let fitting = warnings
            .iter()
            .find(holds)
            .is_some_and(|text| row.answer != "warning" || text.chars().count() <= WARNING_MAX);
        if !fitting {
            wrong.push(format!(
                "{}: {:?} is not in {answer:#?}",
                row.name, row.says
            ));
        }
        // One mistake yields one message.
        if answer.denied.len() > 1 {
            wrong.push(format!("{}: {answer:#?}", row.name));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} manifests:\n{}",
        wrong.len(),
        rows.len(),
        wrong.join("\n")
    );
}

#[test]
fn valid_manifests_get_no_warnings() {
    for kind in ["NodePool", "NodeClaim", "CapacityBuffer", "EC2NodeClass"] {
        let answer = TestCluster::new().admit("CREATE", &good(kind), None);
        assert_eq!(answer.denied, Vec::<String>::new(), "{kind}");
        assert_eq!(answer.warnings, Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn unsatisfiable_pools_are_denied_if_configured() {
    let arm = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5"] },
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] },
    ] } } } });
    let answer = TestCluster::new()
        .strict()
        .admit("CREATE", &pool("arm", &arm), None);
    assert_eq!(
        answer.denied,
        [
            "no instance type is left: arch In [arm64] removes the last 2 of 4; \"amd64\" (2) would allow some"
        ]
    );
    // Each label exists, but no offering has both.
    let mut cluster = TestCluster::new();
    let answer = cluster.admit(
        "CREATE",
        &pool(
            "numbers",
            &json!({ "spec": { "template": { "spec": { "requirements": [
            { "key": "karpenter.k8s.aws/instance-cpu", "operator": "Gt", "values": ["64"] },
        ] } } } }),
        ),
        None,
    );
    assert_eq!(
        warned(&answer),
        [
            "no instance type is left: instance-cpu >=65 removes the last 4 of 4; \"2\" (3) or \"4\" (1) would allow some"
        ]
    );
}

#[test]
fn reserved_capacity_of_a_class_that_selects_no_reservations_is_named() {
    let reserved = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["reserved"] },
    ] } } } });
    let reserved = pool("reserved", &reserved);
    let mut cluster = TestCluster::new();
    let contradiction = "capacity-type: EC2NodeClass \"default\" selects no reservations; add capacityReservationSelectorTerms or allow on-demand";
    let answer = cluster.admit("CREATE", &reserved, None);
    assert_eq!(warned(&answer)[0], contradiction);
    let terms = json!([{ "id": "cr-0123456789abcdef0" }]);
    let terms = json!({ "spec": { "capacityReservationSelectorTerms": terms } });
    cluster.class("default", terms);
    let answer = cluster.admit("CREATE", &reserved, None);
    assert!(!warned(&answer).contains(&contradiction.to_owned()));
}

#[test]
fn a_class_that_is_not_ready_is_named_with_its_reason() {
    let mut cluster = TestCluster::new();
    cluster.class("default", json!({ "status": { "conditions": [
        { "type": "SubnetsReady", "status": "False", "reason": "SubnetsNotFound", "message": "SubnetSelector did not match any Subnets" },
        { "type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": "SubnetsReady=False" },
    ] } }));
    let answer = cluster.admit("CREATE", &good("NodePool"), None);
    assert_eq!(
        warned(&answer),
        [
            "nodeClassRef: EC2NodeClass \"default\" is not ready: SubnetsNotFound: SubnetSelector did not match any Subnets"
        ]
    );
    cluster.class(
        "default",
        json!({ "metadata": { "deletionTimestamp": "2026-03-04T09:00:00Z" } }),
    );
    let answer = cluster.admit("CREATE", &good("NodePool"), None);
    assert!(
        warned(&answer)[0].contains("is being deleted"),
        "{answer:?}"
    );
}

#[test]
fn overlapping_pools_are_named() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("first", &json!({})));
    cluster.pool(&pool("tainted", &json!({ "spec": { "template": { "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } } } })));
    cluster.pool(&pool("heavy", &json!({ "spec": { "weight": 10 } })));
    cluster.pool(&pool(
        "arm",
        &json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] } ] } } } }),
    ));
    let amd = json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] } ] } } } });
    let answer = cluster.admit("CREATE", &pool("second", &amd), None);
    assert_eq!(
        warned(&answer),
        [
            "overlaps NodePool \"first\" at equal weight 0: the last by name is used; give them different weights"
        ]
    );
    // An update that changes neither gets no warning.
    let changed = merged(
        pool("second", &amd),
        &json!({ "spec": { "limits": { "nodes": "9" } } }),
    );
    let answer = cluster.admit("UPDATE", &changed, Some(&pool("second", &amd)));
    assert_eq!(warned(&answer), [] as [&str; 0]);
}

#[test]
fn limits_below_the_usage_are_reported_with_both_numbers() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    for n in 0..3 {
        cluster.node("default", "m5.large", n, 1);
    }
    let old = pool("default", &json!({}));
    let less = pool(
        "default",
        &json!({ "spec": { "limits": { "cpu": "4", "nodes": "2", "memory": "1Ti" } } }),
    );
    let answer = cluster.admit("UPDATE", &less, Some(&old));
    let warnings = warned(&answer);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].starts_with("limits.nodes 2 is below the 3 in use"),
        "{warnings:?}"
    );
    assert!(
        warnings[1].starts_with("limits.cpu 4 is below the 6 in use"),
        "{warnings:?}"
    );
}

#[test]
fn budgets_that_are_active_always_never_and_sometimes() {
    let warnings = |budgets: Value| {
        let object = pool(
            "x",
            &json!({ "spec": { "disruption": { "budgets": budgets } } }),
        );
        warned(&TestCluster::new().admit("CREATE", &object, None)).to_vec()
    };
    let cases = [
        (
            json!([]),
            "all nodes may be disrupted at once for any reason",
        ),
        (
            json!([{ "nodes": "100%" }]),
            "all nodes may be disrupted at once for any reason",
        ),
        (json!([{ "nodes": "0%" }]), "no node may ever be disrupted"),
        // A window that starts again before it ends never closes.
        (
            json!([{ "nodes": "10%" }, { "nodes": "0", "schedule": "@hourly", "duration": "2h" }]),
            "no node may ever be disrupted",
        ),
        (
            json!([{ "nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h" }]),
            "outside the scheduled windows all nodes may be disrupted",
        ),
        (
            json!([{ "nodes": "10%" }, { "nodes": "0", "reasons": ["Drifted"] }]),
            "for Drifted",
        ),
    ];
    for (budgets, part) in cases {
        let warnings = warnings(budgets.clone());
        assert!(
            warnings.len() == 1 && warnings[0].contains(part),
            "{budgets}: {warnings:?}"
        );
    }
    for budgets in [
        json!([{ "nodes": "10%" }]),
        json!([{ "nodes": "10%" }, { "nodes": "0", "schedule": "0 9 * * 1-5", "duration": "8h" }]),
        json!([{ "nodes": "5", "schedule": "@daily", "duration": "24h" }]),
    ] {
        assert_eq!(warnings(budgets.clone()), Vec::<String>::new(), "{budgets}");
    }
}

#[test]
fn pods_that_block_expiry_are_reported() {
    let expiring = json!({ "spec": { "template": { "spec": { "expireAfter": "720h" } } } });
    let cases = [
        (
            json!({ "minAvailable": 1 }),
            1,
            Some("minAvailable 1 of 1 pod"),
        ),
        (json!({ "maxUnavailable": 0 }), 3, Some("maxUnavailable 0")),
        (
            json!({ "minAvailable": "100%" }),
            3,
            Some("minAvailable 100% of 3 pods"),
        ),
        (
            json!({ "minAvailable": "51%" }),
            1,
            Some("minAvailable 51% of 1 pod"),
        ),
        (json!({ "minAvailable": 1 }), 2, None),
        (json!({ "maxUnavailable": 1 }), 1, None),
    ];
    for (spec, expected, why) in cases {
        let mut cluster = TestCluster::new();
        cluster.pool(&pool("default", &json!({})));
        cluster.node("default", "m5.large", 0, 1);
        cluster.pdb(spec.clone(), expected);
        let answer = cluster.admit(
            "UPDATE",
            &pool("default", &expiring),
            Some(&pool("default", &json!({}))),
        );
        let warnings = warned(&answer)
            .iter()
            .find(|text| text.contains("never completes"));
        match why {
            Some(why) => {
                let warnings = warnings.unwrap_or_else(|| panic!("{spec}: {answer:?}"));
                assert!(
                    warnings.contains(why)
                        && warnings.contains("default/web")
                        && warnings.contains("1 pod"),
                    "{warnings}"
                );
            }
            None => assert_eq!(warnings, None, "{spec}"),
        }
        // With a grace period every drain completes.
        let bounded = merged(
            pool("default", &expiring),
            &json!({ "spec": { "template": { "spec": { "terminationGracePeriod": "1h" } } } }),
        );
        let answer = cluster.admit("UPDATE", &bounded, Some(&pool("default", &json!({}))));
        assert!(
            !warned(&answer)
                .iter()
                .any(|text| text.contains("never completes")),
            "{answer:?}"
        );
    }
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    let node = cluster.node("default", "m5.large", 0, 1);
    cluster.pod(
        "still",
        &node,
        json!({ "metadata": { "annotations": { "karpenter.sh/do-not-disrupt": "true" } } }),
    );
    let answer = cluster.admit(
        "UPDATE",
        &pool("default", &expiring),
        Some(&pool("default", &json!({}))),
    );
    assert!(
        warned(&answer)
            .iter()
            .any(|text| text.contains("waits for 1 pod with do-not-disrupt")),
        "{answer:?}"
    );
}

#[test]
fn deletions_report_their_effects() {
    let mut cluster = TestCluster::new();
    cluster.pool(&pool("default", &json!({})));
    for n in 0..12 {
        cluster.node("default", "m5.large", n, 2);
    }
    let answer = cluster.admit("DELETE", &Value::Null, Some(&pool("default", &json!({}))));
    assert_eq!(
        warned(&answer),
        ["deleting NodePool \"default\" drains 12 nodes with 24 pods"]
    );
    cluster.pdb(json!({ "maxUnavailable": 0 }), 24);
    let answer = cluster.admit("DELETE", &Value::Null, Some(&pool("default", &json!({}))));
    assert_eq!(
        warned(&answer)[1],
        "the drain never completes: 24 pods under PDB default/web (maxUnavailable 0); set terminationGracePeriod"
    );
    let protected = pool(
        "default",
        &json!({ "metadata": { "annotations": { "mortise.sh/deletion-protection": "true" } } }),
    );
    let answer = cluster.admit("DELETE", &Value::Null, Some(&protected));
    assert!(
        answer.denied.len() == 1
            && answer.denied[0].contains("mortise.sh/deletion-protection")
            && answer.denied[0].contains("12 nodes with 24 pods"),
        "{answer:?}"
    );
    let answer = cluster.admit("DELETE", &Value::Null, Some(&good("EC2NodeClass")));
    assert_eq!(
        warned(&answer),
        [
            "deleting EC2NodeClass \"default\" stops launches of NodePool \"default\"",
            "EC2NodeClass \"default\" is used by 12 NodeClaims and is deleted when they are",
        ]
    );
    let claim = merged(
        good("NodeClaim"),
        &json!({ "metadata": { "name": "default-3" } }),
    );
    let answer = cluster.admit("DELETE", &Value::Null, Some(&claim));
    assert_eq!(
        warned(&answer),
        ["deleting NodeClaim \"default-3\" drains node default-3 with 2 pods"]
    );
    // An object that is being deleted gets no warning.
    let deleting = pool(
        "default",
        &json!({ "metadata": { "deletionTimestamp": "2026-03-04T09:00:00Z", "annotations": { "mortise.sh/deletion-protection": "true" } } }),
    );
    let answer = cluster.admit("DELETE", &Value::Null, Some(&deleting));
    assert_eq!(warned(&answer), [] as [&str; 0]);
}

#[test]
fn edits_are_previewed_in_dry_runs() {
    let mut cluster = TestCluster::new();
    let old = pool("default", &json!({}));
    cluster.pool(&old);
    for n in 0..3 {
        cluster.node("default", "m5.xlarge", n, 2);
    }
    cluster.node("default", "m5.large", 3, 2);
    // Only the large nodes drift; their pods fit on half as many nodes of half the price each.
    let small = pool(
        "default",
        &json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"] },
        { "key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"] },
    ] } } } }),
    );
    let answer = cluster.dry_run(&small, &old);
    assert_eq!(
        warned(&answer),
        ["drifts 3 of 4 nodes; hourly price $0.67 -> $0.38"]
    );
    // An edit without dry run has no price.
    let answer = cluster.admit("UPDATE", &small, Some(&old));
    assert_eq!(warned(&answer), ["drifts 3 of 4 nodes"]);
    // A label drifts all of them, by the hash.
    let labelled = pool(
        "default",
        &json!({ "spec": { "template": { "metadata": { "labels": { "team": "a" } } } } }),
    );
    let answer = cluster.dry_run(&labelled, &old);
    assert!(
        warned(&answer)[0].starts_with("drifts 4 of 4 nodes; hourly price $0.67 -> $"),
        "{answer:?}"
    );
    // Outside the template nothing drifts.
    let weighted = pool("default", &json!({ "spec": { "weight": 7 } }));
    let answer = cluster.dry_run(&weighted, &old);
    assert_eq!(warned(&answer), ["drifts none of 4 nodes"]);
    // Pods that would be unschedulable are counted.
    let arm = pool(
        "default",
        &json!({ "spec": { "template": { "spec": { "requirements": [
        { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] } ] } }, "limits": { "nodes": "5" } } }),
    );
    let answer = cluster.dry_run(&arm, &old);
    assert!(
        warned(&answer)
            .iter()
            .any(|text| text.starts_with("drifts 4 of 4 nodes")
                && text.contains("would be unschedulable")),
        "{answer:?}"
    );
}

#[test]
fn edits_of_classes_are_previewed() {
    let mut cluster = TestCluster::new();
    let hash = |version: &str| {
        json!({ "metadata": { "annotations": {
        "karpenter.k8s.aws/ec2nodeclass-hash": "1", "karpenter.k8s.aws/ec2nodeclass-hash-version": version,
    } } })
    };
    cluster.class("default", hash("v6"));
    cluster.pool(&pool("default", &json!({})));
    for n in 0..2 {
        cluster.node("default", "m5.large", n, 1);
    }
    let old = good("EC2NodeClass");
    let tagged = merged(old.clone(), &json!({ "spec": { "tags": { "team": "a" } } }));
    // The NodeClaims have no hash of the class, so their drift is unknown.
    let answer = cluster.dry_run(&tagged, &old);
    assert_eq!(warned(&answer), ["drifts none of 2 nodes"]);
    let name = cluster.node("default", "m5.large", 2, 1);
    let snapshot = cluster.snapshot();
    let mut claim = (**snapshot.claims.get(name.as_str()).unwrap()).clone();
    let annotations = claim.metadata.annotations.get_or_insert_default();
    for (key, value) in hash("v6")["metadata"]["annotations"].as_object().unwrap() {
        annotations.insert(key.clone(), value.as_str().unwrap().to_owned());
    }
    cluster.apply(mortise_state::resource_kinds::Object::Claim(Box::new(
        claim,
    )));
    let answer = cluster.dry_run(&tagged, &old);
    assert_eq!(
        warned(&answer),
        ["drifts 1 of 3 nodes; hourly price $0.29 -> $0.19"]
    );
    let selecting = merged(
        old.clone(),
        &json!({ "spec": { "amiSelectorTerms": [{ "alias": "al2023@v20250101" }] } }),
    );
    let answer = cluster.dry_run(&selecting, &old);
    assert_eq!(warned(&answer).len(), 2, "{answer:?}");
    assert!(
        answer.warnings[1].contains("new selectors are resolved after this"),
        "{answer:?}"
    );
}

#[test]
fn updates_without_a_change_of_the_spec_are_allowed() {
    let mut cluster = TestCluster::new();
    let bad = pool("default", &json!({ "spec": { "weight": 1000 } }));
    let without_finalizer = merged(bad.clone(), &json!({ "metadata": { "finalizers": [] } }));
    let answer = cluster.admit("UPDATE", &without_finalizer, Some(&bad));
    assert_eq!((answer.denied, answer.warnings), (Vec::new(), Vec::new()));
    // Errors from before may remain while another field is corrected.
    let limited = merged(
        bad.clone(),
        &json!({ "spec": { "limits": { "cpu": "10" } } }),
    );
    let answer = cluster.admit("UPDATE", &limited, Some(&bad));
    assert_eq!(answer.denied, Vec::<String>::new());
    let deleting = merged(
        limited,
        &json!({ "metadata": { "deletionTimestamp": "2026-03-04T09:00:00Z" }, "spec": { "weight": 2000 } }),
    );
    let answer = cluster.admit("UPDATE", &deleting, Some(&bad));
    assert_eq!(answer.denied, Vec::<String>::new());
}

#[test]
fn fields_that_the_api_server_drops_are_reported_from_the_kubectl_annotation() {
    let written = pool(
        "default",
        &json!({ "spec": { "ttlSecondsAfterEmpty": 30, "limit": { "cpu": "10" } } }),
    );
    let object = merged(
        good("NodePool"),
        &json!({ "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": written.to_string() } } }),
    );
    let answer = TestCluster::new().admit("CREATE", &object, None);
    let warnings = warned(&answer);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("spec.limit") && text.contains("did you mean \"limits\"?")),
        "{warnings:?}"
    );
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("ttlSecondsAfterEmpty") && text.contains("WhenEmpty")),
        "{warnings:?}"
    );
}
