//! Policy documents: what the controller may do, and who may assume the roles.

use serde_json::{Map, Value, json};

use super::installation::{Identity, Installation};
use super::permissions::{Area, Condition, GRANTS, Grant, Scope};
use super::template::{Placeholder, fill_document};

/// Most characters of a managed policy, white space not counted.
/// # Source
/// Quotas of IAM.
pub const SIZE_LIMIT: usize = 6144;

/// A managed policy of the controller. Texts have placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Name of the part: unique, letters and digits only.
    pub part: String,
    /// The document.
    pub document: Value,
}

impl Policy {
    /// Its name in the account; within the 128 characters that IAM allows.
    pub(super) fn name(&self) -> String {
        format!("Mortise{}-${{ClusterName}}", self.part)
    }
}

/// The longest values that placeholders can have, for the size of a policy before they are known.
fn longest(each: Placeholder) -> String {
    let length = match each {
        Placeholder::Partition => "aws-us-gov".len(),
        Placeholder::Region => "ap-northeast-1".len(),
        Placeholder::Account => 12,
        Placeholder::UrlSuffix => "amazonaws.com.cn".len(),
        Placeholder::ClusterName => 100,
        Placeholder::OidcProvider => 255,
    };
    "x".repeat(length)
}

/// How many characters of the limit a document needs at most.
pub(super) fn size(document: &Value) -> usize {
    let text = fill_document(document, &longest).to_string();
    text.chars()
        .filter(|letter| !letter.is_whitespace())
        .count()
}

fn document(statements: &[Value]) -> Value {
    json!({ "Version": "2012-10-17", "Statement": statements })
}

/// A list of texts in a policy; one alone is written without the list.
fn one_or_list(texts: Vec<String>) -> Value {
    match <[String; 1]>::try_from(texts) {
        Ok([only]) => Value::String(only),
        Err(texts) => texts.into(),
    }
}

/// The policies that the controller needs for an installation. Each is below [`SIZE_LIMIT`] with the longest names that AWS allows.
pub(super) fn controller_policies(installation: &Installation) -> Vec<Policy> {
    let mut policies = Vec::new();
    for area in Area::ALL {
        let mut parts: Vec<Vec<Value>> = Vec::new();
        let grants = GRANTS
            .iter()
            .filter(|grant| grant.area == area && installation.needs(grant.when));
        for grant in grants {
            let statement = statement(grant, installation);
            let last = parts.last_mut().filter(|part| {
                let longer: Vec<Value> = part.iter().chain([&statement]).cloned().collect();
                size(&document(&longer)) <= SIZE_LIMIT
            });
            match last {
                Some(part) => part.push(statement),
                None => parts.push(vec![statement]),
            }
        }
        for (number, statements) in parts.iter().enumerate() {
            let suffix = if number == 0 {
                String::new()
            } else {
                (number + 1).to_string()
            };
            policies.push(Policy {
                part: format!("{}{suffix}", area.name()),
                document: document(statements),
            });
        }
    }
    policies
}

fn statement(grant: &Grant, installation: &Installation) -> Value {
    let mut statement = json!({
        "Sid": grant.sid,
        "Effect": "Allow",
        "Action": one_or_list(grant.actions.iter().map(|&each| each.to_owned()).collect()),
        "Resource": one_or_list(resources(grant.scope, installation)),
    });
    if let (Some(condition), Some(fields)) = (condition(grant.condition), statement.as_object_mut())
    {
        fields.insert("Condition".to_owned(), condition);
    }
    statement
}

/// The resources of a scope, as ARNs.
fn resources(scope: Scope, installation: &Installation) -> Vec<String> {
    let ec2 = |kinds: &[&str]| -> Vec<String> {
        let of_amazon = |kind: &&str| ["image", "snapshot"].contains(kind);
        let owner = |kind| if of_amazon(kind) { "" } else { "*" };
        kinds
            .iter()
            .map(|kind| {
                format!(
                    "arn:${{Partition}}:ec2:${{Region}}:{}:{kind}/*",
                    owner(kind)
                )
            })
            .collect()
    };
    const LAUNCHED: [&str; 5] = [
        "fleet",
        "instance",
        "network-interface",
        "spot-instances-request",
        "volume",
    ];
    match scope {
        Scope::All => vec!["*".to_owned()],
        Scope::LaunchReferences => ec2(&[
            "capacity-reservation",
            "image",
            "placement-group",
            "security-group",
            "snapshot",
            "subnet",
        ]),
        Scope::Launched => ec2(&LAUNCHED),
        Scope::LaunchTemplates => ec2(&["launch-template"]),
        Scope::Created => {
            let mut all = ec2(&LAUNCHED);
            all.extend(ec2(&["launch-template"]));
            all
        }
        Scope::Instances => ec2(&["instance"]),
        Scope::Deletable => ec2(&["instance", "launch-template"]),
        Scope::NodeRole => vec![format!(
            "arn:${{Partition}}:iam::${{Account}}:role/{}",
            installation.node_role
        )],
        Scope::InstanceProfiles => {
            vec!["arn:${Partition}:iam::${Account}:instance-profile/*".to_owned()]
        }
        Scope::Parameters => {
            let public = "arn:${Partition}:ssm:${Region}::parameter/aws/service/*".to_owned();
            let own = installation.parameters.iter().map(|name| {
                format!("arn:${{Partition}}:ssm:${{Region}}:${{Account}}:parameter{name}")
            });
            std::iter::once(public).chain(own).collect()
        }
        Scope::Cluster => {
            vec!["arn:${Partition}:eks:${Region}:${Account}:cluster/${ClusterName}".to_owned()]
        }
        Scope::Queue => vec![format!(
            "arn:${{Partition}}:sqs:${{Region}}:${{Account}}:{}",
            installation.queue.as_deref().unwrap_or("*")
        )],
    }
}

const CLUSTER_TAG: &str = "kubernetes.io/cluster/${ClusterName}";
const CLUSTER_NAME_TAG: &str = "eks:eks-cluster-name";
const NODEPOOL_TAG: &str = "karpenter.sh/nodepool";
const NODE_CLASS_TAG: &str = "karpenter.k8s.aws/ec2nodeclass";
const REGION_TAG: &str = "topology.kubernetes.io/region";
/// Tags that are set after the launch: names that are not known before, and the owner of an instance that a shared request made.
const LATE_TAGS: [&str; 4] = [
    "Name",
    CLUSTER_NAME_TAG,
    "karpenter.sh/nodeclaim",
    "mortise.sh/nodeclaim-uid",
];

/// Condition keys of tags, with their values.
fn tags(of: &str, tags: &[(&str, &str)]) -> Value {
    let keys = tags
        .iter()
        .map(|(tag, value)| (format!("aws:{of}/{tag}"), json!(value)));
    Value::Object(keys.collect::<Map<_, _>>())
}

/// Puts the fields of the second object into the first.
fn merged(mut first: Value, second: Value) -> Value {
    if let (Some(fields), Value::Object(more)) = (first.as_object_mut(), second) {
        fields.extend(more);
    }
    first
}

fn condition(condition: Condition) -> Option<Value> {
    let owned = (CLUSTER_TAG, "owned");
    let cluster = (CLUSTER_NAME_TAG, "${ClusterName}");
    let region = (REGION_TAG, "${Region}");
    let pool = (NODEPOOL_TAG, "*");
    let class = (NODE_CLASS_TAG, "*");
    Some(match condition {
        Condition::None => return None,
        Condition::InRegion => json!({ "StringEquals": { "aws:RequestedRegion": "${Region}" } }),
        Condition::Owned => json!({
            "StringEquals": tags("ResourceTag", &[owned]),
            "StringLike": tags("ResourceTag", &[pool]),
        }),
        Condition::Owning => json!({
            "StringEquals": tags("RequestTag", &[owned, cluster]),
            "StringLike": tags("RequestTag", &[pool]),
        }),
        Condition::OwningAtCreation => {
            let calls = ["CreateFleet", "CreateLaunchTemplate", "RunInstances"];
            let creation = json!({ "ec2:CreateAction": calls });
            json!({
                "StringEquals": merged(tags("RequestTag", &[owned, cluster]), creation),
                "StringLike": tags("RequestTag", &[pool]),
            })
        }
        Condition::LateTags => json!({
            "StringEquals": tags("ResourceTag", &[owned]),
            "StringLike": tags("ResourceTag", &[pool]),
            "StringEqualsIfExists": tags("RequestTag", &[cluster]),
            "ForAllValues:StringEquals": { "aws:TagKeys": LATE_TAGS },
        }),
        Condition::PassedToInstances => json!({
            "StringEquals": { "iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] },
        }),
        Condition::ProfileOwning => json!({
            "StringEquals": tags("RequestTag", &[owned, cluster, region]),
            "StringLike": tags("RequestTag", &[class]),
        }),
        Condition::ProfileRetagged => json!({
            "StringEquals": merged(
                tags("ResourceTag", &[owned, region]),
                tags("RequestTag", &[owned, cluster, region]),
            ),
            "StringLike": merged(tags("ResourceTag", &[class]), tags("RequestTag", &[class])),
        }),
        Condition::ProfileOwned => json!({
            "StringEquals": tags("ResourceTag", &[owned, region]),
            "StringLike": tags("ResourceTag", &[class]),
        }),
    })
}

/// Who may assume the role of the nodes: instances.
pub(super) fn node_trust() -> Value {
    document(&[json!({
        "Effect": "Allow",
        "Principal": { "Service": "ec2.${UrlSuffix}" },
        "Action": "sts:AssumeRole",
    })])
}

/// Who may assume the role of the controller: its service account in this cluster, and no other pod.
pub(super) fn controller_trust(installation: &Installation) -> Value {
    let Installation {
        namespace,
        service_account,
        ..
    } = installation;
    document(&[match installation.identity {
        Identity::PodIdentity => json!({
            "Effect": "Allow",
            "Principal": { "Service": "pods.eks.amazonaws.com" },
            "Action": ["sts:AssumeRole", "sts:TagSession"],
            "Condition": { "StringEquals": {
                "aws:RequestTag/eks-cluster-arn": "arn:${Partition}:eks:${Region}:${Account}:cluster/${ClusterName}",
                "aws:RequestTag/kubernetes-namespace": namespace,
                "aws:RequestTag/kubernetes-service-account": service_account,
            } },
        }),
        Identity::Irsa => json!({
            "Effect": "Allow",
            "Principal": { "Federated": "arn:${Partition}:iam::${Account}:oidc-provider/${OidcProvider}" },
            "Action": "sts:AssumeRoleWithWebIdentity",
            "Condition": { "StringEquals": {
                "${OidcProvider}:aud": "sts.amazonaws.com",
                "${OidcProvider}:sub": format!("system:serviceaccount:{namespace}:{service_account}"),
            } },
        }),
    }])
}

/// Policies of Amazon that the nodes' role needs: the network plugin, the node itself, images, and sessions for people.
pub(super) const NODE_POLICIES: [&str; 4] = [
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonSSMManagedInstanceCore",
];
