//! Writes to the API server.
//!
//! Every answer that shows an object is handed on, so that the index knows it before the outcome is delivered. An answer
//! that shows an object which the write itself removed (the last finalizer went) is handed on as its end: its version is
//! that of the deletion, which would bring it back if the watch has reported the end already.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::api::{DeleteParams, Patch as KubePatch, PatchParams, PostParams, Preconditions};
use kube::core::Request as Build;
use mortise_apis::NodeClaim;
use mortise_apis::names::{ObjectRef, PodKey, Uid};
use mortise_engine::effect::{EffectError, EffectOutput};
use mortise_engine::write::{ObjectWrite, WritePriority};
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKind, ResourceKind};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::leadership_deadline::LeadershipDeadline;
use crate::client::backoff::Backoff;
use crate::client::error_class::{self, ErrorClass};
use crate::client::resource_kinds::{ObjectIdentity, ResourceKinds};
use crate::client::token_bucket::TokenBucket;

/// Longest time for one write with all its retries.
const DEADLINE: Duration = Duration::from_secs(30);
/// The same for an eviction, which is requested again anyway: what blocks it is to be known before a drain is reported
/// as blocked, which is checked 15 s after it began.
const EVICTION_DEADLINE: Duration = Duration::from_secs(5);
/// Longest time for one attempt: the API server itself times out after 60 s, but an answer later than this comes too
/// late.
const ATTEMPT: Duration = Duration::from_secs(15);

/// What a write gave: its outcome, and the news of the object in the answer.
pub(crate) type Written = (Result<EffectOutput, EffectError>, Option<ObjectEvent>);

/// The API server, for writing.
#[derive(Clone)]
pub(crate) struct ApiWriter {
    client: kube::Client,
    limiter: Arc<TokenBucket>,
    kinds: Arc<ResourceKinds>,
    license: Arc<LeadershipDeadline>,
}

impl ApiWriter {
    pub(crate) const fn new(
        client: kube::Client,
        limiter: Arc<TokenBucket>,
        kinds: Arc<ResourceKinds>,
        license: Arc<LeadershipDeadline>,
    ) -> Self {
        Self {
            client,
            limiter,
            kinds,
            license,
        }
    }

    /// Sends a request, again and again while that may help.
    pub(super) async fn send(&self, request: Request<Vec<u8>>) -> Result<String, kube::Error> {
        self.send_as(request, WritePriority::Normal).await
    }

    async fn send_as(
        &self,
        request: Request<Vec<u8>>,
        priority: WritePriority,
    ) -> Result<String, kube::Error> {
        self.send_told(request, priority, DEADLINE, &|_| {}).await
    }

    /// Sends a request, and again while it may go through later and it is not later than `within`. `answered` gets the
    /// HTTP status of every answer.
    async fn send_told(
        &self,
        request: Request<Vec<u8>>,
        priority: WritePriority,
        within: Duration,
        answered: &(dyn Fn(u16) + Send + Sync),
    ) -> Result<String, kube::Error> {
        let deadline = Instant::now() + within;
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
        loop {
            match priority {
                WritePriority::Normal => self.limiter.acquire().await,
                WritePriority::Immediate => self.limiter.overdraw(),
            }
            if !self.license.is_valid() {
                return Err(kube::Error::Service("lost leadership".into()));
            }
            let attempt =
                tokio::time::timeout(ATTEMPT, self.client.request_text(request.clone())).await;
            let error = match attempt {
                Ok(Ok(text)) => {
                    answered(200);
                    return Ok(text);
                }
                Ok(Err(error)) => error,
                Err(elapsed) => kube::Error::Service(Box::new(elapsed)),
            };
            if let kube::Error::Api(status) = &error {
                answered(status.code);
            }
            let wait = error_class::retry_after(&error)
                .unwrap_or_default()
                .max(backoff.next());
            if error_class::classify(&error) != ErrorClass::Transient
                || Instant::now() + wait > deadline
            {
                return Err(error);
            }
            tracing::debug!(error = %error_class::message(&error), attempt = backoff.failures(), "API request failed, retrying");
            tokio::time::sleep(wait).await;
        }
    }

    /// Creates a claim under its name. A claim of that name from the same decision is the one meant: an earlier answer was
    /// lost. Any other claim has another author, and the creation is refused.
    pub(super) async fn create_claim(&self, claim: &NodeClaim) -> Written {
        let target = ObjectRef::Claim(claim.name());
        let kind = match self.kind(&target) {
            Ok(kind) => kind,
            Err(error) => return (Err(error), None),
        };
        let body = match serde_json::to_vec(claim) {
            Ok(body) => body,
            Err(error) => return (Err(unbuildable(&error)), None),
        };
        let build = Build::new(kind.api.path(None));
        let created = match build.create(&PostParams::default(), body) {
            Ok(request) => self.send(request).await,
            Err(error) => return (Err(unbuildable(&error)), None),
        };
        match created {
            Ok(text) => (Ok(EffectOutput::Written), read(kind, &text)),
            Err(error) if error_class::classify(&error) == ErrorClass::AlreadyExists => {
                self.adopt(claim, kind, &build).await
            }
            Err(error) => (Err(error_class::effect_error(&error)), None),
        }
    }

    async fn adopt(&self, claim: &NodeClaim, kind: &ResourceKind, build: &Build) -> Written {
        let request = match build.get(&claim.name(), &kube::api::GetParams::default()) {
            Ok(request) => request,
            Err(error) => return (Err(unbuildable(&error)), None),
        };
        let text = match self.send(request).await {
            Ok(text) => text,
            Err(error) => return (Err(error_class::effect_error(&error)), None),
        };
        let Some(ObjectEvent::Applied(mortise_state::resource_kinds::Object::Claim(there), source)) =
            read(kind, &text)
        else {
            return (
                Err(EffectError::Conflict(format!(
                    "nodeclaim {} exists and cannot be parsed",
                    claim.name()
                ))),
                None,
            );
        };
        if !there.is_same_intent(claim) {
            let message = format!(
                "nodeclaim {} exists and is not from the same decision",
                claim.name()
            );
            return (Err(EffectError::Refused { code: 409, message }), None);
        }
        (
            Ok(EffectOutput::Written),
            Some(ObjectEvent::Applied(
                mortise_state::resource_kinds::Object::Claim(there),
                source,
            )),
        )
    }

    /// Patches an object.
    pub(super) async fn write(&self, write: &ObjectWrite) -> Written {
        let kind = match self.kind(&write.target) {
            Ok(kind) => kind,
            Err(error) => return (Err(error), None),
        };
        let body = write.render();
        let (namespace, name) = place(&write.target);
        let build = Build::new(kind.api.path(namespace));
        let (params, merge) = (PatchParams::default(), KubePatch::Merge(&body.merge));
        let request = match body.subresource {
            Some(subresource) => build.patch_subresource(subresource, name, &params, &merge),
            None => build.patch(name, &params, &merge),
        };
        match request {
            Ok(request) => {
                let priority = write.edit.priority();
                self.answered(kind, request, EffectOutput::Written, priority)
                    .await
            }
            Err(error) => (Err(unbuildable(&error)), None),
        }
    }

    /// Deletes an object. One that is gone, or is another object of the same name, needs no deletion.
    pub(super) async fn delete(
        &self,
        target: &ObjectRef,
        uid: Option<&Uid>,
        grace_seconds: Option<i64>,
    ) -> Written {
        let kind = match self.kind(target) {
            Ok(kind) => kind,
            Err(error) => return (Err(error), None),
        };
        let (namespace, name) = place(target);
        let params = DeleteParams {
            grace_period_seconds: grace_seconds
                .map(|seconds| u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)),
            preconditions: uid.map(|uid| Preconditions {
                uid: Some(uid.to_string()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let request = match Build::new(kind.api.path(namespace)).delete(name, &params) {
            Ok(request) => request,
            Err(error) => return (Err(unbuildable(&error)), None),
        };
        let (result, news) = self
            .answered(kind, request, EffectOutput::Deleted, WritePriority::Normal)
            .await;
        let result = match result {
            Err(EffectError::NotFound(_)) => Ok(EffectOutput::Deleted),
            // The only precondition is the UID.
            Err(EffectError::Conflict(_)) if uid.is_some() => Ok(EffectOutput::Deleted),
            other => other,
        };
        (result, news)
    }

    /// Asks for an eviction.
    pub(super) async fn evict(
        &self,
        pod: &PodKey,
        uid: &Uid,
        answered: &(dyn Fn(u16) + Send + Sync),
    ) -> Written {
        let kind = match self.kind(&ObjectRef::Pod(pod.clone())) {
            Ok(kind) => kind,
            Err(error) => return (Err(error), None),
        };
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "namespace": &*pod.namespace, "name": &*pod.name },
            "deleteOptions": { "preconditions": { "uid": uid.as_str() } },
        });
        let build = Build::new(kind.api.path(Some(&pod.namespace)));
        let request = match build.create_subresource(
            "eviction",
            &pod.name,
            &PostParams::default(),
            body.to_string().into_bytes(),
        ) {
            Ok(request) => request,
            Err(error) => return (Err(unbuildable(&error)), None),
        };
        let sent = self
            .send_told(request, WritePriority::Normal, EVICTION_DEADLINE, answered)
            .await;
        let result = sent.map(|_| EffectOutput::Evicted);
        (
            result.map_err(|error| error_class::effect_error(&error)),
            None,
        )
    }

    async fn answered(
        &self,
        kind: &ResourceKind,
        request: Request<Vec<u8>>,
        done: EffectOutput,
        priority: WritePriority,
    ) -> Written {
        match self.send_as(request, priority).await {
            Ok(text) => (Ok(done), read(kind, &text)),
            Err(error) => (Err(error_class::effect_error(&error)), None),
        }
    }

    pub(super) fn kind(&self, target: &ObjectRef) -> Result<&ResourceKind, EffectError> {
        self.kinds.of(target).ok_or_else(|| EffectError::Refused {
            code: 0,
            message: format!("no enabled provider supports the kind of {target}"),
        })
    }
}

/// A request that cannot even be written down: a name or a value that no server would take.
pub(super) fn unbuildable(error: &dyn std::fmt::Display) -> EffectError {
    EffectError::Refused {
        code: 400,
        message: error.to_string(),
    }
}

fn place(target: &ObjectRef) -> (Option<&str>, &str) {
    match target {
        ObjectRef::Node(name) => (None, name),
        ObjectRef::Claim(name) => (None, name),
        ObjectRef::Pool(name) => (None, name),
        ObjectRef::Overlay(name) | ObjectRef::Policy(name) => (None, name),
        ObjectRef::NodeClass(key) => (None, &key.name),
        ObjectRef::Pod(key)
        | ObjectRef::Buffer(key)
        | ObjectRef::Request(key)
        | ObjectRef::Deployment(key) => (Some(&key.namespace), &key.name),
    }
}

/// News in an answer: the object as it is now, its end, or nothing when the answer is a mere status.
fn read(kind: &ResourceKind, text: &str) -> Option<ObjectEvent> {
    #[derive(Deserialize)]
    struct Envelope {
        #[serde(default)]
        kind: String,
    }
    let envelope: Envelope = serde_json::from_str(text).ok()?;
    if envelope.kind != kind.api.kind {
        return None;
    }
    let identity = ObjectIdentity::read(text).ok()?;
    let graceful = kind.index == ObjectKind::Pod;
    if identity.deletion_timestamp.is_some() && identity.finalizers.is_empty() && !graceful {
        return Some(ObjectEvent::Deleted(
            kind.index.key(&identity.namespace, &identity.name),
            identity.resource_version.parse().ok(),
        ));
    }
    match kind.index.parse(text) {
        Ok(object) => Some(ObjectEvent::Applied(object, EventSource::Write)),
        Err(error) => {
            // The write is done; the watch will show the object, or count it as unreadable.
            tracing::warn!(kind = kind.api.kind, name = identity.name, %error, "failed to parse response to write");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use mortise_state::resource_kinds::{Object, ObjectKey};

    use super::*;

    #[test]
    fn answers_become_news() {
        let kinds = ResourceKinds::new(&[]);
        let kind = kinds.of(&ObjectRef::Claim("c".into())).unwrap();
        let claim = |rest: &str| {
            format!(
                r#"{{"kind":"NodeClaim","apiVersion":"karpenter.sh/v1","metadata":{{"name":"c","resourceVersion":"9"{rest}}},"spec":{{}}}}"#
            )
        };
        assert!(matches!(
            read(kind, &claim("")),
            Some(ObjectEvent::Applied(Object::Claim(_), EventSource::Write))
        ));
        let going = claim(
            r#","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["karpenter.sh/termination"]"#,
        );
        assert!(matches!(read(kind, &going), Some(ObjectEvent::Applied(..))));
        let gone = claim(r#","deletionTimestamp":"2026-01-01T00:00:00Z""#);
        assert!(
            matches!(read(kind, &gone), Some(ObjectEvent::Deleted(ObjectKey::Claim(name), _)) if &*name == "c")
        );
        assert!(read(kind, r#"{"kind":"Status","status":"Success"}"#).is_none());
        assert!(read(kind, "not JSON").is_none());
        let pod = kinds.of(&ObjectRef::Pod(PodKey::new("a", "p"))).unwrap();
        let going = r#"{"kind":"Pod","metadata":{"namespace":"a","name":"p","resourceVersion":"3","deletionTimestamp":"2026-01-01T00:00:00Z"}}"#;
        assert!(
            matches!(
                read(pod, going),
                Some(ObjectEvent::Applied(Object::Pod(_), EventSource::Write))
            ),
            "pods go gracefully"
        );
    }
}
