//! What a node class stands for: the subnets, groups and images that its terms select, its conditions, and the instance types that it
//! can launch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use mortise_core::apis::conditions::{
    Condition, ConditionStatus, Conditions, EC2_NODE_CLASS, READY, find,
};
use mortise_core::apis::ec2nodeclass::{Ec2NodeClass, Ec2NodeClassSpec};
use mortise_core::apis::ec2nodeclass_status::{Ami, Ec2NodeClassStatus, SecurityGroup, Subnet};
use mortise_core::apis::hash::EC2_NODE_CLASS_HASH_VERSION;
use mortise_core::cloud::{CloudError, InstanceType, NodeClassObject, ResolvedNodeClass, Retry};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::ami_family::{self, AmiFamily};
use crate::amis::{self, ImageError};
use crate::failure::Failure;
use crate::instance_type::LaunchZones;
use crate::networks::{self, FoundSubnet};
use crate::node_settings::{self, NodeSettings};
use crate::provider::AwsProvider;
use crate::tags;
use crate::unavailable_offerings::UnavailableView;

/// How long a launch may use what was found before; the class is looked at again every few minutes anyway.
const FRESH: Duration = Duration::from_secs(10 * 60);

/// How soon a class is looked at again while the first spot prices are on their way: a few pages of a list.
const PRICES_MS: i64 = 5_000;
/// Tag keys that a class may not set, because they are ours.
const RESTRICTED_TAGS: [&str; 4] = [
    tags::EKS_CLUSTER,
    tags::NODEPOOL,
    tags::NODECLAIM,
    tags::NODE_CLASS,
];

/// A class with everything found for it.
#[derive(Clone, Debug)]
pub(crate) struct CachedNodeClass {
    /// The object.
    pub(crate) object: Ec2NodeClass,
    /// What it says about the inside of nodes.
    pub(crate) shape: NodeSettings,
    /// Its subnets, those with the most free addresses first.
    pub(crate) subnets: Vec<FoundSubnet>,
    /// Its security groups.
    pub(crate) groups: Vec<SecurityGroup>,
    /// Its images, newest first.
    pub(crate) amis: Vec<Ami>,
    /// Its instance profile.
    pub(crate) profile: Option<String>,
    /// Types with offerings in its zones, as if everything could be had. Sorted by name.
    pub(crate) types: Vec<InstanceType>,
    /// Which of the images each type boots, beside `types`.
    images: Vec<Option<usize>>,
    /// Hash of what drifts nodes; `None` while the cluster's facts are not known.
    pub(crate) hash: Option<String>,
    /// Why nothing can be launched with it; `None` when it is ready.
    pub(crate) not_ready: Option<String>,
    found: Instant,
}

impl CachedNodeClass {
    /// Name of the object.
    pub(crate) fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    /// A type by its name.
    pub(crate) fn instance_type(&self, name: &str) -> Option<&InstanceType> {
        self.types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()
            .and_then(|at| self.types.get(at))
    }

    /// The image that a type boots; `None` for one that no image suits.
    pub(crate) fn image(&self, name: &str) -> Option<&Ami> {
        let at = self
            .types
            .binary_search_by(|each| (*each.name).cmp(name))
            .ok()?;
        self.images
            .get(at)
            .copied()
            .flatten()
            .and_then(|image| self.amis.get(image))
    }

    /// Zones that have a subnet, with their ids.
    pub(crate) fn zones(&self) -> BTreeMap<Arc<str>, Option<Arc<str>>> {
        self.subnets
            .iter()
            .map(|each| {
                (
                    Arc::from(&*each.subnet.zone),
                    each.subnet.zone_id.as_deref().map(Arc::from),
                )
            })
            .collect()
    }
}

/// Classes that were looked up, by name.
#[derive(Debug, Default)]
pub(crate) struct NodeClassCache {
    known: Mutex<HashMap<String, Arc<CachedNodeClass>>>,
}

impl NodeClassCache {
    fn get(&self, object: &Ec2NodeClass) -> Option<Arc<CachedNodeClass>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let class = known.get(object.metadata.name.as_deref()?)?;
        let same = class.object.metadata.uid == object.metadata.uid
            && class.object.metadata.generation == object.metadata.generation
            && class.object.spec == object.spec;
        (same && class.found.elapsed() < FRESH).then(|| Arc::clone(class))
    }

    fn put(&self, class: Arc<CachedNodeClass>) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(class.name().to_owned(), class);
    }

    fn forget(&self, name: &str) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

/// A part of a class that is found, or the reason and message of its condition.
type Found<T> = Result<T, (&'static str, String)>;

/// A failure that passes ends the attempt; one that does not is the class's condition.
fn settle<T>(result: Result<T, Failure>, reason: &'static str) -> Result<Found<T>, CloudError> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(failure) if failure.passes() => Err(failure.into()),
        Err(failure) => Ok(Err((reason, failure.to_string()))),
    }
}

/// Reads the object of a class.
/// # Errors
/// It is not an `EC2NodeClass`; the text names the field.
fn read(object: &NodeClassObject) -> Result<Ec2NodeClass, CloudError> {
    let read = serde_json::from_value::<Ec2NodeClass>((*object.object).clone());
    read.map_err(|error| CloudError {
        label: "invalid_class",
        message: format!("{} cannot be read: {error}", object.key),
        retry: Retry::Never,
    })
}

impl AwsProvider {
    /// Looks everything up anew.
    pub(crate) async fn resolve_class(
        &self,
        object: &NodeClassObject,
    ) -> Result<ResolvedNodeClass, CloudError> {
        let class = read(object)?;
        if class.metadata.deletion_timestamp.is_some() {
            let name = class.metadata.name.as_deref().unwrap_or_default();
            self.classes.forget(name);
            self.delete_templates(name).await?;
            return Ok(ResolvedNodeClass {
                status: None,
                annotations: BTreeMap::new(),
                finalizer: Some(tags::CLASS_FINALIZER),
                instance_types: Vec::new(),
                again_ms: None,
            });
        }
        // Asked before, so that prices that come meanwhile are not missed.
        let waits = self.market.awaits_spot_prices();
        let (class, status) = self.find_class(class).await?;
        let mut annotations = BTreeMap::new();
        if let Some(hash) = &class.hash {
            annotations.insert(tags::CLASS_HASH.to_owned(), hash.clone());
            annotations.insert(
                tags::CLASS_HASH_VERSION.to_owned(),
                EC2_NODE_CLASS_HASH_VERSION.to_owned(),
            );
        }
        Ok(ResolvedNodeClass {
            status,
            annotations,
            finalizer: Some(tags::CLASS_FINALIZER),
            instance_types: self.offered(&class),
            again_ms: waits.then_some(PRICES_MS),
        })
    }

    /// The class as it was found a moment ago, or found now.
    pub(crate) async fn class(
        &self,
        object: &NodeClassObject,
    ) -> Result<Arc<CachedNodeClass>, CloudError> {
        let class = read(object)?;
        match self.classes.get(&class) {
            Some(class) => Ok(class),
            None => Ok(self.find_class(class).await?.0),
        }
    }

    /// What of the class cannot be had just now.
    pub(crate) fn marks(&self, class: &CachedNodeClass) -> UnavailableView {
        let usable = class
            .subnets
            .iter()
            .filter(|each| !self.unavailable.is_subnet_full(&each.subnet.id));
        self.unavailable
            .marks(usable.map(|each| Arc::from(&*each.subnet.zone)).collect())
    }

    /// The class's types, with the offerings switched off that could not be had a moment ago.
    fn offered(&self, class: &CachedNodeClass) -> Vec<InstanceType> {
        let marks = self.marks(class);
        let mut types = class.types.clone();
        for each in &mut types {
            let allowed: Vec<bool> = each
                .offerings
                .iter()
                .map(|offering| marks.allow(each, offering))
                .collect();
            each.offerings
                .iter_mut()
                .zip(allowed)
                .for_each(|(offering, allowed)| offering.available = allowed);
        }
        types
    }

    async fn find_class(
        &self,
        mut object: Ec2NodeClass,
    ) -> Result<(Arc<CachedNodeClass>, Option<Value>), CloudError> {
        let spec = &object.spec;
        let now = Timestamp::now();
        let (subnets, groups, cluster, view) = futures::join!(
            networks::subnets(&self.api, &spec.subnet_selector_terms),
            networks::security_groups(&self.api, &spec.security_group_selector_terms),
            self.cluster.get(&self.api, &self.config),
            self.market.view(&self.api),
        );
        let subnets = settle(subnets, "SubnetsNotFound")?.and_then(|found| {
            if found.is_empty() {
                Err((
                    "SubnetsNotFound",
                    "SubnetSelector did not match any Subnets".to_owned(),
                ))
            } else {
                Ok(found)
            }
        });
        let groups = settle(groups, "SecurityGroupsNotFound")?.and_then(|found| {
            if found.is_empty() {
                Err((
                    "SecurityGroupsNotFound",
                    "SecurityGroupSelector did not match any SecurityGroups".to_owned(),
                ))
            } else {
                Ok(found)
            }
        });
        let cluster = settle(cluster, "ClusterNotFound")?;
        let view = view?;
        let amis = self.find_images(spec, &cluster, now).await?;
        let family = AmiFamily::of(spec);
        let shape = NodeSettings::read(spec, self.config.shape)
            .map_err(|error| ("InvalidKubeletConfiguration", error.to_string()));
        let valid = validate(spec).and_then(|()| shape.as_ref().map(|_| ()).map_err(Clone::clone)).and_then(|()| match (&cluster, family) {
            (Err((_, message)), _) => Err(("ClusterResolutionFailed", message.clone())),
            (Ok(cluster), AmiFamily::Al2023) if cluster.service_cidr.is_none() => Err(("ClusterCIDRResolutionFailed", "Failed to detect the cluster CIDR".to_owned())),
            (Ok(cluster), _) if cluster.endpoint.is_empty() && family != AmiFamily::Custom => {
                Err(("ClusterEndpointResolutionFailed", "the API server address is unknown; set --cluster-endpoint or CLUSTER_ENDPOINT".to_owned()))
            }
            (Ok(_), _) => Ok(()),
        });
        let profile = spec.instance_profile.clone().or_else(|| {
            spec.role
                .as_deref()
                .and_then(|role| role.rsplit('/').next())
                .map(str::to_owned)
        });

        let mut conditions = object.status.conditions.clone();
        let mut set = Conditions::of(EC2_NODE_CLASS, &object.metadata, &mut conditions, now);
        put(&mut set, "SubnetsReady", subnets.as_ref().err());
        put(&mut set, "SecurityGroupsReady", groups.as_ref().err());
        put(&mut set, "AMIsReady", amis.as_ref().err());
        // Profiles are made by somebody else: a role's is expected to have the role's name.
        match (&spec.instance_profile, &spec.role) {
            (None, Some(role)) => {
                let message = format!(
                    "not verified: instances are launched with an instance profile that has the name of the role, {role}"
                );
                set.set_true_with_reason("InstanceProfileReady", "InstanceProfileReady", &message);
            }
            _ => {
                set.set_true("InstanceProfileReady");
            }
        }
        match &spec.placement_group_selector {
            Some(_) => {
                set.set_false(
                    "PlacementGroupReady",
                    "PlacementGroupResolutionFailed",
                    "placement groups are not supported yet",
                );
            }
            None => {
                set.set_true("PlacementGroupReady");
            }
        }
        match spec.capacity_reservation_selector_terms.as_deref() {
            Some([_, ..]) => {
                set.set_true_with_reason("CapacityReservationsReady", "CapacityReservationsReady", "capacity reservations are not used yet: only on-demand and spot capacity is launched");
            }
            _ => {
                set.set_true("CapacityReservationsReady");
            }
        }
        let waiting = [subnets.is_err(), groups.is_err(), amis.is_err()].contains(&true);
        match (valid.as_ref().err(), waiting) {
            (Some(problem), _) => put(&mut set, "ValidationSucceeded", Some(problem)),
            (None, true) => {
                set.set_false(
                    "ValidationSucceeded",
                    "DependenciesNotReady",
                    "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution",
                );
            }
            (None, false) => put(&mut set, "ValidationSucceeded", None),
        }

        let (subnets, groups, amis) = (
            subnets.unwrap_or_default(),
            groups.unwrap_or_default(),
            amis.unwrap_or_default(),
        );
        let status = Ec2NodeClassStatus {
            subnets: keep_order(
                &object.status.subnets,
                subnets.iter().map(|each| each.subnet.clone()).collect(),
            ),
            security_groups: groups.clone(),
            amis: amis.clone(),
            capacity_reservations: object.status.capacity_reservations.clone(),
            instance_profile: profile.clone(),
            conditions,
        };
        let patch = patch(&object.status, &status);
        let not_ready = not_ready(&status.conditions);
        object.status = status;
        let hash = cluster
            .as_ref()
            .ok()
            .map(|cluster| object.hash(&cluster.ca_bundle).to_string());
        let mut class = CachedNodeClass {
            object,
            shape: shape.unwrap_or_default(),
            subnets,
            groups,
            amis,
            profile,
            types: Vec::new(),
            images: Vec::new(),
            hash,
            not_ready,
            found: Instant::now(),
        };
        let zones = class.zones();
        let types = view.types.iter().filter_map(|info| {
            let places = self.market.places(&view, &info.name, &zones);
            (!places.is_empty()).then(|| {
                info.instance_type(
                    &class.shape,
                    &LaunchZones {
                        region: Arc::from(&*self.api.region),
                        places,
                    },
                )
            })
        });
        class.types = types.collect();
        class.images = amis::positions(&class.amis, &class.types);
        let class = Arc::new(class);
        self.classes.put(Arc::clone(&class));
        Ok((class, patch))
    }

    async fn find_images(
        &self,
        spec: &Ec2NodeClassSpec,
        cluster: &Found<Arc<crate::api::cluster::ClusterInfo>>,
        now: Timestamp,
    ) -> Result<Found<Vec<Ami>>, CloudError> {
        let version = match cluster {
            Ok(cluster) => &*cluster.version,
            Err((_, message)) if ami_family::alias(spec).is_some() => {
                return Ok(Err((
                    "AMIResolutionFailed",
                    format!(
                        "the alias depends on the cluster's version, which is unknown: {message}"
                    ),
                )));
            }
            Err(_) => "",
        };
        match amis::images(&self.api, &self.parameters, spec, version, now).await {
            Ok(amis) if amis.is_empty() => Ok(Err((
                "AMINotFound",
                "AMISelector did not match any AMIs".to_owned(),
            ))),
            Ok(amis) => Ok(Ok(amis)),
            Err(ImageError::Nothing(message)) => Ok(Err(("AMINotFound", message))),
            Err(ImageError::Unsupported(message)) => Ok(Err(("UnsupportedAlias", message))),
            Err(ImageError::Call(failure)) => {
                let hint = if failure.action == "ssm:GetParameter" {
                    "; or select AMIs by id, name or tags"
                } else {
                    ""
                };
                match settle::<Vec<Ami>>(Err(failure), "AMIResolutionFailed")? {
                    Err((reason, message)) => Ok(Err((reason, format!("{message}{hint}")))),
                    Ok(amis) => Ok(Ok(amis)),
                }
            }
        }
    }
}

fn put(set: &mut Conditions<'_>, type_: &str, problem: Option<&(&'static str, String)>) {
    match problem {
        Some((reason, message)) => {
            set.set_false(type_, reason, message);
        }
        None => {
            set.set_true(type_);
        }
    }
}

/// Rules that stand in the CRD too, for objects that were stored before the rule was.
fn validate(spec: &Ec2NodeClassSpec) -> Found<()> {
    let restricted = |key: &&String| {
        RESTRICTED_TAGS.contains(&key.as_str()) || key.starts_with("kubernetes.io/cluster/")
    };
    if let Some(key) = spec.tags.iter().flat_map(BTreeMap::keys).find(restricted) {
        return Err((
            "TagValidationFailed",
            format!("spec.tags: the key {key:?} is set by mortise and may not be set here"),
        ));
    }
    match node_settings::expressions(spec).first() {
        Some(field) => Err((
            "KubeletExpressionsDisabled",
            format!(
                "spec.{field} is neither a number nor a quantity; expressions are not supported"
            ),
        )),
        None => Ok(()),
    }
}

/// Why the class cannot be used, in the words of its conditions.
fn not_ready(conditions: &[Condition]) -> Option<String> {
    match find(conditions, READY) {
        Some(ready) if ready.status == ConditionStatus::True => None,
        _ => {
            let unmet = conditions
                .iter()
                .filter(|each| each.type_ != READY && each.status != ConditionStatus::True);
            Some(
                unmet
                    .map(|each| format!("{}: {}", each.type_, each.message))
                    .collect::<Vec<_>>()
                    .join("; "),
            )
        }
    }
}

/// The stored order, when the subnets are the same: the number of free addresses changes with every launch, and is not worth a write.
fn keep_order(stored: &[Subnet], found: Vec<Subnet>) -> Vec<Subnet> {
    let sorted = |list: &[Subnet]| {
        let mut list = list.to_vec();
        list.sort_by(|a, b| a.id.cmp(&b.id));
        list
    };
    if sorted(stored) == sorted(&found) {
        stored.to_vec()
    } else {
        found
    }
}

/// A merge patch from the stored status to the new one: the fields that differ, `null` for those that went.
fn patch(stored: &Ec2NodeClassStatus, new: &Ec2NodeClassStatus) -> Option<Value> {
    let fields = |status: &Ec2NodeClassStatus| match serde_json::to_value(status) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (stored, new) = (fields(stored), fields(new));
    let mut patch: Map<String, Value> = stored
        .keys()
        .filter(|key| !new.contains_key(*key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    patch.extend(
        new.into_iter()
            .filter(|(key, value)| stored.get(key) != Some(value)),
    );
    (!patch.is_empty()).then(|| json!(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(id: &str) -> Subnet {
        Subnet {
            id: id.to_owned(),
            zone: "us-east-1a".to_owned(),
            zone_id: None,
        }
    }

    #[test]
    fn a_patch_has_what_changed() {
        let stored = Ec2NodeClassStatus {
            subnets: vec![subnet("a")],
            instance_profile: Some("p".to_owned()),
            ..Ec2NodeClassStatus::default()
        };
        assert_eq!(patch(&stored, &stored), None);
        let new = Ec2NodeClassStatus {
            subnets: vec![subnet("b")],
            ..Ec2NodeClassStatus::default()
        };
        assert_eq!(
            patch(&stored, &new),
            Some(
                json!({ "instanceProfile": null, "subnets": [{ "id": "b", "zone": "us-east-1a" }] })
            )
        );
    }

    #[test]
    fn the_order_of_the_same_subnets_stays() {
        let (a, b) = (subnet("a"), subnet("b"));
        assert_eq!(
            keep_order(&[a.clone(), b.clone()], vec![b.clone(), a.clone()]),
            [a.clone(), b.clone()]
        );
        assert_eq!(
            keep_order(std::slice::from_ref(&a), vec![b.clone(), a.clone()]),
            [b, a]
        );
    }

    #[test]
    fn our_tags_are_refused() {
        for key in ["kubernetes.io/cluster/x", "karpenter.sh/nodeclaim"] {
            let spec = Ec2NodeClassSpec {
                tags: Some(BTreeMap::from([(key.to_owned(), String::new())])),
                ..Ec2NodeClassSpec::default()
            };
            assert_eq!(
                validate(&spec).unwrap_err().0,
                "TagValidationFailed",
                "{key}"
            );
        }
    }
}
