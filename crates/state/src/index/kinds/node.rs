//! Nodes.

use super::Ingested;
use crate::index::{Index, boot_taints};
use mortise_apis::k8s;
use mortise_apis::names::NodeName;

impl Ingested for k8s::Node {
    fn applied(index: &mut Index, node: Self) {
        boot_taints::observe(index, &node);
        index.nodes.insert_node(node);
    }

    fn deleted(index: &mut Index, name: &NodeName) {
        index.boot_taints.forget(name);
        index.nodes.remove_node(name);
        index.state.named.remove(name);
    }
}
