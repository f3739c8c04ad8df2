//! Where a type can be launched with a class, and the offerings that follow from it. Pure.
//!
//! Invariant: an offering is available only if the class can use the type, and the zone sells it and has a subnet of the class. What
//! is not available stays listed, so that it is known to exist; how much is left of prepaid capacity is a count next to it.

use std::sync::Arc;

use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::labels as key;
use mortise_cloudprovider::{CapacityType, Offering};

use crate::ami_family::AmiFamily;
use crate::instance_type_info::InstanceTypeInfo;
use crate::label_names;
use crate::node_settings::{Interface, NodeSettings};

/// How many times cheaper than on-demand prepaid capacity counts: it comes before everything that is paid for, and the types keep
/// their order as far as whole millionths of a dollar can show it.
/// # Source
/// The reference implementation's number.
const RESERVED_SHARE: i64 = 10_000_000;

/// One zone in which a type is sold, with what it costs there; `None` is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZonePrices {
    /// Zone name.
    pub zone: Arc<str>,
    /// Zone id, which is the same in every account.
    pub zone_id: Option<Arc<str>>,
    /// On-demand price per hour.
    pub on_demand: Option<MicroUsd>,
    /// Spot price per hour.
    pub spot: Option<MicroUsd>,
}

/// Where a type can be launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchZones {
    /// Region name.
    pub region: Arc<str>,
    /// Zones that both sell the type and have a subnet of the class.
    pub places: Vec<ZonePrices>,
    /// The other zones of the region: what is known of the type there, although the class cannot launch it.
    pub elsewhere: Vec<ZonePrices>,
    /// The class's capacity reservations for the type.
    pub reservations: Vec<Reservation>,
    /// The class's placement group.
    pub group: Option<PlacementGroup>,
}

/// Prepaid capacity for a type in a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// Its id.
    pub id: Arc<str>,
    /// Name of its zone.
    pub zone: Arc<str>,
    /// It is a Capacity Block, which has an end.
    pub block: bool,
    /// Its owner can reclaim the instances.
    pub interruptible: bool,
    /// It ends so soon that nothing is launched into it.
    pub expiring: bool,
    /// Instances that it still takes.
    pub left: u32,
}

impl Reservation {
    /// Value of `karpenter.k8s.aws/capacity-reservation-type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        if self.block {
            key::CAPACITY_BLOCK
        } else {
            "default"
        }
    }

    /// Value of `karpenter.k8s.aws/capacity-reservation-interruptible`.
    #[must_use]
    pub const fn reclaimable(&self) -> &'static str {
        if self.interruptible { "true" } else { "false" }
    }

    /// The labels of instances in it. Sorted by key.
    fn labels(&self) -> [(Arc<str>, Arc<str>); 3] {
        [
            (
                label_names::shared(key::CAPACITY_RESERVATION_ID),
                Arc::clone(&self.id),
            ),
            (
                label_names::shared(key::CAPACITY_RESERVATION_INTERRUPTIBLE),
                label_names::shared(self.reclaimable()),
            ),
            (
                label_names::shared(key::CAPACITY_RESERVATION_TYPE),
                label_names::shared(self.kind()),
            ),
        ]
    }
}

/// A placement group that the instances of a class are put into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementGroup {
    /// Its id.
    pub id: Arc<str>,
    /// Its strategy in EC2's words: `cluster`, `partition` or `spread`.
    pub strategy: &'static str,
    /// Partitions are numbered from 1 to this; 0 for a group without.
    pub partition_count: u32,
}

impl PlacementGroup {
    /// Numbers of the partitions, as label values.
    pub fn partitions(&self) -> impl Iterator<Item = Arc<str>> + use<> {
        (1..=self.partition_count).map(|number| Arc::from(number.to_string()))
    }
}

/// What keeps a type from being launched with a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incompatibility {
    /// The image family does not boot on it.
    Family,
    /// It lacks the network cards or interfaces that the class asks for.
    NetworkInterfaces,
    /// It does not support nested virtualization.
    NestedVirtualization,
    /// It cannot take connection tracking times.
    ConnectionTracking,
    /// It cannot be placed as the class's placement group places its instances.
    PlacementGroup,
}

impl InstanceTypeInfo {
    /// Why the class cannot use the type; `None` when it can. `group` is the placement group that the class puts instances into.
    #[must_use]
    pub fn unfit(
        &self,
        shape: &NodeSettings,
        group: Option<&PlacementGroup>,
    ) -> Option<Incompatibility> {
        if shape.family == AmiFamily::Al2023 && self.name.starts_with("a1.") {
            return Some(Incompatibility::Family);
        }
        if !self.has_interfaces(&shape.interfaces) {
            return Some(Incompatibility::NetworkInterfaces);
        }
        if shape.nested_virtualization && !self.nested_virtualization {
            return Some(Incompatibility::NestedVirtualization);
        }
        let placeable = |group: &PlacementGroup| {
            let mut strategies = self.placement.iter();
            strategies.any(|each| **each == *group.strategy)
        };
        if !group.is_none_or(placeable) {
            return Some(Incompatibility::PlacementGroup);
        }
        if shape.connection_tracking && self.hypervisor.as_deref() != Some("nitro") {
            return Some(Incompatibility::ConnectionTracking);
        }
        None
    }

    /// Whether the type has every network interface that a class asks for.
    fn has_interfaces(&self, asked: &[Interface]) -> bool {
        let fits = |each: &Interface| {
            let most = self.interfaces.get(each.card);
            most.is_some_and(|most| each.device < *most)
        };
        let efa_only = asked.iter().filter(|each| each.efa_only).count();
        asked.is_empty()
            || (self.ena
                && asked.iter().all(fits)
                && i64::try_from(efa_only).is_ok_and(|asked| asked <= self.efa))
    }

    /// What can be launched of the type: every zone as on-demand and spot, and prepaid capacity.
    pub(crate) fn offerings(&self, shape: &NodeSettings, placement: &LaunchZones) -> Vec<Offering> {
        let fits = self.unfit(shape, placement.group.as_ref()).is_none();
        let here = placement.places.iter().map(|place| (place, fits));
        let elsewhere = placement.elsewhere.iter().map(|place| (place, false));
        let zones = placement.places.len() + placement.elsewhere.len();
        let mut offerings = Vec::with_capacity(zones * 2 + placement.reservations.len());
        for (place, usable) in here.chain(elsewhere) {
            for (capacity_type, price) in [
                (CapacityType::Spot, place.spot),
                (CapacityType::OnDemand, place.on_demand),
            ] {
                if self.sold_as(capacity_type.as_str()) {
                    offerings.push(Offering {
                        zone: Arc::clone(&place.zone),
                        capacity_type,
                        price,
                        // Without a price it is offered last; a spot market without a price does not exist.
                        available: usable
                            && (price.is_some() || capacity_type == CapacityType::OnDemand),
                        reservation: None,
                        labels: place.labels().collect(),
                    });
                }
            }
        }
        let reserved = placement.reservations.iter();
        offerings.extend(reserved.map(|each| reserved_offering(each, placement, fits)));
        if let Some(group) = &placement.group {
            offerings = in_partitions(offerings, group);
        }
        offerings.sort_by(|a, b| {
            (&a.zone, a.capacity_type, &a.labels).cmp(&(&b.zone, b.capacity_type, &b.labels))
        });
        offerings
    }
}

impl ZonePrices {
    /// The labels that nodes in the zone have in addition to its name.
    fn labels(&self) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
        self.zone_id
            .iter()
            .map(|id| (label_names::shared(key::ZONE_ID), Arc::clone(id)))
    }
}

/// What is left of a reservation. It needs no price: unknown is taken for nothing, because it is paid for already.
fn reserved_offering(reservation: &Reservation, placement: &LaunchZones, fits: bool) -> Offering {
    let mut places = placement.places.iter().chain(&placement.elsewhere);
    let place = places.find(|place| place.zone == reservation.zone);
    let here = placement
        .places
        .iter()
        .any(|place| place.zone == reservation.zone);
    let on_demand = place.and_then(|place| place.on_demand);
    let zone_id = place.into_iter().flat_map(ZonePrices::labels);
    Offering {
        zone: Arc::clone(&reservation.zone),
        capacity_type: CapacityType::Reserved,
        price: Some(MicroUsd(
            on_demand.map_or(0, |price| (price.0 + RESERVED_SHARE / 2) / RESERVED_SHARE),
        )),
        available: fits && here && !reservation.expiring,
        reservation: Some((Arc::clone(&reservation.id), reservation.left)),
        labels: reservation.labels().into_iter().chain(zone_id).collect(),
    }
}

/// Every offering once per partition of the group; as they are for a group without partitions.
fn in_partitions(offerings: Vec<Offering>, group: &PlacementGroup) -> Vec<Offering> {
    let partitions: Vec<Arc<str>> = group.partitions().collect();
    if partitions.is_empty() {
        return offerings;
    }
    let key = label_names::shared(key::PLACEMENT_GROUP_PARTITION);
    let mut all = Vec::with_capacity(offerings.len() * partitions.len());
    for offering in &offerings {
        all.extend(partitions.iter().map(|partition| {
            let mut labels = offering.labels.clone();
            let at = labels.partition_point(|(other, _)| *other < key);
            labels.insert(at, (Arc::clone(&key), Arc::clone(partition)));
            Offering {
                labels,
                ..offering.clone()
            }
        }));
    }
    all
}
