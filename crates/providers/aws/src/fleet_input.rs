//! What a claim orders: the templates for all types that were chosen for it, and the fleet request on top of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use mortise_core::apis::ec2nodeclass_status::Ami;
use mortise_core::apis::nodeclaim::NodeClaim;
use mortise_core::cloud::{CapacityType, LaunchError};
use mortise_core::labels;
use mortise_core::resources::Resources;
use mortise_core::taints;
use serde_json::{Map, Value, json};

use crate::amis;
use crate::api::cluster::ClusterInfo;
use crate::fleet::{FleetRequest, Override};
use crate::instance_type::EFA;
use crate::launch::{create, refused};
use crate::launch_selection::LaunchSelection;
use crate::launch_templates::{self, LaunchTemplate};
use crate::node_class_cache::CachedNodeClass;
use crate::provider::AwsProvider;
use crate::tags;
use crate::user_data::{self, BootInputs};

/// A claim with what was chosen for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetInput<'a> {
    pub(crate) claim: &'a NodeClaim,
    pub(crate) uid: &'a str,
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) choice: &'a LaunchSelection<'a>,
    pub(crate) requests: &'a Resources,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
}

/// Machines that can share a template: same image, same most number of pods, same number of fabric adapters.
type TemplateKey = (String, i64, i64);

impl FleetInput<'_> {
    /// Overrides by the template that they need. An offering whose zone has no subnet with addresses is left out.
    fn overrides(&self, is_full: impl Fn(&str) -> bool) -> BTreeMap<TemplateKey, Vec<Override>> {
        let fabric = self.requests.extended(EFA) > 0;
        let mut kinds: BTreeMap<TemplateKey, Vec<Override>> = BTreeMap::new();
        for candidate in &self.choice.candidates {
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
                kinds
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
        kinds
    }

    /// Tags of everything that is made for the claim.
    fn tags(&self, cluster: &str) -> BTreeMap<String, String> {
        let mut tags = self.class.object.spec.tags.clone().unwrap_or_default();
        tags.insert(tags::cluster_tag(cluster), tags::OWNED.to_owned());
        tags.insert(tags::EKS_CLUSTER.to_owned(), cluster.to_owned());
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
}

impl AwsProvider {
    /// The request: all templates exist when it is returned.
    pub(crate) async fn fleet(&self, order: &FleetInput<'_>) -> Result<FleetRequest, LaunchError> {
        let cluster = self
            .cluster
            .get(&self.api, &self.config)
            .await
            .map_err(|failure| LaunchError::Other(failure.into()))?;
        let mut tags = order.tags(&self.config.cluster_name);
        let mut made = Vec::new();
        for ((image, pods, adapters), overrides) in
            order.overrides(|subnet| self.unavailable.is_subnet_full(subnet))
        {
            let Some(ami) = order.class.amis.iter().find(|ami| ami.id == image) else {
                continue;
            };
            let user_data = self.user_data(order, &cluster, ami, pods)?;
            made.push((
                self.template(order, ami, user_data, &tags, adapters),
                overrides,
            ));
        }
        if made.is_empty() {
            let message =
                "no capacity offerings are currently available given the constraints".to_owned();
            return Err(LaunchError::InsufficientCapacity {
                message,
                unavailable: Vec::new(),
            });
        }
        let names = futures::future::try_join_all(
            made.iter()
                .map(|(template, _)| self.ensure_template(template)),
        )
        .await
        .map_err(refused)?;
        tags.insert(tags::NODECLAIM.to_owned(), order.claim.name().to_string());
        tags.insert(tags::NODECLAIM_UID.to_owned(), order.uid.to_owned());
        let relaxed = order.claim.annotation(labels::MIN_VALUES_RELAXED) == Some("true");
        Ok(FleetRequest {
            token: self.attempts.token(order.uid),
            capacity_type: order.choice.capacity_type,
            by_priority: order
                .claim
                .annotation(labels::PRICE_OVERLAY_APPLIED)
                .is_some(),
            context: order.class.object.spec.context.clone().filter(|_| !relaxed),
            dedicated: order.dedicated,
            templates: names
                .into_iter()
                .zip(made.into_iter().map(|(_, overrides)| overrides))
                .collect(),
            tags,
        })
    }

    fn template(
        &self,
        order: &FleetInput<'_>,
        ami: &Ami,
        user_data: String,
        tags: &BTreeMap<String, String>,
        adapters: i64,
    ) -> LaunchTemplate {
        let class = order.class;
        let spec = &class.object.spec;
        LaunchTemplate {
            cluster: self.config.cluster_name.clone(),
            class: class.name().to_owned(),
            image: ami.id.clone(),
            user_data,
            profile: class.profile.clone(),
            groups: class.groups.iter().map(|group| group.id.clone()).collect(),
            spot: order.choice.capacity_type == CapacityType::Spot,
            tags: tags.clone(),
            disks: launch_templates::disks(spec, class.shape.family),
            ports: launch_templates::ports(spec, adapters),
            public_address: spec.associate_public_ip_address,
            prefixes: spec.ip_prefix_count,
            monitoring: spec.detailed_monitoring.unwrap_or(false),
            metadata: spec.metadata_options.clone().unwrap_or_default(),
            tracking: spec.connection_tracking.clone(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .and_then(|cpu| cpu.nested_virtualization.clone()),
            dedicated: order.dedicated,
        }
    }

    fn user_data(
        &self,
        order: &FleetInput<'_>,
        cluster: &ClusterInfo,
        ami: &Ami,
        pods: i64,
    ) -> Result<String, LaunchError> {
        let FleetInput {
            claim,
            class,
            choice,
            ..
        } = *order;
        let spec = &class.object.spec;
        let mut kubelet: Map<String, Value> = spec.kubelet.clone().unwrap_or_default();
        kubelet.insert("maxPods".to_owned(), pods.into());
        if let (false, Some(address)) =
            (kubelet.contains_key("clusterDNS"), &self.config.cluster_dns)
        {
            kubelet.insert("clusterDNS".to_owned(), json!([address]));
        }
        let own: Vec<Taint> = claim
            .spec
            .taints()
            .iter()
            .chain(claim.spec.startup_taints())
            .cloned()
            .collect();
        let mut node_labels = claim.metadata.labels.clone().unwrap_or_default();
        node_labels.insert(
            labels::CAPACITY_TYPE.to_owned(),
            choice.capacity_type.as_str().to_owned(),
        );
        node_labels.insert(labels::DO_NOT_SYNC_TAINTS.to_owned(), "true".to_owned());
        node_labels.retain(|key, _| user_data::kubelet_may_set(key));
        let version = amis::image_version(spec, ami);
        let inputs = BootInputs {
            cluster_name: &self.config.cluster_name,
            cluster_endpoint: &cluster.endpoint,
            ca_bundle: &cluster.ca_bundle,
            service_cidr: cluster.service_cidr.as_deref(),
            kubelet,
            taints: taints::merge(&own, &[taints::unregistered()]),
            labels: node_labels,
            raid0: class.shape.raid0,
            user_data: spec.user_data.as_deref().unwrap_or_default(),
            image_version: version.as_deref(),
        };
        user_data::render(class.shape.family, &inputs)
            .map_err(|error| create("UserDataInvalid", error.to_string()))
    }
}
