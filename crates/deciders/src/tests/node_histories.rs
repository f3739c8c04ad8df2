//! Random histories with crashes, conflicts and failures. Whatever happens: a claim never has two instances, no
//! instance ends under a pod, evictions honour budgets, and when everything is deleted nothing is left.

use serde_json::json;

use crate::tests::bare_cluster;
use mortise_apis::values::{SplitMix64, after};
use mortise_cloudprovider::{CloudError, InterruptionKind, LaunchError, Retry};
use mortise_planning::settings::Settings;
use mortise_sim::test_cluster::{GROUP, KIND, TestCluster};

/// The same seed gives the same history.
struct Chance(SplitMix64);

impl Chance {
    const fn next(&mut self, below: u64) -> u64 {
        self.0.below(below)
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        let at = self.next(all.len().max(1) as u64);
        all.get(usize::try_from(at).unwrap())
    }
}

fn keys(world: &TestCluster, prefix: &str) -> Vec<String> {
    let names = world.names(prefix.trim_end_matches('/'));
    let keys = names.into_iter().map(|name| format!("{prefix}{name}"));
    keys.collect()
}

fn name(key: &str) -> String {
    key.rsplit('/').next().unwrap().to_owned()
}

fn act(world: &mut TestCluster, chance: &mut Chance, count: u64) {
    let claims = keys(world, "NodeClaim/");
    let nodes = keys(world, "Node/");
    let pods = keys(world, "Pod/");
    match chance.next(16) {
        14 => world.claim_with_devices(&format!("c{count}")),
        15 => {
            if let Some(node) = chance.one_of(&nodes) {
                world.publish_devices(&name(node));
            }
        }
        0..=2 => world.claim(&format!("c{count}"), &json!({})),
        3 => {
            let unjoined = claims.iter().map(|claim| name(claim)).find(|claim| {
                world.get(&format!("NodeClaim/{claim}"))["status"]
                    .get("providerID")
                    .is_some()
                    && !world.has(&format!("Node/node-{claim}"))
            });
            if let Some(claim) = unjoined {
                world.join(&claim);
            }
        }
        4 | 5 => {
            if let Some(node) = chance.one_of(&nodes) {
                world.ready(&name(node));
            }
        }
        6 | 7 => {
            if let Some(node) = chance.one_of(&nodes) {
                world.pod(&format!("p{count}"), &name(node), &json!({}));
            }
        }
        8 => {
            if let Some(pod) = chance.one_of(&pods)
                && !world.answers.blocked.remove(pod)
            {
                world.answers.blocked.insert(pod.clone());
            }
        }
        9 => {
            if let Some(claim) = chance.one_of(&claims) {
                world.delete(claim);
            }
        }
        10 => {
            if let Some(node) = chance.one_of(&nodes) {
                world.delete(node);
            }
        }
        11 => {
            let labels = [
                "patch",
                "delete",
                "launch",
                "evict",
                "terminate",
                "list_instances",
                "resolve",
            ];
            world.answers.crash_after = chance.one_of(&labels).copied();
        }
        12 => world.answers.conflicts = usize::try_from(chance.next(4)).unwrap(),
        _ => match chance.next(4) {
            0 => world
                .answers
                .launch_errors
                .push_back(LaunchError::InsufficientCapacity {
                    message: "none".to_owned(),
                    unavailable: Vec::new(),
                    again_ms: None,
                    missing: None,
                }),
            1 => world
                .answers
                .launch_errors
                .push_back(LaunchError::Other(CloudError {
                    label: "lost",
                    message: "lost".to_owned(),
                    retry: Retry::Again,
                })),
            2 => {
                let instance = chance.next(2 + world.launched());
                world.notice(
                    &format!("m{count}"),
                    InterruptionKind::SpotInterruption,
                    &format!("i-{instance:08x}"),
                );
            }
            _ => world.restart(),
        },
    }
}

/// Plays one history and returns everything that was done.
fn history(seed: u64) -> Vec<String> {
    // Without garbage collection: what is left behind would be left for good.
    let settings = Settings {
        garbage_collection_interval_ms: i64::MAX,
        ignore_devices: false,
        ..Settings::default()
    };
    let mut world = bare_cluster(settings);
    world.put(&json!({ "kind": KIND, "metadata": { "name": "default" } }));
    world.put(&json!({ "kind": "NodePool", "metadata": { "name": "default" }, "spec": {
        "template": { "spec": { "nodeClassRef": { "group": GROUP, "kind": KIND, "name": "default" } } },
    }}));
    let mut chance = Chance(SplitMix64::new(seed));
    for count in 0..60 {
        act(&mut world, &mut chance, count);
        if chance.next(3) > 0 {
            let ms = [1, 120, 1_000, 7_000, 40_000][usize::try_from(chance.next(5)).unwrap()];
            world.pass(ms);
        }
        // Without a grace period nothing goes past the Eviction API.
        let forced = world
            .done
            .iter()
            .find(|each| each.starts_with("delete pod/"));
        assert_eq!(forced, None, "seed {seed}");
    }
    world.answers.crash_after = None;
    world.answers.conflicts = 0;
    world.answers.launch_errors.clear();
    world.answers.blocked.clear();
    for claim in keys(&world, "NodeClaim/") {
        world.delete(&claim);
    }
    let start = world.now();
    world.pass(10 * 60_000);
    assert_eq!(world.violations(), Vec::<String>::new(), "seed {seed}");
    assert!(
        world.instances().is_empty(),
        "seed {seed}: {:?} left, {:#?}",
        world.instances(),
        world.done
    );
    let claims: Vec<_> = keys(&world, "NodeClaim/")
        .iter()
        .map(|key| world.get(key))
        .collect();
    assert!(
        claims.is_empty(),
        "seed {seed}: {claims:#?}, {:#?}",
        world.done
    );
    let kept: Vec<String> = keys(&world, "Node/")
        .into_iter()
        .filter(|node| {
            world.get(node)["metadata"]
                .get("finalizers")
                .is_some_and(|all| all != &json!([]))
        })
        .collect();
    assert_eq!(kept, Vec::<String>::new(), "seed {seed}: {:#?}", world.done);
    assert!(world.now() >= after(start, 10 * 60_000));
    let snapshot = world.snapshot();
    assert_eq!(
        (
            snapshot.claims.len(),
            snapshot.ledger.fences().len(),
            snapshot.ledger.expected_claims().len()
        ),
        (0, 0, 0),
        "seed {seed}"
    );
    world.done
}

#[test]
fn nothing_is_leaked_doubled_or_ended_under_pods() {
    for seed in 0..50 {
        history(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..5 {
        assert_eq!(history(seed), history(seed));
    }
}
