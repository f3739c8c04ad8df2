//! What a test sets in the emulated account besides capacity and faults: reservations, placement groups, rights, rate limits.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::moto::Moto;
use super::moto_instance::Instance;

/// A capacity reservation of the account.
#[derive(Clone, Debug, Serialize)]
pub struct Reservation {
    /// `cr-...`.
    pub id: String,
    /// Instance type.
    pub instance_type: String,
    /// Zone.
    pub zone: String,
    /// Instances that it holds.
    pub count: u32,
    /// `targeted` or `open`: an open one takes every launch of its type and zone that does not refuse reservations.
    #[serde(rename = "match")]
    pub criteria: &'static str,
    /// `default` or `capacity-block`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// When it ends; `None`: never.
    pub ends_in_seconds: Option<i64>,
}

impl Reservation {
    /// A targeted one that never ends.
    #[must_use]
    pub fn targeted(id: &str, instance_type: &str, zone: &str, count: u32) -> Self {
        Self {
            id: id.to_owned(),
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            count,
            criteria: "targeted",
            kind: "default",
            ends_in_seconds: None,
        }
    }
}

/// Calls that the account refused.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Denials {
    /// Why, for each call that no statement of the policy allows.
    pub denied: Vec<String>,
    /// How many calls were throttled, by action.
    pub throttled: BTreeMap<String, u64>,
}

impl Moto {
    /// Sets all capacity reservations.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_reservations(&self, reservations: &[Reservation]) -> Result<()> {
        let posted = self.post("reservations", &json!(reservations)).await;
        posted.map(drop)
    }

    /// Free instances of a reservation.
    ///
    /// # Errors
    /// There is no such reservation.
    pub async fn free_in_reservation(&self, id: &str) -> Result<u64> {
        let reply = self.get("reservations").await?;
        let all = reply["reservations"].as_array().context("no list")?;
        all.iter()
            .find(|each| each["CapacityReservationId"] == id)
            .and_then(|each| each["AvailableInstanceCount"].as_u64())
            .with_context(|| format!("no reservation {id} in {reply}"))
    }

    /// Sets all placement groups: `{id, name, strategy, partitions}` each.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_placement_groups(&self, groups: &Value) -> Result<()> {
        self.post("placement-groups", groups).await.map(drop)
    }

    /// Sets the zonal shifts of the cluster, as GetManagedResource answers them.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_zonal_shifts(&self, shifts: &Value) -> Result<()> {
        self.post("zonal-shifts", shifts).await.map(drop)
    }

    /// From now on the account denies every call that these policy documents do not allow; without documents it allows all.
    ///
    /// # Errors
    /// A document has no statements.
    pub async fn set_policy(&self, documents: &[Value]) -> Result<()> {
        self.post("policy", &json!(documents)).await.map(drop)
    }

    /// Every instance that was ever launched, whatever became of it.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn launched_instances(&self) -> Result<Vec<Instance>> {
        Ok(self.all_instances(None).await?.instances)
    }

    /// Tags of all launch templates, by name.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn launch_templates(&self) -> Result<BTreeMap<String, BTreeMap<String, String>>> {
        let reply = self.get("launch-templates").await?;
        Ok(serde_json::from_value(reply["templates"].clone())?)
    }

    /// From now on these subnets, and only these, have no free address, whatever EC2 said of them before.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_full_subnets(&self, subnets: &[&str]) -> Result<()> {
        self.post("full-subnets", &json!(subnets)).await.map(drop)
    }

    /// From now on EC2 has its published rate limits, on a clock that runs `speed` times as fast as the wall's, from buckets that others
    /// have emptied; `None`: no limits.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_rate_limits(&self, speed: Option<f64>) -> Result<()> {
        self.post("limits", &json!({ "speed": speed }))
            .await
            .map(drop)
    }

    /// Calls that were refused since the policy or the limits were set.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn denials(&self) -> Result<Denials> {
        Ok(serde_json::from_value(self.get("denials").await?)?)
    }
}
