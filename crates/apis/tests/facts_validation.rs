//! Recorded verdicts: what pools are refused at run time.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking where its expectation stands"
)]

mod facts;

use facts::{agrees, check};
use mortise_apis::CrdSet;
use mortise_apis::issues::IssueSeverity;
use mortise_apis::labels::WellKnown;
use mortise_apis::validation::faults;
use serde_json::json;

#[test]
fn pools_are_valid_as_at_run_time() {
    check("runtime_validate", |case| {
        let kind = case["object"]["kind"].as_str().unwrap();
        let mut found = faults(
            CrdSet::core(),
            &WellKnown::core(),
            kind,
            &case["object"],
            None,
        );
        found.retain(|fault| fault.weight != IssueSeverity::Suspicious);
        // An empty taint value is refused by the pattern of the definition and never reaches the check at run time.
        found.retain(|fault| !(fault.field.ends_with(".value") && fault.value == "\"\""));
        agrees(case["valid"] == json!(true), &found)
    });
}
