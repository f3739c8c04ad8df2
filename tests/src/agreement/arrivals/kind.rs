//! What the pods of a Deployment ask of each other.

use mortise_apis::labels;
use mortise_apis::values::SplitMix64;
use serde::Serialize;
use serde_json::{Value, json};

/// Zones of the kwok provider.
pub(super) const ZONES: [&str; 4] = ["test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d"];

/// A constraint between pods that can be satisfied in any order of arrival, as long as nodes are available in every zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing but resources.
    Plain,
    /// Required anti-affinity by host name.
    HostAntiAffinity,
    /// Required anti-affinity by zone.
    ZoneAntiAffinity,
    /// Spread over zones, `DoNotSchedule`.
    ZoneSpread,
    /// Spread over hosts, `DoNotSchedule`.
    HostSpread,
    /// Spread over zones and hosts, `ScheduleAnyway`.
    SoftSpread,
    /// Spread over zones with `minDomains`.
    MinDomains,
    /// Spread over zones with `nodeAffinityPolicy` and `nodeTaintsPolicy` that are not the default.
    InclusionPolicies,
    /// Required affinity to its own group, by zone.
    ZoneAffinity,
    /// Required affinity to the pods of another Deployment, by zone.
    AffinityToOther,
    /// Required anti-affinity by host name, and spread over zones.
    ApartAndSpread,
}

impl Kind {
    /// All of them, in the order of tables.
    pub const ALL: [Self; 11] = [
        Self::Plain,
        Self::HostAntiAffinity,
        Self::ZoneAntiAffinity,
        Self::ZoneSpread,
        Self::HostSpread,
        Self::SoftSpread,
        Self::MinDomains,
        Self::InclusionPolicies,
        Self::ZoneAffinity,
        Self::AffinityToOther,
        Self::ApartAndSpread,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Plain => "resources only",
            Self::HostAntiAffinity => "host anti-affinity",
            Self::ZoneAntiAffinity => "zone anti-affinity",
            Self::ZoneSpread => "zone spread",
            Self::HostSpread => "host spread",
            Self::SoftSpread => "spread, ScheduleAnyway",
            Self::MinDomains => "zone spread, minDomains",
            Self::InclusionPolicies => "zone spread, inclusion policies",
            Self::ZoneAffinity => "zone affinity, own group",
            Self::AffinityToOther => "zone affinity, other group",
            Self::ApartAndSpread => "host anti-affinity, zone spread",
        }
    }

    /// Most pods that can be placed: one a zone with anti-affinity between zones.
    pub(super) const fn most(self) -> u64 {
        match self {
            Self::ZoneAntiAffinity => ZONES.len() as u64,
            Self::HostAntiAffinity | Self::ApartAndSpread => 6,
            _ => 10,
        }
    }

    /// Writes it into a pod's specification. `app` is the pods' own label, `other` that of the Deployment which
    /// [`Kind::AffinityToOther`] wants to be near.
    pub(super) fn write(self, spec: &mut Value, app: &str, other: &str, rng: &mut SplitMix64) {
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let term = |of: &str, key: &str| json!([{"labelSelector": {"matchLabels": {"app": of}}, "topologyKey": key}]);
        let (zone, host) = (labels::TOPOLOGY_ZONE, labels::HOSTNAME);
        match self {
            Self::Plain => {}
            Self::HostAntiAffinity => {
                spec["affinity"]["podAntiAffinity"][required] = term(app, host);
            }
            Self::ZoneAntiAffinity => {
                spec["affinity"]["podAntiAffinity"][required] = term(app, zone);
            }
            Self::ZoneAffinity => spec["affinity"]["podAffinity"][required] = term(app, zone),
            Self::AffinityToOther => spec["affinity"]["podAffinity"][required] = term(other, zone),
            Self::ZoneSpread | Self::HostSpread => {
                let key = if self == Self::ZoneSpread { zone } else { host };
                let mut own = spread(app, key, "DoNotSchedule", rng);
                by_revision(&mut own, rng);
                spec["topologySpreadConstraints"] = json!([own]);
            }
            Self::SoftSpread => {
                let (zones, hosts) = (
                    spread(app, zone, "ScheduleAnyway", rng),
                    spread(app, host, "ScheduleAnyway", rng),
                );
                spec["topologySpreadConstraints"] = json!([zones, hosts]);
            }
            Self::MinDomains => {
                let mut own = spread(app, zone, "DoNotSchedule", rng);
                own["minDomains"] = json!(2 + rng.below(ZONES.len() as u64 - 1));
                spec["topologySpreadConstraints"] = json!([own]);
            }
            Self::InclusionPolicies => {
                let mut own = spread(app, zone, "DoNotSchedule", rng);
                let (affinity, taints) = [
                    ("Ignore", "Ignore"),
                    ("Ignore", "Honor"),
                    ("Honor", "Honor"),
                ][usize::try_from(rng.below(3)).unwrap_or(0)];
                own["nodeAffinityPolicy"] = json!(affinity);
                own["nodeTaintsPolicy"] = json!(taints);
                spec["topologySpreadConstraints"] = json!([own]);
            }
            Self::ApartAndSpread => {
                spec["affinity"]["podAntiAffinity"][required] = term(app, host);
                spec["topologySpreadConstraints"] =
                    json!([spread(app, zone, "DoNotSchedule", rng)]);
            }
        }
    }
}

fn spread(app: &str, key: &str, when: &str, rng: &mut SplitMix64) -> Value {
    let most = 1 + u64::from(rng.chance(250));
    json!({
        "maxSkew": most, "topologyKey": key, "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
    })
}

/// One in four counts the pods of its own revision only, as Deployments are advised to.
fn by_revision(spread: &mut Value, rng: &mut SplitMix64) {
    if rng.chance(250) {
        spread["matchLabelKeys"] = json!(["pod-template-hash"]);
    }
}
