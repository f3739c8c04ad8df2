//! IAM's calls for instance profiles.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_iam::error::SdkError;
use aws_sdk_iam::operation::create_instance_profile::CreateInstanceProfileError;
use aws_sdk_iam::types::{InstanceProfile, Tag};

use crate::failure::Failure;
use crate::node_class::instance_profiles::names::bare_role;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;

/// A profile as IAM has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundProfile {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) arn: String,
    /// IAM allows one.
    pub(crate) roles: Vec<String>,
}

impl FoundProfile {
    /// Whether instances with this profile have the role, given without its path.
    pub(crate) fn has_role(&self, role: &str) -> bool {
        self.roles.iter().any(|each| bare_role(each) == role)
    }
}

impl From<&InstanceProfile> for FoundProfile {
    fn from(profile: &InstanceProfile) -> Self {
        Self {
            name: profile.instance_profile_name().to_owned(),
            path: profile.path().to_owned(),
            arn: profile.arn().to_owned(),
            roles: profile
                .roles()
                .iter()
                .map(|each| each.role_name().to_owned())
                .collect(),
        }
    }
}

/// The calls. What does not exist is `None` or already gone, never a failure.
#[derive(Clone, Debug)]
pub(crate) struct ProfileCalls {
    clients: Arc<AwsClients>,
}

impl ProfileCalls {
    pub(crate) const fn new(clients: Arc<AwsClients>) -> Self {
        Self { clients }
    }

    /// Region that the profiles belong to. IAM itself has none.
    pub(crate) fn region(&self) -> &str {
        &self.clients.region
    }

    /// A profile by its name.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<FoundProfile>, Failure> {
        let call = self.clients.iam.get_instance_profile();
        match call.instance_profile_name(name).send().await {
            Ok(answer) => Ok(answer.instance_profile().map(FoundProfile::from)),
            Err(error) => {
                gone(self.clients.failure("iam:GetInstanceProfile", error)).map(|()| None)
            }
        }
    }

    /// Profiles whose path begins with `prefix`, of all pages.
    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<FoundProfile>, Failure> {
        let call = self
            .clients
            .iam
            .list_instance_profiles()
            .path_prefix(prefix);
        let mut pages = call.into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.clients.failure("iam:ListInstanceProfiles", error))?;
            found.extend(page.instance_profiles().iter().map(FoundProfile::from));
        }
        Ok(found)
    }

    /// Makes a profile without a role. One that exists is as good.
    pub(crate) async fn create(
        &self,
        name: &str,
        path: Option<&str>,
        tags: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let tags = tags
            .iter()
            .map(|(key, value)| Tag::builder().key(key).value(value).build());
        let tags: Result<Vec<Tag>, _> = tags.collect();
        let tags = tags
            .map_err(SdkError::<CreateInstanceProfileError>::construction_failure)
            .map_err(|error| self.clients.failure("iam:CreateInstanceProfile", error))?;
        let call = self.clients.iam.create_instance_profile();
        let call = call
            .instance_profile_name(name)
            .set_path(path.map(str::to_owned));
        match call.set_tags(Some(tags)).send().await {
            Ok(_) => Ok(()),
            Err(error) => {
                let failure = self.clients.failure("iam:CreateInstanceProfile", error);
                if failure.is_already_exists() {
                    Ok(())
                } else {
                    Err(failure)
                }
            }
        }
    }

    /// Gives a profile its role.
    pub(crate) async fn add_role(&self, name: &str, role: &str) -> Result<(), Failure> {
        let call = self.clients.iam.add_role_to_instance_profile();
        let sent = call
            .instance_profile_name(name)
            .role_name(role)
            .send()
            .await;
        sent.map_err(|error| self.clients.failure("iam:AddRoleToInstanceProfile", error))?;
        Ok(())
    }

    /// Takes a role from a profile.
    pub(crate) async fn remove_role(&self, name: &str, role: &str) -> Result<(), Failure> {
        let call = self.clients.iam.remove_role_from_instance_profile();
        match call
            .instance_profile_name(name)
            .role_name(role)
            .send()
            .await
        {
            Ok(_) => Ok(()),
            Err(error) => gone(
                self.clients
                    .failure("iam:RemoveRoleFromInstanceProfile", error),
            ),
        }
    }

    /// Deletes a profile that has no role any more.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), Failure> {
        let call = self.clients.iam.delete_instance_profile();
        match call.instance_profile_name(name).send().await {
            Ok(_) => Ok(()),
            Err(error) => gone(self.clients.failure("iam:DeleteInstanceProfile", error)),
        }
    }

    /// Whether an instance that is not terminated has the profile.
    pub(crate) async fn is_used(&self, profile: &FoundProfile) -> Result<bool, Failure> {
        let states = ["pending", "running", "shutting-down", "stopping", "stopped"];
        let call = self.clients.ec2.describe_instances();
        let call = call
            .filters(filter("iam-instance-profile.arn", [&*profile.arn]))
            .filters(filter("instance-state-name", states));
        let mut pages = call.into_paginator().send();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.clients.failure("ec2:DescribeInstances", error))?;
            if page
                .reservations()
                .iter()
                .any(|each| !each.instances().is_empty())
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// A failure, unless it says that what was to go is not there.
fn gone(failure: Failure) -> Result<(), Failure> {
    if failure.is_not_found() {
        Ok(())
    } else {
        Err(failure)
    }
}
