//! Which objects are ours, and what is wrong with `apiVersion` and `kind` of those that were meant to be.

use crate::file::Manifest;
use mortise_apis::crds::CrdSet;
use mortise_apis::deprecated_fields::kind_advice;
use mortise_apis::nearest::nearest;
use serde_json::Value;

/// What an object is to us.
pub(super) enum ObjectClass {
    /// Of a kind and version of ours.
    Own,
    /// Meant to be, but of another version, or mistyped.
    Wrong {
        /// `apiVersion` or `kind`.
        field: &'static str,
        problem: String,
        fix: String,
        /// It is of an age that is gone: its fields have other names now.
        advice: bool,
    },
    /// A piece of such an object.
    Part(&'static str),
    /// A kind of another product: what it is called.
    Other(String),
}

/// A kind that is served.
struct ServedKind {
    group: String,
    version: String,
    kind: String,
}

impl ServedKind {
    fn api_version(&self) -> String {
        format!("{}/{}", self.group, self.version)
    }
}

fn served_kinds(set: &CrdSet) -> Vec<ServedKind> {
    let text = |definition: &Value, pointer: &str| {
        let text = definition.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    set.manifests()
        .iter()
        .map(|manifest| ServedKind {
            group: text(&manifest.definition, "/spec/group"),
            version: text(&manifest.definition, "/spec/versions/0/name"),
            kind: text(&manifest.definition, "/spec/names/kind"),
        })
        .collect()
}

/// Groups that others have kinds in too. Scenarios of `mortise simulate` are of `mortise.sh`, and no objects.
const SHARED: [&str; 2] = ["autoscaling.x-k8s.io", "mortise.sh"];

pub(super) fn classify(
    set: &CrdSet,
    manifest: &Manifest,
    api_version: &str,
    kind: &str,
) -> ObjectClass {
    if let Some(of) = manifest.part_of() {
        return ObjectClass::Part(of);
    }
    let served = served_kinds(set);
    let wrong = |field, problem: String, fix: String| ObjectClass::Wrong {
        field,
        problem,
        fix,
        advice: false,
    };
    if served
        .iter()
        .any(|each| each.kind == kind && each.api_version() == api_version)
    {
        return ObjectClass::Own;
    }
    if let Some(advice) = kind_advice(set.known(), api_version, kind) {
        return ObjectClass::Wrong {
            field: "apiVersion",
            problem: format!("is a version of {kind} that is no longer served"),
            fix: format!("write {advice}"),
            advice: true,
        };
    }
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let own_group = served.iter().any(|each| each.group == group);
    let groups = served.iter().map(|each| each.group.as_str());
    let near_group = nearest(group, groups.clone());
    if let Some(meant) = served.iter().find(|each| each.kind == kind) {
        // Without a group nothing else can be meant; a group that looks like no group of ours is another product's.
        if group.is_empty() || own_group || near_group.is_some() {
            let written = if api_version.is_empty() {
                "but required: the group and version of".to_owned()
            } else {
                "is not the group and version of".to_owned()
            };
            return wrong(
                "apiVersion",
                format!("{written} {kind} ({} is)", meant.api_version()),
                format!("write apiVersion: {}", meant.api_version()),
            );
        }
        return other_class(api_version, kind);
    }
    let of_group: Vec<&str> = served
        .iter()
        .filter(|each| each.group == group || near_group.as_ref() == Some(&each.group))
        .map(|each| each.kind.as_str())
        .collect();
    let meant = nearest(kind, &of_group);
    let mistyped = meant.is_some() && !kind.is_empty();
    if mistyped || own_group && !SHARED.contains(&group) {
        let problem = if kind.is_empty() {
            format!("but required: one of {}", of_group.join(", "))
        } else {
            format!(
                "is not a kind of {group}; the kinds are {}",
                of_group.join(", ")
            )
        };
        let fix = match meant {
            Some(meant) => format!("did you mean \"{meant}\"?"),
            None => "write one of them; kinds of other providers need --provider".to_owned(),
        };
        return wrong("kind", problem, fix);
    }
    other_class(api_version, kind)
}

fn other_class(api_version: &str, kind: &str) -> ObjectClass {
    ObjectClass::Other(match (kind, api_version) {
        ("", "") => "document without a kind".to_owned(),
        ("", version) => format!("document of {version} without a kind"),
        (kind, _) => kind.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use crate::file::manifests;
    use mortise_aws_class::Ec2NodeClassApi;

    use super::*;

    #[track_caller]
    fn assert_class(api_version: &str, kind: &str, want: &str) {
        let text = format!("apiVersion: {api_version}\nkind: {kind}\n");
        let manifest = manifests(&text).remove(0).unwrap();
        let aws = CrdSet::of_class(&Ec2NodeClassApi);
        let got = match classify(&aws, &manifest, api_version, kind) {
            ObjectClass::Own => "ours".to_owned(),
            ObjectClass::Wrong { field, fix, .. } => format!("{field}: {fix}"),
            ObjectClass::Part(of) => format!("part of {of}"),
            ObjectClass::Other(what) => format!("other {what}"),
        };
        assert_eq!(got, want, "{api_version} {kind}");
    }

    #[test]
    fn versions_and_kinds() {
        assert_class("karpenter.sh/v1", "NodePool", "ours");
        assert_class("karpenter.k8s.aws/v1", "EC2NodeClass", "ours");
        assert_class("karpenter.sh/v1alpha1", "NodeOverlay", "ours");
        assert_class("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", "ours");
        assert_class(
            "karpenter.sh/v1beta1",
            "NodePool",
            "apiVersion: write karpenter.sh/v1; `mortise migrate` converts it",
        );
        assert_class(
            "karpenter.sh/v1alpha5",
            "Provisioner",
            "apiVersion: write NodePool of karpenter.sh/v1; `mortise migrate` converts it",
        );
        assert_class(
            "karpenter.k8s.aws/v1alpha1",
            "AWSNodeTemplate",
            "apiVersion: write EC2NodeClass of karpenter.k8s.aws/v1; `mortise migrate` converts it",
        );
        assert_class(
            "v1",
            "NodePool",
            "apiVersion: write apiVersion: karpenter.sh/v1",
        );
        assert_class(
            "karpentr.sh/v1",
            "NodePool",
            "apiVersion: write apiVersion: karpenter.sh/v1",
        );
        assert_class(
            "karpenter.sh/v1",
            "EC2NodeClass",
            "apiVersion: write apiVersion: karpenter.k8s.aws/v1",
        );
        assert_class(
            "karpenter.sh/v1",
            "Nodepool",
            "kind: did you mean \"NodePool\"?",
        );
        assert_class(
            "karpenter.sh/v1",
            "Deployment",
            "kind: write one of them; kinds of other providers need --provider",
        );
        assert_class("apps/v1", "Deployment", "other Deployment");
        assert_class(
            "autoscaling.x-k8s.io/v1",
            "ProvisioningRequest",
            "other ProvisioningRequest",
        );
        assert_class(
            "hypershift.openshift.io/v1beta1",
            "NodePool",
            "other NodePool",
        );
    }
}
