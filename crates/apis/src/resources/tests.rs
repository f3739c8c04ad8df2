//! Arithmetic, texts and limits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{Limits, Resources};

fn list(entries: &[(&str, &str)]) -> BTreeMap<String, ApiQuantity> {
    entries
        .iter()
        .map(|(name, text)| ((*name).to_owned(), ApiQuantity((*text).to_owned())))
        .collect()
}

fn of(entries: &[(&str, &str)]) -> Resources {
    Resources::from_api(&list(entries)).unwrap()
}

#[test]
fn reads_and_prints_canonically() {
    let resources = of(&[
        ("cpu", "1.5"),
        ("memory", "2048Mi"),
        ("pods", "3"),
        ("nvidia.com/gpu", "0"),
    ]);
    assert_eq!(resources.to_string(), "cpu 1500m, memory 2Gi, pods 3");
    assert!(resources.extended.is_empty());
    assert_eq!(
        Resources::from_api(&resources.to_api()),
        Ok(resources.clone())
    );
    assert_eq!(Resources::zero().to_string(), "nothing");
    assert_eq!(
        of(&[("hugepages-2Mi", "4Mi")]).to_string(),
        "hugepages-2Mi 4Mi"
    );
    let error = Resources::from_api(&list(&[("memory", "16GB")]))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"memory\"") && error.contains("\"16G\""),
        "{error}"
    );
}

#[test]
fn names_what_does_not_fit() {
    let room = of(&[
        ("cpu", "2"),
        ("memory", "4Gi"),
        ("pods", "10"),
        ("nvidia.com/gpu", "1"),
    ]);
    #[track_caller]
    fn check(asked: &[(&str, &str)], room: &Resources, want: Option<&str>) {
        assert_eq!(of(asked).exceeds_first(room), want);
    }
    check(&[("cpu", "2")], &room, None);
    check(&[("cpu", "2001m")], &room, Some("cpu"));
    check(
        &[("memory", "5Gi"), ("nvidia.com/gpu", "2")],
        &room,
        Some("memory"),
    );
    check(&[("nvidia.com/gpu", "2")], &room, Some("nvidia.com/gpu"));
    check(&[("amd.com/gpu", "1")], &room, Some("amd.com/gpu"));
    check(&[], &room.sub(&of(&[("memory", "5Gi")])), Some("memory"));
    check(
        &[],
        &room.sub(&of(&[("nvidia.com/gpu", "2")])),
        Some("nvidia.com/gpu"),
    );
}

#[test]
fn arithmetic_keeps_the_shape() {
    let (a, b) = (
        of(&[("cpu", "1"), ("x", "1"), ("z", "5")]),
        of(&[("cpu", "2"), ("y", "3"), ("z", "5")]),
    );
    assert_eq!(
        a.add(&b),
        of(&[("cpu", "3"), ("x", "1"), ("y", "3"), ("z", "10")])
    );
    assert_eq!(a.sub(&b), of(&[("cpu", "-1"), ("x", "1"), ("y", "-3")]));
    assert_eq!(a.add(&b).sub(&b), a);
    assert_eq!(
        a.max(&b),
        of(&[("cpu", "2"), ("x", "1"), ("y", "3"), ("z", "5")])
    );
    assert_eq!(a.min(&b), of(&[("cpu", "1"), ("z", "5")]));
    assert_eq!(a.times(3), a.add(&a).add(&a));
    let mut sum = a.clone();
    sum.add_assign(&b);
    assert_eq!(sum, a.add(&b));
    sum.sub_assign(&b);
    assert_eq!(sum, a);
    assert!(a.sub(&b).any_negative() && a.sub(&a).is_zero());
    assert_eq!(
        Resources::new(i64::MAX, 0).add(&Resources::new(1, 0)).cpu,
        i64::MAX
    );
}

#[test]
fn limits_say_what_they_limit() {
    let limits =
        Limits::from_api(&list(&[("cpu", "100"), ("nodes", "2"), ("memory", "0")])).unwrap();
    let cpu = |cores: i64| Resources::new(cores * 1000, 0);
    assert_eq!(limits.exceeded(&cpu(100), 2), None);
    let text = |usage: &Resources, nodes| limits.exceeded(usage, nodes).unwrap().to_string();
    assert_eq!(text(&cpu(101), 2), "cpu 101 would exceed the limit of 100");
    assert_eq!(text(&cpu(101), 3), "nodes 3 would exceed the limit of 2");
    assert_eq!(
        text(&Resources::new(0, 1), 0),
        "memory 1 would exceed the limit of 0"
    );
    assert_eq!(
        (limits.nodes(), limits.get("cpu"), limits.get("pods")),
        (Some(2), Some(100_000), None)
    );
}
