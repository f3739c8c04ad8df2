//! Instance profiles: what gives instances their role.
//!
//! A class names a role, and the profile is made, renewed and deleted here; or it names a profile, which is then left alone.
//!
//! Invariants: a profile is deleted only when no instance can have it, or get it from a launch that is on its way. An attempt that is
//! cut off leaves nothing that the next one does not find: the name follows from the class's status. The status never names a profile
//! that was not seen.
//!
//! # Source
//! Names, paths, tags and times are Karpenter's, so that each takes over what the other made.

pub(crate) mod calls;
pub(crate) mod names;

mod garbage;
mod memory;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::TOPOLOGY_REGION;
use mortise_apis::schema::conditions::{ConditionStatus, find};
use mortise_aws_class::spec::Ec2NodeClass;

use self::calls::{FoundProfile, ProfileCalls};
use self::memory::ProfileMemory;
use self::names::ProfileIdentity;
use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::sdk::AwsClients;
use crate::tags;

/// A profile that is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProfilePlan<'a> {
    pub(crate) name: &'a str,
    /// `None` is IAM's default, `/`.
    pub(crate) path: Option<&'a str>,
    /// Without its path.
    pub(crate) role: &'a str,
    pub(crate) tags: &'a BTreeMap<String, String>,
}

/// The instance profiles of the cluster's node classes.
#[derive(Debug)]
pub(crate) struct InstanceProfiles {
    calls: ProfileCalls,
    config: Arc<AwsConfig>,
    memory: ProfileMemory,
}

impl InstanceProfiles {
    /// Calls nothing yet.
    pub(crate) fn new(clients: Arc<AwsClients>, config: Arc<AwsConfig>) -> Self {
        Self {
            calls: ProfileCalls::new(clients),
            config,
            memory: ProfileMemory::default(),
        }
    }

    /// The profile for instances of the class, made if there is none; `None` if the class names neither a role nor a profile. `claims`
    /// are those of the class: what their instances have is kept.
    /// # Errors
    /// IAM refused; the status stays as it is. A role that does not exist is asked for again after a minute.
    pub(crate) async fn ensure(
        &self,
        class: &Ec2NodeClass,
        claims: &[Arc<NodeClaim>],
    ) -> Result<Option<String>, Failure> {
        if self.config.read_only {
            return Ok(Self::known(class));
        }
        self.observe(class, claims);
        let stored = stored_profile(class);
        let profile = match (&class.spec.instance_profile, &class.spec.role) {
            (Some(given), _) => Some(given.clone()),
            (None, Some(role)) => Some(self.of_role(class, names::bare_role(role), stored).await?),
            (None, None) => None,
        };
        let is_given = class.spec.instance_profile.is_some();
        if let Some(stored) = stored.filter(|stored| is_given || profile.as_deref() != Some(stored))
        {
            self.memory.protect(stored);
        }
        Ok(profile)
    }

    /// The profile that is known to be there without a call: the given one, or the one that [`Self::ensure`] put into the status for
    /// the class as it is now.
    pub(crate) fn known(class: &Ec2NodeClass) -> Option<String> {
        let ready = find(&class.status.conditions, "InstanceProfileReady").is_some_and(|ready| {
            ready.status == ConditionStatus::True
                && ready.observed_generation == class.metadata.generation
        });
        let given = class.spec.instance_profile.as_deref();
        let stored = || stored_profile(class).filter(|_| ready);
        given.or_else(stored).map(str::to_owned)
    }

    /// Deletes the profiles of a class that is being deleted and that no claim uses any more.
    /// # Errors
    /// IAM refused. What was deleted stays so; the call may be repeated.
    pub(crate) async fn release(&self, class_name: &str, class_uid: &str) -> Result<(), Failure> {
        // There is no way to IAM from such a network.
        if !self.config.isolated_vpc {
            let (region, cluster) = (self.calls.region(), &*self.config.cluster_name);
            let path = names::class_path(region, cluster, class_uid);
            for profile in self.calls.list(&path).await? {
                self.delete(&profile.name).await?;
            }
            if let Some(legacy) = names::legacy_name(region, cluster, class_name) {
                self.delete(&legacy).await?;
            }
        }
        self.memory.forget_class(class_uid);
        Ok(())
    }

    /// Takes down which profiles the class and its claims use.
    pub(crate) fn observe(&self, class: &Ec2NodeClass, claims: &[Arc<NodeClaim>]) {
        let of_claims = claims.iter().filter_map(|claim| {
            let annotations = claim.metadata.annotations.as_ref()?;
            annotations.get(tags::INSTANCE_PROFILE).cloned()
        });
        let used: BTreeSet<String> = of_claims
            .chain(stored_profile(class).map(str::to_owned))
            .collect();
        self.memory.class_uses(uid(class), used);
    }

    /// The profile of a class with a role: the stored one if it is there and has the role, else a new one.
    async fn of_role(
        &self,
        class: &Ec2NodeClass,
        role: &str,
        stored: Option<&str>,
    ) -> Result<String, Failure> {
        if let Some(stored) = stored
            && let Some(profile) = self.get(stored).await?
            && profile.has_role(role)
        {
            return Ok(stored.to_owned());
        }
        if let Some(made) = self.memory.made(role, uid(class)) {
            return Ok(made);
        }
        let (region, cluster) = (self.calls.region(), &*self.config.cluster_name);
        let identity = ProfileIdentity {
            region,
            cluster,
            class_uid: uid(class),
            role,
            replaces: stored,
        };
        let name = identity.name();
        self.create(ProfilePlan {
            name: &name,
            path: Some(&names::class_path(region, cluster, uid(class))),
            role,
            tags: &self.tags(class),
        })
        .await?;
        self.memory.remember_made(role, uid(class), &name);
        self.memory.protect(&name);
        Ok(name)
    }

    /// Makes a profile, or takes over what an earlier attempt left of it.
    /// # Errors
    /// IAM refused; then nothing is left of it.
    pub(crate) async fn create(&self, plan: ProfilePlan<'_>) -> Result<(), Failure> {
        if let Some(failure) = self.memory.missing_role(plan.role) {
            return Err(failure);
        }
        let found = self.get(plan.name).await?;
        if found
            .as_ref()
            .is_some_and(|found| found.has_role(plan.role))
        {
            return Ok(());
        }
        match self.complete(plan, found).await {
            Ok(()) => {
                self.memory.learn(FoundProfile {
                    name: plan.name.to_owned(),
                    path: plan.path.unwrap_or("/").to_owned(),
                    arn: String::new(),
                    roles: vec![plan.role.to_owned()],
                });
                Ok(())
            }
            Err(failure) => {
                if failure.is_role_missing() {
                    self.memory.miss_role(plan.role, failure.clone());
                }
                self.clean_up(plan, failure).await
            }
        }
    }

    /// Makes what is missing of a profile.
    async fn complete(
        &self,
        plan: ProfilePlan<'_>,
        found: Option<FoundProfile>,
    ) -> Result<(), Failure> {
        match found {
            None => self.calls.create(plan.name, plan.path, plan.tags).await?,
            Some(found) => {
                for role in &found.roles {
                    self.calls.remove_role(plan.name, role).await?;
                }
            }
        }
        self.calls.add_role(plan.name, plan.role).await
    }

    /// After a failure: the profile is complete all the same (the answer was lost, or another process made it), or what there is of it
    /// is deleted.
    async fn clean_up(&self, plan: ProfilePlan<'_>, failure: Failure) -> Result<(), Failure> {
        let left = match self.calls.get(plan.name).await {
            Ok(Some(found)) if found.has_role(plan.role) => {
                self.memory.learn(found);
                return Ok(());
            }
            Ok(Some(found)) => self.remove(&found).await,
            Ok(None) => Ok(()),
            Err(failure) => Err(failure),
        };
        self.memory.forget(plan.name);
        if let Err(left) = left {
            tracing::warn!(profile = plan.name, failure = %left, "half-made instance profile not deleted; the next attempt completes it");
        }
        Err(failure)
    }

    /// A profile as IAM has it, or had it within 15 minutes.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<FoundProfile>, Failure> {
        if let Some(profile) = self.memory.profile(name) {
            return Ok(Some(profile));
        }
        let found = self.calls.get(name).await?;
        if let Some(found) = &found {
            self.memory.learn(found.clone());
        }
        Ok(found)
    }

    /// What is remembered.
    #[cfg(test)]
    pub(crate) const fn memory(&self) -> &ProfileMemory {
        &self.memory
    }

    /// Profiles whose path begins with `prefix`.
    #[cfg(test)]
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<FoundProfile>, Failure> {
        self.calls.list(prefix).await
    }

    /// Deletes a profile, if there is one of that name.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Failure> {
        if let Some(found) = self.calls.get(name).await? {
            self.remove(&found).await?;
        }
        self.memory.forget(name);
        Ok(())
    }

    /// Takes the roles from a profile, without which IAM does not delete it, and deletes it.
    async fn remove(&self, profile: &FoundProfile) -> Result<(), Failure> {
        for role in &profile.roles {
            self.calls.remove_role(&profile.name, role).await?;
        }
        self.calls.delete(&profile.name).await
    }

    /// Tags of a profile: those of the class, then ours.
    fn tags(&self, class: &Ec2NodeClass) -> BTreeMap<String, String> {
        let cluster = &self.config.cluster_name;
        let ours = [
            (tags::cluster_tag(cluster), tags::OWNED.to_owned()),
            (tags::EKS_CLUSTER.to_owned(), cluster.clone()),
            (
                tags::NODE_CLASS.to_owned(),
                class.metadata.name.clone().unwrap_or_default(),
            ),
            (TOPOLOGY_REGION.to_owned(), self.calls.region().to_owned()),
        ];
        class
            .spec
            .tags
            .clone()
            .unwrap_or_default()
            .into_iter()
            .chain(ours)
            .collect()
    }
}

/// The profile in the status.
fn stored_profile(class: &Ec2NodeClass) -> Option<&str> {
    class
        .status
        .instance_profile
        .as_deref()
        .filter(|name| !name.is_empty())
}

fn uid(class: &Ec2NodeClass) -> &str {
    class.metadata.uid.as_deref().unwrap_or_default()
}
