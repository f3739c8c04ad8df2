//! What a claim orders: the templates for all types that were selected for it, and the fleet request on top of them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Taint;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::resources::Resources;
use mortise_apis::values::Quantity;
use mortise_apis::{labels, taints};
use mortise_aws_class::labels::CAPACITY_BLOCK;
use mortise_aws_class::status::Ami;
use mortise_cloudprovider::{CapacityType, InstanceType, LaunchError, Offering};
use serde_json::{Map, Value, json};

use crate::config::AwsConfig;
use crate::launch::batch_request::BatchRequest;
use crate::launch::client_tokens::ClientToken;
use crate::launch::error::{no_template, template_error};
use crate::launch::filters::ReservationKind;
use crate::launch::fleet_request::{FleetRequest, Override};
use crate::launch::launch_price::LaunchPrice;
use crate::launch::selection::{LaunchSelection, no_offerings};
use crate::launch::subnet_addresses::ChosenSubnet;
use crate::launch::template::{self, LaunchTemplate, ReservationTarget};
use crate::node_class::{CachedNodeClass, amis};
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;
use crate::user_data::{self, BootInputs, UserDataError};
use mortise_aws_catalog::expression_values::ReservedTexts;
use mortise_aws_catalog::instance_type::EFA;

/// Resource of pods that run in Nitro enclaves.
const NITRO_SANDBOX: &str = "eks.amazonaws.com/nitro-sandbox";

/// The cluster that a node joins, and the network it is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeNetwork<'a> {
    pub(crate) cluster: &'a ClusterInfo,
    /// Pods have IPv6 addresses.
    pub(crate) ipv6: bool,
}

impl<'a> NodeNetwork<'a> {
    /// The network of a cluster: its addresses say which kind they are.
    pub(crate) fn of(cluster: &'a ClusterInfo, config: &AwsConfig) -> Self {
        let is_ipv6 = |address: Option<&str>| address.is_some_and(|address| address.contains(':'));
        Self {
            cluster,
            ipv6: is_ipv6(config.cluster_dns.as_deref())
                || is_ipv6(cluster.service_cidr.as_deref()),
        }
    }
}

/// A claim with what was selected for it, and the cluster that its node joins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetInput<'a> {
    pub(crate) config: &'a AwsConfig,
    pub(crate) region: &'a str,
    pub(crate) network: NodeNetwork<'a>,
    /// The claim, or one of several that differ in nothing that the request has.
    pub(crate) claim: &'a NodeClaim,
    pub(crate) uid: &'a str,
    /// How many claims.
    pub(crate) count: usize,
    /// Token of the batch that they are launched in.
    pub(crate) batch: Option<&'a str>,
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) selection: &'a LaunchSelection<'a>,
    pub(crate) requests: &'a Resources,
    /// On hardware of one's own.
    pub(crate) dedicated: bool,
    /// Partition of the placement group, if the claim asks for some.
    pub(crate) partition: Option<i32>,
    /// Reserved amounts that the class gives as expressions, by instance type.
    pub(crate) reserved: &'a BTreeMap<Arc<str>, ReservedTexts>,
}

/// Instances that can share a template: same image, same most number of pods, same number of fabric adapters, same reservation, same
/// reserved amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TemplateKey<'a> {
    image: &'a str,
    pods: i64,
    adapters: i64,
    reservation: Option<&'a str>,
    reserved: Option<&'a ReservedTexts>,
}

/// A template with the overrides that need it.
#[derive(Clone, Debug)]
pub(crate) struct TemplateOverrides {
    pub(crate) template: LaunchTemplate,
    pub(crate) overrides: Vec<Override>,
}

impl FleetInput<'_> {
    /// How many addresses the instances take at least, by zone where they may be.
    pub(crate) fn addresses(&self) -> BTreeMap<String, i64> {
        let mut need: BTreeMap<String, i64> = BTreeMap::new();
        for candidate in &self.selection.candidates {
            let pods = candidate.instance_type.capacity.pods;
            for offering in &candidate.offerings {
                let zone = need.entry(offering.zone.to_string()).or_insert(pods);
                *zone = pods.min(*zone);
            }
        }
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        for zone in need.values_mut() {
            *zone = zone.saturating_mul(count);
        }
        need
    }

    /// The templates that must exist before the request. Never empty.
    /// # Errors
    /// The class lacks what every template needs, no offering is left, or the class's own user data is invalid.
    pub(crate) fn templates(
        &self,
        subnets: &BTreeMap<String, ChosenSubnet>,
    ) -> Result<Vec<TemplateOverrides>, LaunchError> {
        let class = self.class;
        if class.groups.is_empty() {
            return Err(no_template("no security groups are present in the status"));
        }
        if class.amis.is_empty() {
            return Err(no_template("no amis exist given constraints"));
        }
        let mut candidates = self.selection.candidates.iter();
        if !candidates.any(|each| class.image(&each.instance_type.name).is_some()) {
            let ids: Vec<&str> = class.amis.iter().map(|ami| &*ami.id).collect();
            return Err(no_template(format!(
                "no instance types satisfy requirements of amis [{}]",
                ids.join(" ")
            )));
        }
        let tags = self.tags();
        let mut templates = Vec::new();
        for (key, overrides) in self.overrides(subnets) {
            let Some(ami) = class.amis.iter().find(|ami| ami.id == key.image) else {
                continue;
            };
            let user_data = self.user_data(ami, key)?;
            templates.push(TemplateOverrides {
                template: self.template(key, user_data, tags.clone()),
                overrides,
            });
        }
        if templates.is_empty() {
            return Err(no_offerings());
        }
        Ok(templates)
    }

    /// The template for an on-demand instance of a type that asks for nothing special, wherever it is launched.
    /// # Errors
    /// The class's own user data is invalid, or none of its images boots the type.
    pub(crate) fn template_of(
        &self,
        instance_type: &InstanceType,
    ) -> Result<LaunchTemplate, LaunchError> {
        let image = self.class.image(&instance_type.name);
        let image = image.ok_or_else(|| no_template("no amis exist given constraints"))?;
        let key = TemplateKey {
            image: &image.id,
            pods: instance_type.capacity.pods,
            adapters: 0,
            reservation: None,
            reserved: self.reserved.get(&instance_type.name),
        };
        let user_data = self.user_data(image, key)?;
        Ok(self.template(key, user_data, self.tags()))
    }

    /// The request, given the names of the templates.
    pub(crate) fn request(
        &self,
        token: ClientToken,
        templates: Vec<(String, Vec<Override>)>,
    ) -> FleetRequest {
        let Self { claim, count, .. } = *self;
        let mut tags = self.tags();
        // The instances of several claims get the name of theirs later: all that a request makes has the same tags.
        if count == 1 {
            tags.insert(tags::NODECLAIM.to_owned(), claim.name().to_string());
            tags.insert(tags::NODECLAIM_UID.to_owned(), self.uid.to_owned());
        }
        if let Some(batch) = self.batch {
            tags.insert(tags::LAUNCH_BATCH.to_owned(), batch.to_owned());
            let index = token.answered;
            let request = BatchRequest { index, count };
            tags.insert(tags::LAUNCH_REQUEST.to_owned(), request.to_string());
        }
        let relaxed = claim.annotation(labels::MIN_VALUES_RELAXED) == Some("true");
        let context = self.class.object.spec.context.clone();
        FleetRequest {
            token: token.text,
            count,
            capacity_type: self.selection.capacity_type,
            reservation: self.selection.reservation,
            by_priority: claim.annotation(labels::PRICE_OVERLAY_APPLIED).is_some(),
            context: context.filter(|_| !relaxed),
            dedicated: self.dedicated,
            templates,
            tags,
        }
    }

    /// Overrides by the template that they need.
    fn overrides<'a>(
        &'a self,
        subnets: &BTreeMap<String, ChosenSubnet>,
    ) -> BTreeMap<TemplateKey<'a>, Vec<Override>> {
        let fabric = self.requests.extended(EFA) > 0;
        let mut by_template: BTreeMap<TemplateKey<'a>, Vec<Override>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
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
                let Some(subnet) = subnets.get(&*offering.zone) else {
                    continue;
                };
                let reservation = reservation_id(offering);
                // A partition group has every offering once per partition.
                if !seen.insert((&each.name, &offering.zone, reservation)) {
                    continue;
                }
                let key = TemplateKey {
                    image: &ami.id,
                    pods: each.capacity.pods,
                    adapters,
                    reservation,
                    reserved: self.reserved.get(&each.name),
                };
                by_template.entry(key).or_default().push(Override {
                    instance_type: each.name.to_string(),
                    image: ami.id.clone(),
                    subnet: subnet.id.clone(),
                    zone: offering.zone.to_string(),
                    price: LaunchPrice::of(each, offering),
                });
            }
        }
        by_template
    }

    /// Tags of everything that is created for the claim.
    fn tags(&self) -> BTreeMap<String, String> {
        let cluster = &self.config.cluster_name;
        let pool = self.claim.label(labels::NODEPOOL).unwrap_or_default();
        let mut tags = self.class.object.spec.tags.clone().unwrap_or_default();
        tags.insert(tags::cluster_tag(cluster), tags::OWNED.to_owned());
        tags.insert(tags::EKS_CLUSTER.to_owned(), cluster.clone());
        tags.insert(tags::NODEPOOL.to_owned(), pool.to_owned());
        tags.insert(tags::NODE_CLASS.to_owned(), self.class.name().to_owned());
        tags
    }

    fn template(
        &self,
        key: TemplateKey<'_>,
        user_data: String,
        tags: BTreeMap<String, String>,
    ) -> LaunchTemplate {
        let class = self.class;
        let spec = &class.object.spec;
        let group = class.placement_group.as_ref();
        LaunchTemplate {
            cluster: self.config.cluster_name.clone(),
            class: class.name().to_owned(),
            image: key.image.to_owned(),
            user_data,
            profile: class.profile.clone(),
            groups: class.groups.iter().map(|group| group.id.clone()).collect(),
            spot: self.selection.capacity_type == CapacityType::Spot,
            tags,
            disks: template::disks(spec, class.settings.family),
            ports: template::ports(spec, key.adapters),
            public_address: spec.associate_public_ip_address,
            prefixes: spec.ip_prefix_count,
            ipv6: self.network.ipv6,
            monitoring: spec.detailed_monitoring.unwrap_or(false),
            metadata: template::metadata_options(spec, self.region),
            tracking: spec.connection_tracking.clone(),
            nested_virtualization: spec
                .cpu_options
                .as_ref()
                .and_then(|cpu| cpu.nested_virtualization.clone()),
            dedicated: self.dedicated,
            placement_group: group.map(|group| group.id.clone()),
            partition: self.partition,
            enclaves: self.requests.extended(NITRO_SANDBOX) > 0,
            reservation: self.config.reserved_capacity.then(|| ReservationTarget {
                id: key.reservation.map(str::to_owned),
                market: match self.selection.reservation {
                    None | Some(ReservationKind::Default) => None,
                    Some(ReservationKind::Block) => Some(CAPACITY_BLOCK),
                    Some(ReservationKind::Interruptible) => {
                        Some("interruptible-capacity-reservation")
                    }
                },
            }),
        }
    }

    fn user_data(&self, ami: &Ami, key: TemplateKey<'_>) -> Result<String, LaunchError> {
        let Self { config, class, .. } = *self;
        let cluster = self.network.cluster;
        let spec = &class.object.spec;
        let version = amis::image_version(spec, ami);
        let inputs = BootInputs {
            cluster_name: &config.cluster_name,
            cluster_endpoint: &cluster.endpoint,
            ca_bundle: &cluster.ca_bundle,
            service_cidr: cluster.service_cidr.as_deref(),
            kubelet: self.kubelet(key),
            taints: self.taints(),
            labels: self.node_labels(),
            raid0: class.settings.raid0,
            user_data: spec.user_data.as_deref().unwrap_or_default(),
            image_version: version.as_deref(),
        };
        user_data::render(class.settings.family, &inputs).map_err(|error| match error {
            UserDataError::NoServiceCidr => LaunchError::NodeClassNotReady {
                message: error.to_string(),
            },
            UserDataError::TooLong { .. } => template_error("User data is limited to", &error),
            UserDataError::Invalid(_)
            | UserDataError::InvalidCertificateAuthority(_)
            | UserDataError::InvalidKubelet { .. } => template_error("", &error),
        })
    }

    /// Kubelet settings of the class, with the number of pods that the type takes where the class sets none, with the values of
    /// expressions, and without reserved amounts that are none.
    fn kubelet(&self, key: TemplateKey<'_>) -> Map<String, Value> {
        let own = &self.class.object.spec.kubelet;
        let mut kubelet: Map<String, Value> = own.clone().unwrap_or_default();
        if !kubelet.get("maxPods").is_some_and(Value::is_i64) {
            kubelet.insert("maxPods".to_owned(), key.pods.into());
        }
        let values = key.reserved;
        let fields = [
            ("kubeReserved", values.map(|values| &values.kube)),
            ("systemReserved", values.map(|values| &values.system)),
        ];
        for (field, values) in fields {
            let Some(Value::Object(reserved)) = kubelet.get_mut(field) else {
                continue;
            };
            for (key, amount) in values.into_iter().flatten() {
                reserved.insert((*key).to_owned(), amount.clone().into());
            }
            reserved.retain(|_, amount| is_amount(amount));
        }
        let dns = self.config.cluster_dns.as_ref();
        if let (false, Some(address)) = (kubelet.contains_key("clusterDNS"), dns) {
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

/// The reservation of an offering.
pub(super) fn reservation_id(offering: &Offering) -> Option<&str> {
    offering.reservation.as_ref().map(|(id, _)| &**id)
}

/// Whether the kubelet takes a reserved amount: it would not start with an expression, or with less than nothing.
fn is_amount(value: &Value) -> bool {
    let text = value.as_str();
    let quantity = text.and_then(|text| Quantity::parse(text).ok());
    quantity.is_some_and(|quantity| quantity.signum() >= 0)
}
