//! What providers measure of their own facts.

use mortise_cloudprovider::{GaugeName, ProviderGauge};
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::FloatGauge;

type GaugeSeries = Vec<(&'static str, &'static str)>;

/// Name and help of a gauge.
const fn metric(name: GaugeName) -> (&'static str, &'static str) {
    match name {
        GaugeName::PriceAge => (
            "mortise_price_age_seconds",
            "Age of the prices in use, by capacity type and source",
        ),
        GaugeName::UnpricedInstanceTypes => (
            "mortise_unpriced_instance_types",
            "Instance types that are sold without a known on-demand price",
        ),
        GaugeName::UnavailableCapacity => (
            "mortise_unavailable_capacity",
            "Capacity that the cloud refused lately and is not asked for now, by capacity type and cause",
        ),
        GaugeName::CallTokens => (
            "mortise_cloud_call_tokens",
            "Calls that may be sent at once before a limit of the cloud is reached",
        ),
        GaugeName::CallsWaiting => (
            "mortise_cloud_calls_waiting",
            "Calls that wait for a limit of the cloud",
        ),
    }
}

/// Registers the gauges that any provider reports. Of two providers with equal labels the larger number is shown.
pub(super) fn register(live: &mut Registry, gauges: &[ProviderGauge]) {
    for name in GaugeName::ALL {
        let family = Family::<GaugeSeries, FloatGauge>::default();
        let own: Vec<_> = gauges.iter().filter(|gauge| gauge.name == name).collect();
        for gauge in &own {
            let series = family.get_or_create_owned(&gauge.labels);
            series.set(f64::max(series.get(), gauge.value));
        }
        if !own.is_empty() {
            let (name, help) = metric(name);
            live.register(name, help, family);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prometheus_client::encoding::text::encode_registry;

    use super::*;

    fn page(gauges: &[ProviderGauge]) -> String {
        let (mut live, mut text) = (Registry::default(), String::new());
        register(&mut live, gauges);
        encode_registry(&mut text, &live).unwrap();
        text
    }

    fn age(source: &'static str, value: f64) -> ProviderGauge {
        ProviderGauge {
            name: GaugeName::PriceAge,
            labels: vec![("capacity_type", "spot"), ("source", source)],
            value,
        }
    }

    #[test]
    fn gauges_of_providers_are_served_with_their_labels() {
        assert_eq!(page(&[]), "", "no provider reports any");
        let text = page(&[age("live", 5.0), age("embedded", 90.0), age("live", 7.0)]);
        let series: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(series.len(), 2, "{text}");
        for wanted in [
            "mortise_price_age_seconds{capacity_type=\"spot\",source=\"live\"} 7.0",
            "mortise_price_age_seconds{capacity_type=\"spot\",source=\"embedded\"} 90.0",
        ] {
            assert!(series.contains(&wanted), "{text}");
        }
    }

    #[test]
    fn every_gauge_has_a_metric_of_its_own_that_is_documented_with_its_labels() {
        let page = include_str!("../../../../../docs/reference/metrics.md");
        let names: BTreeSet<&str> = GaugeName::ALL.map(|name| metric(name).0).into();
        assert_eq!(names.len(), GaugeName::ALL.len());
        for name in GaugeName::ALL {
            let labels = match name.labels() {
                [] => String::new(),
                labels => format!("{{{}}}", labels.join(",")),
            };
            let row = format!("| `{}{labels}` | gauge |", metric(name).0);
            assert!(page.contains(&row), "{row}");
        }
    }
}
