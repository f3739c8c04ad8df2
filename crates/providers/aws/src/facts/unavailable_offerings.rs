//! Recorded marks and questions of the cache of unavailable offerings. Cases of one session work on one cache, and about half of them
//! are kept apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use mortise_apis::requirements::Requirements;
use mortise_apis::resources::Resources;
use mortise_cloudprovider::{CapacityType, InstanceType, Offering, UnavailableOffering};
use serde::Deserialize;

use super::replay::{Case, Difference, score};
use crate::offerings::unavailable_offerings::{
    PlacementScope, UnavailableKey, UnavailableOfferings,
};

/// Arguments of every operation.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Arguments {
    capacity_type: Option<String>,
    instance_type: String,
    zone: String,
    subnet: String,
    subnets: Vec<String>,
    reason: Option<BTreeMap<String, String>>,
    scope: Scope,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Scope {
    #[serde(alias = "placementGroup", alias = "placementGroupID")]
    group: Option<String>,
    partition: Option<String>,
}

impl Arguments {
    fn capacity_type(&self) -> CapacityType {
        let text = self.capacity_type.as_deref();
        text.and_then(CapacityType::parse).unwrap()
    }

    fn key(&self) -> UnavailableKey {
        let offering = UnavailableOffering {
            instance_type: Arc::from(&*self.instance_type),
            zone: Arc::from(&*self.zone),
            capacity_type: self.capacity_type(),
        };
        match &self.scope.group {
            None => UnavailableKey::Offering(offering),
            Some(group) => {
                let scope = PlacementScope {
                    group: Arc::from(&**group),
                    partition: self.scope.partition.as_deref().map(Arc::from),
                };
                UnavailableKey::Placed(offering, scope)
            }
        }
    }

    /// Whether the offering may not be asked for.
    fn is_unavailable(&self, cache: &UnavailableOfferings) -> bool {
        let mut subnets = self.subnets.iter();
        let usable = self.subnets.is_empty() || subnets.any(|subnet| !cache.is_subnet_full(subnet));
        let zones = usable.then(|| Arc::from(&*self.zone));
        let offering = Offering {
            zone: Arc::from(&*self.zone),
            capacity_type: self.capacity_type(),
            price: None,
            available: true,
            reservation: None,
            labels: Vec::new(),
        };
        let instance_type = InstanceType {
            name: Arc::from(&*self.instance_type),
            requirements: Requirements::new(),
            capacity: Resources::zero(),
            overhead: Resources::zero(),
            offerings: Vec::new(),
            devices: Arc::from([]),
        };
        let zones: BTreeSet<Arc<str>> = zones.into_iter().collect();
        let view = cache.view(zones, self.scope.group.as_deref());
        !view.allow(&instance_type, &offering)
    }
}

fn run(cache: &UnavailableOfferings, case: &Case) -> Result<(), Difference> {
    let arguments: Arguments = serde_json::from_value(case.given["args"].clone()).unwrap();
    let cause = arguments
        .reason
        .as_ref()
        .and_then(|each| each.get("reason"));
    let cause = cause.map_or("recorded", String::as_str);
    match &*case.op {
        "ice.MarkUnavailable" => cache.mark_because(arguments.key(), cause),
        "ice.MarkCapacityTypeUnavailable" => {
            let key = UnavailableKey::CapacityType(arguments.capacity_type());
            cache.mark_because(key, cause);
        }
        "ice.MarkSubnetUnavailable" => {
            cache.mark_because(UnavailableKey::Subnet(arguments.subnet), cause);
        }
        "ice.IsUnavailable" => {
            let ours = arguments.is_unavailable(cache);
            let recorded = case.expect["result"] == true;
            if recorded && !ours && cache.keys().is_empty() {
                return Err(Difference::Meant(
                    "its marks are among the cases that are kept apart",
                ));
            }
            if ours != recorded {
                return Err(format!("ours {ours}, recorded {recorded}").into());
            }
        }
        other => return Err(format!("unknown operation {other}").into()),
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn unavailable_offerings_are_as_recorded() {
    let caches: Mutex<BTreeMap<String, Arc<UnavailableOfferings>>> = Mutex::default();
    score("unavailable_offerings.jsonl", |case| {
        let cache = {
            let mut caches = caches.lock().unwrap();
            Arc::clone(caches.entry(case.session.clone()).or_default())
        };
        run(&cache, case)
    });
}
