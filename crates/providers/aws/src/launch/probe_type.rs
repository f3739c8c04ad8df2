//! The instance type that stands for all that are likely to be launched with a class. Pure.

use std::sync::Arc;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::requirements::{Requirements, requirements_of};
use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::labels as key;
use mortise_aws_class::status::Ami;
use mortise_cloudprovider::{CapacityType, InstanceType};

use crate::node_class::CachedNodeClass;
use crate::node_class::cache::PlacementGroup;
use mortise_aws_catalog::ami_family::AmiFamily;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;

/// Types that exist everywhere, one of each architecture.
const USUAL: [&str; 2] = ["m5.large", "m6g.large"];

/// Whether any pool allows hardware of its own.
pub(crate) fn is_dedicated(pools: &[Arc<NodePool>]) -> bool {
    pools.iter().any(|pool| {
        let requirements = asked(pool);
        let tenancy = requirements.get(key::INSTANCE_TENANCY);
        tenancy.is_some_and(|tenancy| tenancy.has("dedicated"))
    })
}

/// A type of the class that one of its images boots: one that a pool allows, else a usual one, else any. Types without accelerators
/// come first, because the images for those may be larger than the disks of the class, then those that have a subnet, then cheap ones.
/// `known` is what EC2 says of types.
pub(crate) fn choose<'a>(
    class: &'a CachedNodeClass,
    known: &[InstanceTypeInfo],
    pools: &[Arc<NodePool>],
) -> Option<&'a InstanceType> {
    let group = class.placement_group.as_ref().map(PlacementGroup::shape);
    let fits = |each: &InstanceType| {
        let info = known.binary_search_by(|info| info.name.cmp(&each.name));
        let info = info.ok().and_then(|at| known.get(at));
        info.is_some_and(|info| info.unfit(&class.settings, group.as_ref()).is_none())
    };
    let bootable: Vec<&InstanceType> = class
        .types
        .iter()
        .filter(|each| class.image(&each.name).is_some() && fits(each))
        .collect();
    let asked: Vec<Requirements> = pools.iter().map(|pool| asked(pool)).collect();
    let is_asked = |each: &&InstanceType| {
        asked
            .iter()
            .any(|asked| each.requirements.does_intersect(asked))
    };
    let is_usual = |each: &&InstanceType| USUAL.contains(&&*each.name);
    // Not every type that is listed for Windows boots it.
    let is_windows = AmiFamily::of(&class.object.spec).windows_build().is_some();
    let best = |candidates: &mut dyn Iterator<Item = &'a InstanceType>| {
        candidates.min_by_key(|each| rank(class, each))
    };
    let of_pools = best(&mut bootable.iter().copied().filter(is_asked)).filter(|_| !is_windows);
    of_pools
        .or_else(|| best(&mut bootable.iter().copied().filter(is_usual)))
        .or_else(|| best(&mut bootable.iter().copied()))
}

/// What a pool asks of types.
fn asked(pool: &NodePool) -> Requirements {
    let template = &pool.spec.template;
    let mut requirements = requirements_of(&template.spec.requirements);
    for (label, value) in template.labels().into_iter().flatten() {
        requirements.add(mortise_apis::requirements::Requirement::is(
            label.as_str(),
            value.as_str(),
        ));
    }
    requirements
}

/// Low for a type that is tried first.
fn rank<'a>(
    class: &CachedNodeClass,
    each: &'a InstanceType,
) -> (bool, bool, bool, Option<MicroUsd>, &'a str) {
    let on_demand = || {
        let all = each.offerings.iter();
        all.filter(|offering| offering.capacity_type == CapacityType::OnDemand)
    };
    let price = on_demand().filter_map(|offering| offering.price).min();
    let nowhere = !on_demand().any(|offering| offering.available);
    let accelerated = class.image(&each.name).is_some_and(is_for_accelerators);
    (accelerated, nowhere, price.is_none(), price, &each.name)
}

fn is_for_accelerators(ami: &Ami) -> bool {
    ami.requirements.iter().any(|each| {
        let accelerator = [key::INSTANCE_GPU_COUNT, key::INSTANCE_ACCELERATOR_COUNT];
        accelerator.contains(&each.key.as_str()) && each.operator == "Exists"
    })
}
