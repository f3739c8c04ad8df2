use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mortise_core::apis::k8s::Node;
use mortise_core::apis::{NodeClaim, NodePool};
use mortise_core::cloud::NoticeKind;
use mortise_core::deciders::DeciderId;
use mortise_core::effect::ObjectRef;
use mortise_core::index::{Index, News, Object, Source};
use mortise_core::labels::WellKnown;
use mortise_core::record::{Reason, Record, Verdict};
use serde_json::json;

use crate::shared::Shared;
use crate::testing;

/// A word that nobody has used before.
fn word(n: usize) -> &'static str {
    format!("word-{n}").leak()
}

/// Eight conditions, one of them with this name.
fn conditions(type_: &str) -> serde_json::Value {
    let all = ["A", "B", "C", "D", "E", "F", "G", type_];
    let all = all.map(|type_| json!({ "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": "2026-05-01T11:00:00Z" }));
    json!(all)
}

fn claim_with(type_: &str, status: &str, n: usize) -> NodeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": format!("c{n}"), "resourceVersion": "1" },
        "status": { "conditions": [{ "type": type_, "status": status, "reason": type_, "lastTransitionTime": "2026-05-01T11:00:00Z" }] },
    }))
    .unwrap()
}

/// A cluster with far more pools, zones and words than any real one.
#[test]
fn the_page_stays_below_its_ceiling() {
    let now = testing::noon();
    let shared = Shared::new(
        Arc::new(testing::Stopped(now)),
        WellKnown::core(),
        "1",
        json!({}),
    );
    let mut index = Index::new(WellKnown::core(), true, now);
    for n in 0..200 {
        let limits = json!({ "cpu": "1", "memory": "1Gi", "pods": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1", "nodes": "1", "other/thing": "1" });
        let pool = json!({ "metadata": { "name": format!("pool-{n}"), "resourceVersion": "1" }, "spec": { "limits": limits }, "status": { "conditions": conditions("Ready") } });
        let mut claim = claim_with("Ready", "True", n);
        claim.metadata.labels = Some(
            [(
                "karpenter.sh/nodepool".to_owned(),
                format!("pool-{}", n % 40),
            )]
            .into(),
        );
        claim.status.conditions = serde_json::from_value(conditions("Initialized")).unwrap();
        index.apply(News::Applied(Object::Claim(Box::new(claim)), Source::Watch));
        let node = json!({ "metadata": { "name": format!("n{n}"), "resourceVersion": "1", "labels": {
            "karpenter.sh/nodepool": format!("pool-{n}"), "topology.kubernetes.io/zone": format!("zone-{n}") } },
            "status": { "capacity": { "cpu": "1", "memory": "1Gi", "pods": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1" } } });
        index.apply(News::Applied(
            Object::Pool(Box::new(serde_json::from_value(pool).unwrap())),
            Source::Watch,
        ));
        index.apply(News::Applied(
            Object::Node(Box::new(serde_json::from_value(node).unwrap())),
            Source::Watch,
        ));
    }
    shared.publish(Arc::new(index.freeze(now)));
    let (metrics, took) = (&shared.metrics, Duration::from_millis(7));
    for n in 0..300 {
        let zone = format!("zone-{n}");
        let labels = json!({ "karpenter.sh/nodepool": format!("pool-{n}"), "topology.kubernetes.io/zone": zone });
        let claim: NodeClaim =
            serde_json::from_value(json!({ "metadata": { "name": "c", "labels": labels } }))
                .unwrap();
        let node: Node =
            serde_json::from_value(json!({ "metadata": { "name": "n", "labels": labels } }))
                .unwrap();
        metrics.claim_created(&claim, word(n));
        let subject = ObjectRef::Node(format!("n{n}").into());
        for (verdict, reason) in [
            (Verdict::Registered, Reason::Empty),
            (Verdict::Disrupted, Reason::Expired),
            (
                Verdict::Condition,
                Reason::ConditionIs {
                    condition: "Drained".to_owned(),
                    status: "True".to_owned(),
                    why: String::new(),
                },
            ),
        ] {
            metrics.decided(
                &Record {
                    at: now,
                    decider: DeciderId::Lifecycle,
                    subject: subject.clone(),
                    verdict,
                    reasons: vec![reason],
                    generation: 1,
                },
                &shared.snapshot(),
            );
        }
        metrics.node_gone(&node);
        metrics.claim_gone(&claim, now);
        let with = |status: &str| claim_with(word(n), status, 0);
        metrics.claim_changed(Some(&with("False")), &with("True"));
        metrics.effect_done(word(n), word(n), took);
        metrics.eviction(word(n));
        metrics.cloud_call(DeciderId::Lifecycle, word(n), word(n), took, Some(word(n)));
        metrics.notice(NoticeKind::Other, Some(took));
        metrics.effects_queued(word(n), 1, 1);
        metrics.event_dropped(word(n));
        metrics.watch_restarted(word(n));
        metrics.unparsable(word(n));
        metrics.request(word(n), http::StatusCode::OK, took);
        metrics.certificates_reloaded(word(n));
        metrics.leading(word(n), true);
    }
    for decider in DECIDERS {
        metrics.stepped(decider, took);
    }
    let page = metrics
        .page(&shared, &mortise_webhooks::Counters::default().snapshot())
        .unwrap();
    let series = page.lines().filter(|line| !line.starts_with('#')).count();
    assert!((1000..2000).contains(&series), "{series} series");
    assert!(
        page.contains("mortise_metrics_pools_left_out 175"),
        "{page}"
    );
    let dropped = page
        .lines()
        .find_map(|line| line.strip_prefix("mortise_metrics_dropped_total "))
        .unwrap();
    assert!(dropped.parse::<u64>().unwrap() > 1000, "{dropped}");
}

const DECIDERS: [DeciderId; 12] = [
    DeciderId::NodeClass,
    DeciderId::NodePool,
    DeciderId::Interruption,
    DeciderId::Lifecycle,
    DeciderId::Termination,
    DeciderId::Conditions,
    DeciderId::Expiration,
    DeciderId::GarbageCollection,
    DeciderId::Repair,
    DeciderId::StaticCapacity,
    DeciderId::Provisioning,
    DeciderId::Disruption,
];

#[test]
fn decisions_to_disrupt_have_upstream_labels() {
    let shared = testing::shared();
    let record = |reasons| Record {
        at: testing::noon(),
        decider: DeciderId::Disruption,
        subject: ObjectRef::Node("n1".into()),
        verdict: Verdict::Disrupted,
        reasons,
        generation: 1,
    };
    shared.record(vec![
        record(vec![Reason::Empty]),
        record(vec![
            Reason::Underutilized,
            Reason::OnClaim { claim: "c".into() },
        ]),
    ]);
    let page = shared.metrics.page(&shared, &BTreeMap::new()).unwrap();
    for line in [
        "karpenter_voluntary_disruption_decisions_total{decision=\"delete\",reason=\"empty\",consolidation_type=\"empty\"} 1",
        "karpenter_voluntary_disruption_decisions_total{decision=\"replace\",reason=\"underutilized\",consolidation_type=\"multi\"} 1",
        "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"general\",capacity_type=\"spot\",consolidation_policy=\"\",termination_mode=\"graceful\"} 1",
        "karpenter_nodepools_limit{resource_type=\"cpu\",nodepool=\"general\"} 100.0",
        "karpenter_nodepools_usage{resource_type=\"cpu\",nodepool=\"general\"} 8.0",
        "karpenter_scheduler_queue_depth{controller=\"provisioner\"} 2",
        "karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 1",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
}

/// What Karpenter calls its metrics: name, type, labels.
fn upstream() -> BTreeMap<&'static str, (&'static str, BTreeSet<&'static str>)> {
    let rows = include_str!("upstream.tsv").lines().map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let labels = fields[2].split(',').filter(|label| !label.is_empty());
        (fields[0], (fields[1], labels.collect()))
    });
    rows.collect()
}

/// Metrics on a page: name as Karpenter writes it, type, labels of its series together.
fn on_page(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut all: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
    let mut current = (String::new(), String::new());
    for line in page.lines() {
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, type_) = typed.split_once(' ').unwrap();
            let total = if type_ == "counter" { "_total" } else { "" };
            current = (format!("{name}{total}"), type_.to_owned());
        } else if !line.starts_with('#') {
            let entry = all.entry(current.0.clone()).or_default();
            entry.0.clone_from(&current.1);
            let labels = line
                .split_once('{')
                .and_then(|(_, rest)| rest.rsplit_once('}'));
            let labels = labels.map_or("", |(labels, _)| labels).split("\",");
            let names = labels.filter_map(|label| label.split_once('='));
            let names = names.map(|(name, _)| name.to_owned());
            entry.1.extend(names.filter(|name| name != "le"));
        }
    }
    all
}

#[test]
fn metrics_of_karpenter_have_its_names_types_and_labels() {
    let shared = everything_counted();
    let page = shared.metrics.page(&shared, &BTreeMap::new()).unwrap();
    let (known, page) = (upstream(), on_page(&page));
    let mut shown = 0;
    for (name, (type_, labels)) in &page {
        if name.starts_with("mortise_") || name.starts_with("process_") {
            continue;
        }
        let Some((their_type, their_labels)) = known.get(name.as_str()) else {
            panic!("{name} is no metric of Karpenter");
        };
        assert_eq!(type_, their_type, "{name}");
        let mut labels: BTreeSet<&str> = labels.iter().map(String::as_str).collect();
        // Added to the metrics of a kind by its pool and node class.
        if name.starts_with("operator_nodeclaim_") && *type_ == "gauge" {
            assert!(labels.remove("karpenter_sh_nodepool"), "{name}");
            assert!(labels.remove("karpenter_kwok_sh_kwoknodeclass"), "{name}");
        }
        // Random ids are no labels here.
        if name == "karpenter_scheduler_queue_depth" {
            labels.insert("scheduling_id");
        }
        assert_eq!(&labels, their_labels, "{name}");
        shown += 1;
    }
    assert!(
        shown >= 34,
        "{shown} of Karpenter's metrics are on the page"
    );
}

/// A cluster in which everything has happened once.
fn everything_counted() -> Arc<Shared> {
    let now = testing::noon();
    let shared = Shared::new(
        Arc::new(testing::Stopped(now)),
        WellKnown::kwok(),
        "1",
        json!({}),
    );
    let claim: NodeClaim = serde_json::from_value(json!({
        "metadata": {
            "name": "c", "resourceVersion": "1", "deletionTimestamp": "2026-05-01T11:00:00Z",
            "labels": { "karpenter.sh/nodepool": "p", "karpenter.sh/capacity-type": "spot", "topology.kubernetes.io/zone": "a" },
        },
        "spec": { "nodeClassRef": { "group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default" } },
        "status": { "providerID": "kwok://n", "conditions": conditions("Ready") },
    })).unwrap();
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "n", "resourceVersion": "1", "labels": {
            "karpenter.sh/nodepool": "p", "topology.kubernetes.io/zone": "a",
            "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        } },
        "spec": { "providerID": "kwok://n" }, "status": { "capacity": { "cpu": "4" } },
    }))
    .unwrap();
    let pool: NodePool = serde_json::from_value(json!({
        "metadata": { "name": "p", "resourceVersion": "1", "deletionTimestamp": "2026-05-01T11:00:00Z" },
        "spec": { "limits": { "cpu": "1" } }, "status": { "conditions": conditions("Ready") },
    }))
    .unwrap();
    let mut index = Index::new(WellKnown::kwok(), true, now);
    for object in [
        Object::Claim(Box::new(claim.clone())),
        Object::Node(Box::new(node.clone())),
        Object::Pool(Box::new(pool.clone())),
    ] {
        index.apply(News::Applied(object, Source::Watch));
    }
    shared.publish(Arc::new(index.freeze(now)));
    let (metrics, took) = (&shared.metrics, Duration::from_millis(7));
    metrics.claim_created(&claim, "provisioned");
    metrics.claim_changed(Some(&claim_with("Ready", "False", 0)), &claim);
    let mut before = pool.clone();
    before.status.conditions.clear();
    metrics.pool_changed(Some(&before), &pool);
    for (verdict, reason) in [
        (Verdict::Registered, Reason::Empty),
        (Verdict::Disrupted, Reason::Empty),
        (
            Verdict::Condition,
            Reason::ConditionIs {
                condition: "Drained".to_owned(),
                status: "True".to_owned(),
                why: "Drained".to_owned(),
            },
        ),
    ] {
        metrics.decided(&record(verdict, vec![reason]), &shared.snapshot());
    }
    metrics.claim_gone(&claim, now);
    metrics.pool_gone(&pool, now);
    metrics.node_gone(&node);
    metrics.eviction("200");
    metrics.cloud_call(
        DeciderId::Lifecycle,
        "Create",
        "kwok",
        took,
        Some("timeout"),
    );
    metrics.notice(NoticeKind::Other, Some(took));
    metrics.notice_acknowledged();
    metrics.stepped(DeciderId::Provisioning, took);
    metrics.leading("lease", true);
    shared
}

fn record(verdict: Verdict, reasons: Vec<Reason>) -> Record {
    Record {
        at: testing::noon(),
        decider: DeciderId::Lifecycle,
        subject: ObjectRef::Claim("c".into()),
        verdict,
        reasons,
        generation: 1,
    }
}

#[test]
fn claims_that_are_given_up_are_disrupted_for_upstream_reasons() {
    let shared = everything_counted();
    let condition = |why: &str| Reason::ConditionIs {
        condition: "Launched".to_owned(),
        status: "Unknown".to_owned(),
        why: why.to_owned(),
    };
    let cases = [
        (
            Verdict::LaunchFailed,
            condition("insufficient_capacity"),
            "insufficient_capacity",
        ),
        (
            Verdict::LaunchFailed,
            condition("nodeclass_not_ready"),
            "nodeclass_not_ready",
        ),
        (
            Verdict::LaunchFailed,
            condition("launch_timeout"),
            "launch_timeout",
        ),
        (
            Verdict::LaunchFailed,
            condition("registration_timeout"),
            "registration_timeout",
        ),
        (Verdict::LaunchFailed, condition("LaunchFailed"), ""),
        (Verdict::Disrupted, Reason::Expired, "expired"),
        (
            Verdict::Disrupted,
            Reason::Drifted {
                why: "NodePoolDrifted".to_owned(),
            },
            "drifted",
        ),
        (
            Verdict::Disrupted,
            Reason::MachineGone {
                machine: "kwok://n".into(),
            },
            "garbage_collected",
        ),
    ];
    for (verdict, reason, word) in cases {
        let count = || {
            let page = shared.metrics.page(&shared, &BTreeMap::new()).unwrap();
            let line =
                format!("karpenter_nodeclaims_disrupted_total{{reason=\"{word}\",nodepool=\"p\",");
            page.lines().filter(|each| each.starts_with(&line)).count()
        };
        let total = || {
            let page = shared.metrics.page(&shared, &BTreeMap::new()).unwrap();
            page.matches("karpenter_nodeclaims_disrupted_total{")
                .count()
        };
        let (before, of_word) = (total(), count());
        shared
            .metrics
            .decided(&record(verdict, vec![reason]), &shared.snapshot());
        let new = usize::from(!word.is_empty());
        assert_eq!((total(), count()), (before + new, of_word + new), "{word}");
    }
}

#[test]
fn budgets_and_prices_of_an_empty_pool_are_plain_numbers() {
    let shared = everything_counted();
    let page = shared.metrics.page(&shared, &BTreeMap::new()).unwrap();
    for line in [
        "karpenter_nodepools_cost_total{nodepool=\"p\"} 0.0",
        "karpenter_nodepools_allowed_disruptions{nodepool=\"p\",reason=\"Empty\"} 1",
        "karpenter_nodepools_nodes_consuming_budgets{nodepool=\"p\",reason=\"Drifted\"} 1",
        "karpenter_nodeclaims_terminated_total{nodepool=\"p\",capacity_type=\"spot\",zone=\"a\"} 1",
        "karpenter_nodes_terminated_total{nodepool=\"p\",zone=\"a\"} 1",
        "operator_nodeclaim_termination_current_time_seconds{namespace=\"\",name=\"\",karpenter_kwok_sh_kwoknodeclass=\"default\",karpenter_sh_nodepool=\"p\"} 3600.0",
        "operator_termination_duration_seconds_sum{group=\"karpenter.sh\",kind=\"NodeClaim\"} 3600.0",
        "operator_nodepool_status_condition_count{namespace=\"\",name=\"p\",type=\"Ready\",status=\"True\",reason=\"Ready\"} 1.0",
        "operator_status_condition_current_status_seconds{namespace=\"\",name=\"\",group=\"karpenter.sh\",kind=\"NodeClaim\",type=\"Ready\",status=\"True\",reason=\"Ready\"} 3600.0",
        "operator_nodeclaim_status_condition_transitions_total{type=\"Ready\",status=\"True\",reason=\"Ready\"} 1",
        "operator_status_condition_transition_seconds_count{type=\"Ready\",status=\"False\",group=\"karpenter.sh\",kind=\"NodeClaim\"} 1",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains("-0.0"));
}
