//! Lines from events, in order.
//!
//! - What no decision reads is left out of objects, as in snapshots.
//! - A request is not written in full: the replayed engine makes it again. An outcome names the number of its request.
//! - Instance types of a node class are written when they change.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use jiff::Timestamp;
use mortise_apis::names::NodeClassKey;
use mortise_cloudprovider::ResolvedNodeClass;
use mortise_state::resource_kinds::{
    EventSource, Object, ObjectEvent, ObjectKey, reduced_with_status,
};
use serde_json::Value;

use super::base::Base;
use super::line::{JournalLine, LineBody, RecordedOutcome, applied_line};
use super::step_summary::StepSummary;
use crate::effect::{Effect, EffectOutput, Outcome};
use crate::engine::{EngineInput, JournalEvent, RecordedStep};

/// Requests whose outcome can no longer come are forgotten whenever this many were added.
const SWEEP: u64 = 1_024;

/// Turns events into lines.
#[derive(Debug)]
pub struct JournalEncoder {
    /// API groups of node classes, whose annotations are read.
    groups: Vec<String>,
    base: Base,
    /// Numbers of requests by the address of their effect. The weak reference keeps the address from being used again.
    requests: BTreeMap<usize, (u64, Weak<Effect>)>,
    next_request: u64,
    /// The last specification of each node class, and its number.
    specifications: BTreeMap<NodeClassKey, (u64, Value)>,
}

impl JournalEncoder {
    /// An encoder that has seen nothing. `groups`: API groups of the node classes that are served.
    #[must_use]
    pub fn new(groups: Vec<String>) -> Self {
        Self {
            groups,
            base: Base::default(),
            requests: BTreeMap::new(),
            next_request: 0,
            specifications: BTreeMap::new(),
        }
    }

    /// The line of an event, without its end.
    ///
    /// # Errors
    /// A value has no JSON, which is a defect.
    pub fn line(
        &mut self,
        at: Timestamp,
        event: JournalEvent,
    ) -> Result<String, serde_json::Error> {
        let body = match event {
            JournalEvent::Input(EngineInput::News(ObjectEvent::Applied(object, source))) => {
                return self.applied(at, object, source);
            }
            JournalEvent::Input(EngineInput::News(ObjectEvent::Deleted(key, version))) => {
                LineBody::Deleted(key, version)
            }
            JournalEvent::Input(EngineInput::News(ObjectEvent::Unreadable(key))) => {
                LineBody::Unreadable(key)
            }
            JournalEvent::Input(EngineInput::News(ObjectEvent::Listed {
                kind,
                keys,
                version,
            })) => LineBody::Listed {
                kind,
                keys,
                version,
            },
            JournalEvent::Input(EngineInput::Watch { kind, state }) => LineBody::Watch(kind, state),
            JournalEvent::Input(EngineInput::Synced) => LineBody::Synced,
            JournalEvent::Input(EngineInput::Outcome { outcome, .. }) => {
                LineBody::Outcome(Box::new(self.outcome(outcome)))
            }
            JournalEvent::Input(EngineInput::Notice { provider, notice }) => {
                LineBody::Notice(provider, notice)
            }
            JournalEvent::Input(EngineInput::Feasible { pod, at }) => LineBody::Feasible(pod, at),
            JournalEvent::Input(EngineInput::Leading(leading)) => LineBody::Leading(leading),
            JournalEvent::Frozen(generation) => LineBody::Frozen(generation),
            JournalEvent::Prepared(decider) => LineBody::Prepared(decider),
            JournalEvent::Committed(step) => {
                self.number(&step);
                LineBody::Committed(Box::new(StepSummary::of(&step)))
            }
        };
        self.base.note(&body);
        serde_json::to_string(&JournalLine(at, body))
    }

    /// The lines with which another file of the same recording begins.
    ///
    /// # Errors
    /// A value has no JSON, which is a defect.
    pub fn base(&self, at: Timestamp) -> Result<Vec<String>, serde_json::Error> {
        self.base.lines(at)
    }

    fn number(&mut self, step: &RecordedStep) {
        for request in &step.requests {
            let known = (self.next_request, Arc::downgrade(&request.effect));
            self.requests.insert(address(&request.effect), known);
            self.next_request += 1;
            if self.next_request.is_multiple_of(SWEEP) {
                self.requests
                    .retain(|_, (_, effect)| effect.strong_count() > 0);
            }
        }
    }

    fn applied(
        &mut self,
        at: Timestamp,
        object: Object,
        source: EventSource,
    ) -> Result<String, serde_json::Error> {
        let specification = self.specification(&object);
        let groups: Vec<&str> = self.groups.iter().map(String::as_str).collect();
        let object = reduced_with_status(object, &groups, specification);
        let (key, version) = (object.key(), object.version());
        let text = serde_json::to_string(&object)?;
        let is_write = source == EventSource::Write;
        let line = applied_line(at, &key.kind(), is_write, &text)?;
        self.base.apply(key, version, text);
        Ok(line)
    }

    /// The number of the specification of a node class; 0 for other kinds.
    fn specification(&mut self, object: &Object) -> u64 {
        let (Object::NodeClass(class), ObjectKey::NodeClass(key)) = (object, object.key()) else {
            return 0;
        };
        let now = class.object.get("spec").cloned().unwrap_or_default();
        let known = self.specifications.entry(key).or_default();
        if known.1 != now {
            *known = (known.0 + 1, now);
        }
        known.0
    }

    fn outcome(&mut self, outcome: Outcome) -> RecordedOutcome {
        let known = self.requests.get(&address(&outcome.effect));
        let request = known.map(|(number, _)| *number);
        let mut same_types = false;
        let mut result = outcome.result;
        if let (Effect::Resolve(asked), Ok(EffectOutput::Resolved(resolved))) =
            (&*outcome.effect, &mut result)
        {
            let class = &asked.class.key;
            let before = self.base.catalog(class);
            same_types = before.is_some_and(|one| one.instance_types == resolved.instance_types);
            self.base.set_catalog(class.clone(), Arc::clone(resolved));
            if same_types {
                *resolved = Arc::new(ResolvedNodeClass {
                    instance_types: Vec::new(),
                    ..(**resolved).clone()
                });
            }
        }
        RecordedOutcome {
            request,
            result,
            same_types,
        }
    }
}

fn address(effect: &Arc<Effect>) -> usize {
    Arc::as_ptr(effect).addr()
}
