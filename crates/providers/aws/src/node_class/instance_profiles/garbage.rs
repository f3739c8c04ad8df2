//! Deletes profiles that nothing uses any more: those of roles that a class had before, and those of classes that went without being
//! released.

use std::sync::Arc;
use std::time::Duration;

use mortise_cloudprovider::ProviderWorker;

use crate::failure::Failure;
use crate::node_class::instance_profiles::InstanceProfiles;
use crate::node_class::instance_profiles::calls::FoundProfile;
use crate::node_class::instance_profiles::memory::ProfileFate;
use crate::node_class::instance_profiles::names;

/// How often. The first time is this long after the start, when every class has been resolved.
const INTERVAL: Duration = Duration::from_secs(30 * 60);

impl InstanceProfiles {
    /// The work, for as long as the process runs; `None` where IAM cannot be reached.
    pub(crate) fn collector(self: &Arc<Self>) -> Option<ProviderWorker> {
        if self.config.isolated_vpc {
            return None;
        }
        let profiles = Arc::clone(self);
        Some(ProviderWorker {
            name: "instance-profile-garbage-collection",
            run: Box::pin(async move {
                loop {
                    tokio::time::sleep(INTERVAL).await;
                    if let Err(failure) = profiles.collect().await {
                        tracing::warn!(%failure, "unused instance profiles were not deleted");
                    }
                }
            }),
        })
    }

    /// Deletes what is unused now. One profile that cannot be deleted does not keep the others.
    /// # Errors
    /// The profiles cannot be listed.
    pub(crate) async fn collect(&self) -> Result<(), Failure> {
        if !self.memory.knows_classes() {
            return Ok(());
        }
        let path = names::cluster_path(self.calls.region(), &self.config.cluster_name);
        for profile in self.calls.list(&path).await? {
            match self.collect_one(&path, &profile).await {
                Ok(true) => {
                    tracing::info!(profile = profile.name, "unused instance profile deleted")
                }
                Ok(false) => {}
                Err(failure) => {
                    tracing::warn!(profile = profile.name, %failure, "unused instance profile not deleted");
                }
            }
        }
        Ok(())
    }

    async fn collect_one(&self, path: &str, profile: &FoundProfile) -> Result<bool, Failure> {
        let Some(class) = names::class_of_path(path, &profile.path) else {
            return Ok(false);
        };
        let delete = match self.memory.fate(&profile.name, class) {
            ProfileFate::Keep => false,
            ProfileFate::Delete => true,
            ProfileFate::DeleteIfUnused => !self.calls.is_used(profile).await?,
        };
        if delete {
            self.delete(&profile.name).await?;
        }
        Ok(delete)
    }
}
