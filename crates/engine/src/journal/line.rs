//! An entry of a journal as a line of a file: `[time, {what: ...}]`.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::names::{NodeClassKey, Uid};
use mortise_cloudprovider::{InterruptionNotice, ResolvedNodeClass};
use mortise_state::resource_kinds::{ObjectKey, ObjectKind};
use serde::{Deserialize, Serialize};

use super::step_summary::StepSummary;
use crate::decider_id::DeciderId;
use crate::effect::{EffectError, EffectOutput};
use crate::freshness::WatchState;

/// A line: the time that the engine was given, and what happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JournalLine(pub Timestamp, pub LineBody);

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LineBody {
    /// An object was applied.
    Applied(RecordedObject),
    /// An object was deleted, as of this version.
    Deleted(ObjectKey, Option<u64>),
    /// An object cannot be parsed.
    Unreadable(ObjectKey),
    /// A list was read completely.
    Listed {
        /// Its kind.
        kind: ObjectKind,
        /// Keys of its objects.
        keys: BTreeSet<ObjectKey>,
        /// Its version.
        version: Option<u64>,
    },
    /// A watch said how it is.
    Watch(ObjectKind, WatchState),
    /// Every list has been read once.
    Synced,
    /// What became of a request.
    Outcome(Box<RecordedOutcome>),
    /// A message of a provider.
    Notice(Arc<str>, InterruptionNotice),
    /// kube-scheduler has a node for a pod.
    Feasible(Uid, Timestamp),
    /// The process may act, or may not any more.
    Leading(bool),
    /// A snapshot of this generation was frozen.
    Frozen(u64),
    /// A decider was taken out for a step.
    Prepared(DeciderId),
    /// A step took effect.
    Committed(Box<StepSummary>),
    /// What a node class stood for when the file began: only in files in the middle of a recording.
    Catalog(NodeClassKey, Arc<ResolvedNodeClass>),
    /// The objects are complete with which a file in the middle of a recording begins: after this number of steps and requests.
    BaseEnds {
        /// Steps that were begun.
        steps: u64,
        /// Requests that were made.
        requests: u64,
    },
    /// This number of events was not recorded here, because the disk was too slow.
    Gap(u64),
    /// The recording ended in order.
    End,
}

/// An object with its kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedObject {
    /// Its kind.
    pub kind: ObjectKind,
    /// The response to an own write showed it, instead of a watch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// The object.
    pub object: serde_json::Value,
}

/// The line of an applied object whose text is known: what [`LineBody::Applied`] is written as.
pub(super) fn applied_line(
    at: Timestamp,
    kind: &ObjectKind,
    written: bool,
    text: &str,
) -> Result<String, serde_json::Error> {
    let (at, kind) = (serde_json::to_string(&at)?, serde_json::to_string(kind)?);
    let written = if written { "\"written\":true," } else { "" };
    Ok(format!(
        "[{at},{{\"applied\":{{\"kind\":{kind},{written}\"object\":{text}}}}}]"
    ))
}

/// What became of a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedOutcome {
    /// The number of the request, from 0; `None`: it was made before the recording began.
    pub request: Option<u64>,
    /// What became of it.
    pub result: Result<EffectOutput, EffectError>,
    /// The instance types are those that the same node class had before, and are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub same_types: bool,
}
