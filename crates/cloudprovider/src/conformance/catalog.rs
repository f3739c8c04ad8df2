//! Rules of instance types.

use std::collections::BTreeSet;

use super::ConformanceRun;
use crate::instance_type::InstanceType;
use mortise_apis::labels;

impl ConformanceRun<'_> {
    pub(super) fn catalog(&mut self, types: &[InstanceType]) {
        self.require(
            types
                .iter()
                .any(|each| each.offerings.iter().any(|offering| offering.available)),
            "a resolved node class has an instance type that is available",
            || format!("{} instance types", types.len()),
        );
        let names: BTreeSet<&str> = types.iter().map(|each| &*each.name).collect();
        self.require(
            names.len() == types.len(),
            "an instance type occurs once",
            || format!("{} names of {} types", names.len(), types.len()),
        );
        for each in types {
            self.instance_type(each);
        }
    }

    fn instance_type(&mut self, each: &InstanceType) {
        let name = &each.name;
        for (label, value) in [(labels::INSTANCE_TYPE, Some(&**name)), (labels::ARCH, None)] {
            let requirement = each.requirements.get(label);
            let is_kept = requirement
                .is_some_and(|requirement| value.is_none_or(|value| requirement.has(value)));
            self.require(
                is_kept,
                "an instance type has its name and architecture as labels",
                || format!("{name}: {label}"),
            );
        }
        let allocatable = each.allocatable();
        for (resource, amount) in allocatable.iter() {
            let capacity = each.capacity.get(resource);
            self.require(
                (0..=capacity).contains(&amount),
                "allocatable is between zero and the capacity",
                || format!("{name}: {amount} of {capacity} {resource}"),
            );
        }
        self.require(
            each.capacity.cpu > 0 && each.capacity.memory > 0 && each.capacity.pods > 0,
            "an instance type has cpu, memory and pods",
            || format!("{name}: {:?}", each.capacity),
        );
        self.require(
            each.offerings
                .is_sorted_by_key(|offering| (&offering.zone, offering.capacity_type)),
            "offerings are sorted by zone and capacity type",
            || name.to_string(),
        );
        for offering in &each.offerings {
            self.require(
                offering.price.is_none_or(|price| price.0 > 0),
                "a price is unknown or above zero",
                || format!("{name}: {offering:?}"),
            );
            let zones = each.requirements.get(labels::TOPOLOGY_ZONE);
            self.require(
                !offering.available || zones.is_some_and(|zones| zones.has(&offering.zone)),
                "the zones of a type are those of its available offerings",
                || format!("{name}: {}", offering.zone),
            );
        }
    }
}
