//! Gangs: the pods of a group that run together get a place each, or none does.

use std::collections::BTreeMap;

use crate::one_pool::{World, merge, node, pod, pool};
use jiff::Timestamp;
use mortise_planning::reason::{GangShortage, Reason};
use mortise_planning::scheduling::{
    LaunchPlan, PodSchedulingState, SolveOptions, SolveReport, explain, solve,
};
use mortise_state::resource_kinds::{Object, ObjectKind};
use mortise_state::snapshot::{GangKind, Snapshot};
use serde_json::{Value, json};

/// The ways in which a pod names its group, and the objects behind them.
const KINDS: [GangKind; 3] = GangKind::POD_GROUPS;

pub(crate) fn member_of(kind: GangKind, group: &str, mut pod: Value) -> Value {
    let more = match kind {
        GangKind::Kubernetes => json!({ "spec": { "schedulingGroup": { "podGroupName": group } } }),
        GangKind::Coscheduling => {
            json!({ "metadata": { "labels": { "scheduling.x-k8s.io/pod-group": group } } })
        }
        GangKind::Volcano => {
            json!({ "metadata": { "annotations": { "scheduling.k8s.io/group-name": group } } })
        }
        GangKind::Request => panic!("it has no PodGroup"),
    };
    merge(&mut pod, more);
    pod
}

fn group_of(kind: GangKind, name: &str, min: i64, status: Value) -> Object {
    let (index, spec) = match kind {
        GangKind::Kubernetes => (
            ObjectKind::PodGroup,
            json!({ "schedulingPolicy": { "gang": { "minCount": min } } }),
        ),
        GangKind::Coscheduling => (
            ObjectKind::CoschedulingPodGroup,
            json!({ "minMember": min }),
        ),
        GangKind::Volcano => (ObjectKind::VolcanoPodGroup, json!({ "minMember": min })),
        GangKind::Request => panic!("it has no PodGroup"),
    };
    let metadata = json!({ "name": name, "namespace": "default", "uid": name });
    let object = json!({ "metadata": metadata, "spec": spec, "status": status });
    index.parse(&object.to_string()).unwrap()
}

/// A group that waits for its pods to be scheduled.
fn waiting(kind: GangKind, name: &str, min: i64) -> Object {
    let phase = match kind {
        GangKind::Kubernetes => json!({}),
        GangKind::Coscheduling => json!({ "phase": "Pending" }),
        GangKind::Volcano => json!({ "phase": "Inqueue" }),
        GangKind::Request => panic!("it has no PodGroup"),
    };
    group_of(kind, name, min, phase)
}

/// A group with its pods.
fn gang(world: World, kind: GangKind, name: &str, (min, pods): (i64, usize), cpu: &str) -> World {
    let world = world.with(waiting(kind, name, min));
    members(world, kind, name, 0..pods, cpu)
}

fn members(
    world: World,
    kind: GangKind,
    name: &str,
    which: std::ops::Range<usize>,
    cpu: &str,
) -> World {
    which.fold(world, |world, at| {
        let own = pod(&format!("{name}-{at}"), name, cpu, json!({}));
        world.pending(member_of(kind, name, own))
    })
}

pub(crate) fn options() -> SolveOptions {
    SolveOptions {
        pending: true,
        gangs: KINDS.into(),
        ..SolveOptions::default()
    }
}

pub(crate) fn solved(snapshot: &Snapshot) -> (LaunchPlan, SolveReport) {
    solve(Timestamp::UNIX_EPOCH, snapshot, &options(), &|| false)
}

/// Pods with a place, by their app.
pub(crate) fn placed(plan: &LaunchPlan) -> BTreeMap<String, usize> {
    let launched = plan.claims.iter().flat_map(|claim| &claim.pods);
    let existing = plan.placements.iter().map(|placement| &placement.pod);
    let mut all = BTreeMap::new();
    for pod in launched.chain(existing) {
        let name = pod.key.name.rsplit_once('-').unwrap().0;
        *all.entry(name.to_owned()).or_default() += 1;
    }
    all
}

pub(crate) fn shortages(report: &SolveReport) -> Vec<&GangShortage> {
    let reasons = report.unplaced.iter().flat_map(|each| &each.reasons);
    let of_gangs = reasons.filter_map(|reason| match reason {
        Reason::GangWaits(blocker) => Some(&blocker.lacks),
        _ => None,
    });
    of_gangs.collect()
}

fn limited(cpu: &str) -> World {
    let limits = json!({ "spec": { "limits": { "cpu": cpu } } });
    World::new().pools([pool("general", json!([]), limits)])
}

#[test]
fn a_gang_waits_for_its_pods_and_then_gets_all_places() {
    for kind in KINDS {
        let world = gang(World::new(), kind, "train", (4, 3), "3");
        let (plan, report) = solved(&world.snapshot());
        assert!(plan.claims.is_empty(), "{kind:?}");
        assert_eq!(
            shortages(&report),
            [&GangShortage::Pods {
                existing: 3,
                needed: 4
            }]
        );
        assert_eq!(
            report.unplaced[0].message,
            "PodGroup default/train needs 4 pods to run together, and has 3"
        );
        let world = members(world, kind, "train", 3..4, "3");
        let (plan, report) = solved(&world.snapshot());
        assert_eq!(placed(&plan)["train"], 4, "{kind:?}");
        assert!(report.unplaced.is_empty());
    }
}

#[test]
fn a_gang_without_room_for_all_gets_none_and_leaves_it_to_others() {
    for kind in KINDS {
        let world = gang(limited("16"), kind, "train", (5, 5), "3500m");
        let web = (0..2).map(|at| pod(&format!("web-{at}"), "web", "3", json!({})));
        let world = web.fold(world, World::pending);
        let (plan, report) = solved(&world.snapshot());
        assert_eq!(placed(&plan), [("web".to_owned(), 2)].into(), "{kind:?}");
        let [
            GangShortage::Places {
                found: 4,
                needed: 5,
                domain: None,
                first: Some(first),
            },
        ] = shortages(&report)[..]
        else {
            panic!("{report:?}");
        };
        assert!(first.why.to_string().contains("limit"), "{first:?}");
        let event = &report.unplaced[0].message;
        assert!(
            event.starts_with("PodGroup default/train runs 5 pods together or none, and only 4 have a place; pod default/train-"),
            "{event}"
        );
    }
}

#[test]
fn of_two_gangs_that_want_the_same_room_one_gets_all_of_it() {
    let kind = GangKind::Kubernetes;
    for pods in 2..=4 {
        let world = gang(limited("16"), kind, "a", (pods, 4), "3");
        let world = gang(world, kind, "b", (pods, 4), "3");
        let (plan, _) = solved(&world.snapshot());
        let found = placed(&plan);
        let a = found.get("a").copied().unwrap_or(0);
        let b = found.get("b").copied().unwrap_or(0);
        assert!(a + b <= 4, "{found:?}");
        for count in [a, b] {
            assert!(
                count == 0 || count >= usize::try_from(pods).unwrap(),
                "{found:?}"
            );
        }
        assert!(a + b > 0, "one of them fits");
    }
}

#[test]
fn what_is_more_than_the_gang_needs_is_placed_as_far_as_there_is_room() {
    let world = gang(
        limited("16"),
        GangKind::Kubernetes,
        "train",
        (3, 6),
        "3500m",
    );
    let (plan, report) = solved(&world.snapshot());
    assert_eq!(placed(&plan)["train"], 4);
    assert!(shortages(&report).is_empty());
    assert_eq!(
        report
            .unplaced
            .iter()
            .map(|each| each.pods.len())
            .sum::<usize>(),
        2
    );
}

#[test]
fn room_on_nodes_and_pods_that_run_count() {
    let kind = GangKind::Coscheduling;
    let running = pod("train-9", "train", "3", json!({}));
    let world = gang(limited("8"), kind, "train", (4, 3), "3")
        .node(node("n", "z1", json!({})))
        .running("n", member_of(kind, "train", running));
    // One runs, one fits next to it, and two fit on new nodes.
    let (plan, report) = solved(&world.snapshot());
    assert_eq!(placed(&plan)["train"], 3, "{report:?}");
    assert_eq!(plan.placements.len(), 1);
}

#[test]
fn groups_that_are_unknown_or_not_admitted_wait() {
    for kind in KINDS {
        let world = members(World::new(), kind, "train", 0..2, "3");
        let (plan, report) = solved(&world.snapshot());
        assert!(plan.claims.is_empty(), "{kind:?}");
        assert_eq!(shortages(&report), [&GangShortage::Group], "{kind:?}");
    }
    let kind = GangKind::Volcano;
    let queued = group_of(kind, "train", 2, json!({ "phase": "Pending" }));
    let world = members(World::new().with(queued), kind, "train", 0..2, "3");
    let (_, report) = solved(&world.snapshot());
    assert_eq!(shortages(&report), [&GangShortage::Admission]);
}

#[test]
fn pods_of_a_group_without_a_gang_are_placed_one_by_one() {
    let kind = GangKind::Kubernetes;
    let basic = json!({
        "metadata": { "name": "train", "namespace": "default" },
        "spec": { "schedulingPolicy": { "basic": {} } },
    });
    let basic = ObjectKind::PodGroup.parse(&basic.to_string()).unwrap();
    let none = group_of(kind, "train", 0, json!({}));
    // Volcano counts pods that have ended, so that those that are left may be fewer.
    let runs = group_of(GangKind::Volcano, "train", 4, json!({ "phase": "Running" }));
    for (kind, group) in [(kind, basic), (kind, none), (GangKind::Volcano, runs)] {
        let world = members(World::new().with(group), kind, "train", 0..2, "3");
        let (plan, _) = solved(&world.snapshot());
        assert_eq!(placed(&plan)["train"], 2, "{kind:?}");
    }
}

#[test]
fn a_gang_that_ran_and_lost_all_its_pods_gets_all_places_again_or_none() {
    for kind in [GangKind::Kubernetes, GangKind::Coscheduling] {
        let scheduled = json!({
            "phase": "Running",
            "conditions": [{ "type": "PodGroupScheduled", "status": "True", "reason": "Scheduled" }],
        });
        let world = limited("16").with(group_of(kind, "train", 5, scheduled));
        let world = members(world, kind, "train", 0..5, "3500m");
        let (plan, _) = solved(&world.snapshot());
        assert!(plan.claims.is_empty(), "{kind:?}");
    }
}

#[test]
fn where_the_kind_is_not_served_pods_are_placed_one_by_one() {
    for kind in KINDS {
        let world = members(World::new(), kind, "train", 0..2, "3");
        let options = SolveOptions {
            gangs: KINDS.into_iter().filter(|each| *each != kind).collect(),
            ..options()
        };
        let (plan, report) = solve(Timestamp::UNIX_EPOCH, &world.snapshot(), &options, &|| {
            false
        });
        assert_eq!(placed(&plan)["train"], 2, "{kind:?}");
        assert!(report.unplaced.is_empty());
    }
}

#[test]
fn pods_that_no_scheduler_has_refused_count_with_one_that_it_has() {
    let kind = GangKind::Volcano;
    let world = World::new().with(waiting(kind, "train", 3));
    let world = members(world, kind, "train", 0..1, "3");
    let world = (1..3).fold(world, |world, at| {
        let mut own = pod(&format!("train-{at}"), "train", "3", json!({}));
        own["status"]["conditions"][0]["reason"] = json!("Undetermined");
        world.pending(member_of(kind, "train", own))
    });
    let (plan, _) = solved(&world.snapshot());
    assert_eq!(placed(&plan)["train"], 3);
}

#[test]
fn a_pod_of_a_gang_is_explained_with_its_gang() {
    let world = gang(
        limited("16"),
        GangKind::Kubernetes,
        "train",
        (5, 5),
        "3500m",
    );
    let world = gang(world, GangKind::Kubernetes, "small", (2, 2), "3");
    let snapshot = world.snapshot();
    let of = |name: &str| {
        let pod = snapshot
            .pods
            .values()
            .find(|pod| &*pod.key.name == name)
            .unwrap();
        explain(Timestamp::UNIX_EPOCH, &snapshot, pod, &options())
    };
    let refused = of("train-4");
    assert!(matches!(refused.state, PodSchedulingState::WaitsForGang));
    assert!(
        matches!(refused.reasons[..], [Reason::GangWaits(_)]),
        "{refused:?}"
    );
    let fits = of("small-1");
    assert!(
        matches!(fits.state, PodSchedulingState::NewNode { .. }),
        "{fits:?}"
    );
}

/// Random gangs in a NodePool that has room for some of them: none is placed in part, one that fits alone is not kept out by those that
/// do not fit, and new nodes are as few as for the same pods without gangs.
#[test]
fn no_gang_is_placed_in_part() {
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let (mut whole, mut none) = (0, 0);
    for round in 0..60 {
        let limit = 16 * (1 + next(12));
        let mut world = limited(&limit.to_string());
        let mut needs = BTreeMap::new();
        for at in 0..=next(6) {
            let pods = usize::try_from(2 + next(15)).unwrap();
            let min = pods - usize::try_from(next(2)).unwrap();
            let cpu = [500, 1_000, 1_900, 3_500][usize::try_from(next(4)).unwrap()];
            let name = format!("g{at}");
            let kind = KINDS[usize::try_from(next(3)).unwrap()];
            world = gang(
                world,
                kind,
                &name,
                (i64::try_from(min).unwrap(), pods),
                &format!("{cpu}m"),
            );
            needs.insert(name, min);
        }
        let snapshot = world.snapshot();
        let (plan, report) = solved(&snapshot);
        let found = placed(&plan);
        for (name, min) in &needs {
            let count = found.get(name).copied().unwrap_or(0);
            assert!(
                count == 0 || count >= *min,
                "round {round}: {count} of {min} pods of {name}"
            );
            if count == 0 { none += 1 } else { whole += 1 }
        }
        // The same pods without gangs need as many nodes.
        let left_out: Vec<_> = report
            .unplaced
            .iter()
            .flat_map(|each| &each.pods)
            .map(|(key, _)| key.clone())
            .collect();
        let mut same = snapshot.clone();
        for key in &left_out {
            same.pending.remove(key);
        }
        let single = SolveOptions {
            gangs: [].into(),
            ..options()
        };
        let (alone, _) = solve(Timestamp::UNIX_EPOCH, &same, &single, &|| false);
        assert_eq!(plan.claims.len(), alone.claims.len(), "round {round}");
    }
    assert!(whole > 100 && none > 10, "{whole} whole, {none} not at all");
}

#[test]
fn time_that_runs_out_leaves_no_gang_in_part() {
    let world = (0..6).fold(World::new(), |world, at| {
        gang(world, GangKind::Kubernetes, &format!("g{at}"), (8, 8), "3")
    });
    let snapshot = world.snapshot();
    for most in [1, 5, 20, 40, 100] {
        let asked = std::cell::Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > most
        };
        let (plan, _) = solve(Timestamp::UNIX_EPOCH, &snapshot, &options(), &stop);
        for (gang, count) in placed(&plan) {
            assert_eq!(count, 8, "{gang} after {most} questions");
        }
    }
}
