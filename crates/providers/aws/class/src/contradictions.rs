//! Classes that no NodePool with certain requirements can use.

use mortise_apis::labels;
use mortise_apis::node_class::ClassContradiction;
use mortise_apis::requirements::Requirements;
use serde_json::Value;

/// What the requirements of a NodePool ask for, and the class excludes.
pub(crate) fn contradictions(object: &Value, pool: &Requirements) -> Vec<ClassContradiction> {
    let mut found = Vec::new();
    let capacity_type = pool.get(labels::CAPACITY_TYPE);
    let is_reserved_only = capacity_type.is_some_and(|asked| {
        asked.has("reserved") && !asked.has("spot") && !asked.has("on-demand")
    });
    if is_reserved_only && !selects_reservations(object) {
        found.push(ClassContradiction {
            key: labels::CAPACITY_TYPE,
            problem: "selects no reservations",
            fix: "add capacityReservationSelectorTerms or allow on-demand",
        });
    }
    found
}

fn selects_reservations(object: &Value) -> bool {
    let terms = object.pointer("/spec/capacityReservationSelectorTerms");
    let terms = terms.and_then(Value::as_array);
    terms.is_some_and(|terms| !terms.is_empty())
}

#[cfg(test)]
mod tests {
    use mortise_apis::requirements::{Operator, Requirement};
    use serde_json::json;

    use super::*;

    fn found(class: &Value, operator: Operator, values: &[&str]) -> Vec<&'static str> {
        let mut pool = Requirements::new();
        pool.add(Requirement::new(
            labels::CAPACITY_TYPE,
            operator,
            values.iter().copied(),
        ));
        let found = contradictions(class, &pool);
        found.iter().map(|each| each.problem).collect()
    }

    #[test]
    fn reserved_capacity_needs_a_class_that_selects_reservations() {
        let without = json!({ "spec": { "capacityReservationSelectorTerms": [] } });
        let with = json!({ "spec": { "capacityReservationSelectorTerms": [{ "id": "cr-1" }] } });
        let (only, none) = (&["reserved"][..], Vec::<&str>::new());
        for class in [&without, &json!({})] {
            let wrong = ["selects no reservations"];
            assert_eq!(found(class, Operator::In, only), wrong);
            assert_eq!(found(class, Operator::NotIn, &["spot", "on-demand"]), wrong);
            assert_eq!(found(class, Operator::In, &["reserved", "spot"]), none);
            assert_eq!(found(class, Operator::Exists, &[]), none);
            assert_eq!(contradictions(class, &Requirements::new()), []);
        }
        assert_eq!(found(&with, Operator::In, only), none);
    }
}
