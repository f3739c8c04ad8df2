//! Available capacity: a series for each instance type and offering. Only in full detail.

use mortise_apis::resources::{CPU, MEMORY};
use mortise_state::snapshot::Snapshot;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::FloatGauge;
use crate::metrics::numbers::unit;

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
