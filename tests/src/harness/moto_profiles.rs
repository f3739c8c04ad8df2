//! Instance profiles of the emulated IAM.

use std::collections::BTreeMap;

use anyhow::Result;
use serde::Deserialize;
use serde_json::json;

use super::moto::Moto;

/// An instance profile as IAM has it.
#[derive(Clone, Debug, Deserialize)]
pub struct InstanceProfile {
    /// Name.
    pub name: String,
    /// `/karpenter/<region>/<cluster>/<class UID>/`, or `/`.
    pub path: String,
    /// Names of roles; at most one.
    pub roles: Vec<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Profiles {
    profiles: Vec<InstanceProfile>,
}

impl Moto {
    /// All instance profiles, by name.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn instance_profiles(&self) -> Result<BTreeMap<String, InstanceProfile>> {
        let Profiles { profiles } = serde_json::from_value(self.get("profiles").await?)?;
        let named = profiles.into_iter().map(|each| (each.name.clone(), each));
        Ok(named.collect())
    }

    /// How long EC2 refuses a new instance profile; two seconds unless set.
    ///
    /// # Errors
    /// The emulator does not answer.
    pub async fn set_profile_delay(&self, seconds: f64) -> Result<()> {
        let body = json!({ "seconds": seconds });
        self.post("profile-delay", &body).await.map(drop)
    }
}
