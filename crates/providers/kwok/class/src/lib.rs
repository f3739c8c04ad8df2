//! The node class of the kwok provider: simulated nodes, which exist only as objects. What admission, lint, CRDs and RBAC need
//! to know of it; the provider is in `crates/providers/kwok`.
//!
//! Pure: no input or output, no clock, no environment, no logging.

pub mod labels;
pub mod object;

use mortise_apis::node_class::{LabelTable, NodeClassApi, NodeClassKind};
use mortise_apis::schema::crd_manifest::{CLUSTER, CrdLayout, CrdManifest, definition, insert};
use mortise_apis::schema::structural::{root, schema_of};
use serde_json::json;

use object::{KIND, KwokNodeClass, KwokNodeClassSpec, KwokNodeClassStatus};

/// The API of KWOKNodeClass.
#[derive(Clone, Copy, Debug)]
pub struct KwokNodeClassApi;

impl NodeClassApi for KwokNodeClassApi {
    fn kind(&self) -> NodeClassKind {
        KIND
    }

    fn crd(&self) -> CrdManifest {
        let mut status = schema_of::<KwokNodeClassStatus>();
        // Nothing has to be resolved for this provider: a class is ready from the start.
        let ready = json!({ "conditions": [{
            "lastTransitionTime": "2024-01-01T01:01:01Z",
            "message": "",
            "reason": "Ready",
            "status": "True",
            "type": "Ready",
        }] });
        insert(&mut status, "default", Some(ready));
        let schema = root(
            "Launch settings of simulated nodes, which exist only as objects.",
            schema_of::<KwokNodeClassSpec>(),
            status,
            false,
        );
        definition::<KwokNodeClass>(
            CrdLayout {
                short_names: &["kwoknc", "kwokncs"],
                ..CLUSTER
            },
            &schema,
        )
    }

    fn labels(&self) -> LabelTable {
        labels::LABELS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::CrdSet;
    use mortise_apis::validation::coverage;

    fn definitions() -> CrdSet {
        CrdSet::of_class(&KwokNodeClassApi)
    }

    #[test]
    fn simulated_classes_are_ready() {
        let mut class =
            json!({ "apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass" });
        assert!(definitions().apply_defaults(&mut class));
        assert_eq!(class["status"]["conditions"][0]["status"], "True");
    }

    #[test]
    fn every_pattern_and_every_rule_of_the_definitions_is_known() {
        assert_eq!(coverage(&definitions()).unanswered, Vec::<String>::new());
    }
}
