//! Lines in any order, as half of a paste.

use mortise_manifests::migrate::{MigrateOptions, MigrationLevel, migrate};
use proptest::prelude::*;

use super::run;

proptest! {
    /// Whatever is pasted: no panic, nothing of other kinds is touched, and a second run changes nothing.
    #[test]
    fn any_text_is_survived(lines in prop::collection::vec(0..LINES.len(), 0..24)) {
        let text: String = lines.iter().map(|line| format!("{}\n", LINES[*line])).collect();
        let once = run(&text);
        let ours = once.findings.iter().any(|finding| finding.level == MigrationLevel::Error) || once.changed > 0;
        if !ours {
            prop_assert_eq!(&once.files[0].text, &text);
        }
        if once.worst() != MigrationLevel::Error {
            let twice = migrate(&once.files, &MigrateOptions::default());
            prop_assert_eq!(&twice.files, &once.files, "{}", text);
        }
    }
}

const LINES: &[&str] = &[
    "apiVersion: karpenter.sh/v1beta1",
    "apiVersion: karpenter.sh/v1alpha5",
    "apiVersion: karpenter.sh/v1",
    "apiVersion: karpenter.k8s.aws/v1alpha1",
    "apiVersion: karpenter.k8s.aws/v1beta1",
    "kind: NodePool",
    "kind: Provisioner",
    "kind: AWSNodeTemplate",
    "kind: EC2NodeClass",
    "kind: NodeClaim",
    "kind: List",
    "items:",
    "- kind: Provisioner",
    "  apiVersion: karpenter.sh/v1alpha5",
    "metadata:",
    "  name: x",
    "spec:",
    "  template:",
    "    spec:",
    "      requirements:",
    "      - key: karpenter.sh/do-not-consolidate",
    "        operator: DoesNotExist",
    "      kubelet: {maxPods: 3}",
    "      nodeClassRef: {name: x}",
    "  disruption:",
    "    expireAfter: 30d",
    "    consolidateAfter: Never",
    "    budgets: [{nodes: 1, duration: 5m}]",
    "  consolidation: {enabled: true}",
    "  ttlSecondsAfterEmpty: 30",
    "  ttlSecondsUntilExpired: x",
    "  provider: {subnetSelector: {a: 'b,c'}}",
    "  providerRef: {name: x}",
    "  limits: {resources: {cpu: 1}}",
    "  limits: 3",
    "  amiFamily: AL2",
    "  amiSelector: {aws::ids: ami-1}",
    "  subnetSelector: {a: b}",
    "  securityGroupSelector:",
    "    a: b, c",
    "  # a comment",
    "# another",
    "---",
    "  expireAfter: 1h",
];
