//! Lists and watches. A reader cannot write, so it is what modules outside of `client` and `effects` get.

use std::fmt::Debug;

use futures::Stream;
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{ApiResource, ObjectList, WatchEvent};
use serde::de::DeserializeOwned;

/// Reads objects of any kind.
#[derive(Clone)]
pub(crate) struct Reader(kube::Client);

impl Reader {
    pub(crate) const fn new(client: kube::Client) -> Self {
        Self(client)
    }

    /// All objects of a kind, in all namespaces.
    pub(crate) fn all<K>(&self, resource: &ApiResource) -> KindReader<K>
    where
        K: kube::Resource<DynamicType = ApiResource>,
    {
        KindReader(Api::all_with(self.0.clone(), resource))
    }

    /// Whether the API server responds.
    pub(crate) async fn probe(&self) -> kube::Result<()> {
        self.0.apiserver_version().await.map(drop)
    }
}

/// Reads objects of one kind.
pub(crate) struct KindReader<K>(Api<K>);

impl<K: Clone + Debug + DeserializeOwned> KindReader<K> {
    /// One page of a list.
    pub(crate) async fn list(&self, params: &ListParams) -> kube::Result<ObjectList<K>> {
        self.0.list(params).await
    }

    /// Changes after a version.
    pub(crate) async fn watch(
        &self,
        params: &WatchParams,
        version: &str,
    ) -> kube::Result<impl Stream<Item = kube::Result<WatchEvent<K>>> + use<K>> {
        self.0.watch(params, version).await
    }
}
