//! Launch templates in EC2.
//!
//! Invariant: equal contents have equal names and different contents different ones, so a template is never changed, only created, and
//! creating it twice is no error.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::{ResourceType, TagSpecification};
use mortise_cloudprovider::CloudError;
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::launch::template::LaunchTemplate;
use crate::launch::template_data::template_data;
use crate::sdk::AwsClients;
use crate::sdk::arguments::{ec2_tags, filter};
use crate::tags;

/// How long a template is taken to exist after it was seen.
const SEEN: Duration = Duration::from_secs(5 * 60);

/// The templates of the cluster, and which of them were seen to exist a moment ago.
#[derive(Debug)]
pub(crate) struct LaunchTemplates {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    seen: Mutex<HashMap<String, Instant>>,
}

impl LaunchTemplates {
    /// Has seen nothing yet, and calls nothing.
    pub(crate) fn new(clients: Arc<AwsClients>, config: Arc<AwsConfig>) -> Self {
        Self {
            clients,
            config,
            seen: Mutex::default(),
        }
    }

    /// Forgets all: one of them does not exist any more.
    pub(crate) fn forget(&self) {
        self.lock().clear();
    }

    /// Creates the template unless it exists. Returns its name.
    pub(crate) async fn ensure(&self, template: &LaunchTemplate) -> Result<String, Failure> {
        let name = template.name();
        if self.exists(&name) {
            return Ok(name);
        }
        let mut own = template.tags.clone();
        own.insert(tags::NODE_CLASS.to_owned(), template.class.clone());
        let specification = TagSpecification::builder()
            .resource_type(ResourceType::LaunchTemplate)
            .set_tags(Some(ec2_tags(&own)))
            .build();
        let call = self
            .clients
            .ec2
            .create_launch_template()
            .launch_template_name(&name)
            .launch_template_data(template_data(template))
            .tag_specifications(specification);
        match call.send().await {
            Ok(_) => tracing::info!(
                template = name,
                class = template.class,
                "created launch template"
            ),
            Err(error) => {
                let failure = self.clients.failure("ec2:CreateLaunchTemplate", error);
                if failure.code != "InvalidLaunchTemplateName.AlreadyExistsException" {
                    return Err(failure);
                }
            }
        }
        self.saw(&name);
        Ok(name)
    }

    /// Deletes all templates that were created for a class. Instances do not need them once they run.
    pub(crate) async fn delete_all(&self, class: &str) -> Result<(), CloudError> {
        let filters = vec![
            filter(
                format!("tag:{}", tags::EKS_CLUSTER),
                [&self.config.cluster_name],
            ),
            filter(format!("tag:{}", tags::NODE_CLASS), [class]),
        ];
        let mut pages = self
            .clients
            .ec2
            .describe_launch_templates()
            .set_filters(Some(filters))
            .max_results(200)
            .into_paginator()
            .send();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.clients.failure("ec2:DescribeLaunchTemplates", error))?;
            let ids = page
                .launch_templates()
                .iter()
                .filter_map(|each| each.launch_template_id());
            for id in ids {
                self.delete(id, class).await?;
            }
        }
        self.forget();
        Ok(())
    }

    async fn delete(&self, id: &str, class: &str) -> Result<(), Failure> {
        let call = self.clients.ec2.delete_launch_template();
        match call.launch_template_id(id).send().await {
            Ok(_) => tracing::info!(template = id, class, "deleted launch template"),
            Err(error) => match self.clients.failure("ec2:DeleteLaunchTemplate", error) {
                failure if failure.is_not_found() => {}
                failure => return Err(failure),
            },
        }
        Ok(())
    }

    fn exists(&self, name: &str) -> bool {
        let mut seen = self.lock();
        seen.retain(|_, at| at.elapsed() < SEEN);
        seen.contains_key(name)
    }

    fn saw(&self, name: &str) {
        self.lock().insert(name.to_owned(), Instant::now());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
