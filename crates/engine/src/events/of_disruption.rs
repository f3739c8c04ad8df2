//! Events of disruption: candidates, commands and their execution.

use super::{Sentence, rules};
use crate::record::{Record, Verdict};
use mortise_apis::names::ObjectRef;
use mortise_planning::reason::Reason;

pub(super) fn sentence(record: &Record, object: &ObjectRef) -> Option<Sentence> {
    match record.verdict {
        Verdict::NodePlanned => record.reasons.iter().find_map(launching),
        Verdict::Disrupted => disrupted(record.reasons.first()?, object),
        Verdict::Refused => refused(record),
        Verdict::Abandoned => abandoned(&record.reasons),
        Verdict::Considered => {
            let command = record.reasons.first()?;
            Some(Sentence::begun(rules::CONSOLIDATION_CANDIDATE, command))
        }
        Verdict::Approved => {
            let text = record.reasons.first()?.to_string();
            Some(Sentence::new(rules::CONSOLIDATION_APPROVED, text))
        }
        _ => None,
    }
}

fn launching(reason: &Reason) -> Option<Sentence> {
    let Reason::ForDisruption { disruption } = reason else {
        return None;
    };
    Some(Sentence::begun(rules::DISRUPTION_LAUNCHING, disruption))
}

/// A claim is deleted at once, by another decider than that of disruption.
fn disrupted(reason: &Reason, object: &ObjectRef) -> Option<Sentence> {
    let kind = object.kind();
    let text = match reason {
        Reason::Expired => format!("Disrupting {kind}: Expired"),
        Reason::Unhealthy { .. } => format!("Disrupting {kind}: Unhealthy, {reason}"),
        Reason::Replicas { pool, wanted, .. } => {
            format!("Disrupting {kind}: NodePool {pool} is scaled to {wanted}")
        }
        _ => return None,
    };
    Some(Sentence::new(rules::DISRUPTION_TERMINATING, text))
}

/// A node that is not worth consolidating, or a NodePool without a budget.
fn refused(record: &Record) -> Option<Sentence> {
    if let [Reason::Budget { .. }, Reason::ForDisruption { disruption }] = &*record.reasons {
        let rest = format!("{disruption} due to blocking budget");
        return Some(Sentence::begun(rules::NO_BUDGET, rest));
    }
    // An evaluation that ran out of time has no reason.
    let reason = record.reasons.first();
    let text = reason.map_or_else(String::new, Reason::karpenter_text);
    Some(Sentence::new(rules::UNCONSOLIDATABLE, text).keyed(""))
}

fn abandoned(reasons: &[Reason]) -> Option<Sentence> {
    let word = reasons.iter().find_map(|reason| match reason {
        Reason::RejectedFor { word } => Some(*word),
        _ => None,
    })?;
    let text = reasons
        .iter()
        .find_map(|reason| reason.rejected_command(word))?;
    Some(Sentence::begun(rules::CONSOLIDATION_REJECTED, text))
}
