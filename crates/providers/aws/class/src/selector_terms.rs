//! Selector terms that select less than they seem to.

use mortise_apis::issues::IssueCollector;
use serde_json::Value;

/// Most terms of a list that are checked: no list of the definition may be as long.
const MOST_TERMS: usize = 1_000;

/// The definition's rule only refuses a list in which every term mixes; one term among others passes, and then selects
/// less than it seems.
pub(crate) fn mixed_terms(spec: &Value, sink: &mut IssueCollector) {
    for (name, field, others) in [
        ("subnetSelectorTerms", "id", &["tags"][..]),
        ("securityGroupSelectorTerms", "id", &["tags", "name"]),
        ("securityGroupSelectorTerms", "name", &["tags"]),
        (
            "capacityReservationSelectorTerms",
            "id",
            &["tags", "ownerID", "instanceMatchCriteria"],
        ),
    ] {
        let terms = spec.get(name).and_then(Value::as_array);
        for (n, term) in terms.into_iter().flatten().take(MOST_TERMS).enumerate() {
            let present: Vec<&str> = others
                .iter()
                .copied()
                .filter(|other| term.get(other).is_some())
                .collect();
            if let Some(value) = term.get(field).filter(|_| !present.is_empty()) {
                sink.suspicious(
                    format!("spec.{name}[{n}].{field}"),
                    value,
                    format!(
                        "stands with {}: both must match; terms are the alternatives",
                        present.join(", ")
                    ),
                    format!("take {} out, or make a second term", present.join(", ")),
                );
            }
        }
    }
}
