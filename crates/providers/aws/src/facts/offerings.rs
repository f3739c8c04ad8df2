//! Recorded lists of a class's instance types, as they come out of EC2's own descriptions on the path that production takes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mortise_apis::requirements::{Operator, Requirement};
use mortise_aws_catalog::launch_zones::PlacementGroup;
use mortise_aws_catalog::node_settings::NodeSettings;
use mortise_aws_catalog::{self as catalog, CapacityOptions};
use mortise_aws_class::labels as key;
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::{CapacityType, InstanceType, UnavailableOffering};
use serde_json::Value;
use tokio::time::Instant;

use super::api::wire::{ApiCall, ApiError};
use super::api::{Answers, clients};
use super::replay::{Case, Difference, resolved, score};
use super::resolved_type::resolved_type;
use crate::node_class::amis;
use crate::offerings::availability::Moment;
use crate::offerings::region_offerings::{ClassShape, OfferingsView, RegionOfferings};
use crate::offerings::unavailable_offerings::{UnavailableKey, UnavailableOfferings};

/// Answers with the types and offerings of a case, and knows no spot prices.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) types: Value,
    pub(super) offerings: Value,
}

impl Answers for Source {
    fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
        match call.op.as_str() {
            "DescribeInstanceTypes" => Ok(self.types.clone()),
            "DescribeInstanceTypeOfferings" => Ok(self.offerings.clone()),
            other => Err(ApiError::Transport(format!("{other} is not recorded"))),
        }
    }
}

pub(super) type Region = (Arc<RegionOfferings>, OfferingsView);

thread_local! {
    static REGIONS: RefCell<BTreeMap<String, Region>> = RefCell::default();
}

async fn region_of(source: Source) -> Region {
    let tables = catalog::embedded_catalog().unwrap();
    let offerings = RegionOfferings::as_recorded(Arc::new(clients(Arc::new(source))), tables);
    let view = offerings.view().await.unwrap();
    (Arc::new(offerings), view)
}

/// Whether the only type of a region can be launched with a class.
pub(super) async fn is_offered(
    source: Source,
    class: &Ec2NodeClass,
    strategy: Option<&str>,
) -> Result<bool, String> {
    let (offerings, view) = region_of(source).await;
    let settings = NodeSettings::read(&class.spec, CapacityOptions::default());
    let settings = settings.map_err(|error| error.to_string())?;
    let group = strategy.map(|strategy| group("pg-1", strategy, 0));
    let shape = ClassShape {
        settings: &settings,
        zones: &zones(class),
        reservations: &[],
        group: group.as_ref(),
    };
    let types = offerings.instance_types(&view, &shape, &[]);
    let types = types.map_err(|error| error.to_string())?;
    let mut all = types.iter().flat_map(|each| &each.offerings);
    Ok(all.any(|offering| offering.available))
}

fn group(id: &str, strategy: &str, partition_count: u32) -> PlacementGroup {
    PlacementGroup {
        id: Arc::from(id),
        strategy: match strategy {
            "cluster" => "cluster",
            "partition" => "partition",
            _ => "spread",
        },
        partition_count,
    }
}

/// Zones of the class's subnets.
fn zones(class: &Ec2NodeClass) -> BTreeMap<Arc<str>, Option<Arc<str>>> {
    let mut zones: BTreeMap<Arc<str>, Option<Arc<str>>> = BTreeMap::new();
    for each in &class.status.subnets {
        let id = zones.entry(Arc::from(&*each.zone)).or_default();
        *id = id.take().or_else(|| each.zone_id.as_deref().map(Arc::from));
    }
    zones
}

/// What the region of a case offers. Read once per recorded answer.
pub(super) async fn region(case: &Case) -> Region {
    let source = &case.given["instanceTypeSource"];
    let known = REGIONS.with_borrow(|all| all.get(&source.to_string()).cloned());
    if let Some(known) = known {
        return known;
    }
    let answers = Source {
        types: resolved(&source["DescribeInstanceTypes"]),
        offerings: resolved(&source["DescribeInstanceTypeOfferings"]),
    };
    let region = region_of(answers).await;
    REGIONS.with_borrow_mut(|all| all.insert(source.to_string(), region.clone()));
    region
}

pub(super) fn options(case: &Case) -> CapacityOptions {
    let options = resolved(&case.given["options"]);
    let share = options["VMMemoryOverheadPercent"].as_f64().unwrap();
    CapacityOptions {
        vm_overhead_ppm: format!("{:.0}", share * 1e6).parse().unwrap(),
        reserved_enis: options["ReservedENIs"].as_i64().unwrap(),
        prefix_delegation: false,
        expressions: options["FeatureGates"]["NodeClassCEL"] == true,
    }
}

/// The placement group that EC2 answers with, if the class asks for one and it can be used.
fn placement_group(case: &Case, class: &Ec2NodeClass) -> Option<PlacementGroup> {
    let groups = resolved(&case.given["answers"]["DescribePlacementGroups"]);
    let group = groups["PlacementGroups"].as_array()?.first()?;
    let asked = serde_json::to_value(&class.spec).unwrap();
    if asked["placementGroupSelector"].is_null() || group["State"] != "available" {
        return None;
    }
    let partitions = group["PartitionCount"].as_u64().unwrap_or_default();
    Some(self::group(
        group["GroupId"].as_str()?,
        group["Strategy"].as_str()?,
        u32::try_from(partitions).unwrap(),
    ))
}

/// The marks of `given.ice`.
fn unavailable(case: &Case, group: Option<&PlacementGroup>) -> UnavailableOfferings {
    let marks = UnavailableOfferings::default();
    let ice = &case.given["ice"];
    let texts = |field: &str| -> Vec<String> {
        serde_json::from_value(ice[field].clone()).unwrap_or_default()
    };
    for text in texts("offerings") {
        let parts: Vec<&str> = text.split(':').collect();
        let scoped = parts.get(3);
        if scoped.is_some() && scoped.copied() != group.map(|group| &*group.id) {
            continue;
        }
        marks.mark(UnavailableKey::Offering(UnavailableOffering {
            instance_type: Arc::from(parts[1]),
            zone: Arc::from(parts[2]),
            capacity_type: CapacityType::parse(parts[0]).unwrap(),
        }));
    }
    for text in texts("capacityTypes") {
        marks.mark(UnavailableKey::CapacityType(
            CapacityType::parse(&text).unwrap(),
        ));
    }
    for text in texts("subnets") {
        marks.mark(UnavailableKey::Subnet(text));
    }
    marks
}

/// Counts, shifts and observed memory of a case. Memory was observed with the images of `class`.
pub(super) fn moment(case: &Case, class: &Ec2NodeClass, types: &[InstanceType]) -> Moment {
    let moment = Moment::default();
    let fields = |name: &str| case.given[name].as_object().cloned().unwrap_or_default();
    for (id, count) in fields("capacityReservationAvailability") {
        let left = u32::try_from(count["count"].as_u64().unwrap()).unwrap();
        moment.reservations.read(&id, left, Instant::now());
    }
    moment.shifted.replace(
        fields("zonalShifts")
            .iter()
            .filter(|(_, shift)| shift["applied"] == true)
            .map(|(zone, _)| (Arc::from(zone.as_str()), Duration::from_secs(3600))),
    );
    let images = amis::positions(&class.status.amis, types);
    for (name, memory) in fields("discoveredCapacity") {
        let (name, _) = name.rsplit_once('-').unwrap();
        let Some(at) = types.iter().position(|each| &*each.name == name) else {
            continue;
        };
        let quantity = memory.as_str().unwrap();
        let bytes = mortise_apis::values::Quantity::parse(quantity)
            .unwrap()
            .value();
        let image = images[at].map(|image| &*class.status.amis[image].id);
        moment
            .memory
            .observe(name, image.unwrap_or_default(), bytes);
    }
    moment
}

/// The class's types, as if everything could be launched.
pub(super) async fn all_types(
    case: &Case,
    class: &Ec2NodeClass,
) -> Result<Vec<InstanceType>, String> {
    let (offerings, view) = region(case).await;
    let settings = NodeSettings::read(&class.spec, options(case)).map_err(|e| e.to_string())?;
    let group = placement_group(case, class);
    let shape = ClassShape {
        settings: &settings,
        zones: &zones(class),
        reservations: reserved(case, class),
        group: group.as_ref(),
    };
    let types = offerings.instance_types(&view, &shape, &[]);
    types.map_err(|error| error.to_string())
}

async fn types(case: &Case) -> Result<Vec<InstanceType>, String> {
    let class = match &case.given["args"]["nodeClass"] {
        Value::Null => &case.given["nodeClass"],
        class => class,
    };
    let class: Ec2NodeClass = serde_json::from_value(class.clone()).map_err(|e| e.to_string())?;
    let types = all_types(case, &class).await?;
    let group = placement_group(case, &class);
    let subnets = &class.status.subnets;
    let unavailable = unavailable(case, group.as_ref());
    let usable = subnets
        .iter()
        .filter(|each| !unavailable.is_subnet_full(&each.id));
    let usable: BTreeSet<Arc<str>> = usable.map(|each| Arc::from(&*each.zone)).collect();
    let moment = moment(case, &class, &types);
    let images = amis::positions(&class.status.amis, &types);
    let availability = moment.availability(unavailable.view(usable, None));
    let image = |each: &InstanceType| {
        let at = types.binary_search_by(|other| other.name.cmp(&each.name));
        images[at.unwrap()].map(|image| &*class.status.amis[image].id)
    };
    Ok(moment.applied_to(&types, &availability, image))
}

/// The class's reservations, if they are used at all.
fn reserved<'a>(
    case: &Case,
    class: &'a Ec2NodeClass,
) -> &'a [mortise_aws_class::status::CapacityReservation] {
    let core = resolved(&case.given["coreOptions"]);
    if core["FeatureGates"]["ReservedCapacity"] == true {
        &class.status.capacity_reservations
    } else {
        &[]
    }
}

/// The recorded type with what we write on purpose: labels of placement groups are required to be absent without a group.
fn recorded(key_of_type: &str) -> InstanceType {
    let mut each = resolved_type(key_of_type);
    for key in [key::PLACEMENT_GROUP_ID, key::PLACEMENT_GROUP_PARTITION] {
        if !each.requirements.has_key(key) {
            each.requirements.add(Requirement::does_not_exist(key));
        }
    }
    let empty = [Arc::from("")];
    if each
        .requirements
        .get(key::ZONE_ID)
        .is_some_and(|ids| *ids.values() == empty)
    {
        each.requirements.remove(key::ZONE_ID); // an id that is not known is no id
    }
    for offering in &mut each.offerings {
        offering.labels.retain(|(_, value)| !value.is_empty());
        let unknown = !offering.available && offering.reservation.is_none();
        offering.price = offering.price.filter(|price| price.0 > 0 || !unknown);
    }
    each.offerings.sort_by(|a, b| {
        (&a.zone, a.capacity_type, &a.labels).cmp(&(&b.zone, b.capacity_type, &b.labels))
    });
    each
}

fn compare(ours: &InstanceType, recorded: &InstanceType) -> Result<(), String> {
    let name = &ours.name;
    for each in &recorded.requirements {
        let own = ours.requirements.get(each.key());
        let same = own.is_some_and(|own| {
            own == each
                || (own.operator() == Operator::DoesNotExist && own.operator() == each.operator())
        });
        if !same {
            let own = own.map(ToString::to_string).unwrap_or_default();
            return Err(format!("{name}: ours {own}, recorded {each}"));
        }
    }
    if ours.requirements.len() != recorded.requirements.len() {
        let all = |of: &InstanceType| of.requirements.keys().map(str::to_owned).collect();
        let (own, other): (BTreeSet<String>, BTreeSet<String>) = (all(ours), all(recorded));
        let more: Vec<_> = own.difference(&other).collect();
        return Err(format!("{name}: only ours {more:?}"));
    }
    for (what, own, other) in [
        ("capacity", &ours.capacity, &recorded.capacity),
        ("overhead", &ours.overhead, &recorded.overhead),
    ] {
        if own != other {
            return Err(format!("{name} {what}: ours {own}, recorded {other}"));
        }
    }
    for (own, other) in ours.offerings.iter().zip(&recorded.offerings) {
        if own != other {
            return Err(format!("{name}:\n  ours     {own:?}\n  recorded {other:?}"));
        }
    }
    let (own, other) = (ours.offerings.len(), recorded.offerings.len());
    if own == other {
        Ok(())
    } else {
        Err(format!("{name}: {own} offerings, recorded {other}"))
    }
}

fn replay(case: &Case) -> Result<(), Difference> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    if case.given["nodeClass"].is_null() && case.given["args"]["nodeClass"].is_null() {
        return match &case.expect["result"] {
            Value::Null => Ok(()), // no class, no types
            result => Err(format!("a class that does not exist has {result}").into()),
        };
    }
    let ours = runtime.block_on(types(case));
    let failed = case.expect["error"]["message"].as_str();
    match (ours, failed) {
        (Err(own), Some(other)) if any_type(&own) == any_type(other) => Ok(()),
        (Err(own), Some(other))
            if other.starts_with("parsing spec.kubelet, ") && own.starts_with("spec.kubelet.") =>
        {
            Err(Difference::Meant(
                "a kubelet setting of the wrong type is named with what is allowed",
            ))
        }
        (Err(own), other) => Err(format!("ours fails with {own:?}, recorded {other:?}").into()),
        (Ok(_), Some(other)) => Err(format!("recorded {other:?}").into()),
        (Ok(ours), None) => {
            let mut expected: Vec<InstanceType> = case.expect["result"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|key| recorded(key.as_str().unwrap()))
                .collect();
            expected.sort_by(|a, b| a.name.cmp(&b.name));
            let names = |all: &[InstanceType]| -> Vec<Arc<str>> {
                all.iter().map(|each| Arc::clone(&each.name)).collect()
            };
            if names(&ours) != names(&expected) {
                let (own, other) = (names(&ours), names(&expected));
                return Err(format!("types: ours {own:?}, recorded {other:?}").into());
            }
            let priced = has_base_prices(&ours, &expected);
            for (own, other) in ours.iter().zip(&expected) {
                let prices = if priced { None } else { Some(other) };
                compare(&with_prices_of(own, prices), other).map_err(|text| meant(case, text))?;
            }
            Ok(())
        }
    }
}

/// Whether the on-demand prices are those that the reference begins with. An earlier step may have set others, which the case does
/// not list; then they are taken from the answer.
fn has_base_prices(ours: &[InstanceType], recorded: &[InstanceType]) -> bool {
    let prices = |all: &[InstanceType]| -> Vec<_> {
        let offerings = all.iter().flat_map(|each| &each.offerings);
        let paid = offerings.filter(|each| each.capacity_type != CapacityType::Reserved);
        paid.map(|each| each.price).collect()
    };
    prices(ours) == prices(recorded)
}

/// The type with the prices of another, as the reference offers it: an offering without a price is not available. Ours comes last.
fn with_prices_of(ours: &InstanceType, other: Option<&InstanceType>) -> InstanceType {
    let mut ours = ours.clone();
    if let Some(other) = other {
        let pairs = ours.offerings.iter_mut().zip(&other.offerings);
        pairs.for_each(|(own, other)| own.price = other.price);
    }
    for own in &mut ours.offerings {
        own.available &= own.price.is_some();
    }
    ours
}

/// The text without the name of the type that it is about: which one comes first is random in the reference.
fn any_type(text: &str) -> String {
    let name = text.split("instance-type=").nth(1);
    match name.and_then(|rest| rest.split([')', ',']).next()) {
        Some(name) => text.replace(name, "TYPE"),
        None => text.to_owned(),
    }
}

/// Which differences are meant.
fn meant(case: &Case, text: String) -> Difference {
    let core = resolved(&case.given["coreOptions"]);
    let recorded = case.expect["result"].as_array().into_iter().flatten();
    let has_override = recorded.map(resolved).any(|each| {
        let offerings = each["offerings"].as_array().cloned().unwrap_or_default();
        offerings
            .iter()
            .any(|each| !each["capacityOverride"].is_null())
    });
    let class = match &case.given["args"]["nodeClass"] {
        Value::Null => &case.given["nodeClass"],
        class => class,
    };
    let reservations = class["status"]["capacityReservations"].is_array();
    let reserved = core["FeatureGates"]["ReservedCapacity"] == true;
    if core["FeatureGates"]["NodeOverlay"] == true || has_override {
        return Difference::Meant("overlays are applied to the catalog, not by the provider");
    }
    let subnets = class["status"]["subnets"].as_array().into_iter().flatten();
    let mut recorded = case.expect["result"].as_array().into_iter().flatten();
    let has_zone_id = |key: &Value| {
        let each = resolved_type(key.as_str().unwrap());
        let mut labels = each.offerings.iter().flat_map(|each| &each.labels);
        labels.any(|(label, value)| **label == *key::ZONE_ID && !value.is_empty())
    };
    if subnets.clone().all(|each| each["zoneID"].is_null()) && recorded.any(has_zone_id) {
        return Difference::Meant("offerings of another class are not taken for this one's");
    }
    if reservations && !reserved {
        return Difference::Meant("reservations are no labels while reserved capacity is off");
    }
    Difference::Found(text)
}

#[test]
fn classes_have_the_recorded_types() {
    score("instance_types.jsonl", replay);
}
