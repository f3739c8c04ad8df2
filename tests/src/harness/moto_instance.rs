//! Instances of the emulated EC2.

use std::collections::BTreeMap;

use anyhow::Result;
use base64::Engine as _;
use serde::Deserialize;

use super::http::Http;

/// An EC2 instance as the emulator knows it.
#[derive(Clone, Debug, Deserialize)]
pub struct Instance {
    /// `i-...`.
    pub id: String,
    /// For example `m5.large`.
    #[serde(rename = "type")]
    pub instance_type: String,
    /// CPUs of the type.
    pub cpus: u32,
    /// Memory of the type in MiB.
    pub memory_mib: u64,
    /// Availability zone.
    pub zone: String,
    /// Subnet id.
    pub subnet: String,
    /// `spot` or `on-demand`.
    pub capacity_type: String,
    /// `running`, `terminated`, ...
    pub state: String,
    /// AMI id.
    pub image: String,
    /// Name of the AMI.
    pub image_name: String,
    /// GPUs of the type.
    pub gpus: u32,
    /// Names of block devices, sorted.
    pub devices: Vec<String>,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// Name that a kubelet would register as.
    pub private_dns: String,
    /// Private address.
    pub private_ip: String,
    /// Security group ids, sorted.
    pub security_groups: Vec<String>,
    /// Name of the instance profile, if it has one.
    pub instance_profile: Option<String>,
    /// User data, base64 as it was sent.
    pub user_data: Option<String>,
    /// Tags, with those that AWS adds by itself.
    pub tags: BTreeMap<String, String>,
}

impl Instance {
    /// User data as the instance reads it; empty when there is none.
    #[must_use]
    pub fn plain_user_data(&self) -> String {
        let sent = self.user_data.as_deref().unwrap_or_default();
        let bytes = base64::engine::general_purpose::STANDARD.decode(sent);
        String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned()
    }
}

/// All instances, and a number that grows with every change of the account.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Instances {
    pub(crate) generation: u64,
    pub(crate) instances: Vec<Instance>,
}

/// See [`Moto::all_instances`].
pub(crate) async fn instances(http: &Http, control: &str, after: Option<u64>) -> Result<Instances> {
    let query = after.map_or_else(String::new, |generation| format!("?after={generation}"));
    let reply = http
        .get(&format!("{control}/instances{query}"))
        .await?
        .json()?;
    Ok(serde_json::from_value(reply)?)
}
