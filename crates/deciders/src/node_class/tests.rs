use serde_json::json;

use super::would_change;
use crate::tests::{bare_cluster, cluster};
use mortise_apis::labels::TOPOLOGY_ZONE;
use mortise_cloudprovider::{CloudError, LaunchError, Retry, ShiftedZone};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{KIND, TestCluster};

fn resolves(world: &TestCluster) -> usize {
    world
        .done
        .iter()
        .filter(|each| each.starts_with("resolve "))
        .count()
}

#[test]
fn a_provider_that_soon_knows_more_is_asked_again_soon() {
    let mut world = bare_cluster(Settings::default());
    world.answers.again_ms = Some(5_000);
    world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
    world.settle();
    assert_eq!(resolves(&world), 1);
    world.answers.again_ms = None;
    world.pass(6_000);
    assert_eq!(resolves(&world), 2);
    world.pass(60_000);
    assert_eq!(resolves(&world), 2, "every five minutes from then on");
}

#[test]
fn a_class_is_resolved_when_capacity_that_it_lacks_is_asked_for_again() {
    let mut world = cluster();
    world.pass(50_000);
    let before = resolves(&world);
    let errors = [Some(180_000), None, Some(600_000)];
    let errors = errors.map(|again_ms| LaunchError::InsufficientCapacity {
        message: "none left".to_owned(),
        unavailable: Vec::new(),
        again_ms,
        missing: None,
    });
    world.answers.launch_errors = errors.into();
    for name in ["a", "b", "c"] {
        world.claim(name, &json!({}));
    }
    world.pass(170_000);
    assert_eq!(resolves(&world), before, "its time has not come");
    world.pass(15_000);
    assert_eq!(resolves(&world), before + 1);
    world.pass(270_000);
    assert_eq!(resolves(&world), before + 1, "every five minutes again");
}

#[test]
fn claims_with_a_hash_of_another_version_are_stamped_and_drifted_ones_stay_drifted() {
    let mut world = cluster();
    let key = "fake.test/fakenodeclass-hash";
    let version_key = format!("{key}-version");
    let of = |world: &TestCluster, claim: &str| {
        let annotations = &world.get(&format!("NodeClaim/{claim}"))["metadata"]["annotations"];
        [key, &version_key].map(|key| annotations[key].as_str().unwrap_or_default().to_owned())
    };
    for name in ["calm", "drifted"] {
        world.claim(name, &json!({}));
    }
    world.settle();
    let old = json!({ "metadata": { "annotations": { key: "old", &version_key: "v5" } } });
    for name in ["calm", "drifted"] {
        world.edit(&format!("NodeClaim/{name}"), &old);
    }
    let drifted = json!({ "type": "Drifted", "status": "True", "reason": "NodeClassDrift", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z" });
    let mut list = world.get("NodeClaim/drifted")["status"]["conditions"].clone();
    list.as_array_mut().unwrap().push(drifted);
    world
        .answers
        .drifted
        .insert("drifted".to_owned(), "NodeClassDrift".to_owned());
    world.edit(
        "NodeClaim/drifted",
        &json!({ "status": { "conditions": list } }),
    );
    world.answers.class_hash = Some(["v6", "new"]);
    world.restart();
    world.settle();
    assert_eq!(of(&world, "calm"), ["new", "v6"]);
    assert_eq!(of(&world, "drifted"), ["old", "v6"]);
    world.pass(60_000);
    assert_eq!(of(&world, "drifted"), ["old", "v6"]);
}

#[test]
fn a_class_is_resolved_written_once_and_resolved_again_when_it_changes() {
    let mut world = bare_cluster(Settings::default());
    world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
    world.settle();
    let class = world.get("FakeNodeClass/default");
    assert_eq!(class["status"]["conditions"][0]["status"], "True");
    assert_eq!(class["metadata"]["annotations"]["fake.test/hash"], "1");
    assert_eq!(
        class["metadata"]["finalizers"],
        json!(["fake.test/termination"])
    );
    let writes = |world: &TestCluster| {
        world
            .done
            .iter()
            .filter(|each| each.starts_with("patch"))
            .count()
    };
    assert_eq!(
        (resolves(&world), writes(&world)),
        (1, 3),
        "finalizer, annotations, status"
    );
    world.pass(299_000);
    assert_eq!((resolves(&world), writes(&world)), (1, 3));
    world.pass(1_000);
    assert_eq!(
        (resolves(&world), writes(&world)),
        (2, 3),
        "the same answer is not written again"
    );
    world.edit(
        "FakeNodeClass/default",
        &json!({ "metadata": { "generation": 2 }, "spec": { "image": "2" } }),
    );
    world.settle();
    assert_eq!(resolves(&world), 3);
    assert!(
        world
            .snapshot()
            .catalogs
            .values()
            .next()
            .unwrap()
            .get("small")
            .is_some()
    );
}

#[test]
fn a_deleted_class_waits_for_its_claims() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.delete("FakeNodeClass/default");
    world.pass(60_000);
    assert!(world.has("FakeNodeClass/default"));
    assert_eq!(
        world
            .event("WaitingOnNodeClaimTermination")
            .unwrap()
            .message,
        "Waiting on NodeClaim termination for c"
    );
    world.restart();
    world.delete("NodeClaim/c");
    world.pass(30_000);
    assert!(!world.has("NodeClaim/c") && !world.has("FakeNodeClass/default"));
}

#[test]
fn a_deleted_class_goes_when_its_provider_has_released_it() {
    let mut world = cluster();
    world.up("c", &json!({}));
    world.delete("FakeNodeClass/default");
    world.pass(60_000);
    let before = resolves(&world);
    world.answers.resolve_error = Some(CloudError {
        label: "throttled",
        message: "slow down".to_owned(),
        retry: Retry::Again,
    });
    world.delete("NodeClaim/c");
    world.pass(60_000);
    assert!(!world.has("NodeClaim/c") && world.has("FakeNodeClass/default"));
    world.answers.resolve_error = None;
    world.pass(60_000);
    assert!(!world.has("FakeNodeClass/default"));
    assert!(resolves(&world) > before);
}

#[test]
fn a_patch_is_worth_sending_only_if_it_changes_something() {
    let now = json!({ "a": { "b": 1, "c": [1, 2] } });
    for (patch, changes) in [
        (json!({ "a": { "b": 1 } }), false),
        (json!({ "a": { "c": [1, 2] } }), false),
        (json!({ "a": { "d": null } }), false),
        (json!({ "a": { "b": null } }), true),
        (json!({ "a": { "c": [1] } }), true),
        (json!({ "x": {} }), true),
    ] {
        assert_eq!(would_change(&now, &patch), changes, "{patch}");
    }
}

const ZONE_ID: &str = "fake.test/zone-id";

fn shifted(id: &str, name: Option<&str>) -> ShiftedZone {
    ShiftedZone {
        id: id.into(),
        id_label: ZONE_ID,
        name: name.map(Into::into),
        until: "2030-01-01T12:00:00Z".parse().unwrap(),
    }
}

/// Reason, pool and text of the events of zonal shifts since the last call.
fn shift_events(world: &TestCluster, seen: &mut usize) -> Vec<String> {
    let all = world.events();
    let of_shifts = all.filter(|event| event.reason.starts_with("ZonalShift"));
    let new: Vec<String> = of_shifts
        .skip(*seen)
        .map(|event| {
            let type_ = if event.warning { "Warning" } else { "Normal" };
            let (reason, target) = (&event.reason, &event.target);
            format!("{type_} {reason} {target}: {}", event.message)
        })
        .collect();
    *seen += new.len();
    new
}

#[test]
fn a_zonal_shift_is_announced_on_each_pool_that_may_use_the_zone_when_it_begins_and_ends() {
    let mut world = cluster();
    let pool = world.get("NodePool/default").clone();
    for (name, key, zone) in [
        ("elsewhere", TOPOLOGY_ZONE, "b"),
        ("by-id", ZONE_ID, "az1"),
        ("by-other-id", ZONE_ID, "az2"),
    ] {
        let mut pool = pool.clone();
        pool["kind"] = json!("NodePool");
        pool["metadata"] = json!({ "name": name });
        pool["spec"]["template"]["spec"]["requirements"] =
            json!([{ "key": key, "operator": "In", "values": [zone] }]);
        world.put(&pool);
    }
    let mut seen = 0;
    world.answers.again_ms = Some(30_000);
    world.pass(600_000);
    assert_eq!(
        shift_events(&world, &mut seen),
        [""; 0],
        "nothing is shifted"
    );

    world.answers.shifted_zones = vec![shifted("az1", Some("a")), shifted("az9", None)];
    world.pass(31_000);
    let begun = |pool: &str| {
        format!(
            "Warning ZonalShiftActive nodepool/{pool}: zone a (az1) is shifted away until 2030-01-01T12:00:00Z, no node is launched into it"
        )
    };
    let told = shift_events(&world, &mut seen);
    assert_eq!(told, [begun("by-id"), begun("default")]);
    world.pass(600_000);
    assert_eq!(shift_events(&world, &mut seen), [""; 0], "it goes on");

    world.answers.resolve_error = Some(CloudError {
        label: "throttled",
        message: "slow down".to_owned(),
        retry: Retry::Again,
    });
    world.pass(120_000);
    world.answers.resolve_error = None;
    world.answers.shifted_zones = vec![shifted("az1", None)];
    world.pass(120_000);
    let told = shift_events(&world, &mut seen);
    assert_eq!(told, [""; 0], "no answer says that it has ended");

    world.answers.shifted_zones = vec![shifted("az2", Some("b"))];
    world.pass(31_000);
    let ended = |pool: &str| {
        format!("Normal ZonalShiftCleared nodepool/{pool}: zone a (az1) is no longer shifted away")
    };
    let begun = ["by-other-id", "default", "elsewhere"]
        .map(|pool| begun(pool).replace("zone a (az1)", "zone b (az2)"));
    let ended = ["by-id", "default"].map(ended);
    let told = shift_events(&world, &mut seen);
    assert_eq!(told, [&ended[..], &begun[..]].concat());

    world.delete("NodePool/elsewhere");
    world.answers.shifted_zones.clear();
    world.pass(31_000);
    let told = shift_events(&world, &mut seen);
    assert_eq!(told.len(), 2, "none on a pool that is gone: {told:?}");
    world.pass(600_000);
    assert_eq!(shift_events(&world, &mut seen), [""; 0]);
}
