//! Nodes.

use super::Ingested;
use crate::index::Index;
use mortise_apis::k8s;
use mortise_apis::names::NodeName;

impl Ingested for k8s::Node {
    fn applied(index: &mut Index, node: Self) {
        index.nodes.insert_node(node);
    }

    fn deleted(index: &mut Index, name: &NodeName) {
        index.nodes.remove_node(name);
        index.state.named.remove(name);
    }
}
