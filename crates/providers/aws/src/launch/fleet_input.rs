//! What a claim orders: the templates for all types that were selected for it, and the fleet request on top of them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::resources::Resources;
use mortise_apis::{labels, taints};
use mortise_aws_class::status::Ami;
use mortise_cloudprovider::{CapacityType, LaunchError};
use serde_json::{Map, Value, json};

use crate::config::AwsConfig;
use crate::launch::error::create_error;
use crate::launch::fleet_request::{FleetRequest, Override};
use crate::launch::selection::LaunchSelection;
use crate::launch::template::{self, LaunchTemplate};
use crate::node_class::{CachedNodeClass, amis};
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;
use crate::user_data::{self, BootInputs};
use mortise_aws_catalog::instance_type::EFA;

/// A claim with what was selected for it, and the cluster that its node joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetInput<'a> {
    pub(crate) config: &'a AwsConfig,
    pub(crate) cluster: &'a ClusterInfo,
    pub(crate) claim: &'a NodeClaim,
    pub(crate) uid: &'a str,
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) selection: &'a LaunchSelection<'a>,
    pub(crate) requests: &'a Resources,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
}

/// Instances that can share a template: same image, same most number of pods, same number of fabric adapters.
type TemplateKey = (String, i64, i64);

/// A template with the overrides that need it.
#[derive(Clone, Debug)]
pub(crate) struct TemplateOverrides {
    pub(crate) template: LaunchTemplate,
    pub(crate) overrides: Vec<Override>,
}

impl FleetInput<'_> {
    /// The templates that must exist before the request. Never empty. An offering whose zone has no subnet with addresses is left out.
    /// # Errors
    /// No offering is left, or the class's own user data is invalid.
    pub(crate) fn templates(
        &self,
        is_full: impl Fn(&str) -> bool,
    ) -> Result<Vec<TemplateOverrides>, LaunchError> {
        let tags = self.tags();
        let mut templates = Vec::new();
        for ((image, pods, adapters), overrides) in self.overrides(is_full) {
            let Some(ami) = self.class.amis.iter().find(|ami| ami.id == image) else {
                continue;
            };
            let user_data = self.user_data(ami, pods)?;
            templates.push(TemplateOverrides {
                template: self.template(ami, user_data, tags.clone(), adapters),
                overrides,
            });
        }
        if templates.is_empty() {
            return Err(LaunchError::InsufficientCapacity {
                message: "no capacity offerings are currently available given the constraints"
                    .to_owned(),
                unavailable: Vec::new(),
            });
        }
        Ok(templates)
    }

    /// The request, given the names of the templates.
    pub(crate) fn request(
        &self,
        token: String,
        templates: Vec<(String, Vec<Override>)>,
    ) -> FleetRequest {
        let Self { claim, .. } = self;
        let mut tags = self.tags();
        tags.insert(tags::NODECLAIM.to_owned(), claim.name().to_string());
        tags.insert(tags::NODECLAIM_UID.to_owned(), self.uid.to_owned());
        let relaxed = claim.annotation(labels::MIN_VALUES_RELAXED) == Some("true");
        let context = self.class.object.spec.context.clone();
        FleetRequest {
            token,
            capacity_type: self.selection.capacity_type,
            by_priority: claim.annotation(labels::PRICE_OVERLAY_APPLIED).is_some(),
            context: context.filter(|_| !relaxed),
            dedicated: self.dedicated,
            templates,
            tags,
        }
    }

    /// Overrides by the template that they need.
    fn overrides(&self, is_full: impl Fn(&str) -> bool) -> BTreeMap<TemplateKey, Vec<Override>> {
        let fabric = self.requests.extended(EFA) > 0;
        let mut by_template: BTreeMap<TemplateKey, Vec<Override>> = BTreeMap::new();
        for candidate in &self.selection.candidates {
            let each = candidate.instance_type;
            let Some(ami) = self.class.image(&each.name) else {
                continue;
            };
            let adapters = if fabric {
                each.capacity.extended(EFA)
            } else {
                0
            };
            for offering in &candidate.offerings {
                let in_zone = self.class.subnets.iter().filter(|found| {
                    *found.subnet.zone == *offering.zone && !is_full(&found.subnet.id)
                });
                let Some(found) = in_zone.max_by_key(|found| found.free) else {
                    continue;
                };
                by_template
                    .entry((ami.id.clone(), each.capacity.pods, adapters))
                    .or_default()
                    .push(Override {
                        instance_type: each.name.to_string(),
                        subnet: found.subnet.id.clone(),
                        zone: offering.zone.to_string(),
                        price: offering.price,
                    });
            }
        }
        by_template
    }

    /// Tags of everything that is created for the claim.
    fn tags(&self) -> BTreeMap<String, String> {
        let cluster = &self.config.cluster_name;
        let mut tags = self.class.object.spec.tags.clone().unwrap_or_default();
        tags.insert(tags::cluster_tag(cluster), tags::OWNED.to_owned());
        tags.insert(tags::EKS_CLUSTER.to_owned(), cluster.clone());
        tags.insert(
            tags::NODEPOOL.to_owned(),
            self.claim
                .label(labels::NODEPOOL)
                .unwrap_or_default()
                .to_owned(),
        );
        tags.insert(tags::NODE_CLASS.to_owned(), self.class.name().to_owned());
        tags
    }

    fn template(
        &self,
        ami: &Ami,
        user_data: String,
        tags: BTreeMap<String, String>,
        adapters: i64,
    ) -> LaunchTemplate {
        let class = self.class;
        let spec = &class.object.spec;
        LaunchTemplate {
            cluster: self.config.cluster_name.clone(),
            class: class.name().to_owned(),
            image: ami.id.clone(),
            user_data,
            profile: class.profile.clone(),
            groups: class.groups.iter().map(|group| group.id.clone()).collect(),
            spot: self.selection.capacity_type == CapacityType::Spot,
            tags,
            disks: template::disks(spec, class.settings.family),
            ports: template::ports(spec, adapters),
            public_address: spec.associate_public_ip_address,
            prefixes: spec.ip_prefix_count,
            monitoring: spec.detailed_monitoring.unwrap_or(false),
            metadata: spec.metadata_options.clone().unwrap_or_default(),
            tracking: spec.connection_tracking.clone(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .and_then(|cpu| cpu.nested_virtualization.clone()),
            dedicated: self.dedicated,
        }
    }

    fn user_data(&self, ami: &Ami, pods: i64) -> Result<String, LaunchError> {
        let Self {
            config,
            cluster,
            class,
            ..
        } = *self;
        let spec = &class.object.spec;
        let version = amis::image_version(spec, ami);
        let inputs = BootInputs {
            cluster_name: &config.cluster_name,
            cluster_endpoint: &cluster.endpoint,
            ca_bundle: &cluster.ca_bundle,
            service_cidr: cluster.service_cidr.as_deref(),
            kubelet: self.kubelet(pods),
            taints: self.taints(),
            labels: self.node_labels(),
            raid0: class.settings.raid0,
            user_data: spec.user_data.as_deref().unwrap_or_default(),
            image_version: version.as_deref(),
        };
        user_data::render(class.settings.family, &inputs)
            .map_err(|error| create_error("UserDataInvalid", error.to_string()))
    }

    /// Kubelet settings of the class, with the number of pods that the type takes.
    fn kubelet(&self, pods: i64) -> Map<String, Value> {
        let own = &self.class.object.spec.kubelet;
        let mut kubelet: Map<String, Value> = own.clone().unwrap_or_default();
        kubelet.insert("maxPods".to_owned(), pods.into());
        if let (false, Some(address)) =
            (kubelet.contains_key("clusterDNS"), &self.config.cluster_dns)
        {
            kubelet.insert("clusterDNS".to_owned(), json!([address]));
        }
        kubelet
    }

    /// Taints that the node registers with.
    fn taints(&self) -> Vec<Taint> {
        let spec = &self.claim.spec;
        let own = spec.taints().iter().chain(spec.startup_taints());
        let own: Vec<Taint> = own.cloned().collect();
        taints::merge(&own, &[taints::unregistered()])
    }

    /// Labels that the node registers with.
    fn node_labels(&self) -> BTreeMap<String, String> {
        let mut all = self.claim.metadata.labels.clone().unwrap_or_default();
        all.insert(
            labels::CAPACITY_TYPE.to_owned(),
            self.selection.capacity_type.as_str().to_owned(),
        );
        all.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        all.retain(|key, _| user_data::kubelet_may_set(key));
        all
    }
}
