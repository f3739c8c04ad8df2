//! A step as it is compared and shown: a digest over everything that it decided, and texts of the first decisions.
//!
//! Requests are rendered without what a recording leaves out of objects: an object that is passed on to a cloud is named by its name
//! and version, which determine its content.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassObject;
use serde::{Deserialize, Serialize};

use crate::decider_id::DeciderId;
use crate::effect::Effect;
use crate::engine::RecordedStep;
use crate::record::Record;

/// Most requests and decisions of a step that have a text. The digest covers all.
const TEXTS: usize = 40;
/// Longest text, in bytes.
const LONGEST: usize = 400;

/// What a step decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSummary {
    /// Whose step it was.
    pub decider: DeciderId,
    /// How often it asked whether to stop before the signal came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_after: Option<u64>,
    /// When it wants to be stepped next although nothing changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// Digest of all requests, decisions, counts and commands: 16 hexadecimal digits.
    pub digest: String,
    /// Every request, in order: what it is, about what, and a digest of its content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestLine>,
    /// The first decisions: verdict, subject and reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<String>,
    /// How many there are of each kind of request and of each verdict.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
    /// Disruption commands that begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
}

/// A request: the kind of effect with its target, and a digest of its content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestLine(pub String, pub String);

impl StepSummary {
    /// The summary of a step.
    #[must_use]
    pub fn of(step: &RecordedStep) -> Self {
        let mut digest = Fnv::default();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut requests = Vec::new();
        for request in &step.requests {
            let effect = &*request.effect;
            let content = content(effect);
            let about = text_of(effect);
            digest.add(&about);
            digest.add(&content);
            *counts.entry(effect.label().to_owned()).or_default() += 1;
            let mut own = Fnv::default();
            own.add(&content);
            requests.push(RequestLine(about, own.hex()));
        }
        let mut decisions = Vec::new();
        for record in &step.records {
            // Without the generation of the snapshot: it counts freezes, and journals have those as entries of their own.
            let Record {
                at,
                subject,
                verdict,
                reasons,
                visibility,
                related,
                ..
            } = record;
            digest.add(&text(&(at, subject, verdict, reasons, visibility, related)));
            *counts.entry(record.verdict.label().to_owned()).or_default() += 1;
            if record.visibility.is_logged() && decisions.len() < TEXTS {
                decisions.push(decision(record));
            }
        }
        for counted in &step.counted {
            digest.add(&format!("{counted:?}"));
        }
        for command in &step.commands {
            digest.add(command);
        }
        digest.add(&format!("{:?}", step.wake));
        Self {
            decider: step.decider,
            stopped_after: step.stopped_after,
            wake: step.wake,
            digest: digest.hex(),
            requests,
            decisions,
            counts,
            commands: step.commands.clone(),
        }
    }

    /// Whether the step requested and decided nothing.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.counts.is_empty() && self.commands.is_empty()
    }
}

/// An effect with its target.
pub(super) fn text_of(effect: &Effect) -> String {
    let label = effect.label();
    match effect {
        Effect::FindInstance { provider_id, .. } => format!("{label} {provider_id}"),
        Effect::Acknowledge { notice, .. } => format!("{label} {notice}"),
        Effect::Event(event) => format!("{label} {} {}", event.reason, event.target),
        other => match other.target() {
            Some(target) => format!("{label} {target}"),
            None => label.to_owned(),
        },
    }
}

fn decision(record: &Record) -> String {
    let mut text = format!("{} {}", record.verdict.label(), record.subject);
    for (position, reason) in record.reasons.iter().enumerate() {
        let before = if position == 0 { ": " } else { "; " };
        text.push_str(before);
        text.push_str(&reason.to_string());
    }
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str(" ...");
    }
    text
}

/// What an effect asks for, besides its kind and its target.
fn content(effect: &Effect) -> String {
    match effect {
        Effect::CreateClaim(claim) => text(claim),
        Effect::Write(write) => text(&(&write.resource_version, &write.render().merge)),
        Effect::Delete {
            uid, grace_seconds, ..
        } => text(&(uid, grace_seconds)),
        Effect::Evict { uid, .. } => text(uid),
        Effect::Launch(request) => {
            let batch = request.batch.as_ref().map(|batch| {
                let claims: Vec<Versioned<'_>> =
                    batch.claims.iter().map(|each| claim(each)).collect();
                (&batch.token, claims, &batch.taken)
            });
            let class = request.node_class.as_ref().map(class);
            text(&(claim(&request.claim), class, batch))
        }
        Effect::Terminate {
            provider,
            provider_id,
            claim,
        } => text(&(format!("{provider:?}"), provider_id, claim)),
        Effect::ListInstances => String::new(),
        Effect::ListPods(node) => text(node),
        Effect::FindInstance {
            provider,
            provider_id,
        } => text(&(format!("{provider:?}"), provider_id)),
        Effect::Resolve(request) => {
            let pools = request.node_pools.iter();
            let pools: Vec<Versioned<'_>> = pools.map(|pool| versioned(&pool.metadata)).collect();
            let claims: Vec<Versioned<'_>> =
                request.claims.iter().map(|each| claim(each)).collect();
            let nodes = request.nodes.iter();
            let nodes: Vec<Versioned<'_>> = nodes.map(|node| versioned(&node.metadata)).collect();
            text(&(class(&request.class), pools, claims, nodes))
        }
        Effect::CheckDrift {
            claim: of,
            class: by,
        } => text(&(claim(of), class(by))),
        Effect::TagInstance(of) => text(&claim(of)),
        Effect::Acknowledge { provider, notice } => text(&(provider, notice)),
        Effect::Event(event) => text(event),
    }
}

/// Name, UID and version of an object.
type Versioned<'a> = [Option<&'a str>; 3];

fn versioned(meta: &ObjectMeta) -> Versioned<'_> {
    [
        meta.name.as_deref(),
        meta.uid.as_deref(),
        meta.resource_version.as_deref(),
    ]
}

fn claim(claim: &NodeClaim) -> Versioned<'_> {
    versioned(&claim.metadata)
}

fn class(class: &NodeClassObject) -> (&NodeClassKey, Option<&str>) {
    (&class.key, class.resource_version())
}

/// The value as JSON. One that has none is its own text: digests of it stay comparable.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| error.to_string())
}

/// FNV-1a of 64 bits: the same in every version and on every computer. It tells histories apart, and protects nothing.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, text: &str) {
        for byte in text.bytes().chain([0]) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}
