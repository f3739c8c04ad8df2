use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mortise_apis::k8s::{self, Node};
use mortise_apis::names::{NodeClassKey, ObjectRef, PodKey};
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_apis::{NodeClaim, NodePool};
use mortise_cloudprovider::{
    CapacityType, InstanceType, InterruptionKind, Offering, UnavailableOffering,
};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::metric_event::MetricEvent;
use mortise_engine::record::{Record, Verdict, Visibility};
use mortise_kwok_class::labels::well_known;
use mortise_planning::disruption::command::CommandKind;
use mortise_planning::reason::{LaunchTimeout, Reason};
use mortise_state::catalog::Catalog;
use mortise_state::index::Index;
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Pod;
use serde_json::json;

use super::render;
use crate::config::TelemetryDetail;
use crate::metrics::{Metrics, SeriesRow};
use crate::service_state::ServiceState;
use crate::testing;

mod upstream;

/// A unique word.
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

/// A cluster with far more NodePools, zones and label values than any real one.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn the_page_stays_below_its_limit() {
    let now = testing::noon();
    let shared = ServiceState::new(
        Arc::new(testing::Stopped(now)),
        well_known(),
        "1",
        json!({}),
    );
    let mut index = Index::new(well_known(), true, now);
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
        index.apply(ObjectEvent::Applied(
            Object::Claim(Box::new(claim)),
            EventSource::Watch,
        ));
        let node = json!({ "metadata": { "name": format!("n{n}"), "resourceVersion": "1", "labels": {
            "karpenter.sh/nodepool": format!("pool-{n}"), "topology.kubernetes.io/zone": format!("zone-{n}") } },
            "status": { "capacity": { "cpu": "1", "memory": "1Gi", "pods": "1", "ephemeral-storage": "1Gi", "nvidia.com/gpu": "1" } } });
        index.apply(ObjectEvent::Applied(
            Object::Pool(Box::new(serde_json::from_value(pool).unwrap())),
            EventSource::Watch,
        ));
        index.apply(ObjectEvent::Applied(
            Object::Node(Box::new(serde_json::from_value(node).unwrap())),
            EventSource::Watch,
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
        metrics.nodes.claim_created(&claim, word(n));
        let subject = ObjectRef::Node(format!("n{n}").into());
        for (verdict, reason) in [
            (Verdict::Registered, Reason::Empty),
            (Verdict::Disrupted, Reason::Expired),
            (
                Verdict::Condition,
                Reason::ConditionIs {
                    condition: "Drained".to_owned(),
                    status: "True".to_owned(),
                    why: "Drained".to_owned(),
                },
            ),
        ] {
            metrics.on_record(
                &Record {
                    at: now,
                    decider: DeciderId::Lifecycle,
                    subject: subject.clone(),
                    verdict,
                    reasons: vec![reason],
                    visibility: Visibility::DecisionLog,
                    related: Vec::new(),
                    generation: 1,
                },
                &shared.snapshot(),
            );
        }
        metrics.node_gone(&node, now);
        metrics.claim_gone(&claim, now);
        let with = |status: &str| claim_with(word(n), status, 0);
        metrics
            .conditions
            .claim_changed(Some(&with("False")), &with("True"));
        metrics.effects.done(word(n), word(n), took);
        metrics.pods.eviction(u16::try_from(n).unwrap_or(u16::MAX));
        metrics
            .cloud
            .called(DeciderId::Lifecycle, word(n), word(n), took, Some(word(n)));
        metrics.cloud.notice(InterruptionKind::Other, Some(took));
        metrics
            .cloud
            .tallied(&[MetricEvent::InstanceUnhealthy { category: word(n) }]);
        metrics.cloud.notices_failed(word(n), word(n), word(n));
        metrics.cloud.notices_healthy(word(n), word(n), true);
        metrics.effects.queued(word(n), 1, 1);
        metrics.effects.event_dropped(word(n));
        metrics.engine.watch_restarted(word(n));
        metrics.engine.unparsable(word(n));
        metrics.http.request(word(n), http::StatusCode::OK, took);
        metrics.http.certificates_reloaded(word(n));
        metrics.engine.leading(word(n), true);
    }
    for decider in DECIDERS {
        metrics.engine.stepped(decider, took);
    }
    let page = render(&shared, &mortise_webhooks::Counters::default().snapshot()).unwrap();
    let series = page.lines().filter(|line| !line.starts_with('#')).count();
    assert!((1000..2000).contains(&series), "{series} series");
    assert!(
        page.contains("mortise_metrics_nodepools_omitted 175"),
        "{page}"
    );
    for row in Metrics::series() {
        let of_row = label_sets(&page, &row);
        let limit = if row.full_only { 0 } else { row.most };
        assert!(of_row <= limit, "{row:?} has {of_row} label sets");
    }
    let dropped = page
        .lines()
        .find_map(|line| line.strip_prefix("mortise_metrics_dropped_total "))
        .unwrap();
    assert!(dropped.parse::<u64>().unwrap() > 1000, "{dropped}");
}

/// The number of label sets of a metric on a page.
fn label_sets(page: &str, row: &SeriesRow) -> usize {
    let suffix = match row.kind {
        "counter" => "_total",
        "gauge" => "",
        _ => "_count",
    };
    let name = format!("{}{suffix}", row.name);
    let named = |line: &&str| {
        let rest = line.strip_prefix(&name);
        rest.is_some_and(|rest| rest.starts_with(['{', ' ']))
    };
    page.lines().filter(named).count()
}

const DECIDERS: [DeciderId; 13] = [
    DeciderId::NodeClass,
    DeciderId::NodePool,
    DeciderId::Interruption,
    DeciderId::Lifecycle,
    DeciderId::Termination,
    DeciderId::Conditions,
    DeciderId::Expiration,
    DeciderId::InstanceTagging,
    DeciderId::GarbageCollection,
    DeciderId::Repair,
    DeciderId::StaticCapacity,
    DeciderId::Provisioning,
    DeciderId::Disruption,
];

fn command(replaces: bool, reason: &'static str, consolidation_type: &'static str) -> CommandKind {
    CommandKind {
        replaces,
        reason,
        consolidation_type,
    }
}

#[test]
fn decisions_to_disrupt_have_karpenter_labels() {
    let shared = testing::shared();
    let record = |reasons| Record {
        at: testing::noon(),
        decider: DeciderId::Disruption,
        subject: ObjectRef::Node("n1".into()),
        verdict: Verdict::Disrupted,
        reasons,
        visibility: Visibility::DecisionLog,
        related: Vec::new(),
        generation: 1,
    };
    shared.record(vec![record(vec![Reason::Empty])]);
    let pools = || vec!["general".into()];
    let tallies = [
        MetricEvent::Commanded {
            kind: command(false, "empty", "empty"),
            pools: pools(),
        },
        MetricEvent::Commanded {
            kind: command(true, "underutilized", "single"),
            pools: pools(),
        },
        MetricEvent::FailedValidation(command(true, "underutilized", "multi")),
    ];
    let snapshot = shared.snapshot();
    let took = Duration::from_millis(7);
    shared.metrics.disruption.tallied(&tallies, took, &snapshot);
    let page = render(&shared, &BTreeMap::new()).unwrap();
    for line in [
        "karpenter_voluntary_disruption_decisions_total{decision=\"delete\",reason=\"empty\",consolidation_type=\"empty\"} 1",
        "karpenter_voluntary_disruption_decisions_total{decision=\"replace\",reason=\"underutilized\",consolidation_type=\"single\"} 1",
        "karpenter_voluntary_disruption_failed_validations_total{consolidation_type=\"multi\"} 1",
        "karpenter_nodeclaims_disrupted_total{reason=\"empty\",nodepool=\"general\",capacity_type=\"spot\",consolidation_policy=\"\",termination_mode=\"graceful\"} 1",
        "karpenter_nodepools_limit{resource_type=\"cpu\",nodepool=\"general\"} 100.0",
        "karpenter_nodepools_usage{resource_type=\"cpu\",nodepool=\"general\"} 8.0",
        "karpenter_scheduler_queue_depth{controller=\"provisioner\"} 2.0",
        "karpenter_scheduler_unschedulable_pods_count{controller=\"provisioner\"} 1",
        "karpenter_cluster_state_unsynced_time_seconds 0.0",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(page.ends_with("# EOF\n"));
}

/// A cluster in which everything has happened once.
#[expect(clippy::too_many_lines, reason = "one statement per part")]
fn everything_counted(detail: TelemetryDetail) -> Arc<ServiceState> {
    let now = testing::noon();
    let shared = ServiceState::with_detail(
        Arc::new(testing::Stopped(now)),
        well_known(),
        "1",
        json!({}),
        detail,
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
        "metadata": {
            "name": "n", "resourceVersion": "1", "creationTimestamp": "2026-05-01T10:00:00Z",
            "labels": {
                "karpenter.sh/nodepool": "p", "topology.kubernetes.io/zone": "a",
                "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
            },
        },
        "spec": { "providerID": "kwok://n" },
        "status": { "capacity": { "cpu": "4" }, "allocatable": { "cpu": "3" }, "conditions": conditions("Ready") },
    }))
    .unwrap();
    let pool: NodePool = serde_json::from_value(json!({
        "metadata": { "name": "p", "resourceVersion": "1", "deletionTimestamp": "2026-05-01T11:00:00Z" },
        "spec": { "limits": { "cpu": "1" } }, "status": { "conditions": conditions("Ready") },
    }))
    .unwrap();
    let mut staying = claim.clone();
    staying.metadata.deletion_timestamp = None;
    // Another pair that is being deleted.
    let mut ending = claim.clone();
    ending.metadata.name = Some("c2".to_owned());
    ending.status.provider_id = Some("kwok://n2".to_owned());
    let mut leaving = node.clone();
    leaving.metadata.name = Some("n2".to_owned());
    leaving.metadata.deletion_timestamp = claim.metadata.deletion_timestamp.clone();
    leaving.spec.provider_id = Some("kwok://n2".to_owned());
    let mut index = Index::new(well_known(), true, now);
    for object in [
        Object::Claim(Box::new(staying)),
        Object::Node(Box::new(node.clone())),
        Object::Claim(Box::new(ending.clone())),
        Object::Node(Box::new(leaving.clone())),
        Object::Pool(Box::new(pool.clone())),
        Object::from(testing::counted_buffer(&shared.metrics, now)),
    ] {
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    let class = |group: &str, kind: &str| {
        NodeClassObject::new(
            NodeClassKey {
                group: group.into(),
                kind: kind.into(),
                name: "default".into(),
            },
            json!({
                "metadata": { "name": "default", "resourceVersion": "1", "deletionTimestamp": "2026-05-01T11:00:00Z" },
                "status": { "conditions": conditions("Ready") },
            }),
        )
    };
    let ec2 = class("karpenter.k8s.aws", "EC2NodeClass");
    index.apply(ObjectEvent::Applied(
        Object::from(ec2.clone()),
        EventSource::Watch,
    ));
    index.set_catalog(&ec2.key, Arc::new(Catalog::build(vec![instance_type()])));
    let pods = [
        pod("web", "u1", None, false),
        pod("web", "u1", Some("n"), false),
        pod("web", "u1", Some("n"), true),
        pod("waits", "u2", None, false),
        pod("new", "u3", None, false),
    ];
    for pod in &pods {
        let object = Object::Pod(Box::new(pod.clone()));
        index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    }
    shared.publish(Arc::new(index.freeze(now)));
    let (metrics, took) = (&shared.metrics, Duration::from_millis(7));
    metrics.nodes.claim_created(&claim, "provisioned");
    metrics
        .conditions
        .claim_changed(Some(&claim_with("Ready", "False", 0)), &claim);
    let mut not_ready = node.clone();
    for condition in &mut not_ready.status.conditions {
        condition.status = "False".to_owned();
    }
    metrics.conditions.node_changed(Some(&not_ready), &node);
    let slim = |at: usize| index_of(&pods[at], now);
    let placed = slim(0);
    shared.publish(Arc::new(index.freeze(now)));
    metrics.pods.nominated(&placed, now);
    metrics.pods.changed(&placed, Some(&slim(1)), now);
    metrics.pods.changed(&slim(1), Some(&slim(2)), now);
    metrics.pods.nominated(&slim(3), now);
    metrics.on_record(
        &record(Verdict::Evicted, vec![Reason::Empty]),
        &shared.snapshot(),
    );
    let kind = command(true, "underutilized", "multi");
    let long = Duration::from_mins(1);
    let tallies = [
        MetricEvent::Eligible {
            reason: "underutilized",
            nodes: 1,
        },
        MetricEvent::Commanded {
            kind,
            pools: vec!["p".into()],
        },
        MetricEvent::FailedValidation(kind),
        MetricEvent::QueueFailure(kind),
        MetricEvent::Scored {
            pool: "p".into(),
            approved: true,
            percent: 60,
        },
    ];
    metrics
        .disruption
        .tallied(&tallies, long, &shared.snapshot());
    let none = UnavailableOffering {
        instance_type: "m5".into(),
        zone: "a".into(),
        capacity_type: CapacityType::Spot,
    };
    metrics
        .cloud
        .launch_failed(&ec2.key, &[none], &shared.snapshot());
    metrics
        .cloud
        .termination_failed(&"c".into(), &shared.snapshot());
    let mut before = pool.clone();
    before.status.conditions = claim_with("Ready", "False", 0).status.conditions;
    metrics.conditions.pool_changed(Some(&before), &pool);
    for (verdict, reason) in [
        (Verdict::Registered, Reason::Empty),
        (Verdict::Disrupted, Reason::Empty),
        (
            Verdict::Disrupted,
            Reason::Unhealthy {
                condition: "Ready".to_owned(),
                status: "False".to_owned(),
                since: now,
            },
        ),
        (
            Verdict::Condition,
            Reason::ConditionIs {
                condition: "Drained".to_owned(),
                status: "True".to_owned(),
                why: "Drained".to_owned(),
            },
        ),
    ] {
        metrics.on_record(&record(verdict, vec![reason]), &shared.snapshot());
    }
    ending.status.conditions = serde_json::from_value(conditions("InstanceTerminating")).unwrap();
    metrics.claim_gone(&ending, now);
    metrics.pool_gone(&pool, now);
    metrics.node_gone(&leaving, now);
    metrics.pods.eviction(200);
    metrics.cloud.called(
        DeciderId::Lifecycle,
        "Create",
        "kwok",
        took,
        Some("timeout"),
    );
    metrics.cloud.notice(InterruptionKind::Other, Some(took));
    metrics.cloud.notice_acknowledged();
    let unhealthy = MetricEvent::InstanceUnhealthy {
        category: "EventStatus",
    };
    metrics.cloud.tallied(&[unhealthy]);
    metrics.cloud.notices_failed("aws", "queue", "not_found");
    metrics.cloud.notices_healthy("aws", "queue", true);
    metrics.engine.stepped(DeciderId::Provisioning, took);
    metrics.engine.leading("lease", true);
    shared
}

fn pod(name: &str, uid: &str, node: Option<&str>, ready: bool) -> k8s::Pod {
    let ready = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default", "uid": uid, "resourceVersion": "1", "creationTimestamp": "2026-05-01T11:00:00Z" },
        "spec": { "nodeName": node },
        "status": { "phase": "Pending", "conditions": [{ "type": "Ready", "status": ready }, { "type": "PodScheduled", "status": "False", "reason": "Unschedulable" }] },
    }))
    .unwrap()
}

/// The pod as the index keeps it.
fn index_of(pod: &k8s::Pod, now: jiff::Timestamp) -> Arc<Pod> {
    let mut index = Index::new(well_known(), true, now);
    let object = Object::Pod(Box::new(pod.clone()));
    index.apply(ObjectEvent::Applied(object, EventSource::Watch));
    let key = PodKey::new("default", pod.metadata.name.as_deref().unwrap());
    Arc::clone(index.pod(&key).unwrap())
}

fn instance_type() -> InstanceType {
    InstanceType {
        name: "m5".into(),
        requirements: Requirements::default(),
        capacity: Resources::new(4_000, 16 << 30),
        overhead: Resources::zero(),
        devices: Arc::default(),
        offerings: vec![Offering {
            zone: "a".into(),
            capacity_type: CapacityType::Spot,
            price: Some(MicroUsd(100_000)),
            available: true,
            reservation: None,
            labels: vec![("topology.k8s.aws/zone-id".into(), "use1-az1".into())],
        }],
    }
}

fn record(verdict: Verdict, reasons: Vec<Reason>) -> Record {
    Record {
        at: testing::noon(),
        decider: DeciderId::Lifecycle,
        subject: ObjectRef::Claim("c".into()),
        verdict,
        reasons,
        visibility: Visibility::DecisionLog,
        related: Vec::new(),
        generation: 1,
    }
}

#[test]
fn claims_that_time_out_are_disrupted_for_karpenters_reasons() {
    let shared = everything_counted(TelemetryDetail::Bounded);
    let timed_out = |why| Reason::LaunchTimedOut {
        condition: "Launched",
        status: "Unknown",
        why,
    };
    let retried = Reason::ConditionIs {
        condition: "Launched".to_owned(),
        status: "Unknown".to_owned(),
        why: "LaunchFailed".to_owned(),
    };
    let cases = [
        (
            Verdict::LaunchFailed,
            timed_out(LaunchTimeout::InsufficientCapacity),
            "insufficient_capacity",
        ),
        (
            Verdict::LaunchFailed,
            timed_out(LaunchTimeout::NodeClassNotReady),
            "nodeclass_not_ready",
        ),
        (
            Verdict::LaunchFailed,
            timed_out(LaunchTimeout::LaunchTimeout),
            "launch_timeout",
        ),
        (
            Verdict::LaunchFailed,
            timed_out(LaunchTimeout::RegistrationTimeout),
            "registration_timeout",
        ),
        (Verdict::LaunchFailed, retried, ""),
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
            Reason::InstanceGone {
                instance: "kwok://n".into(),
            },
            "garbage_collected",
        ),
    ];
    for (verdict, reason, word) in cases {
        let count = || {
            let page = render(&shared, &BTreeMap::new()).unwrap();
            let line =
                format!("karpenter_nodeclaims_disrupted_total{{reason=\"{word}\",nodepool=\"p\",");
            page.lines().filter(|each| each.starts_with(&line)).count()
        };
        let total = || {
            let page = render(&shared, &BTreeMap::new()).unwrap();
            page.matches("karpenter_nodeclaims_disrupted_total{")
                .count()
        };
        let (before, of_word) = (total(), count());
        shared
            .metrics
            .on_record(&record(verdict, vec![reason]), &shared.snapshot());
        let new = usize::from(!word.is_empty());
        assert_eq!((total(), count()), (before + new, of_word + new), "{word}");
    }
}

#[test]
fn budgets_and_prices_of_an_empty_pool_are_plain_numbers() {
    let shared = everything_counted(TelemetryDetail::Bounded);
    let page = render(&shared, &BTreeMap::new()).unwrap();
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
