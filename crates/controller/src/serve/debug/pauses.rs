//! Where users have paused voluntary disruption.

use mortise_planning::pause;
use serde_json::{Value, json};

use super::DebugView;
use super::table::TextTable;
use crate::service_state::ServiceState;

/// Every pause that holds: the cluster's, those of NodePoolPolicies, of NodePools and of nodes.
pub(super) fn view(shared: &ServiceState) -> DebugView {
    let mut table = TextTable::new(&["PAUSED", "OBJECT", "UNTIL", "REASON"]);
    let mut rows: Vec<Value> = Vec::new();
    for (object, pause) in pause::all(&shared.snapshot(), shared.now()) {
        let until = pause.until.map(|until| until.to_string());
        table.row(vec![
            pause.scope.label().to_owned(),
            object.clone(),
            until.clone().unwrap_or_else(|| "-".to_owned()),
            pause.reason.clone(),
        ]);
        rows.push(json!({
            "scope": pause.scope.label(),
            "object": object,
            "until": until,
            "reason": pause.reason,
        }));
    }
    DebugView {
        text: table.render("nothing is paused"),
        json: json!(rows),
    }
}
