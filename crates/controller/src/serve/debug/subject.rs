//! The subject that a request names.

use http::Uri;
use mortise_apis::names::{ClaimName, NodeName, PodKey, PoolName};
use serde::Deserialize;

use super::routes::{DebugRefusal, DebugState, query};
use super::{DebugView, explain};

/// The subject to explain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod.
    Pod(PodKey),
    /// A node, by the name of its Node object.
    Node(NodeName),
    /// A pool.
    Pool(PoolName),
    /// A claim.
    Claim(ClaimName),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    pod: Option<String>,
    namespace: Option<String>,
    node: Option<String>,
    nodepool: Option<String>,
    nodeclaim: Option<String>,
}

impl Subject {
    fn from_query(uri: &Uri) -> Result<Self, String> {
        const USAGE: &str = "exactly one of pod=NAMESPACE/NAME, node=NAME, nodepool=NAME, nodeclaim=NAME is required";
        let query: ExplainQuery = query(uri).map_err(|error| format!("{error}\n{USAGE}"))?;
        let pod = query
            .pod
            .map(|text| match (&query.namespace, text.contains('/')) {
                (Some(namespace), false) => PodKey::new(namespace.as_str(), text),
                _ => PodKey::parse(&text),
            });
        let asked = [
            pod.map(Self::Pod),
            query.node.map(|name| Self::Node(name.into())),
            query.nodepool.map(|name| Self::Pool(name.into())),
            query.nodeclaim.map(|name| Self::Claim(name.into())),
        ];
        let mut asked = asked.into_iter().flatten();
        match (asked.next(), asked.next()) {
            (Some(subject), None) => Ok(subject),
            _ => Err(USAGE.to_owned()),
        }
    }
}

/// `/debug/explain`.
pub(super) fn view(state: &DebugState, uri: &Uri) -> Result<DebugView, DebugRefusal> {
    let subject = Subject::from_query(uri).map_err(DebugRefusal::BadRequest)?;
    explain::explain(&state.shared, &subject).map_err(DebugRefusal::NotFound)
}
