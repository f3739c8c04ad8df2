//! Properties of the algebra, and cases that recorded results do not cover.

use k8s_openapi::api::core::v1::NodeSelectorRequirement;
use proptest::prelude::*;

use super::{Operator, Requirement, Requirements, expression};
use crate::labels::{self, WellKnown};

/// Values for every kind of set: words, numbers, and texts that only look like numbers.
const PROBES: [&str; 14] = [
    "a",
    "b",
    "c",
    "",
    "-7",
    "0",
    "1",
    "2",
    "05",
    "5",
    "6",
    "1.5",
    "9223372036854775807",
    "5 ",
];

fn requirement() -> impl Strategy<Value = Requirement> {
    let value = prop::sample::select(PROBES.to_vec());
    let operator = prop::sample::select(Operator::ALL.to_vec());
    (
        operator,
        prop::collection::vec(value, 1..4),
        prop::option::of(1..4_u32),
    )
        .prop_map(|(operator, values, min)| {
            Requirement::new("key", operator, values).with_min_values(min)
        })
}

proptest! {
    #[test]
    fn intersection_admits_what_both_admit(a in requirement(), b in requirement()) {
        let both = a.intersection(&b);
        for probe in PROBES {
            prop_assert_eq!(both.has(probe), a.has(probe) && b.has(probe), "{:?}: {} and {} are {}", probe, a, b, both);
        }
        prop_assert_eq!(&both, &b.intersection(&a));
        prop_assert_eq!(&both.intersection(&a), &both);
        prop_assert_eq!(a.has_intersection(&b), !both.is_empty(), "{} and {}", a, b);
    }

    #[test]
    fn intersection_is_associative(a in requirement(), b in requirement(), c in requirement()) {
        prop_assert_eq!(a.intersection(&b).intersection(&c), a.intersection(&b.intersection(&c)));
    }

    #[test]
    fn any_value_is_an_allowed_one(a in requirement(), b in requirement(), seed in any::<u64>()) {
        let both = a.intersection(&b);
        if let Some(value) = both.any(seed) {
            prop_assert!(both.has(&value), "{both} does not have {value}");
        } else {
            // Only an empty set or one whose last integers are excluded has none.
            prop_assert!(both.is_empty() || both.at_least().is_some() || both.at_most().is_some(), "{both}");
        }
    }

    #[test]
    fn what_is_compatible_stays_so_with_more_labels(a in requirement(), b in requirement()) {
        let asked = Requirements::from_iter([b]);
        let mut had = Requirements::from_iter([a]);
        let before = had.is_compatible(&asked, &WellKnown::none());
        had.add(Requirement::is("other", "x"));
        prop_assert_eq!(had.is_compatible(&asked, &WellKnown::none()), before);
    }
}

#[test]
fn operators_are_read_strictly_and_guessed_kindly() {
    for operator in Operator::ALL {
        assert_eq!(operator.as_str().parse(), Ok(operator));
    }
    #[track_caller]
    fn guess(text: &str, want: Option<Operator>) {
        let error = text.parse::<Operator>().unwrap_err();
        assert_eq!(error.nearest, want, "{text}");
        assert!(error.to_string().contains("DoesNotExist"), "{error}");
    }
    guess("in", Some(Operator::In));
    guess("Not In", Some(Operator::NotIn));
    guess("NotExists", Some(Operator::DoesNotExist));
    guess("GreaterThan", Some(Operator::Gt));
    guess("Like", None);
    let from = NodeSelectorRequirement {
        key: "zone".to_owned(),
        operator: "in".to_owned(),
        values: None,
    };
    let error = expression(&from).unwrap_err().to_string();
    assert!(
        error.contains("\"zone\"") && error.contains("did you mean In?"),
        "{error}"
    );
}

#[test]
fn a_requirement_is_written_as_the_api_writes_it() {
    let bounds = Requirement::new("size", Operator::Gt, ["3"]).intersection(&Requirement::new(
        "size",
        Operator::Lt,
        ["9"],
    ));
    let specs = |requirement: &Requirement| -> Vec<String> {
        let specs = requirement.to_specs().into_iter();
        specs
            .map(|spec| serde_json::to_string(&spec).unwrap())
            .collect()
    };
    assert_eq!(
        specs(&bounds),
        [
            r#"{"key":"size","operator":"Gte","values":["4"]}"#,
            r#"{"key":"size","operator":"Lte","values":["8"]}"#
        ]
    );
    let some = Requirement::new("zone", Operator::In, ["b", "a"]).with_min_values(Some(2));
    assert_eq!(
        specs(&some),
        [r#"{"key":"zone","operator":"In","values":["a","b"],"minValues":2}"#]
    );
    assert_eq!(
        specs(&Requirement::does_not_exist("gone")),
        [r#"{"key":"gone","operator":"DoesNotExist"}"#]
    );
}

#[test]
fn labels_are_stamped_for_custom_keys_only() {
    let set = Requirements::from_iter([
        Requirement::is(labels::TOPOLOGY_ZONE, "z1"),
        Requirement::is(labels::HOSTNAME, "h"),
        Requirement::is(labels::REGISTERED, "true"),
        Requirement::is("example.com/exampleclass", "default"),
        Requirement::new("team", Operator::In, ["b", "a"]),
        Requirement::new("rank", Operator::Gt, ["5"]).intersection(&Requirement::new(
            "rank",
            Operator::Lt,
            ["7"],
        )),
        Requirement::does_not_exist("gone"),
    ]);
    let stamped: Vec<String> = set
        .labels(&WellKnown::core().with_domains(["example.com"]))
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(
        stamped,
        ["example.com/exampleclass=default", "rank=6", "team=a"]
    );
    let free = Requirements::from_iter([Requirement::exists("slot")]);
    let stamp = |seed| free.labels_seeded(&WellKnown::core(), seed);
    assert_ne!(stamp(1), stamp(2));
    assert_eq!(stamp(1), stamp(1));
}

#[test]
fn any_survives_empty_and_negative_ranges() {
    let of = |operator, value: &str| Requirement::new("n", operator, [value]);
    assert!(of(Operator::Lt, "0").any(3).unwrap().starts_with('-'));
    assert_eq!(
        of(Operator::Gte, "9223372036854775807").any(3).as_deref(),
        Some("9223372036854775807")
    );
    let one = of(Operator::Gte, "4").intersection(&of(Operator::Lte, "4"));
    assert_eq!(one.any(9).as_deref(), Some("4"));
    assert_eq!(one.intersection(&of(Operator::NotIn, "4")).any(9), None);
}

#[test]
fn old_spellings_are_the_same_key() {
    let set = Requirements::from_labels([
        ("beta.kubernetes.io/arch", "amd64"),
        ("kubernetes.io/arch", "amd64"),
    ]);
    assert_eq!(set.to_string(), "kubernetes.io/arch In [amd64]");
}

#[test]
fn every_reason_is_kept_next_to_karpenters_text() {
    let had = Requirements::from_labels([("a", "1"), ("b", "1")]);
    let asked = Requirements::from_labels([("a", "2"), ("b", "2"), ("c", "3"), ("d", "4")]);
    let why = had.compatible(&asked, &WellKnown::none()).unwrap_err();
    assert_eq!(why.keys().collect::<Vec<_>>(), ["c", "d", "a", "b"]);
    assert_eq!(why.to_string(), "label \"c\" does not have known values");
    let why = had.intersects(&asked).unwrap_err();
    assert_eq!(
        why.to_string(),
        "key a, a In [2] not in a In [1]; key b, b In [2] not in b In [1]"
    );
}
