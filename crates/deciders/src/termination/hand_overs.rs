//! Pods whose Deployments are restarted, until the API server has answered.

use std::collections::BTreeMap;

use jiff::Timestamp;

use mortise_apis::names::{NamespacedName, ObjectRef, PodKey, Uid};
use mortise_engine::decider::{Step, StepInput};
use mortise_engine::decider_id::DeciderId;
use mortise_engine::effect::{EffectError, EffectOutput};
use mortise_engine::record::Verdict;
use mortise_engine::write::{ObjectEdit, ObjectWrite};
use mortise_planning::reason::Reason;
use mortise_state::snapshot::{NodeKey, Pod, Snapshot};

/// What was asked for, by pod.
#[derive(Debug, Default)]
pub(super) struct HandOvers {
    by_pod: BTreeMap<Uid, HandOverRequest>,
}

#[derive(Debug)]
struct HandOverRequest {
    pod: PodKey,
    deployment: NamespacedName,
    until: Timestamp,
    reason: Reason,
}

impl HandOvers {
    /// Remembers for which pod a Deployment is about to be restarted, and why.
    pub(super) fn begin(
        &mut self,
        pod: &Pod,
        deployment: &NamespacedName,
        until: Timestamp,
        reason: Reason,
    ) {
        let request = HandOverRequest {
            pod: pod.key.clone(),
            deployment: deployment.clone(),
            until,
            reason,
        };
        self.by_pod.insert(pod.uid.clone(), request);
    }

    /// Forgets pods that are gone.
    pub(super) fn sweep(&mut self, snapshot: &Snapshot) {
        self.by_pod.retain(|uid, request| {
            let pod = snapshot.pods.get(&request.pod);
            pod.is_some_and(|pod| pod.uid == *uid)
        });
    }

    /// Records that a Deployment was restarted. Returns the node of the pod.
    pub(super) fn answered(
        &mut self,
        input: &StepInput<'_>,
        write: &ObjectWrite,
        result: &Result<EffectOutput, EffectError>,
        step: &mut Step,
    ) -> Option<NodeKey> {
        let ObjectEdit::HandOver(uid) = &write.edit else {
            return None;
        };
        let request = self.by_pod.get(uid)?;
        let pod = request.pod.clone();
        if result.is_ok() {
            let (by, verdict) = (DeciderId::Termination, Verdict::Evicted);
            let reasons = vec![
                request.reason.clone(),
                Reason::HandedOver {
                    deployment: request.deployment.clone(),
                    until: request.until,
                },
            ];
            step.announce(input, by, [ObjectRef::Pod(pod.clone())], verdict, reasons);
            self.by_pod.remove(uid);
        }
        let node = input.snapshot.pods.get(&pod)?.node.clone()?;
        Some(input.snapshot.named.get(&node)?.key.clone())
    }
}
