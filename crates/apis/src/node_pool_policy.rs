//! NodePoolPolicy: what NodePools may spend together and when, what is paid for in advance, how fast they may grow, how much of them
//! is on-demand, whether zones are balanced, and which nodes consolidation leaves alone.
//!
//! An own kind, because nothing is added to Karpenter's definitions: without an object of it, everything is as in Karpenter.

mod calendar;
mod commitments;
mod pause;
mod spending;
mod zone_balance;

use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::conditions::Condition;
use crate::schema::fields;
use crate::schema::groups::{OWN_GROUP, V1ALPHA1};
use crate::schema::object::{is_default, null_as_default, object};
use crate::values::GoDuration;
use crate::values::money::MicroUsd;

pub use calendar::{LimitInForce, LimitSource, LimitsInForce, PolicyCalendarEntry};
pub(crate) use commitments::hundredths_of_percent;
pub use commitments::{Commitment, CommitmentAmount, DISCOUNT, PolicyCommitment};
pub use pause::{PolicyPause, StatedPause};
pub use spending::{DOLLARS, Month, MonthlySpending, PolicySpending, SpendingStatus};
pub use zone_balance::{PriceIncrease, ZoneBalance};

object! {
    /// Limits what the NodePools that it names cost together, how fast they grow, and which of their nodes are consolidated.
    pub struct NodePoolPolicy(OWN_GROUP, V1ALPHA1, "NodePoolPolicy", "nodepoolpolicies", ClusterResourceScope) {
        /// What is wanted.
        pub spec as "spec": NodePoolPolicySpec,
        /// What is.
        pub status as "status": NodePoolPolicyStatus,
    }
}

/// The NodePools that a policy holds for, and what it asks of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodePools"]))]
pub struct NodePoolPolicySpec {
    /// Names of the NodePools. Limits hold for all of them together. Of two policies that name the same NodePool, the older one holds for it.
    #[serde(deserialize_with = "null_as_default")]
    #[schemars(
        schema_with = "pool_names",
        extend("minItems" = 1, "maxItems" = 100, "x-kubernetes-list-type" = "set")
    )]
    pub node_pools: Vec<String>,
    /// How many the nodes may be, and what they may cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<PolicyLimits>,
    /// Other limits at some times. They hold for what is launched: no node is removed because a limit has fallen.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    #[schemars(extend("maxItems" = 50, "x-kubernetes-list-type" = "atomic"))]
    pub calendar: Vec<PolicyCalendarEntry>,
    /// What the nodes may cost over a longer time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spending: Option<PolicySpending>,
    /// On-demand capacity that is paid for, whether it is used or not. It is used first, in this order. Those of all policies count that name a NodePool, whichever of them holds for it.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "null_as_default"
    )]
    #[schemars(extend("maxItems" = 50, "x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub commitments: Vec<PolicyCommitment>,
    /// How the NodePools grow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<PolicyScaling>,
    /// Which nodes are disrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disruption: Option<PolicyDisruption>,
}

/// How many the nodes of a policy may be, and what they may cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyLimits {
    /// Dollars per hour that all nodes of the NodePools may cost together, such as "12.50". A node counts until its instance is gone; before it is launched, it counts with the most expensive offering that it may get.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = HOURLY_PRICE))]
    pub hourly_price: Option<String>,
    /// Most nodes of the NodePools together. A node counts from the creation of its NodeClaim until its instance is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub nodes: Option<i32>,
}

impl PolicyLimits {
    /// The limit on the price per hour. A text that cannot be read allows nothing: a limit must not end with a typo.
    fn hourly_price(&self) -> Option<MicroUsd> {
        let text = self.hourly_price.as_ref()?;
        Some(MicroUsd::parse_dollars(text).unwrap_or_default())
    }

    /// The limit on the number of nodes. Less than none is none.
    fn nodes(&self) -> Option<i64> {
        Some(self.nodes?.max(0).into())
    }
}

/// How the NodePools of a policy grow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyScaling {
    /// Most NodeClaims that are created within a window of time, replacements of disrupted nodes included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_new_nodes_per_window: Option<NewNodesPerWindow>,
    /// How much of the capacity is on-demand at least. Reserved capacity counts as on-demand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemandCapacity>,
    /// New nodes go to the zone in which the NodePools have the fewest CPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_balance: Option<ZoneBalance>,
}

/// How much of the capacity of the NodePools is on-demand at least, in CPUs of instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OnDemandCapacity {
    /// CPUs that are on-demand before any are spot.
    #[serde(rename = "baseCPU")]
    #[schemars(extend("minimum" = 0, "maximum" = 1_000_000))]
    pub base_cpu: i32,
    /// Percentage of the CPUs above the base that are on-demand.
    #[schemars(extend("minimum" = 0, "maximum" = 100))]
    pub percentage_above_base: i32,
}

/// A number of nodes within a window of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["nodes", "window"]))]
pub struct NewNodesPerWindow {
    /// Most nodes.
    #[schemars(extend("minimum" = 1))]
    pub nodes: i32,
    /// Length of the window, such as 10m. It ends now, at any time.
    #[schemars(extend("pattern" = fields::DURATION))]
    pub window: String,
}

/// Which nodes of the NodePools of a policy are disrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyDisruption {
    /// Nodes whose pods request at least this share of their allocatable CPU or of their allocatable memory, such as 60%, are used well enough: consolidation leaves them, unless they are empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = UTILIZATION))]
    pub minimum_utilization: Option<String>,
    /// Dollars per hour that consolidation must save for each pod that it moves, such as "0.01". Empty nodes are removed whatever they save.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = HOURLY_PRICE))]
    pub minimum_savings_per_move: Option<String>,
    /// What evicting a pod of a workload whose pods come and go costs consolidation: the price of an average pod of the NodePool for this long, such as 3h. Without it --consolidation-eviction-cost holds; 0s is nothing, as in Karpenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub eviction_cost: Option<String>,
    /// Pods of a workload that consolidation moves in a day at most, away from nodes of the NodePools. The annotation mortise.sh/max-moves-per-day on its pods overrides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = 0))]
    pub max_moves_per_day: Option<i32>,
    /// How drifted nodes are replaced. Without it as many at a time as the budgets allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<PolicyDrift>,
    /// When expired nodes go. Without it as soon as they are expired, whatever the budgets say, as in Karpenter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration: Option<PolicyExpiration>,
    /// Stops all voluntary disruption of the NodePools for a while.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<PolicyPause>,
}

/// When nodes go that are older than their expireAfter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["withinBudgets"]))]
pub struct PolicyExpiration {
    /// Whether expired nodes wait for the disruption budgets of their NodePool: those without reasons, with their schedules. A budget of 0 keeps them until it ends.
    pub within_budgets: bool,
}

/// How drifted nodes are replaced: in waves that begin small and grow with the new nodes that are ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("required" = ["firstWave"]))]
pub struct PolicyDrift {
    /// Nodes of a NodePool that are replaced at a time until the first new ones are ready; from then on as many as there are new nodes that are ready, within the budgets.
    #[schemars(extend("minimum" = 1))]
    pub first_wave: i32,
    /// Time for which a new node and its pods must be ready before it counts, such as 2m; 1m if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = fields::DURATION))]
    pub ready_for: Option<String>,
}

/// Observed state of the NodePoolPolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodePoolPolicyStatus {
    /// Conditions of the NodePoolPolicy.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What the nodes have cost in this month; only with spec.spending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spending: Option<SpendingStatus>,
}

/// Dollars per hour, exact to a millionth.
pub const HOURLY_PRICE: &str = r"^[0-9]{1,9}(\.[0-9]{1,6})?$";
/// A percentage from 1% to 100%.
pub const UTILIZATION: &str = "^(100|[1-9][0-9]?)%$";

fn pool_names(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": { "type": "string", "minLength": 1, "maxLength": 253 },
    })
}

/// A rate: a number of NodeClaims within the last milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchRate {
    /// Most NodeClaims.
    pub nodes: i64,
    /// Length of the window in milliseconds.
    pub window_ms: i64,
}

/// The least share of capacity that is on-demand: a base, and a percentage of what is above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnDemandShare {
    /// The base in thousandths of a CPU.
    pub base: i64,
    /// The percentage of what is above it, from 0 to 100.
    pub percent: i64,
}

impl OnDemandShare {
    /// What must be on-demand of this capacity, both in thousandths of a CPU. Rounded up.
    #[must_use]
    pub fn of(&self, capacity: i64) -> i64 {
        let above = (capacity - self.base).max(0);
        let share = (i128::from(above) * i128::from(self.percent) + 99) / 100;
        self.base.min(capacity) + i64::try_from(share).unwrap_or(i64::MAX)
    }
}

/// Waves in which the drifted nodes of a NodePool are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftWaves {
    /// Nodes of the first wave.
    pub first: i64,
    /// Time in milliseconds for which a new node and its pods must be ready before it counts.
    pub ready_for_ms: i64,
    /// Most nodes of any wave: without a limit, or one where the policy cannot be read.
    pub most: i64,
}

impl DriftWaves {
    /// Time that new nodes must be ready where the policy names none.
    const READY_FOR_MS: i64 = 60_000;

    /// One node at a time: for a policy that cannot be read.
    const CAREFUL: Self = Self {
        first: 1,
        ready_for_ms: Self::READY_FOR_MS,
        most: 1,
    };

    /// Nodes that may be replaced at a time when this number of new nodes is ready.
    #[must_use]
    pub fn limit(&self, ready: i64) -> i64 {
        self.first.max(ready).min(self.most)
    }
}

impl NodePoolPolicy {
    /// Name of the object.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        self.metadata.name.as_deref().unwrap_or_default().into()
    }

    /// When it was created; of two policies that name one NodePool, the first in this order holds.
    #[must_use]
    pub fn seniority(&self) -> (Option<Timestamp>, Arc<str>) {
        let created = self.metadata.creation_timestamp.as_ref();
        (created.map(|time| time.0), self.name())
    }

    /// The limit on new nodes. A window that cannot be read allows none.
    #[must_use]
    pub fn launch_rate(&self) -> Option<LaunchRate> {
        let rate = self
            .spec
            .scaling
            .as_ref()?
            .max_new_nodes_per_window
            .as_ref()?;
        let window = GoDuration::parse(&rate.window).map(|window| window.as_nanos() / 1_000_000);
        Some(window.map_or(
            LaunchRate {
                nodes: 0,
                window_ms: 0,
            },
            |window_ms| LaunchRate {
                nodes: rate.nodes.into(),
                window_ms,
            },
        ))
    }

    /// The least share of capacity that is on-demand; `None` without one. Values out of range count as the nearest that is allowed.
    #[must_use]
    pub fn on_demand_share(&self) -> Option<OnDemandShare> {
        let asked = self.spec.scaling.as_ref()?.on_demand.as_ref()?;
        Some(OnDemandShare {
            base: i64::from(asked.base_cpu.max(0)) * 1_000,
            percent: i64::from(asked.percentage_above_base.clamp(0, 100)),
        })
    }

    /// Percent of use from which on a node is not consolidated; `None` as well for a text that cannot be read.
    #[must_use]
    pub fn minimum_utilization(&self) -> Option<i64> {
        let text = self
            .spec
            .disruption
            .as_ref()?
            .minimum_utilization
            .as_ref()?;
        let percent = text.strip_suffix('%')?.parse().ok()?;
        (1..=100).contains(&percent).then_some(percent)
    }

    /// What consolidation must save per hour for each pod that it moves. With a text that cannot be read nothing is worth a move.
    #[must_use]
    pub fn minimum_savings_per_move(&self) -> Option<MicroUsd> {
        let disruption = self.spec.disruption.as_ref()?;
        let text = disruption.minimum_savings_per_move.as_ref()?;
        Some(MicroUsd::parse_dollars(text).unwrap_or(MicroUsd(i64::MAX)))
    }

    /// What evicting a pod of a churning workload costs: the price of an average pod for this long, in milliseconds. With a text that
    /// cannot be read no such move is worth it.
    #[must_use]
    pub fn eviction_cost_ms(&self) -> Option<i64> {
        let disruption = self.spec.disruption.as_ref()?;
        let text = disruption.eviction_cost.as_ref()?;
        let cost = GoDuration::parse(text).ok();
        Some(cost.map_or(i64::MAX, |cost| cost.as_nanos() / 1_000_000))
    }

    /// How many pods of a workload consolidation moves in a day at most.
    #[must_use]
    pub fn max_moves_per_day(&self) -> Option<usize> {
        let most = self.spec.disruption.as_ref()?.max_moves_per_day?;
        Some(usize::try_from(most).unwrap_or(0))
    }

    /// Whether expired nodes wait for the budgets of their NodePool.
    #[must_use]
    pub fn expires_within_budgets(&self) -> bool {
        let disruption = self.spec.disruption.as_ref();
        let expiration = disruption.and_then(|disruption| disruption.expiration.as_ref());
        expiration.is_some_and(|expiration| expiration.within_budgets)
    }

    /// The pause of voluntary disruption.
    #[must_use]
    pub fn pause(&self) -> Option<StatedPause> {
        let pause = self.spec.disruption.as_ref()?.pause.as_ref()?;
        Some(pause.read())
    }

    /// How much more a node may cost in the zone with the fewest CPUs; `None` if zones are not balanced.
    #[must_use]
    pub fn zone_balance(&self) -> Option<PriceIncrease> {
        let balance = self.spec.scaling.as_ref()?.zone_balance.as_ref()?;
        Some(balance.price_increase())
    }

    /// What is paid for in advance, in the order in which it is used, without what has ended.
    pub fn commitments(&self, now: Timestamp) -> impl Iterator<Item = Commitment> {
        let all = self.spec.commitments.iter().map(PolicyCommitment::read);
        all.filter(move |each| each.until.is_none_or(|until| until > now))
    }

    /// Whether it says what is paid for, and asks nothing of its NodePools: then another policy may hold for them.
    #[must_use]
    pub fn is_of_commitments_alone(&self) -> bool {
        let rest = NodePoolPolicySpec {
            node_pools: Vec::new(),
            commitments: Vec::new(),
            ..self.spec.clone()
        };
        !self.spec.commitments.is_empty() && rest == NodePoolPolicySpec::default()
    }

    /// The waves in which drifted nodes are replaced; `None` without a limit. What cannot be read allows one node at a time: a
    /// limit must not end with a typo.
    #[must_use]
    pub fn drift_waves(&self) -> Option<DriftWaves> {
        let drift = self.spec.disruption.as_ref()?.drift.as_ref()?;
        let ready_for_ms =
            drift
                .ready_for
                .as_ref()
                .map_or(Some(DriftWaves::READY_FOR_MS), |text| {
                    let span = GoDuration::parse(text).ok()?.as_nanos() / 1_000_000;
                    (span > 0).then_some(span)
                });
        Some(match ready_for_ms {
            Some(ready_for_ms) if drift.first_wave >= 1 => DriftWaves {
                first: drift.first_wave.into(),
                ready_for_ms,
                most: i64::MAX,
            },
            _ => DriftWaves::CAREFUL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: serde_json::Value) -> NodePoolPolicy {
        serde_json::from_value(serde_json::json!({ "spec": spec })).unwrap()
    }

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        let price = |text: &str| {
            let policy = policy(serde_json::json!({ "limits": { "hourlyPrice": text } }));
            let limits = policy.limits_in_force(Timestamp::UNIX_EPOCH);
            limits.hourly_price.map(|limit| limit.most)
        };
        assert_eq!(price("12.5"), Some(MicroUsd(12_500_000)));
        assert_eq!(price("0.000001"), Some(MicroUsd(1)));
        for odd in ["", "-1", "1e3", "1.", ".5", "1.0000001", "12,5"] {
            assert_eq!(price(odd), Some(MicroUsd(0)), "{odd:?}");
        }
        let none = policy(serde_json::json!({})).limits_in_force(Timestamp::UNIX_EPOCH);
        assert_eq!(none, LimitsInForce::default());
        let rate = |window: &str| {
            let rate = serde_json::json!({ "nodes": 3, "window": window });
            policy(serde_json::json!({ "scaling": { "maxNewNodesPerWindow": rate } })).launch_rate()
        };
        let of = |nodes, window_ms| Some(LaunchRate { nodes, window_ms });
        assert_eq!(rate("10m"), of(3, 600_000));
        assert_eq!(rate("ten minutes"), of(0, 0));
        let used = |text: &str| {
            policy(serde_json::json!({ "disruption": { "minimumUtilization": text } }))
                .minimum_utilization()
        };
        assert_eq!(
            [used("60%"), used("100%"), used("0%"), used("60")],
            [Some(60), Some(100), None, None]
        );
        let savings = |text: &str| {
            policy(serde_json::json!({ "disruption": { "minimumSavingsPerMove": text } }))
                .minimum_savings_per_move()
        };
        assert_eq!(savings("0.01"), Some(MicroUsd(10_000)));
        assert_eq!(savings("a cent"), Some(MicroUsd(i64::MAX)));
    }

    #[test]
    fn the_share_of_on_demand_capacity_is_a_base_and_a_percentage_of_what_is_above() {
        let share = |on_demand: serde_json::Value| {
            policy(serde_json::json!({ "scaling": { "onDemand": on_demand } })).on_demand_share()
        };
        let of = |on_demand: serde_json::Value| {
            let share = share(on_demand).unwrap();
            [0, 1_000, 8_000, 18_000, 18_001].map(|capacity| share.of(capacity))
        };
        let table = [
            (
                serde_json::json!({ "baseCPU": 8, "percentageAboveBase": 30 }),
                [0, 1_000, 8_000, 11_000, 11_001],
            ),
            (
                serde_json::json!({ "baseCPU": 8 }),
                [0, 1_000, 8_000, 8_000, 8_000],
            ),
            (
                serde_json::json!({ "percentageAboveBase": 50 }),
                [0, 500, 4_000, 9_000, 9_001],
            ),
            (
                serde_json::json!({ "percentageAboveBase": 100 }),
                [0, 1_000, 8_000, 18_000, 18_001],
            ),
            (serde_json::json!({}), [0, 0, 0, 0, 0]),
            // Out of range.
            (
                serde_json::json!({ "baseCPU": -1, "percentageAboveBase": 101 }),
                [0, 1_000, 8_000, 18_000, 18_001],
            ),
        ];
        for (asked, expected) in table {
            assert_eq!(of(asked.clone()), expected, "{asked}");
        }
        assert_eq!(policy(serde_json::json!({})).on_demand_share(), None);
    }

    #[test]
    fn waves_grow_with_the_nodes_that_are_ready_unless_the_policy_cannot_be_read() {
        let waves = |drift: serde_json::Value| {
            policy(serde_json::json!({ "disruption": { "drift": drift } })).drift_waves()
        };
        let limits = |drift: serde_json::Value| {
            let waves = waves(drift).unwrap();
            (
                waves.ready_for_ms,
                [0, 1, 2, 8].map(|ready| waves.limit(ready)),
            )
        };
        let table = [
            (
                serde_json::json!({ "firstWave": 1 }),
                (60_000, [1, 1, 2, 8]),
            ),
            (
                serde_json::json!({ "firstWave": 3, "readyFor": "1h30m" }),
                (5_400_000, [3, 3, 3, 8]),
            ),
            // What cannot be read.
            (serde_json::json!({}), (60_000, [1, 1, 1, 1])),
            (
                serde_json::json!({ "firstWave": -2 }),
                (60_000, [1, 1, 1, 1]),
            ),
            (
                serde_json::json!({ "firstWave": 3, "readyFor": "soon" }),
                (60_000, [1, 1, 1, 1]),
            ),
            (
                serde_json::json!({ "firstWave": 3, "readyFor": "0s" }),
                (60_000, [1, 1, 1, 1]),
            ),
        ];
        for (drift, expected) in table {
            assert_eq!(limits(drift.clone()), expected, "{drift}");
        }
        assert_eq!(waves(serde_json::Value::Null), None);
        assert_eq!(policy(serde_json::json!({})).drift_waves(), None);
    }

    #[test]
    fn what_moves_cost_errs_on_the_side_of_rest() {
        use serde_json::json;
        let table = [
            (json!({}), (None, None)),
            (json!({ "evictionCost": "1h" }), (Some(3_600_000), None)),
            (json!({ "evictionCost": "0s" }), (Some(0), None)),
            (json!({ "evictionCost": "1d" }), (Some(i64::MAX), None)),
            (json!({ "maxMovesPerDay": 2 }), (None, Some(2))),
            (json!({ "maxMovesPerDay": -1 }), (None, Some(0))),
        ];
        for (disruption, expected) in table {
            let policy = policy(json!({ "disruption": disruption }));
            let found = (policy.eviction_cost_ms(), policy.max_moves_per_day());
            assert_eq!(found, expected);
        }
    }
}
