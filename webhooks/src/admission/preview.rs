//! What an edit would do: which nodes drift, and what their replacements cost.
//!
//! The count is told with every edit that drifts nodes. The price is a solve over their pods, so it is told in dry runs
//! (`kubectl apply --dry-run=server`) and only as long as it is quick.

use mortise_apis::names::NodeClassKey;
use mortise_apis::values::money::MicroUsd;
use mortise_planning::preview::{
    AffectedNodes, ReplacementCost, edited_class, edited_pool, replacement,
};
use mortise_state::snapshot::Snapshot;
use serde_json::Value;

use super::AdmissionContext;
use super::checks::PoolRequest;
use super::finding::Check;
use super::review::{AdmissionRequest, AdmissionResult};
use super::text::count;

/// The preview of an edited pool. An edit outside the template drifts nothing, so no node is checked.
pub(super) fn preview_pool(
    context: &AdmissionContext<'_>,
    edit: &PoolRequest<'_>,
    answer: &mut AdmissionResult,
) {
    let PoolRequest {
        request,
        pool,
        before,
    } = *edit;
    if request.operation != "UPDATE" {
        return;
    }
    if before.is_some_and(|old| old.spec.template == pool.spec.template) {
        let nodes = context.snapshot.nodes_of_pool(&pool.name()).count();
        report_no_drift(request, nodes, answer);
        return;
    }
    let (view, affected) = edited_pool(context.now, context.snapshot, pool);
    report_drift(context, request, &view, &affected, answer);
}

/// The preview of an edited node class. What its selectors resolve to is known only when it is resolved.
pub(super) fn preview_class(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    answer: &mut AdmissionResult,
) {
    if request.operation != "UPDATE" {
        return;
    }
    let known = context.rules.crds.known();
    let (Some(class), Some(old)) = (known.of_kind(&request.kind.kind), request.before()) else {
        return;
    };
    let new = &request.object;
    let (Some(hash), Some(old_hash)) = (class.hash(new), class.hash(old)) else {
        return;
    };
    let name = new.pointer("/metadata/name").and_then(Value::as_str);
    let key = NodeClassKey::new(
        request.kind.group.as_str(),
        request.kind.kind.as_str(),
        name.unwrap_or_default(),
    );
    let affected = edited_class(context.snapshot, &key, hash != old_hash);
    report_drift(context, request, context.snapshot, &affected, answer);
    if affected.drifting.len() < affected.all.len() && class.changes_selectors(old, new) {
        answer.warn(Check::Preview, "spec", format!(
            "new selectors are resolved after this; any of the {} that does not match the result drifts too",
            count(affected.all.len(), "node")
        ), "");
    }
}

fn report_drift(
    context: &AdmissionContext<'_>,
    request: &AdmissionRequest,
    view: &Snapshot,
    affected: &AffectedNodes,
    answer: &mut AdmissionResult,
) {
    let asked = request.dry_run == Some(true);
    let (drifting, all) = (affected.drifting.len(), affected.all.len());
    if drifting == 0 {
        report_no_drift(request, all, answer);
        return;
    }
    let mut text = format!("drifts {drifting} of {}", count(all, "node"));
    if asked {
        let answered = if (context.stop)() {
            None
        } else {
            replacement(context.now, view, affected, context.stop)
        };
        match answered {
            Some(found) => text.push_str(&price_text(&found)),
            None => text.push_str("; price preview skipped: it takes too long"),
        }
    }
    answer.warn(Check::Preview, "spec", text, "");
}

fn report_no_drift(request: &AdmissionRequest, all: usize, answer: &mut AdmissionResult) {
    if request.dry_run == Some(true) && all > 0 {
        let text = format!("drifts none of {}", count(all, "node"));
        answer.warn(Check::Preview, "spec", text, "");
    }
}

fn price_text(found: &ReplacementCost) -> String {
    let ReplacementCost {
        before,
        after,
        homeless,
    } = found;
    let money = |price: &Option<MicroUsd>| {
        price.map_or_else(
            || "unknown".to_owned(),
            |price| format!("${:.2}", price.dollars()),
        )
    };
    let homeless = match homeless {
        0 => String::new(),
        some => format!("; {} would be unschedulable", count(*some, "pod")),
    };
    format!(
        "; hourly price {} -> {}{homeless}",
        money(before),
        money(after)
    )
}
