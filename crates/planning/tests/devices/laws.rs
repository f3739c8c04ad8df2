//! What holds for any devices and any claims.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::cluster::{
    DRIVER, brings, claim, claiming, cluster, gpus, on, places, plain, slice, with_devices,
};
use crate::one_pool::{World, node};

/// What each of some devices is, as one letter.
fn device_kinds() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0_u8..3, 0..6)
}

/// Whether requests for this number of devices of a kind each, of one claim, can be met: by trying everything.
fn oracle(devices: &[u8], requests: &[(u8, usize)], same: bool) -> bool {
    fn go(devices: &[u8], used: u32, needs: &[u8], picked: &mut Vec<usize>, same: bool) -> bool {
        let Some((kind, rest)) = needs.split_first() else {
            return !same || picked.iter().all(|at| at % 2 == picked[0] % 2);
        };
        (0..devices.len()).any(|at| {
            // Kind 0 of a request means any.
            if used & (1 << at) != 0 || (*kind != 0 && devices[at] != *kind) {
                return false;
            }
            picked.push(at);
            let found = go(devices, used | (1 << at), rest, picked, same);
            picked.pop();
            found
        })
    }
    let needs: Vec<u8> = requests
        .iter()
        .flat_map(|(kind, count)| std::iter::repeat_n(*kind, *count))
        .collect();
    go(devices, 0, &needs, &mut Vec::new(), same)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn devices_are_found_whenever_there_are_any(
        kinds in device_kinds(),
        requests in prop::collection::vec((0_u8..3, 1_usize..3), 1..4),
        same in any::<bool>(),
        brought in any::<bool>(),
    ) {
        let devices: Vec<Value> = kinds.iter().enumerate().map(|(at, kind)| json!({
            "name": format!("d{at}"),
            "attributes": { "kind": { "int": kind }, "side": { "int": at % 2 } },
        })).collect();
        let asked: Vec<Value> = requests.iter().enumerate().map(|(at, (kind, count))| {
            let expression = format!("{kind} == 0 || device.attributes['{DRIVER}'].kind == {kind}");
            json!({ "name": format!("r{at}"), "exactly": {
                "deviceClassName": "gpu", "count": count, "selectors": [{ "cel": { "expression": expression } }],
            } })
        }).collect();
        let constraints = if same { json!([{ "matchAttribute": "gpu.example.com/side" }]) } else { json!([]) };
        let world = cluster()
            .with(claim("a", json!(asked), json!({ "spec": { "devices": { "constraints": constraints } } })))
            .pending(claiming("a", &["a"]));
        let world = if brought {
            with_devices(world, "amd64-4", brings(json!(devices)))
        } else {
            world.node(node("n", "z1", json!({}))).with(slice("s", DRIVER, json!(devices), on("n")))
        };
        let found = !places(&world).contains_key("-");
        prop_assert_eq!(found, oracle(&kinds, &requests, same));
    }

    #[test]
    fn no_device_is_allocated_twice(
        on_node in 0_usize..4, brought in 0_usize..4, counts in prop::collection::vec(1_i64..4, 1..8),
    ) {
        let world = with_devices(cluster(), "amd64-16", brings(plain(brought)))
            .node(node("n", "z1", json!({})))
            .with(slice("s", DRIVER, plain(on_node), on("n")));
        let named: Vec<(String, i64)> = counts.iter().enumerate().map(|(at, count)| (format!("p{at}"), *count)).collect();
        let build = |order: &[(String, i64)]| order.iter().fold(
            World { types: world.types.clone(), pools: world.pools.clone(), objects: world.objects.clone() },
            |world, (name, count)| world.with(claim(name, gpus(*count, json!({})), json!({}))).pending(claiming(name, &[name])),
        );
        let found = places(&build(&named));
        for (node, pods) in &found {
            let total: i64 = named.iter().filter(|(name, _)| pods.contains(name)).map(|(_, count)| count).sum();
            let has = match node.as_str() { "n" => on_node, "-" => continue, _ => brought };
            prop_assert!(total <= i64::try_from(has).unwrap(), "{} has {} for {}", node, has, total);
        }
        let refused = found.get("-").cloned().unwrap_or_default();
        for (name, count) in &named {
            let fits_new = *count <= i64::try_from(brought).unwrap();
            prop_assert!(!(refused.contains(name) && fits_new), "{} of {} has no place", name, count);
        }
        let mut turned = named.clone();
        turned.reverse();
        prop_assert_eq!(places(&build(&turned)), found);
    }
}
