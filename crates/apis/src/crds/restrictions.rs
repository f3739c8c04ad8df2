//! Rules on label keys: some domains belong to the autoscaler or to a provider, and users may set only certain keys in
//! them.

use std::fmt::Write as _;

use serde_json::Value;

use super::CrdSet;
use crate::schema::fields::rule;

/// A domain that is not the user's, and the keys in it that users may set all the same.
struct LabelDomain {
    name: &'static str,
    open: &'static [&'static str],
}

const AUTOSCALER: LabelDomain = LabelDomain {
    name: "karpenter.sh",
    open: &["capacity-type", "nodepool"],
};

const KWOK: LabelDomain = LabelDomain {
    name: "karpenter.kwok.sh",
    open: &[
        "kwoknodeclass",
        "instance-cpu",
        "instance-memory",
        "instance-family",
        "instance-size",
    ],
};

/// Keys that describe what was launched. They can be required, but an overlay cannot depend on them.
const AWS_LAUNCH_KEYS: usize = 4;
const AWS_PLACEMENT_KEYS: usize = 2;
const AWS_KEYS: [&str; 29] = [
    "instance-tenancy",
    "capacity-reservation-type",
    "capacity-reservation-id",
    "capacity-reservation-interruptible",
    "ec2nodeclass",
    "instance-encryption-in-transit-supported",
    "nitro-sandbox",
    "instance-category",
    "instance-hypervisor",
    "instance-family",
    "instance-generation",
    "instance-local-nvme",
    "instance-size",
    "instance-cpu",
    "instance-cpu-manufacturer",
    "instance-cpu-sustained-clock-speed-mhz",
    "instance-memory",
    "instance-ebs-bandwidth",
    "instance-network-bandwidth",
    "instance-gpu-name",
    "instance-gpu-manufacturer",
    "instance-gpu-count",
    "instance-gpu-memory",
    "instance-accelerator-name",
    "instance-accelerator-manufacturer",
    "instance-accelerator-count",
    "instance-capability-flex",
    "placement-group-id",
    "placement-group-partition",
];
const AWS: LabelDomain = LabelDomain {
    name: "karpenter.k8s.aws",
    open: &AWS_KEYS,
};

/// What a restricted key stands in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyLocation {
    /// Labels of a NodePool's template: the rules look at every key of a map.
    PoolLabels,
    /// A requirement of a NodePool.
    PoolRequirement,
    /// A requirement of a NodeClaim.
    ClaimRequirement,
    /// A requirement of a NodeOverlay.
    OverlayRequirement,
}

/// The rules on keys for one place, in the order in which they are reported.
pub(super) fn rules(set: CrdSet, place: KeyLocation) -> Value {
    let mut rules = vec![domain_rule(place, &AUTOSCALER)];
    if matches!(
        place,
        KeyLocation::PoolLabels | KeyLocation::PoolRequirement
    ) {
        rules.push(key_rule(place, "karpenter.sh/nodepool"));
    }
    rules.push(key_rule(place, "kubernetes.io/hostname"));
    match (set, place) {
        (CrdSet::Core, _)
        | (CrdSet::Kwok, KeyLocation::PoolLabels | KeyLocation::OverlayRequirement) => {}
        (CrdSet::Kwok, KeyLocation::PoolRequirement | KeyLocation::ClaimRequirement) => {
            rules.push(domain_rule(place, &KWOK))
        }
        (CrdSet::Aws, KeyLocation::OverlayRequirement) => {
            let open = AWS_KEYS
                .get(AWS_LAUNCH_KEYS..AWS_KEYS.len() - AWS_PLACEMENT_KEYS)
                .unwrap_or_default();
            rules.push(domain_rule(
                place,
                &LabelDomain {
                    name: AWS.name,
                    open,
                },
            ));
        }
        (CrdSet::Aws, _) => rules.push(domain_rule(place, &AWS)),
    }
    Value::Array(rules)
}

fn domain_rule(place: KeyLocation, domain: &LabelDomain) -> Value {
    let mut open = String::new();
    for key in domain.open {
        let separator = if open.is_empty() { "" } else { ", " };
        let _infallible = write!(open, "{separator}\"{}/{key}\"", domain.name);
    }
    let allowed = |key: &str| {
        format!(
            "{key} in [{open}] || !{key}.find(\"^([^/]+)\").endsWith(\"{}\")",
            domain.name
        )
    };
    rule(
        &on_keys(place, allowed),
        &format!("label domain \"{}\" is restricted", domain.name),
    )
}

fn key_rule(place: KeyLocation, restricted: &str) -> Value {
    rule(
        &on_keys(place, |key| format!("{key} != \"{restricted}\"")),
        &format!("label \"{restricted}\" is restricted"),
    )
}

fn on_keys(place: KeyLocation, condition: impl Fn(&str) -> String) -> String {
    if place == KeyLocation::PoolLabels {
        format!("self.all(x, {})", condition("x"))
    } else {
        condition("self")
    }
}
