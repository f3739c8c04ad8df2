//! Looking at the API server itself, where what a watch has shown is not enough.

use http::Request;
use kube::api::ListParams;
use kube::core::Request as Build;
use mortise_apis::names::{NodeName, ObjectRef, PodKey};
use mortise_engine::effect::{EffectError, EffectOutput};
use mortise_state::resource_kinds::{EventSource, ObjectEvent, ObjectKey, ResourceKind};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::api::ApiWriter;
use crate::client::error_class;
use crate::client::resource_kinds::ObjectIdentity;

/// A list, with its items as they came.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow, default)]
    items: Vec<&'a RawValue>,
}

impl ApiWriter {
    /// The pods that are bound to a Node, as a consistent read: nothing that the API server has acknowledged is missing.
    /// They are handed on like the answers to writes: they may come after the watch showed something newer.
    pub(super) async fn pods_of(
        &self,
        node: &NodeName,
    ) -> (Result<EffectOutput, EffectError>, Vec<ObjectEvent>) {
        let read = async {
            let kind = self.kind(&ObjectRef::Pod(PodKey::new("", "")))?;
            let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
            let request: Request<Vec<u8>> = Build::new(kind.api.path(None))
                .list(&params)
                .map_err(|error| super::api::unbuildable(&error))?;
            let text = self.send(request).await;
            let text = text.map_err(|error| error_class::effect_error(&error))?;
            pods(kind, &text)
        };
        match read.await {
            Ok(news) => (Ok(EffectOutput::PodsListed(news.len())), news),
            Err(error) => (Err(error), Vec::new()),
        }
    }
}

/// News of each item. One that cannot be read is handed on as such.
fn pods(kind: &ResourceKind, text: &str) -> Result<Vec<ObjectEvent>, EffectError> {
    let unreadable = |error: serde_json::Error| {
        EffectError::Unavailable(format!("the list of pods cannot be read: {error}"))
    };
    let list: List<'_> = serde_json::from_str(text).map_err(unreadable)?;
    let news = list.items.into_iter().map(|item| {
        let identity = ObjectIdentity::read(item.get()).map_err(unreadable)?;
        let key: ObjectKey = kind.index.key(&identity.namespace, &identity.name);
        Ok(match kind.index.parse(item.get()) {
            Ok(object) => ObjectEvent::Applied(object, EventSource::Write),
            Err(_) => ObjectEvent::Unreadable(key),
        })
    });
    news.collect()
}

#[cfg(test)]
mod tests {
    use mortise_apis::names::ObjectRef;

    use super::*;
    use crate::client::resource_kinds::ResourceKinds;

    #[test]
    fn every_pod_of_a_list_is_handed_on() {
        let kinds = ResourceKinds::new(&[]);
        let kind = kinds.of(&ObjectRef::Pod(PodKey::new("", ""))).unwrap();
        let text = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[
            {"metadata":{"name":"a","namespace":"n","resourceVersion":"3"},"spec":{"nodeName":"x","containers":[]}},
            {"metadata":{"name":"b","namespace":"n","resourceVersion":"4"},"spec":7}]}"#;
        let news = pods(kind, text).unwrap();
        assert!(
            matches!(&news[0], ObjectEvent::Applied(object, EventSource::Write) if object.key() == kind.index.key("n", "a"))
        );
        assert!(
            matches!(&news[1], ObjectEvent::Unreadable(key) if *key == kind.index.key("n", "b"))
        );
        assert_eq!(news.len(), 2);
        assert!(pods(kind, "{").is_err());
        assert!(pods(kind, "{}").unwrap().is_empty());
    }
}
