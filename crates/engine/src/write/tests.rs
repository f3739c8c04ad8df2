//! Golden requests, and what edits report of themselves.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use mortise_apis::karpenter::capacitybuffer::{CapacityBuffer, CapacityBufferStatus};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::karpenter::nodeoverlay::NodeOverlay;
use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::names::{NodeClassKey, ObjectRef, PodKey};
use mortise_apis::{Condition, k8s, labels};
use mortise_cloudprovider::{CapacityType, InterruptionKind};
use mortise_planning::reason::Reason;
use mortise_state::ledger::FenceReason;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::lifecycle_step::LifecycleStep;
use super::*;
use crate::decider_id::DeciderId;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node_claim() -> NodeClaim {
    read(json!({ "metadata": {
        "name": "c", "uid": "u", "resourceVersion": "7", "finalizers": ["other", "karpenter.sh/termination"],
    } }))
}

fn node(taints: &Value, all_labels: &Value) -> k8s::Node {
    read(json!({
        "metadata": { "name": "n", "resourceVersion": "7", "labels": all_labels },
        "spec": { "taints": taints },
    }))
}

fn conditions(list: &[(&str, &str)]) -> Vec<Condition> {
    let condition = |(type_, status): &(&str, &str)| {
        read(json!({
            "type": type_, "status": status, "reason": type_, "message": "", "observedGeneration": 1,
            "lastTransitionTime": "2030-01-01T00:00:00Z",
        }))
    };
    list.iter().map(condition).collect()
}

fn claim_conditions(list: &[(&str, &str)]) -> ObjectWrite {
    let edit = NodeClaimStatusEdit {
        conditions: Some(conditions(list)),
        ..NodeClaimStatusEdit::default()
    };
    ObjectWrite::claim_status(&node_claim(), edit)
}

#[test]
fn a_capacity_type_replaces_the_labels_of_the_former() {
    let edit = CapacityTypeLabels {
        capacity_type: CapacityType::OnDemand,
        removed: ["example.com/reservation".to_owned()].into(),
    };
    let write = ObjectWrite::set_capacity_type(ObjectRef::Claim("c".into()), edit);
    let expected = json!({ "metadata": { "labels": {
        "karpenter.sh/capacity-type": "on-demand", "example.com/reservation": null,
    } } });
    assert_eq!(write.render().merge, expected);
    assert_eq!(
        (write.edit.kind(), write.lifecycle_step()),
        (EditKind::CapacityType, None)
    );
    let write = ObjectWrite::set_tagged(&node_claim(), map(&[("tagged", "true")]));
    let expected = json!({ "metadata": { "annotations": { "tagged": "true" } } });
    assert_eq!(write.render().merge, expected);
    assert_eq!(
        (write.edit.kind(), write.lifecycle_step()),
        (EditKind::Tagged, None)
    );
    for (cost, text) in [(Some(-7), json!("-7")), (None, json!(null))] {
        let write = ObjectWrite::set_deletion_cost(PodKey::new("default", "web-1"), cost);
        let expected = json!({ "metadata": { "annotations": {
            "controller.kubernetes.io/pod-deletion-cost": text, "mortise.sh/pod-deletion-cost": text,
        } } });
        assert_eq!(write.render().merge, expected);
        assert_eq!(
            (write.edit.kind(), write.lifecycle_step()),
            (EditKind::DeletionCost, None)
        );
    }
    let peaks = "2026-11-02T08:00:00Z 3 5*2";
    let write =
        ObjectWrite::set_replica_peaks(NamespacedName::new("ns", "room"), peaks.parse().unwrap());
    let expected = json!({ "metadata": { "annotations": { "mortise.sh/replica-peaks": peaks } } });
    assert_eq!(write.render().merge, expected);
    assert_eq!(
        (write.edit.kind(), write.lifecycle_step()),
        (EditKind::ReplicaPeaks, None)
    );
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn expired() -> DeletionReason {
    DeletionReason {
        by: DeciderId::Expiration,
        reason: Reason::Expired,
    }
}

/// Subresource and body of a request, and the lifecycle step that it is.
fn check(write: &ObjectWrite, expected: &str, step: Option<LifecycleStep>) {
    let body = write.render();
    let prefix = body
        .subresource
        .map(|subresource| format!("{subresource} "));
    let request = format!("{}{}", prefix.unwrap_or_default(), body.merge);
    assert_eq!(request, expected);
    assert_eq!(write.lifecycle_step(), step, "{expected}");
}

#[test]
fn writes_of_node_claims() {
    let claim = node_claim();
    let target = || ObjectRef::Claim(claim.name());
    let mut bare = node_claim();
    bare.metadata.finalizers = None;
    check(
        &ObjectWrite::add_finalizer(target(), &bare.metadata, labels::TERMINATION_FINALIZER),
        r#"{"metadata":{"finalizers":["karpenter.sh/termination"],"resourceVersion":"7"}}"#,
        Some(LifecycleStep::AddClaimFinalizer),
    );
    check(
        &ObjectWrite::set_launch_batch(&bare, "token".into()),
        r#"{"metadata":{"annotations":{"mortise.sh/launch-batch":"token"},"finalizers":["karpenter.sh/termination"],"resourceVersion":"7"}}"#,
        Some(LifecycleStep::AddClaimFinalizer),
    );
    check(
        &ObjectWrite::set_launch_batch(&claim, "other".into()),
        r#"{"metadata":{"annotations":{"mortise.sh/launch-batch":"other"},"resourceVersion":"7"}}"#,
        None,
    );
    check(
        &ObjectWrite::remove_finalizer(target(), &claim.metadata, labels::TERMINATION_FINALIZER),
        r#"{"metadata":{"finalizers":["other"],"resourceVersion":"7"}}"#,
        Some(LifecycleStep::RemoveClaimFinalizer),
    );
    check(
        &ObjectWrite::add_labels(target(), map(&[("fake.test/fakenodeclass", "default")])),
        r#"{"metadata":{"labels":{"fake.test/fakenodeclass":"default"}}}"#,
        Some(LifecycleStep::LabelClaim),
    );
    let found = InstanceMetadata {
        labels: map(&[("topology.kubernetes.io/zone", "zone-a")]),
        annotations: map(&[("note", "provider")]),
        provider_id: "fake:///zone-a/i-1".into(),
    };
    check(
        &ObjectWrite::set_instance(&claim, found),
        r#"{"metadata":{"annotations":{"mortise.sh/provider-id":"fake:///zone-a/i-1","note":"provider"},"labels":{"topology.kubernetes.io/zone":"zone-a"}}}"#,
        Some(LifecycleStep::LabelClaim),
    );
    check(
        &ObjectWrite::record_deletion(&claim, expired()).unwrap(),
        r#"{"metadata":{"annotations":{"mortise.sh/deletion-reason":"expiration: older than expireAfter"}}}"#,
        None,
    );
    check(
        &ObjectWrite::set_fence(claim.name(), Some(FenceReason::Interruption)),
        r#"{"metadata":{"annotations":{"mortise.sh/fence":"interruption"}}}"#,
        Some(LifecycleStep::FenceClaim),
    );
    check(
        &ObjectWrite::set_fence(claim.name(), None),
        r#"{"metadata":{"annotations":{"mortise.sh/fence":null}}}"#,
        None,
    );
    let at = "2030-01-01T00:01:00.9Z".parse().unwrap();
    let plan = PlannedInterruption {
        kind: InterruptionKind::SystemStatus,
        starts: None,
    };
    check(
        &ObjectWrite::set_interruption(
            claim.name(),
            plan,
            Some(FenceReason::Interruption),
            Some(at),
        ),
        r#"{"metadata":{"annotations":{"karpenter.sh/nodeclaim-termination-timestamp":"2030-01-01T00:01:00Z","mortise.sh/fence":"interruption","mortise.sh/interruption":"system_status"}}}"#,
        Some(LifecycleStep::FenceClaim),
    );
    let plan = PlannedInterruption {
        kind: InterruptionKind::ScheduledChange,
        starts: Some(at),
    };
    check(
        &ObjectWrite::set_interruption(claim.name(), plan, None, None),
        r#"{"metadata":{"annotations":{"mortise.sh/interruption":"scheduled_change 2030-01-01T00:01:00Z"}}}"#,
        None,
    );
    check(
        &ObjectWrite::set_deadline(&claim, at, None),
        r#"{"metadata":{"annotations":{"karpenter.sh/nodeclaim-termination-timestamp":"2030-01-01T00:01:00Z"}}}"#,
        Some(LifecycleStep::SetDeadline),
    );
    check(
        &ObjectWrite::set_deadline(&claim, at, Some(expired())),
        r#"{"metadata":{"annotations":{"karpenter.sh/nodeclaim-termination-timestamp":"2030-01-01T00:01:00Z","mortise.sh/deletion-reason":"expiration: older than expireAfter"}}}"#,
        Some(LifecycleStep::SetDeadline),
    );
}

#[test]
fn status_of_node_claims() {
    let amounts = |cpu: &str| read(json!({ "cpu": cpu }));
    let edit = NodeClaimStatusEdit {
        instance: Some(InstanceStatus {
            provider_id: "fake:///zone-a/i-1".into(),
            image_id: Some("image-1".to_owned()),
            capacity: amounts("2"),
            allocatable: amounts("1900m"),
        }),
        node_name: Some("n".to_owned()),
        conditions: Some(conditions(&[("Launched", "True")])),
        ..NodeClaimStatusEdit::default()
    };
    check(
        &ObjectWrite::claim_status(&node_claim(), edit),
        r#"status {"metadata":{"resourceVersion":"7"},"status":{"allocatable":{"cpu":"1900m"},"capacity":{"cpu":"2"},"conditions":[{"lastTransitionTime":"2030-01-01T00:00:00Z","message":"","observedGeneration":1,"reason":"Launched","status":"True","type":"Launched"}],"imageID":"image-1","nodeName":"n","providerID":"fake:///zone-a/i-1"}}"#,
        Some(LifecycleStep::WriteLaunched),
    );
    let edit = NodeClaimStatusEdit {
        last_pod_event: Some("2030-01-01T00:00:00Z".parse().unwrap()),
        ..NodeClaimStatusEdit::default()
    };
    check(
        &ObjectWrite::claim_status(&node_claim(), edit),
        r#"status {"status":{"lastPodEventTime":"2030-01-01T00:00:00Z"}}"#,
        None,
    );
    check(
        &claim_conditions(&[]),
        r#"status {"metadata":{"resourceVersion":"7"},"status":{"conditions":[]}}"#,
        None,
    );
    let buffer: CapacityBuffer =
        read(json!({ "metadata": { "name": "b", "namespace": "ns", "resourceVersion": "7" } }));
    let status = CapacityBufferStatus {
        replicas: Some(2),
        ..CapacityBufferStatus::default()
    };
    check(
        &ObjectWrite::buffer_status(&buffer, status),
        r#"status {"metadata":{"resourceVersion":"7"},"status":{"conditions":[],"podTemplateGeneration":null,"podTemplateRef":null,"provisioningStrategy":null,"replicas":2}}"#,
        None,
    );
}

#[test]
fn a_status_counts_as_the_furthest_step_that_it_contains() {
    let step = |list: &[(&str, &str)]| claim_conditions(list).lifecycle_step();
    let launched = ("Launched", "True");
    let drained = ("Drained", "True");
    assert_eq!(step(&[("Launched", "Unknown")]), None);
    assert_eq!(step(&[launched]), Some(LifecycleStep::WriteLaunched));
    assert_eq!(
        step(&[launched, ("Registered", "True"), ("Drained", "Unknown")]),
        Some(LifecycleStep::WriteDraining)
    );
    assert_eq!(
        step(&[launched, drained]),
        Some(LifecycleStep::WriteDrained)
    );
    assert_eq!(
        step(&[drained, ("InstanceTerminating", "True")]),
        Some(LifecycleStep::WriteTerminating)
    );
}

#[test]
fn hashes_are_upgraded_unless_the_node_claim_is_drifted_or_deleted() {
    let (version, key) = (("hash-version", "v3"), "hash");
    let upgraded =
        |claim: &NodeClaim| ObjectWrite::upgrade_hash(claim, version, key, || "1".into());
    let both = r#"{"metadata":{"annotations":{"hash":"1","hash-version":"v3"}}}"#;
    check(&upgraded(&node_claim()).unwrap(), both, None);
    let mut drifted = node_claim();
    drifted.status.conditions = conditions(&[("Drifted", "True")]);
    let version_alone = r#"{"metadata":{"annotations":{"hash-version":"v3"}}}"#;
    check(&upgraded(&drifted).unwrap(), version_alone, None);
    let mut current = node_claim();
    current.metadata.annotations = Some(map(&[("hash-version", "v3")]));
    assert_eq!(upgraded(&current), None);
    let mut deleted = node_claim();
    deleted.metadata.deletion_timestamp = read(json!("2030-01-01T00:00:00Z"));
    assert_eq!(upgraded(&deleted), None);
}

#[test]
fn writes_of_nodes() {
    let plain = node(&json!([]), &json!({}));
    let finalized = {
        let mut node = node(&json!([]), &json!({}));
        node.metadata.finalizers = Some(vec![labels::TERMINATION_FINALIZER.to_owned()]);
        node
    };
    check(
        &ObjectWrite::remove_finalizer(
            node_ref(&finalized),
            &finalized.metadata,
            labels::TERMINATION_FINALIZER,
        ),
        r#"{"metadata":{"finalizers":[],"resourceVersion":"7"}}"#,
        Some(LifecycleStep::RemoveNodeFinalizer),
    );
    check(
        &ObjectWrite::initialize(&plain),
        r#"{"metadata":{"labels":{"karpenter.sh/initialized":"true"}}}"#,
        Some(LifecycleStep::InitializeNode),
    );
    check(
        &ObjectWrite::add_labels(node_ref(&plain), map(&[("a", "b")])),
        r#"{"metadata":{"labels":{"a":"b"}}}"#,
        None,
    );
    let registration = Registration {
        finalizers: Some(vec!["karpenter.sh/termination".to_owned()]),
        owners: Some(read(json!([{
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "name": "c", "uid": "u", "blockOwnerDeletion": true,
        }]))),
        labels: map(&[("karpenter.sh/registered", "true"), ("team", "a")]),
        annotations: map(&[("note", "provider")]),
        taints: Some(read(json!([{ "key": "own", "effect": "NoSchedule" }]))),
    };
    check(
        &ObjectWrite::register(&plain, registration),
        r#"{"metadata":{"annotations":{"note":"provider"},"finalizers":["karpenter.sh/termination"],"labels":{"karpenter.sh/registered":"true","team":"a"},"ownerReferences":[{"apiVersion":"karpenter.sh/v1","blockOwnerDeletion":true,"kind":"NodeClaim","name":"c","uid":"u"}],"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"own"}]}}"#,
        Some(LifecycleStep::RegisterNode),
    );
    assert!(Registration::default().is_empty());
    for (label, step) in [
        (
            "karpenter.sh/initialized",
            Some(LifecycleStep::InitializeNode),
        ),
        ("team", None),
    ] {
        let registration = Registration {
            labels: map(&[(label, "true")]),
            ..Registration::default()
        };
        let write = ObjectWrite::register(&plain, registration);
        assert_eq!(write.lifecycle_step(), step, "{label}");
        assert_eq!(write.edit.priority(), WritePriority::Normal);
    }
}

#[test]
fn the_disrupted_taint_is_written_first() {
    let own = json!({ "key": "own", "effect": "NoSchedule" });
    let disrupted = json!({ "key": "karpenter.sh/disrupted", "effect": "NoSchedule" });
    let excluded =
        json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "karpenter" });
    let plain = node(&json!([own]), &json!({}));
    let tainted = node(&json!([own, disrupted]), &json!({}));
    let complete = node(&json!([own, disrupted]), &excluded);
    let write = |node: &k8s::Node, taints: NodeTaints, expected: &str, step, priority| {
        let write = ObjectWrite::set_taints(node, taints);
        check(&write, expected, step);
        assert_eq!(write.edit.priority(), priority, "{expected}");
    };
    let (first, normal) = (WritePriority::Immediate, WritePriority::Normal);
    write(
        &plain,
        NodeTaints::disrupted(&plain),
        r#"{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"own"},{"effect":"NoSchedule","key":"karpenter.sh/disrupted"}]}}"#,
        Some(LifecycleStep::MarkNode),
        first,
    );
    let both = r#"{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"karpenter"},"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"own"},{"effect":"NoSchedule","key":"karpenter.sh/disrupted"}]}}"#;
    for taints in [
        NodeTaints::disrupted_and_excluded(&plain),
        NodeTaints::terminating(&plain).unwrap(),
    ] {
        write(&plain, taints, both, Some(LifecycleStep::TaintNode), first);
    }
    write(
        &tainted,
        NodeTaints::terminating(&tainted).unwrap(),
        r#"{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":"karpenter"},"resourceVersion":"7"}}"#,
        Some(LifecycleStep::TaintNode),
        normal,
    );
    assert_eq!(NodeTaints::terminating(&complete), None);
    write(
        &complete,
        NodeTaints::restored(&complete),
        r#"{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null},"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"own"}]}}"#,
        None,
        normal,
    );
    write(
        &tainted,
        NodeTaints::restored(&tainted),
        r#"{"metadata":{"resourceVersion":"7"},"spec":{"taints":[{"effect":"NoSchedule","key":"own"}]}}"#,
        None,
        normal,
    );
    let late = Registration {
        taints: Some(read::<Vec<Taint>>(json!([disrupted]))),
        ..Registration::default()
    };
    let late = ObjectWrite::register(&tainted, late);
    assert_eq!(late.edit.priority(), first);
}

#[test]
fn writes_of_pools_classes_and_overlays() {
    let pool: NodePool = read(json!({
        "metadata": { "name": "p", "resourceVersion": "7" },
        "spec": { "template": { "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "default" }, "requirements": [] } } },
    }));
    let target = || ObjectRef::Pool(pool.name());
    check(
        &ObjectWrite::set_hashes(
            target(),
            map(&[("karpenter.sh/nodepool-hash-version", "v3")]),
        ),
        r#"{"metadata":{"annotations":{"karpenter.sh/nodepool-hash-version":"v3"}}}"#,
        None,
    );
    let usage = NodePoolUsage {
        resources: [
            ("cpu".to_owned(), Some("2".to_owned())),
            ("gpu".to_owned(), None),
        ]
        .into(),
        nodes: 1,
    };
    let edit = NodePoolStatusEdit {
        usage: Some(usage),
        ..NodePoolStatusEdit::default()
    };
    check(
        &ObjectWrite::pool_status(&pool, edit),
        r#"status {"status":{"nodes":1,"resources":{"cpu":"2","gpu":null}}}"#,
        None,
    );
    let edit = NodePoolStatusEdit {
        node_class_generation: Some(3),
        conditions: Some(conditions(&[("Launched", "True")])),
        ..NodePoolStatusEdit::default()
    };
    check(
        &ObjectWrite::pool_status(&pool, edit),
        r#"status {"metadata":{"resourceVersion":"7"},"status":{"conditions":[{"lastTransitionTime":"2030-01-01T00:00:00Z","message":"","observedGeneration":1,"reason":"Launched","status":"True","type":"Launched"}],"nodeClassObservedGeneration":3}}"#,
        None,
    );
    let class = NodeClassKey::new("fake.test", "FakeNodeClass", "default");
    check(
        &ObjectWrite::class_status(class.clone(), json!({ "old": null })),
        r#"status {"status":{"old":null}}"#,
        None,
    );
    let meta = node_claim().metadata;
    check(
        &ObjectWrite::add_finalizer(ObjectRef::NodeClass(class), &meta, "fake.test/termination"),
        r#"{"metadata":{"finalizers":["other","karpenter.sh/termination","fake.test/termination"],"resourceVersion":"7"}}"#,
        None,
    );
    let overlay: NodeOverlay = read(json!({ "metadata": { "name": "o", "resourceVersion": "7" } }));
    check(
        &ObjectWrite::overlay_status(&overlay, Vec::new()),
        r#"status {"metadata":{"resourceVersion":"7"},"status":{"conditions":[]}}"#,
        None,
    );
}
