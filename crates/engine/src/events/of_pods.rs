//! Events on pods: where they should run, why they do not, and that they were evicted.

use super::{Sentence, rules};
use crate::decider_id::DeciderId;
use crate::record::{Record, Verdict};
use mortise_apis::names::ObjectRef;
use mortise_planning::reason::{Reason, SchedulingFailure};

pub(super) fn sentence(record: &Record) -> Option<Sentence> {
    match record.verdict {
        Verdict::Nominated => nominated(record),
        Verdict::Evicted => evicted(record),
        _ => {
            let why = SchedulingFailure::new(&record.reasons);
            Some(Sentence::begun(rules::FAILED_SCHEDULING, why))
        }
    }
}

/// The claim and the Node, as far as there are any.
fn nominated(record: &Record) -> Option<Sentence> {
    let (claim, node) = match record.reasons.first()? {
        Reason::OnNode { node, claim } => (claim.clone(), Some(node.clone())),
        Reason::OnClaim { claim, node } => (Some(claim.clone()), node.clone()),
        _ => return None,
    };
    let claim = claim.map(ObjectRef::Claim);
    let parts = claim.into_iter().chain(node.map(ObjectRef::Node));
    let parts: Vec<String> = parts.map(|part| part.to_string()).collect();
    Some(Sentence::begun(rules::NOMINATED, parts.join(", ")))
}

fn evicted(record: &Record) -> Option<Sentence> {
    let mut text = who_and_why(record.reasons.first()?);
    let is_handed_over = |reason: &&Reason| matches!(reason, Reason::HandedOver { .. });
    let rule = if let Some(reason) = record.reasons.iter().find(is_handed_over) {
        text = format!("{text}; {reason}");
        rules::HANDED_OVER
    } else if record.reasons.contains(&Reason::GracePeriodEnded) {
        rules::DISRUPTED
    } else {
        rules::EVICTED
    };
    // Once for the pod, whatever the reason turns to meanwhile.
    Some(Sentence::begun(rule, text).keyed(""))
}

/// Karpenter's word for it, then who decided and why.
fn who_and_why(reason: &Reason) -> String {
    let by = |who: DeciderId| format!("{who}: {reason}");
    let (word, who) = match reason {
        Reason::Empty => ("Empty", by(DeciderId::Disruption)),
        Reason::Underutilized => ("Underutilized", by(DeciderId::Disruption)),
        Reason::Drifted { .. } => ("Drifted", by(DeciderId::Disruption)),
        Reason::Interrupted { .. } => ("Forceful Termination", by(DeciderId::Interruption)),
        Reason::ClaimDeleted { by } => ("Forceful Termination", by.clone()),
        _ => (
            "Forceful Termination",
            "its NodeClaim or Node was deleted by a user or another controller".to_owned(),
        ),
    };
    format!("{word}; {who}")
}
