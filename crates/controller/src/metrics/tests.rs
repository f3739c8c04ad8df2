use std::sync::Arc;
use std::time::Duration;

use mortise_core::apis::NodeClaim;
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
        let pool = json!({ "metadata": { "name": format!("pool-{n}"), "resourceVersion": "1" }, "spec": { "limits": limits } });
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
        let claim: NodeClaim = serde_json::from_value(json!({ "metadata": { "name": "c", "labels": { "karpenter.sh/nodepool": format!("pool-{n}") } } })).unwrap();
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
        metrics.node_gone(&format!("n{n}").into(), &shared.snapshot());
        metrics.claim_gone(&format!("c{n}").into(), &shared.snapshot());
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
        page.contains("mortise_metrics_pools_left_out 170"),
        "{page}"
    );
    let dropped = page
        .lines()
        .find_map(|line| line.strip_prefix("mortise_metrics_dropped_total "))
        .unwrap();
    assert!(dropped.parse::<u64>().unwrap() > 1000, "{dropped}");
}

const DECIDERS: [DeciderId; 10] = [
    DeciderId::NodeClass,
    DeciderId::NodePool,
    DeciderId::Interruption,
    DeciderId::Lifecycle,
    DeciderId::Termination,
    DeciderId::Conditions,
    DeciderId::Expiration,
    DeciderId::GarbageCollection,
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
    let page = shared
        .metrics
        .page(&shared, &std::collections::BTreeMap::new())
        .unwrap();
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
