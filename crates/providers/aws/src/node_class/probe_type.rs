//! The instance type that stands for all that are likely to be launched with a class. Pure.

use std::sync::Arc;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_apis::requirements::{Requirements, requirements_of};
use mortise_apis::values::money::MicroUsd;
use mortise_aws_class::labels as key;
use mortise_aws_class::status::Ami;
use mortise_cloudprovider::{CapacityType, InstanceType};

use crate::node_class::cache::CachedNodeClass;
use mortise_aws_catalog::ami_family::AmiFamily;

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
/// come first, because the images for those may be larger than the disks of the class, then cheap ones.
pub(crate) fn choose<'a>(
    class: &'a CachedNodeClass,
    pools: &[Arc<NodePool>],
) -> Option<&'a InstanceType> {
    let bootable: Vec<&InstanceType> = class
        .types
        .iter()
        .filter(|each| is_offered(each) && class.image(&each.name).is_some())
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

fn is_offered(each: &InstanceType) -> bool {
    each.offerings
        .iter()
        .any(|offering| offering.available && offering.capacity_type == CapacityType::OnDemand)
}

/// Low for a type that is tried first.
fn rank<'a>(
    class: &CachedNodeClass,
    each: &'a InstanceType,
) -> (bool, bool, Option<MicroUsd>, &'a str) {
    let price = each
        .offerings
        .iter()
        .filter(|offering| offering.capacity_type == CapacityType::OnDemand)
        .filter_map(|offering| offering.price)
        .min();
    let accelerated = class.image(&each.name).is_some_and(is_for_accelerators);
    (accelerated, price.is_none(), price, &each.name)
}

fn is_for_accelerators(ami: &Ami) -> bool {
    ami.requirements.iter().any(|each| {
        let accelerator = [key::INSTANCE_GPU_COUNT, key::INSTANCE_ACCELERATOR_COUNT];
        accelerator.contains(&each.key.as_str()) && each.operator == "Exists"
    })
}
