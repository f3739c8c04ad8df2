//! Available capacity: a series for each instance type and offering, only in full detail; and reserved capacity that no node uses.

use mortise_apis::resources::{CPU, MEMORY};
use mortise_apis::values::money::MicroUsd;
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::FloatGauge;
use crate::metrics::numbers::unit;
use crate::service_state::unused_reservations::{UnusedReservation, UnusedReservations};

/// Reserved capacity that no node uses, and what it costs. What has no known price is not in the cost.
pub(super) fn unused_reservations(live: &mut Registry, reservations: &UnusedReservations) {
    let unused = reservations.now();
    let instances = unused.iter().map(|each| i64::from(each.instances)).sum();
    let cost: MicroUsd = unused
        .iter()
        .filter_map(UnusedReservation::hourly_price)
        .sum();
    live.register(
        "mortise_unused_reserved_instances",
        "Instances of capacity reservations that no node uses",
        ConstGauge::<i64>::new(instances),
    );
    live.register(
        "mortise_unused_reserved_cost",
        "Price per hour of the instances of capacity reservations that no node uses",
        ConstGauge::new(cost.dollars()),
    );
}

type OfferingSeries = Vec<(&'static str, String)>;

/// Registers the gauges. A type of several node classes has one series: available if any class offers it, with the lowest
/// price.
pub(super) fn each(live: &mut Registry, snapshot: &Snapshot) {
    let family = Family::<OfferingSeries, FloatGauge>::default;
    let (cores, memory, prices, available) = (family(), family(), family(), family());
    for catalog in snapshot.catalogs.values() {
        for each in catalog.types() {
            let own: OfferingSeries = vec![("instance_type", each.name.to_string())];
            cores
                .get_or_create_owned(&own)
                .set(unit(CPU, each.capacity.get(CPU)));
            memory
                .get_or_create_owned(&own)
                .set(unit(MEMORY, each.capacity.get(MEMORY)));
            for offering in &each.offerings {
                let mut own = own.clone();
                own.push(("capacity_type", offering.capacity_type.as_str().to_owned()));
                own.push(("zone", offering.zone.to_string()));
                let seen = available.get_or_create_owned(&own);
                seen.set(f64::max(
                    seen.get(),
                    f64::from(u8::from(offering.available)),
                ));
                if let Some(price) = offering.price {
                    let known = prices.get_or_create_owned(&own);
                    let dollars = price.dollars();
                    let least = if known.get() > 0.0 {
                        known.get().min(dollars)
                    } else {
                        dollars
                    };
                    known.set(least);
                }
            }
        }
    }
    for (name, help, family) in [
        (
            "karpenter_cloudprovider_instance_type_cpu_cores",
            "CPUs of an instance type",
            cores,
        ),
        (
            "karpenter_cloudprovider_instance_type_memory_bytes",
            "Memory of an instance type",
            memory,
        ),
        (
            "karpenter_cloudprovider_instance_type_offering_price_estimate",
            "Price per hour of an offering",
            prices,
        ),
        (
            "karpenter_cloudprovider_instance_type_offering_available",
            "1 if an offering is considered available",
            available,
        ),
    ] {
        live.register(name, help, family);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode_registry;

    use super::*;
    use crate::service_state::unused_reservations::tests::catalogs;

    #[test]
    fn unused_reserved_instances_are_counted_with_their_cost() {
        let reservations = UnusedReservations::default();
        reservations.follow(&catalogs(&[3]), jiff::Timestamp::UNIX_EPOCH);
        let (mut live, mut text) = (Registry::default(), String::new());
        unused_reservations(&mut live, &reservations);
        encode_registry(&mut text, &live).unwrap();
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            series,
            [
                "mortise_unused_reserved_instances 3",
                "mortise_unused_reserved_cost 0.3"
            ]
        );
    }
}
