//! The service account may do what stands here and nothing else: every verb on every resource that the API server serves is
//! asked about.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use mortise_tests::harness::{ControlPlane, Mortise, wait_until};

use crate::scene::{SOON, turn};

/// Verbs of RBAC, those that give rights away among them.
const VERBS: [&str; 14] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "bind",
    "escalate",
    "impersonate",
    "approve",
    "sign",
    "use",
];
const READ: &[&str] = &["get", "list", "watch"];
const OWN_NAMESPACE: &str = "kube-system";

/// Group, resource, verbs: on any object in any namespace.
const EVERYWHERE: &[(&str, &str, &[&str])] = &[
    ("", "pods", READ),
    ("", "pods", &["delete"]),
    ("", "pods/eviction", &["create"]),
    ("", "nodes", READ),
    ("", "nodes", &["patch", "delete"]),
    ("", "namespaces", READ),
    ("", "persistentvolumes", READ),
    ("", "persistentvolumeclaims", READ),
    ("", "services", READ),
    ("", "replicationcontrollers", READ),
    ("", "events", &["create", "patch"]),
    ("", "podtemplates", READ),
    ("apps", "daemonsets", READ),
    ("apps", "deployments", READ),
    ("apps", "replicasets", READ),
    ("apps", "statefulsets", READ),
    ("policy", "poddisruptionbudgets", READ),
    ("storage.k8s.io", "storageclasses", READ),
    ("storage.k8s.io", "csinodes", READ),
    ("storage.k8s.io", "volumeattachments", READ),
    ("resource.k8s.io", "deviceclasses", READ),
    ("resource.k8s.io", "resourceclaims", READ),
    ("resource.k8s.io", "resourceclaimtemplates", READ),
    ("resource.k8s.io", "resourceslices", READ),
    ("karpenter.sh", "nodepools", READ),
    ("karpenter.sh", "nodepools", &["patch"]),
    ("karpenter.sh", "nodepools/status", &["patch"]),
    ("karpenter.sh", "nodeclaims", READ),
    ("karpenter.sh", "nodeclaims", &["create", "patch", "delete"]),
    ("karpenter.sh", "nodeclaims/status", &["patch"]),
    ("karpenter.sh", "nodeoverlays", READ),
    ("karpenter.sh", "nodeoverlays/status", &["patch"]),
    ("mortise.sh", "nodepoolpolicies", READ),
    ("mortise.sh", "nodepoolpolicies/status", &["patch"]),
    ("autoscaling.x-k8s.io", "capacitybuffers", READ),
    ("autoscaling.x-k8s.io", "capacitybuffers", &["patch"]),
    ("autoscaling.x-k8s.io", "capacitybuffers/status", &["patch"]),
    ("autoscaling.x-k8s.io", "provisioningrequests", READ),
    (
        "autoscaling.x-k8s.io",
        "provisioningrequests/status",
        &["patch"],
    ),
    ("authentication.k8s.io", "tokenreviews", &["create"]),
    ("authorization.k8s.io", "subjectaccessreviews", &["create"]),
    // Of everybody who has a name.
    ("authentication.k8s.io", "selfsubjectreviews", &["create"]),
    (
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        &["create"],
    ),
    (
        "authorization.k8s.io",
        "selfsubjectrulesreviews",
        &["create"],
    ),
];
const KWOK: &[(&str, &str, &[&str])] = &[
    ("", "nodes", &["create"]),
    ("karpenter.kwok.sh", "kwoknodeclasses", READ),
    ("karpenter.kwok.sh", "kwoknodeclasses", &["patch"]),
    ("karpenter.kwok.sh", "kwoknodeclasses/status", &["patch"]),
];
const AWS: &[(&str, &str, &[&str])] = &[
    ("karpenter.k8s.aws", "ec2nodeclasses", READ),
    ("karpenter.k8s.aws", "ec2nodeclasses", &["patch"]),
    ("karpenter.k8s.aws", "ec2nodeclasses/status", &["patch"]),
];
/// Group, resource, name, verbs; the first two in the own namespace only.
const SECRET: (&str, &str, &str, &[&str]) = (
    "",
    "secrets",
    "mortise-cert",
    &["get", "create", "update", "patch"],
);
const LEASE: (&str, &str, &str, &[&str]) = (
    "coordination.k8s.io",
    "leases",
    "karpenter-leader-election",
    &["get", "create", "update"],
);
const CONFIGURATIONS: [(&str, &str); 2] = [
    ("validatingwebhookconfigurations", "validation.mortise.sh"),
    ("mutatingwebhookconfigurations", "defaulting.mortise.sh"),
];
const DEFINITION: (&str, &str, &str, &[&str]) = (
    "apiextensions.k8s.io",
    "customresourcedefinitions",
    "nodepools.karpenter.sh",
    &["get", "patch"],
);

/// The range of Services, which user data of nodes on AWS has.
const SERVICE_RANGE: (&str, &str, &str, &[&str]) =
    ("networking.k8s.io", "servicecidrs", "kubernetes", &["get"]);

/// Verb, group, resource, namespace, name.
type Right = (&'static str, String, String, &'static str, &'static str);

/// Every resource that the API server serves, with its subresources; and what other clusters serve besides.
async fn resources(plane: &ControlPlane) -> Result<BTreeSet<(String, String)>> {
    let client = plane.client();
    let mut all: BTreeSet<(String, String)> = BTreeSet::new();
    let core = client.list_core_api_resources("v1").await?;
    all.extend(
        core.resources
            .into_iter()
            .map(|each| (String::new(), each.name)),
    );
    for group in client.list_api_groups().await?.groups {
        for version in group.versions {
            let served = client
                .list_api_group_resources(&version.group_version)
                .await?;
            let names = served.resources.into_iter().map(|each| each.name);
            all.extend(names.map(|name| (group.name.clone(), name)));
        }
    }
    let known = EVERYWHERE.iter().chain(KWOK).chain(AWS);
    all.extend(known.map(|(group, resource, _)| ((*group).to_owned(), (*resource).to_owned())));
    let more = [
        ("", "users"),
        ("", "groups"),
        ("", "*"),
        ("*", "*"),
        ("", "secrets/*"),
    ];
    all.extend(more.map(|(group, resource)| (group.to_owned(), resource.to_owned())));
    Ok(all)
}

async fn allowed(
    api: &Api<SubjectAccessReview>,
    account: &str,
    (verb, group, resource, namespace, name): &Right,
) -> Result<bool> {
    let (resource, subresource) = match resource.split_once('/') {
        Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
        None => (resource.as_str(), None),
    };
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(format!("system:serviceaccount:{OWN_NAMESPACE}:{account}")),
            groups: Some(
                [
                    "system:serviceaccounts",
                    "system:serviceaccounts:kube-system",
                    "system:authenticated",
                ]
                .map(str::to_owned)
                .to_vec(),
            ),
            resource_attributes: Some(ResourceAttributes {
                verb: Some((*verb).to_owned()),
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource,
                namespace: Some((*namespace).to_owned()),
                name: Some((*name).to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.context("an answer")?.allowed)
}

/// Asks about all of them; those that are allowed.
async fn ask(plane: &ControlPlane, account: &str, all: Vec<Right>) -> Result<BTreeSet<Right>> {
    let api: Api<SubjectAccessReview> = Api::all(plane.client());
    let answers = futures::stream::iter(all).map(|right| {
        let api = api.clone();
        async move { anyhow::Ok((allowed(&api, account, &right).await?, right)) }
    });
    let answers: Vec<(bool, Right)> = answers.buffer_unordered(16).try_collect().await?;
    Ok(answers
        .into_iter()
        .filter_map(|(allowed, right)| allowed.then_some(right))
        .collect())
}

/// What is allowed beyond `wide` and `named` or not allowed of it, and how many questions that took.
async fn compare(
    plane: &ControlPlane,
    account: &str,
    wide: &[&[(&str, &str, &[&'static str])]],
    named: &[(
        &'static str,
        &'static str,
        &'static str,
        &'static [&'static str],
    )],
) -> Result<usize> {
    // A right without a name is a right to an object of any name: one name stands for all that are not named.
    const ANY: &str = "any-other";
    let resources = resources(plane).await?;
    let names: BTreeMap<(&str, &str), &'static str> = [SECRET, LEASE, DEFINITION, SERVICE_RANGE]
        .iter()
        .map(|(group, resource, name, _)| ((*group, *resource), *name))
        .chain(
            CONFIGURATIONS
                .map(|(resource, name)| (("admissionregistration.k8s.io", resource), name)),
        )
        .collect();
    let mut questions = Vec::new();
    for (group, resource) in &resources {
        let name = names.get(&(group.as_str(), resource.as_str()));
        for name in std::iter::once(&ANY).chain(name) {
            for namespace in [OWN_NAMESPACE, "default"] {
                questions.extend(
                    VERBS.map(|verb| (verb, group.clone(), resource.clone(), namespace, *name)),
                );
            }
        }
    }
    let mut want: BTreeSet<Right> = BTreeSet::new();
    for right in &questions {
        let (verb, group, resource, namespace, name) = right;
        let is_wide = wide
            .iter()
            .flat_map(|list| list.iter())
            .any(|(g, r, verbs)| g == group && r == resource && verbs.contains(verb));
        let is_named = named.iter().any(|(g, r, n, verbs)| {
            let local = ["secrets", "leases"].contains(r);
            g == group
                && r == resource
                && n == name
                && verbs.contains(verb)
                && (!local || *namespace == OWN_NAMESPACE)
        });
        if is_wide || is_named {
            want.insert(right.clone());
        }
    }
    let count = questions.len();
    let have = ask(plane, account, questions).await?;
    let more: Vec<_> = have.difference(&want).collect();
    let less: Vec<_> = want.difference(&have).collect();
    ensure!(more.is_empty(), "{account} may besides: {more:?}");
    ensure!(less.is_empty(), "{account} may not: {less:?}");
    Ok(count)
}

#[tokio::test]
async fn nothing_outside_the_list_is_allowed() -> Result<()> {
    let _turn = turn().await?;
    let crds = Mortise::output(&["manifests", "crds"]).await?;
    let plane = Box::pin(ControlPlane::builder().manifests(&crds).start()).await?;
    for flags in [
        &["--provider=kwok"][..],
        &["--provider=aws", "--certificates-given", "--name=on-aws"],
        &[
            "--conversion",
            "--name=of-both",
            "--pod-deletion-costs",
            "--hand-over",
        ],
    ] {
        let manifests = Mortise::output(&[&["manifests", "rbac"], flags].concat()).await?;
        plane.apply_yaml(&manifests).await?;
    }
    // The authorizer reads roles and bindings from watches of its own.
    let (group, resource, name, _) = LEASE;
    wait_until("the rights to be known", SOON, || async {
        for account in ["mortise", "on-aws", "of-both"] {
            let right = (
                "update",
                group.to_owned(),
                resource.to_owned(),
                OWN_NAMESPACE,
                name,
            );
            let all = ask(&plane, account, vec![right]).await?;
            ensure!(all.len() == 1, "{account}");
        }
        Ok(())
    })
    .await?;
    let configurations = CONFIGURATIONS.map(|(resource, name)| {
        const VERBS: &[&str] = &["get", "patch"];
        ("admissionregistration.k8s.io", resource, name, VERBS)
    });
    let with = |more: &[_]| [&configurations[..], more].concat();
    let asked = compare(
        &plane,
        "mortise",
        &[EVERYWHERE, KWOK],
        &with(&[SECRET, LEASE]),
    )
    .await?;
    ensure!(asked > 2_000, "{asked} questions: are all resources there?");
    let on_aws = with(&[LEASE, SERVICE_RANGE]);
    compare(&plane, "on-aws", &[EVERYWHERE, AWS], &on_aws).await?;
    let all = with(&[SECRET, LEASE, DEFINITION, SERVICE_RANGE]);
    let deletion_costs: &[(&str, &str, &[&str])] = &[("", "pods", &["patch"])];
    let restarts: &[(&str, &str, &[&str])] = &[("apps", "deployments", &["patch"])];
    let everywhere = [EVERYWHERE, KWOK, AWS, deletion_costs, restarts];
    compare(&plane, "of-both", &everywhere, &all).await?;
    plane.stop().await;
    Ok(())
}
