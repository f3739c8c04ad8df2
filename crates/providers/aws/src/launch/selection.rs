//! Which types and offerings a launch asks for, out of those that a claim allows. Pure.

use std::cmp::Ordering;

use mortise_apis::labels;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering};

/// Most types in one request. More make the request slower, and the cloud no likelier to find one.
/// # Source
/// The reference implementation's number.
const MAX_TYPES: usize = 60;
/// Most overrides that one fleet request takes.
/// # Source
/// EC2 Fleet quotas.
const MAX_OVERRIDES: usize = 300;

/// Resources that only some pods use; types that have them are not spent on pods that do not ask.
const SPECIALIZED: [&str; 5] = [
    "nvidia.com/gpu",
    "amd.com/gpu",
    "habana.ai/gaudi",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
];

/// A type with the offerings of it that a launch may take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TypeCandidate<'a> {
    /// The type.
    pub(crate) instance_type: &'a InstanceType,
    /// Offerings of the chosen capacity type, in zone order. Never empty.
    pub(crate) offerings: Vec<&'a Offering>,
}

/// What a launch asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaunchSelection<'a> {
    /// One capacity type for all.
    pub(crate) capacity_type: CapacityType,
    /// Cheapest first. Never empty.
    pub(crate) candidates: Vec<TypeCandidate<'a>>,
}

/// Chooses for a claim: types that meet its requirements and hold its requests, in `usable` offerings, spot before on-demand where
/// both are allowed. `None` when nothing is left.
pub(crate) fn choose<'a>(
    types: &'a [InstanceType],
    asked: &Requirements,
    requests: &Resources,
    usable: impl Fn(&InstanceType, &Offering) -> bool,
) -> Option<LaunchSelection<'a>> {
    let known = mortise_aws_class::labels::well_known();
    let relaxed = asked.has_min_values(); // dropping types could drop the variety that was asked for
    let mut candidates: Vec<TypeCandidate<'a>> = types
        .iter()
        .filter(|each| {
            // What a claim asks beyond what types have (labels of its pool, say) is put on the node, not found on a type.
            asked.is_compatible(&each.requirements, &known) && requests.fits_in(&each.allocatable())
        })
        .map(|each| TypeCandidate {
            instance_type: each,
            offerings: each
                .offerings
                .iter()
                .filter(|offering| allows(asked, offering) && usable(each, offering))
                .collect(),
        })
        .filter(|candidate| !candidate.offerings.is_empty())
        .collect();
    if !relaxed
        && candidates
            .iter()
            .any(|candidate| !is_exotic(candidate.instance_type))
    {
        candidates.retain(|candidate| !is_exotic(candidate.instance_type));
    }
    let all = |candidates: &[TypeCandidate<'a>], wanted: CapacityType| {
        candidates
            .iter()
            .flat_map(|each| &each.offerings)
            .any(|offering| offering.capacity_type == wanted)
    };
    let capacity_type = [
        CapacityType::Reserved,
        CapacityType::Spot,
        CapacityType::OnDemand,
    ]
    .into_iter()
    .find(|each| all(&candidates, *each))?;
    if capacity_type == CapacityType::Spot && !relaxed {
        drop_expensive_spot(&mut candidates);
    }
    for candidate in &mut candidates {
        candidate
            .offerings
            .retain(|offering| offering.capacity_type == capacity_type);
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    candidates.sort_by(|a, b| {
        by_price(cheapest(a), cheapest(b))
            .then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
    if !relaxed {
        candidates.truncate(MAX_TYPES);
    }
    let mut left = MAX_OVERRIDES;
    candidates.retain(|candidate| {
        let fits = candidate.offerings.len() <= left;
        left = left.saturating_sub(candidate.offerings.len());
        fits
    });
    (!candidates.is_empty()).then_some(LaunchSelection {
        capacity_type,
        candidates,
    })
}

/// Drops spot offerings above the cheapest on-demand price of the list. At least one spot offering stays.
fn drop_expensive_spot(candidates: &mut [TypeCandidate<'_>]) {
    let offerings = || candidates.iter().flat_map(|candidate| &candidate.offerings);
    let Some(limit) = offerings()
        .filter(|offering| offering.capacity_type == CapacityType::OnDemand)
        .filter_map(|offering| offering.price)
        .min()
    else {
        return;
    };
    let is_expensive = |offering: &Offering| {
        offering.capacity_type == CapacityType::Spot
            && offering.price.is_some_and(|price| price > limit)
    };
    if offerings()
        .any(|offering| offering.capacity_type == CapacityType::Spot && !is_expensive(offering))
    {
        for candidate in candidates {
            candidate
                .offerings
                .retain(|offering| !is_expensive(offering));
        }
    }
}

/// Whether the claim may be launched as this offering.
fn allows(asked: &Requirements, offering: &Offering) -> bool {
    let own = [
        (labels::TOPOLOGY_ZONE, &*offering.zone),
        (labels::CAPACITY_TYPE, offering.capacity_type.as_str()),
    ];
    let own = own.into_iter().chain(
        offering
            .labels
            .iter()
            .map(|(key, value)| (&**key, &**value)),
    );
    own.into_iter().all(|(key, value)| {
        asked
            .get(key)
            .is_none_or(|wanted: &Requirement| wanted.has(value))
    })
}

fn is_exotic(each: &InstanceType) -> bool {
    let metal = each
        .name
        .split_once('.')
        .is_some_and(|(_, size)| size.contains("metal"));
    metal
        || SPECIALIZED
            .iter()
            .any(|name| each.capacity.extended(name) > 0)
}

fn cheapest(candidate: &TypeCandidate<'_>) -> Option<MicroUsd> {
    candidate
        .offerings
        .iter()
        .filter_map(|offering| offering.price)
        .min()
}

/// Known prices before unknown ones, low before high.
fn by_price(a: Option<MicroUsd>, b: Option<MicroUsd>) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) => a.cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::requirements::Operator;
    use mortise_aws_catalog as catalog;

    fn all(_: &InstanceType, _: &Offering) -> bool {
        true
    }

    fn types() -> Vec<InstanceType> {
        catalog::embedded("us-east-1", &["us-east-1a", "us-east-1b"]).unwrap()
    }

    fn asked(entries: &[(&str, Operator, &[&str])]) -> Requirements {
        entries
            .iter()
            .map(|(key, operator, values)| {
                Requirement::new(*key, *operator, values.iter().copied())
            })
            .collect()
    }

    #[test]
    fn labels_of_the_pool_narrow_nothing() {
        let types = types();
        let plain = asked(&[(labels::ARCH, Operator::In, &["amd64"])]);
        let labelled = asked(&[
            (labels::ARCH, Operator::In, &["amd64"]),
            (labels::NODEPOOL, Operator::In, &["default"]),
            (
                mortise_aws_class::labels::NODE_CLASS,
                Operator::In,
                &["default"],
            ),
            ("example.com/team", Operator::In, &["web"]),
        ]);
        let requests = Resources::new(1_000, 1 << 30);
        let choice = choose(&types, &labelled, &requests, all);
        assert!(choice.is_some());
        assert_eq!(choice, choose(&types, &plain, &requests, all));
    }

    #[test]
    fn cheapest_that_fits_comes_first() {
        let types = types();
        let amd64 = asked(&[
            (labels::ARCH, Operator::In, &["amd64"]),
            (labels::CAPACITY_TYPE, Operator::In, &["on-demand"]),
        ]);
        let choice = choose(&types, &amd64, &Resources::new(3_000, 10 << 30), all).unwrap();
        assert_eq!(choice.capacity_type, CapacityType::OnDemand);
        assert_eq!(choice.candidates.len(), MAX_TYPES);
        let prices: Vec<_> = choice.candidates.iter().map(cheapest).collect();
        assert!(
            prices.is_sorted_by(|a, b| by_price(*a, *b).is_le()),
            "{prices:?}"
        );
        for candidate in &choice.candidates {
            assert!(
                Resources::new(3_000, 10 << 30).fits_in(&candidate.instance_type.allocatable()),
                "{}",
                candidate.instance_type.name
            );
            assert!(
                !is_exotic(candidate.instance_type),
                "{}",
                candidate.instance_type.name
            );
        }
    }

    #[test]
    fn spot_goes_before_on_demand() {
        let types = types();
        let any = asked(&[
            (
                labels::INSTANCE_TYPE,
                Operator::In,
                &["m5.large", "c5.large"],
            ),
            (labels::TOPOLOGY_ZONE, Operator::In, &["us-east-1b"]),
        ]);
        let choice = choose(&types, &any, &Resources::new(100, 1 << 20), all).unwrap();
        assert_eq!(choice.capacity_type, CapacityType::Spot);
        for candidate in &choice.candidates {
            assert_eq!(
                candidate
                    .offerings
                    .iter()
                    .map(|each| &*each.zone)
                    .collect::<Vec<_>>(),
                ["us-east-1b"]
            );
        }
    }

    #[test]
    fn exotic_types_only_when_nothing_else_is_left() {
        let types = types();
        let gpu = asked(&[(labels::INSTANCE_TYPE, Operator::In, &["g5.xlarge"])]);
        assert!(
            choose(
                &types,
                &gpu,
                &Resources::new(100, 1 << 20).with("nvidia.com/gpu", 1),
                all
            )
            .is_some()
        );
        let both = asked(&[(
            labels::INSTANCE_TYPE,
            Operator::In,
            &["g5.xlarge", "m5.metal", "m5.xlarge"],
        )]);
        let choice = choose(&types, &both, &Resources::new(100, 1 << 20), all).unwrap();
        assert_eq!(
            choice
                .candidates
                .iter()
                .map(|each| &*each.instance_type.name)
                .collect::<Vec<_>>(),
            ["m5.xlarge"]
        );
    }

    #[test]
    fn nothing_left_is_none() {
        let types = types();
        assert!(
            choose(
                &types,
                &asked(&[(labels::INSTANCE_TYPE, Operator::In, &["m5.huge"])]),
                &Resources::zero(),
                all
            )
            .is_none()
        );
        assert!(
            choose(
                &types,
                &asked(&[(labels::INSTANCE_TYPE, Operator::In, &["m5.large"])]),
                &Resources::new(64_000, 0),
                all
            )
            .is_none()
        );
        assert!(
            choose(&types, &Requirements::new(), &Resources::zero(), |_, _| {
                false
            })
            .is_none()
        );
    }
}
