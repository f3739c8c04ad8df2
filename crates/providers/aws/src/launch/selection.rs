//! Which types and offerings a launch asks for, out of those that a claim allows. Pure.

use std::collections::BTreeSet;
use std::sync::Arc;

use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_cloudprovider::{CapacityType, InstanceType, LaunchError, Offering};

use crate::launch::error::no_capacity;
use crate::launch::filters::{self, ReservationKind, TypeCandidate};
use crate::launch::launch_price::by_price;

/// Most types in one request. More make the request slower, and the cloud no likelier to find one.
/// # Source
/// The reference implementation's number.
const MAX_TYPES: usize = 60;
/// Most overrides that one fleet request takes.
/// # Source
/// EC2 Fleet quotas.
const MAX_OVERRIDES: usize = 300;

/// What a launch asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaunchSelection<'a> {
    /// One capacity type for all.
    pub(crate) capacity_type: CapacityType,
    /// One kind of reservation for all, when they are reserved.
    pub(crate) reservation: Option<ReservationKind>,
    /// Cheapest first, each with its offerings of the capacity type. Neither they nor their offerings are empty.
    pub(crate) candidates: Vec<TypeCandidate<'a>>,
}

impl<'a> LaunchSelection<'a> {
    /// A selected type with its offering in a zone.
    pub(crate) fn place(
        &self,
        instance_type: &str,
        zone: &str,
    ) -> Option<(&'a InstanceType, &'a Offering)> {
        let mut candidates = self.candidates.iter();
        let candidate = candidates.find(|each| &*each.instance_type.name == instance_type)?;
        let mut offerings = candidate.offerings.iter().copied();
        let offering = offerings.find(|offering| &*offering.zone == zone)?;
        Some((candidate.instance_type, offering))
    }
}

/// What a claim asks of its instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchDemand<'a> {
    /// Its requirements.
    pub(crate) asked: &'a Requirements,
    /// What its pods request.
    pub(crate) requests: &'a Resources,
    /// Fewer values than a requirement wants are better than no instance.
    pub(crate) best_effort: bool,
}

/// Chooses for a claim: types that meet its requirements and hold its requests, in available offerings; prepaid before spot before
/// on-demand where several are allowed.
/// # Errors
/// Nothing is left, or less variety than the claim asks for.
pub(crate) fn choose<'a>(
    types: &'a [InstanceType],
    demand: LaunchDemand<'_>,
) -> Result<LaunchSelection<'a>, LaunchError> {
    let LaunchDemand {
        asked, requests, ..
    } = demand;
    let mut candidates = filters::compatible_available(types, asked, requests);
    filters::one_reservation_kind(&mut candidates, asked);
    filters::one_capacity_block(&mut candidates);
    filters::one_reservation_per_zone(&mut candidates);
    filters::without_exotic(&mut candidates, asked);
    filters::without_expensive_spot(&mut candidates, asked);
    if candidates.is_empty() {
        let none = "all requested instance types were unavailable during launch";
        return Err(LaunchError::InsufficientCapacity {
            message: none.to_owned(),
            unavailable: filters::unavailable_for(types, asked),
            again_ms: None,
            missing: None,
        });
    }
    candidates.sort_by(|a, b| {
        by_price(a.cheapest(), b.cheapest())
            .then_with(|| a.instance_type.name.cmp(&b.instance_type.name))
    });
    candidates.truncate(MAX_TYPES);
    check_variety(&candidates, demand)?;
    of_best_capacity_type(candidates)
}

/// Whether what is left has as many different values as the claim asks for.
fn check_variety(
    candidates: &[TypeCandidate<'_>],
    demand: LaunchDemand<'_>,
) -> Result<(), LaunchError> {
    if demand.best_effort {
        return Ok(());
    }
    let too_few = |wanted: &&Requirement| {
        let values = candidates.iter().filter_map(|candidate| {
            let has = candidate.instance_type.requirements.get(wanted.key())?;
            (!has.is_complement()).then(|| has.values())
        });
        let values: BTreeSet<&Arc<str>> = values.flatten().collect();
        let least = wanted
            .min_values()
            .and_then(|least| usize::try_from(least).ok());
        least.is_some_and(|least| values.len() < least)
    };
    let mut keys: Vec<&str> = demand
        .asked
        .iter()
        .filter(too_few)
        .map(Requirement::key)
        .collect();
    keys.sort_unstable();
    if keys.is_empty() {
        return Ok(());
    }
    Err(no_capacity(format!(
        "truncating instance types based on the passed-in requirements, validating minValues, minValues requirement is not met for label(s) (label(s)=[{}])",
        keys.join(" ")
    )))
}

/// Keeps the offerings of the first capacity type that any candidate has.
fn of_best_capacity_type(
    mut candidates: Vec<TypeCandidate<'_>>,
) -> Result<LaunchSelection<'_>, LaunchError> {
    let order = [
        CapacityType::Reserved,
        CapacityType::Spot,
        CapacityType::OnDemand,
    ];
    let has = |wanted: &CapacityType| {
        let mut offerings = candidates.iter().flat_map(|each| &each.offerings);
        offerings.any(|offering| offering.capacity_type == *wanted)
    };
    let Some(capacity_type) = order.into_iter().find(has) else {
        return Err(no_offerings());
    };
    for candidate in &mut candidates {
        candidate
            .offerings
            .retain(|offering| offering.capacity_type == capacity_type);
    }
    candidates.retain(|candidate| !candidate.offerings.is_empty());
    let mut left = MAX_OVERRIDES;
    candidates.retain(|candidate| {
        let fits = candidate.offerings.len() <= left;
        left = left.saturating_sub(candidate.offerings.len());
        fits
    });
    let mut offerings = candidates.iter().flat_map(|each| &each.offerings);
    let reservation = offerings.next().and_then(|each| ReservationKind::of(each));
    Ok(LaunchSelection {
        capacity_type,
        reservation,
        candidates,
    })
}

/// Nothing is left to ask EC2 for.
pub(super) fn no_offerings() -> LaunchError {
    no_capacity("no capacity offerings are currently available given the constraints")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mortise_apis::labels;
    use mortise_apis::requirements::Operator;
    use mortise_aws_catalog as catalog;
    use mortise_cloudprovider::UnavailableOffering;

    fn types() -> Vec<InstanceType> {
        catalog::embedded("us-east-1", &["us-east-1a", "us-east-1b"]).unwrap()
    }

    fn choose<'a>(
        types: &'a [InstanceType],
        asked: &Requirements,
        requests: &Resources,
    ) -> Option<LaunchSelection<'a>> {
        let demand = LaunchDemand {
            asked,
            requests,
            best_effort: false,
        };
        super::choose(types, demand).ok()
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
    fn what_is_unavailable_is_named_when_nothing_is_left() {
        let mut types = types();
        types.retain(|each| &*each.name == "m5.large");
        let asked = asked(&[(labels::CAPACITY_TYPE, Operator::In, &["spot"])]);
        for offering in &mut types[0].offerings {
            offering.available = offering.capacity_type != CapacityType::Spot;
        }
        let demand = LaunchDemand {
            asked: &asked,
            requests: &Resources::zero(),
            best_effort: false,
        };
        let Err(LaunchError::InsufficientCapacity { unavailable, .. }) =
            super::choose(&types, demand)
        else {
            panic!("nothing is left")
        };
        let zones: Vec<&str> = unavailable.iter().map(|each| &*each.zone).collect();
        assert_eq!(zones, ["us-east-1a", "us-east-1b"]);
        let is_spot = |each: &UnavailableOffering| each.capacity_type == CapacityType::Spot;
        assert!(unavailable.iter().all(is_spot));
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
        let choice = choose(&types, &labelled, &requests);
        assert!(choice.is_some());
        assert_eq!(choice, choose(&types, &plain, &requests));
    }

    #[test]
    fn cheapest_that_fits_comes_first() {
        let types = types();
        let amd64 = asked(&[
            (labels::ARCH, Operator::In, &["amd64"]),
            (labels::CAPACITY_TYPE, Operator::In, &["on-demand"]),
        ]);
        let choice = choose(&types, &amd64, &Resources::new(3_000, 10 << 30)).unwrap();
        assert_eq!(choice.capacity_type, CapacityType::OnDemand);
        assert_eq!(choice.candidates.len(), MAX_TYPES);
        let prices: Vec<_> = choice
            .candidates
            .iter()
            .map(TypeCandidate::cheapest)
            .collect();
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
                !candidate.instance_type.name.contains("metal"),
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
        let choice = choose(&types, &any, &Resources::new(100, 1 << 20)).unwrap();
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
                &Resources::new(100, 1 << 20).with("nvidia.com/gpu", 1)
            )
            .is_some()
        );
        let both = asked(&[(
            labels::INSTANCE_TYPE,
            Operator::In,
            &["g5.xlarge", "m5.metal", "m5.xlarge"],
        )]);
        let choice = choose(&types, &both, &Resources::new(100, 1 << 20)).unwrap();
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
                &Resources::zero()
            )
            .is_none()
        );
        assert!(
            choose(
                &types,
                &asked(&[(labels::INSTANCE_TYPE, Operator::In, &["m5.large"])]),
                &Resources::new(64_000, 0)
            )
            .is_none()
        );
        assert!(choose(&[], &Requirements::new(), &Resources::zero()).is_none());
    }

    #[test]
    fn too_little_variety_is_no_capacity() {
        let types = types();
        let few: Requirements = [Requirement::new(
            labels::INSTANCE_TYPE,
            Operator::In,
            ["m5.large", "c5.large"],
        )
        .with_min_values(Some(3))]
        .into_iter()
        .collect();
        let requests = Resources::new(100, 1 << 20);
        let demand = LaunchDemand {
            asked: &few,
            requests: &requests,
            best_effort: false,
        };
        assert_eq!(
            super::choose(&types, demand).unwrap_err().to_string(),
            "insufficient capacity: truncating instance types based on the passed-in requirements, validating minValues, minValues requirement is not met for label(s) (label(s)=[node.kubernetes.io/instance-type])"
        );
        let relaxed = LaunchDemand {
            best_effort: true,
            ..demand
        };
        assert_eq!(super::choose(&types, relaxed).unwrap().candidates.len(), 2);
    }
}
