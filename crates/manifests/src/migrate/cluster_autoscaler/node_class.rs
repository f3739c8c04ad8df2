//! The EC2NodeClasses of node groups.

use mortise_aws_class::conversion::alias;
use mortise_aws_class::labels::GROUP;

use super::group::{ClassTemplate, GroupDisk};
use super::images::is_windows;
use super::merge::{MergedGroups, unique, valid_name};
use crate::migrate::MigrateOptions;
use crate::migrate::edit::new_object;
use crate::migrate::finding::{Code, FindingLog};
use crate::yaml::YamlNode;

/// Tag of subnets and security groups that Karpenter's guides use.
const DISCOVERY: &str = "karpenter.sh/discovery";
/// Written where the name of the cluster is not known.
const NO_NAME: &str = "${CLUSTER_NAME}";

/// A node class, and the NodePools that use it.
pub(super) struct PlannedClass {
    pub(super) name: String,
    template: ClassTemplate,
    subnets: Vec<String>,
    /// Index of the first of its NodePools.
    pub(super) first: usize,
}

/// The classes of NodePools: one for all with the same settings. The index of each NodePool's class, and the classes.
pub(super) fn plan(
    pools: &[MergedGroups],
    cluster: Option<&str>,
) -> (Vec<usize>, Vec<PlannedClass>) {
    let mut classes: Vec<PlannedClass> = Vec::new();
    let mut of_pools = Vec::new();
    for (first, pool) in pools.iter().enumerate() {
        let group = &pool.group;
        let mut subnets = group.subnets.clone();
        subnets.sort_unstable();
        let mut template = group.class.clone();
        template.tags.sort_unstable();
        let known = classes
            .iter()
            .position(|class| class.template == template && class.subnets == subnets);
        of_pools.push(known.unwrap_or_else(|| {
            classes.push(PlannedClass {
                name: String::new(),
                template,
                subnets,
                first,
            });
            classes.len() - 1
        }));
    }
    let is_single = classes.len() == 1;
    let mut taken = Vec::new();
    for class in &mut classes {
        let of_pool = pools.get(class.first).map_or("", |pool| &pool.name);
        let name = if is_single {
            valid_name(cluster.unwrap_or("default"))
        } else {
            of_pool.to_owned()
        };
        class.name = unique(&name, &taken);
        taken.push(class.name.clone());
    }
    (of_pools, classes)
}

impl PlannedClass {
    /// The object. What is not known is reported at a line of the group that it is of.
    pub(super) fn object(
        &self,
        options: &MigrateOptions,
        line: usize,
        log: &mut FindingLog<'_>,
    ) -> YamlNode {
        let template = &self.template;
        let name = YamlNode::string(&self.name);
        let mut object = new_object(&format!("{GROUP}/v1"), "EC2NodeClass", name);
        let spec = object.make(&["spec"]);
        self.images(spec, line, log);
        self.identity(spec, options, line, log);
        self.network(spec, line, log);
        if template.is_private == Some(true) {
            spec.set("associatePublicIPAddress", YamlNode::plain("false"));
        }
        if !template.disks.is_empty() {
            let disks = template.disks.iter().map(disk);
            spec.set("blockDeviceMappings", YamlNode::list(disks));
        }
        if let Some(hops) = template.hop_limit {
            let options = spec.make(&["metadataOptions"]);
            options.set(
                "httpPutResponseHopLimit",
                YamlNode::plain(&hops.to_string()),
            );
            log.converted(
                Code::Added,
                line,
                "spec.metadataOptions.httpPutResponseHopLimit",
                format!(
                    "{hops}, as eksctl sets it: pods reach the metadata service. The default is 1"
                ),
            );
        }
        if let Some(kubelet) = &template.kubelet {
            spec.set("kubelet", YamlNode::from_json(kubelet));
        }
        if let Some(data) = &template.user_data {
            spec.set("userData", YamlNode::string(data));
        }
        if !template.tags.is_empty() {
            let tags = spec.make(&["tags"]);
            for (key, value) in &template.tags {
                tags.set(key, YamlNode::string(value));
            }
        }
        if template.detailed_monitoring {
            spec.set("detailedMonitoring", YamlNode::plain("true"));
        }
        if let Some(name) = &template.placement_group {
            spec.make(&["placementGroupSelector"])
                .set("name", YamlNode::string(name));
        }
        if !template.reservations.is_empty() {
            spec.set(
                "capacityReservationSelectorTerms",
                ids(&template.reservations),
            );
        }
        object
    }

    fn images(&self, spec: &mut YamlNode, line: usize, log: &mut FindingLog<'_>) {
        let ClassTemplate {
            family,
            images,
            has_no_alias,
            ..
        } = &self.template;
        let field = "spec.amiSelectorTerms";
        match (family, images.is_empty()) {
            (Some(family), true) if !has_no_alias => {
                let Some(alias) = alias(family, "latest") else {
                    return;
                };
                spec.set(
                    "amiSelectorTerms",
                    YamlNode::list([term("alias", YamlNode::string(&alias))]),
                );
                let pin = if is_windows(family) {
                    "select images by id"
                } else {
                    "write a version instead of latest"
                };
                log.warning(Code::Behaviour, line, field, format!("{alias}: nodes are replaced when there is a newer image (drift, within the budgets); {pin} to decide when"));
            }
            (family, false) => {
                spec.set("amiFamily", YamlNode::plain(family.unwrap_or("AL2023")));
                spec.set("amiSelectorTerms", ids(images));
                if family.is_none() {
                    log.warning(Code::Missing, line, "spec.amiFamily", "AL2023: write the family of the images, if it is another: it decides on the format of the user data");
                }
            }
            // It was reported where it stands.
            (Some(family), true) => spec.set("amiFamily", YamlNode::plain(family)),
            (None, true) => log.error(
                Code::Missing,
                line,
                field,
                "which images to boot: an alias like al2023@latest, or terms that select them",
            ),
        }
        if *family == Some("AL2") {
            log.warning(Code::Unsupported, line, field, "there are no AL2 images for Kubernetes 1.33 and later: AL2023 (alias al2023@latest) takes user data in another form");
        }
    }

    /// Exactly one of role and instance profile.
    fn identity(
        &self,
        spec: &mut YamlNode,
        options: &MigrateOptions,
        line: usize,
        log: &mut FindingLog<'_>,
    ) {
        let given = |text: &String| format!("{text}, as specified");
        if let Some(role) = &self.template.role {
            spec.set("role", YamlNode::string(role));
        } else if let Some(role) = &options.role {
            spec.set("role", YamlNode::string(role));
            log.converted(Code::Added, line, "spec.role", given(role));
        } else if let Some(profile) = self.template.instance_profile.as_ref() {
            spec.set("instanceProfile", YamlNode::string(profile));
        } else if let Some(profile) = &options.instance_profile {
            spec.set("instanceProfile", YamlNode::string(profile));
            log.converted(Code::Added, line, "spec.instanceProfile", given(profile));
        } else {
            log.error(Code::Missing, line, "spec.role", "the IAM role of the nodes is not part of the input: set it with --role or --instance-profile");
        }
    }

    fn network(&self, spec: &mut YamlNode, line: usize, log: &mut FindingLog<'_>) {
        let template = &self.template;
        let cluster = template.cluster.as_deref();
        let name = cluster.unwrap_or(NO_NAME);
        let by_tag = || {
            let mut tags = YamlNode::map();
            tags.set(DISCOVERY, YamlNode::string(name));
            term("tags", tags)
        };
        let mut unknown = Vec::new();
        if self.subnets.is_empty() {
            unknown.push(match template.is_private {
                Some(true) => "the private subnets",
                Some(false) => "the public subnets",
                None => "the subnets",
            });
            spec.set("subnetSelectorTerms", YamlNode::list([by_tag()]));
        } else {
            spec.set("subnetSelectorTerms", ids(&self.subnets));
        }
        let mut groups = ids(&template.security_groups);
        if template.security_groups.is_empty() || !template.no_other_groups {
            unknown.push("the security groups of the nodes");
            if let Some(items) = groups.items_mut() {
                items.extend(YamlNode::list([by_tag()]).items().iter().cloned());
            }
        }
        spec.set("securityGroupSelectorTerms", groups);
        if unknown.is_empty() {
            return;
        }
        let what = unknown.join(" and ");
        let field = if self.subnets.is_empty() {
            "spec.subnetSelectorTerms"
        } else {
            "spec.securityGroupSelectorTerms"
        };
        if cluster.is_none() {
            log.error(Code::Missing, line, field, format!("the name of the cluster is not part of the input: set it with --cluster-name, and give the tag {DISCOVERY} with it to {what}"));
        } else {
            log.warning(
                Code::Missing,
                line,
                field,
                format!("give the tag {DISCOVERY}={name} to {what}, or write their ids instead"),
            );
        }
    }
}

fn term(key: &str, value: YamlNode) -> YamlNode {
    let mut term = YamlNode::map();
    term.set(key, value);
    term
}

/// A list of terms, each with an id.
fn ids(all: &[String]) -> YamlNode {
    YamlNode::list(all.iter().map(|id| term("id", YamlNode::string(id))))
}

fn disk(disk: &GroupDisk) -> YamlNode {
    let mut mapping = term("deviceName", YamlNode::string(&disk.device));
    let ebs = mapping.make(&["ebs"]);
    for (field, value) in &disk.ebs {
        let is_text = matches!(*field, "volumeSize" | "volumeType" | "kmsKeyID");
        let value = if is_text {
            YamlNode::string(value)
        } else {
            YamlNode::plain(value)
        };
        ebs.set(field, value);
    }
    mapping
}
