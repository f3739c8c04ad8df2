//! Fields that are gone or misplaced, and what to write into an EC2NodeClass instead.

use mortise_apis::node_class::DeprecatedField;

/// What the kind was called first.
pub(crate) const FORMER_KINDS: &[&str] = &["AWSNodeTemplate"];

const POOL: &[&str] = &["NodePool", "Provisioner"];
const CLAIM: &[&str] = &["NodeClaim"];
const CLASS: &[&str] = &["EC2NodeClass", "AWSNodeTemplate"];

/// The table.
pub(crate) const FIELDS: &[DeprecatedField] = &[
    DeprecatedField::new(
        POOL,
        "/spec/provider",
        "write an EC2NodeClass and name it in spec.template.spec.nodeClassRef; `mortise migrate` writes both",
    ),
    DeprecatedField::new(
        POOL,
        "/spec/kubeletConfiguration",
        "write spec.kubelet of the EC2NodeClass",
    ),
    DeprecatedField::new(
        POOL,
        "/spec/template/spec/kubelet",
        "write spec.kubelet of the EC2NodeClass",
    ),
    DeprecatedField::new(
        POOL,
        "/spec/template/spec/kubeletConfiguration",
        "write spec.kubelet of the EC2NodeClass",
    ),
    DeprecatedField::with_text(
        POOL,
        "/spec/template/spec/nodeClassRef/kind",
        "AWSNodeTemplate",
        "write EC2NodeClass",
    ),
    DeprecatedField::new(
        POOL,
        "/metadata/annotations/compatibility.karpenter.sh~1v1beta1-kubelet-conversion",
        "nothing reads it since 1.1: write spec.kubelet of the EC2NodeClass",
    ),
    DeprecatedField::new(
        CLAIM,
        "/spec/kubelet",
        "write spec.kubelet of the EC2NodeClass",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/subnetSelector",
        "write spec.subnetSelectorTerms: [{tags: {}}]",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/securityGroupSelector",
        "write spec.securityGroupSelectorTerms: [{tags: {}}]",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/amiSelector",
        "write spec.amiSelectorTerms: [{tags: {}}]",
    ),
    DeprecatedField::with_text(
        CLASS,
        "/spec/amiFamily",
        "Ubuntu",
        "write AL2 and amiSelectorTerms that select Ubuntu images",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/launchTemplate",
        "write images, user data, disks and groups out",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/launchTemplateName",
        "write images, user data, disks and groups out",
    ),
    DeprecatedField::new(CLASS, "/spec/kubeletConfiguration", "write spec.kubelet"),
    DeprecatedField::new(
        CLASS,
        "/spec/kubelet/containerRuntime",
        "leave it out: the image decides",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/expireAfter",
        "write spec.template.spec.expireAfter of the NodePool",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/requirements",
        "write spec.template.spec.requirements of the NodePool",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/taints",
        "write spec.template.spec.taints of the NodePool",
    ),
    DeprecatedField::new(CLASS, "/spec/limits", "write spec.limits of the NodePool"),
    DeprecatedField::new(CLASS, "/spec/weight", "write spec.weight of the NodePool"),
    DeprecatedField::new(
        CLASS,
        "/spec/disruption",
        "write spec.disruption of the NodePool",
    ),
    DeprecatedField::new(
        CLASS,
        "/spec/consolidateAfter",
        "write spec.disruption.consolidateAfter of the NodePool",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ec2NodeClassApi;
    use mortise_apis::deprecated_fields::{advice, kind_advice};
    use mortise_apis::node_class::{DeprecationCondition, NodeClassRegistry};
    use serde_json::{Value, json};

    fn put(pointer: &str, value: Value) -> Value {
        let mut all = value;
        for name in pointer
            .split('/')
            .skip(1)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
        {
            all = if name == "*" {
                json!([all])
            } else {
                json!({ name.replace("~1", "/"): all })
            };
        }
        all
    }

    #[test]
    fn every_row_answers_for_its_field() {
        let classes = NodeClassRegistry::new([&Ec2NodeClassApi]);
        for row in FIELDS {
            let DeprecatedField {
                kinds,
                pointer,
                when,
                instead,
            } = row;
            for kind in *kinds {
                let value = match when {
                    DeprecationCondition::There => json!(30),
                    DeprecationCondition::Is(text) => json!(text),
                };
                let mut object = put(pointer, value);
                object["kind"] = json!(kind);
                let said = advice(&classes, &object);
                assert_eq!(said.len(), 1, "{kind} {pointer}: {said:?}");
                assert_eq!(said[0].instead, instead.replace("{}", "30"), "{pointer}");
                // The same when the API server has dropped it, but kubectl kept what it was given.
                let kept = json!({
                    "kind": kind,
                    "metadata": { "annotations": { "kubectl.kubernetes.io/last-applied-configuration": object.to_string() } },
                });
                assert_eq!(advice(&classes, &kept), said, "{pointer}");
                assert_eq!(
                    advice(&NodeClassRegistry::default(), &object),
                    [],
                    "{pointer} is this class's alone"
                );
            }
        }
    }

    #[test]
    fn sentences() {
        let pool = json!({
            "kind": "NodePool",
            "spec": { "provider": { "subnetSelector": { "karpenter.sh/discovery": "a-rather-long-name" } } },
        });
        let classes = NodeClassRegistry::new([&Ec2NodeClassApi]);
        let said: Vec<String> = advice(&classes, &pool)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            said,
            [
                "spec.provider: {\"subnetSelector\":{\"karpenter.sh/disc...: write an EC2NodeClass and name it in spec.template.spec.nodeClassRef; `mortise migrate` writes both"
            ]
        );
    }

    #[test]
    fn kinds() {
        let classes = NodeClassRegistry::new([&Ec2NodeClassApi]);
        for (version, kind, part) in [
            (
                "karpenter.k8s.aws/v1alpha1",
                "AWSNodeTemplate",
                "EC2NodeClass of karpenter.k8s.aws/v1;",
            ),
            (
                "karpenter.k8s.aws/v1beta1",
                "EC2NodeClass",
                "karpenter.k8s.aws/v1;",
            ),
        ] {
            let said = kind_advice(&classes, version, kind).unwrap();
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(
            kind_advice(&classes, "karpenter.k8s.aws/v1", "EC2NodeClass"),
            None
        );
    }
}
