//! Launch templates in EC2.
//!
//! Invariant: equal contents have equal names and different contents different ones, so a template is never changed, only created, and
//! creating it twice is no error. A template that a launch needs is searched for by one call at a time, however many launches wait for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_sdk_ec2::types::{ResourceType, TagSpecification};
use futures::FutureExt as _;
use futures::future::Shared;
use mortise_cloudprovider::{BoxFuture, CloudError};
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::failure::Failure;
use crate::launch::template::LaunchTemplate;
use crate::launch::template_data::template_data;
use crate::sdk::AwsClients;
use crate::sdk::arguments::{ec2_tags, filter};
use crate::tags;

/// How long a template is taken to exist after it was seen, or made.
const SEEN: Duration = Duration::from_secs(3600);
/// How long a template is kept that nothing used.
const UNUSED: Duration = Duration::from_secs(3600);
/// How often unused templates are searched for.
const SWEEP: Duration = Duration::from_secs(1800);
/// A process that was asked for nothing for so long is not the one that works: its templates may be another's.
const WORKING: Duration = Duration::from_secs(900);

#[derive(Clone, Copy, Debug)]
struct TemplateUse {
    /// When EC2 last had it; `None` while it is not known to exist.
    seen: Option<Instant>,
    /// When it was last needed, or first seen.
    used: Instant,
}

/// A template that is being searched for or made.
type Pending = Shared<BoxFuture<'static, Result<(), Failure>>>;

#[derive(Debug, Default)]
struct KnownTemplates {
    by_name: BTreeMap<String, TemplateUse>,
    pending: HashMap<String, Pending>,
    /// When this process last worked for the cluster.
    worked: Option<Instant>,
}

/// The templates of the cluster, and which of them were seen to exist a moment ago.
#[derive(Debug)]
pub(crate) struct LaunchTemplates {
    clients: Arc<AwsClients>,
    config: Arc<AwsConfig>,
    known: Mutex<KnownTemplates>,
}

impl LaunchTemplates {
    /// Has seen nothing yet, and calls nothing.
    pub(crate) fn new(clients: Arc<AwsClients>, config: Arc<AwsConfig>) -> Self {
        Self {
            clients,
            config,
            known: Mutex::default(),
        }
    }

    /// Forgets templates: one of them does not exist any more.
    pub(crate) fn forget<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        let mut known = self.lock();
        for name in names {
            known.by_name.remove(name);
        }
    }

    /// This process works for the cluster: what it finds unused is unused.
    pub(crate) fn works(&self) {
        self.lock().worked = Some(Instant::now());
    }

    /// Creates the template unless it exists. Returns its name.
    pub(crate) async fn ensure(&self, template: &LaunchTemplate) -> Result<String, Failure> {
        let name = template.name();
        let Some(pending) = self.begin(&name, template) else {
            return Ok(name);
        };
        let made = pending.clone().await;
        let mut known = self.lock();
        // A later attempt may have taken the place of the one that ended.
        let ended = known.pending.get(&name);
        if ended.is_some_and(|other| other.ptr_eq(&pending)) {
            known.pending.remove(&name);
        }
        made?;
        let now = Instant::now();
        let (seen, used) = (Some(now), now);
        known
            .by_name
            .insert(name.clone(), TemplateUse { seen, used });
        Ok(name)
    }

    /// The attempt to wait for; `None` when the template exists.
    fn begin(&self, name: &str, template: &LaunchTemplate) -> Option<Pending> {
        let now = Instant::now();
        let mut known = self.lock();
        known.worked = Some(now);
        if let Some(state) = known.by_name.get_mut(name) {
            state.used = now;
            if state.seen.is_some_and(|seen| now - seen < SEEN) {
                return None;
            }
        }
        let attempt = known.pending.entry(name.to_owned()).or_insert_with(|| {
            let (clients, template) = (Arc::clone(&self.clients), template.clone());
            let name = name.to_owned();
            let attempt: BoxFuture<'static, _> =
                Box::pin(async move { find_or_create(&clients, &name, &template).await });
            attempt.shared()
        });
        Some(attempt.clone())
    }

    /// Deletes all templates that were created for a class. Instances do not need them once they run.
    pub(crate) async fn delete_all(&self, class: &str) -> Result<(), CloudError> {
        let filters = vec![(format!("tag:{}", tags::NODE_CLASS), class.to_owned())];
        for (name, id) in self.list(filters).await? {
            self.delete(&id, &name).await?;
        }
        Ok(())
    }

    /// Remembers the templates that an earlier process left, then deletes those that nothing needs any more, for as long as it runs.
    pub(crate) async fn keep_clean(self: Arc<Self>) {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "failed to look for unused launch templates");
            }
            tokio::time::sleep(SWEEP).await;
        }
    }

    /// One look at the templates of the cluster: notes those that exist, deletes those that nothing used for long.
    async fn sweep(&self) -> Result<(), Failure> {
        let started = Instant::now();
        let listed = self.list(Vec::new()).await?;
        let unused = self.note(&listed, started);
        for (name, id) in unused {
            self.delete(&id, &name).await?;
        }
        Ok(())
    }

    /// Notes which templates exist. Returns those that nothing used for long.
    fn note(&self, listed: &[(String, String)], started: Instant) -> Vec<(String, String)> {
        let names: BTreeSet<&str> = listed.iter().map(|(name, _)| &**name).collect();
        let mut known = self.lock();
        known.by_name.retain(|name, state| {
            // One that was made during the look is not in the list yet.
            names.contains(&**name) || state.seen.is_some_and(|seen| seen >= started)
        });
        let now = Instant::now();
        for name in names {
            let state = known.by_name.entry(name.to_owned());
            let state = state.or_insert(TemplateUse {
                seen: None,
                used: now,
            });
            state.seen = Some(now);
        }
        if known.worked.is_none_or(|at| now - at >= WORKING) {
            return Vec::new();
        }
        let is_unused = |(name, _): &&(String, String)| {
            let state = known.by_name.get(name);
            state.is_some_and(|state| now - state.used >= UNUSED)
                && !known.pending.contains_key(name)
        };
        listed.iter().filter(is_unused).cloned().collect()
    }

    /// Names and ids of the templates of the cluster that have these tags too.
    async fn list(&self, more: Vec<(String, String)>) -> Result<Vec<(String, String)>, Failure> {
        let cluster = &self.config.cluster_name;
        let mut filters = vec![filter(format!("tag:{}", tags::EKS_CLUSTER), [cluster])];
        filters.extend(more.into_iter().map(|(name, value)| filter(name, [value])));
        let mut pages = self
            .clients
            .ec2
            .describe_launch_templates()
            .set_filters(Some(filters))
            .max_results(200)
            .into_paginator()
            .send();
        let mut all = Vec::new();
        while let Some(page) = pages.next().await {
            let page =
                page.map_err(|error| self.clients.failure("ec2:DescribeLaunchTemplates", error))?;
            let found = page.launch_templates().iter().filter_map(|each| {
                let (name, id) = (each.launch_template_name()?, each.launch_template_id()?);
                let ours = name.starts_with(tags::TEMPLATE_PREFIX);
                ours.then(|| (name.to_owned(), id.to_owned()))
            });
            all.extend(found);
        }
        Ok(all)
    }

    async fn delete(&self, id: &str, name: &str) -> Result<(), Failure> {
        self.forget([name]);
        let call = self.clients.ec2.delete_launch_template();
        match call.launch_template_id(id).send().await {
            Ok(_) => tracing::info!(template = name, id, "deleted launch template"),
            Err(error) => match self.clients.failure("ec2:DeleteLaunchTemplate", error) {
                failure if failure.is_not_found() => {}
                failure => return Err(failure),
            },
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, KnownTemplates> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl LaunchTemplates {
    /// A template exists.
    pub(crate) fn assume(&self, name: &str) {
        let now = Instant::now();
        let (seen, used) = (Some(now), now);
        self.lock()
            .by_name
            .insert(name.to_owned(), TemplateUse { seen, used });
    }
}

async fn find_or_create(
    clients: &AwsClients,
    name: &str,
    template: &LaunchTemplate,
) -> Result<(), Failure> {
    let call = clients.ec2.describe_launch_templates();
    match call.launch_template_names(name).send().await {
        Ok(answer) if !answer.launch_templates().is_empty() => return Ok(()),
        Ok(_) => {}
        Err(error) => match clients.failure("ec2:DescribeLaunchTemplates", error) {
            failure if failure.is_not_found() => {}
            failure => return Err(failure),
        },
    }
    let specification = TagSpecification::builder()
        .resource_type(ResourceType::LaunchTemplate)
        .set_tags(Some(ec2_tags(&template.tags)))
        .build();
    let call = clients
        .ec2
        .create_launch_template()
        .launch_template_name(name)
        .launch_template_data(template_data(template))
        .tag_specifications(specification);
    match call.send().await {
        Ok(_) => {
            tracing::info!(
                template = name,
                class = template.class,
                "created launch template"
            );
            Ok(())
        }
        Err(error) => match clients.failure("ec2:CreateLaunchTemplate", error) {
            failure if failure.code == "InvalidLaunchTemplateName.AlreadyExistsException" => Ok(()),
            failure => Err(failure),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::facts::api::wire::{ApiCall, ApiError};
    use crate::facts::api::{Answers, clients};
    use crate::launch::template::tests::template;

    /// The templates of an account.
    #[derive(Debug, Default)]
    struct Account {
        names: Mutex<BTreeSet<String>>,
        calls: Mutex<Vec<String>>,
    }

    impl Account {
        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut *self.calls.lock().unwrap())
        }
    }

    impl Answers for Account {
        fn answer(&self, call: ApiCall) -> Result<Value, ApiError> {
            self.calls.lock().unwrap().push(call.op.clone());
            let mut names = self.names.lock().unwrap();
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let input = &call.input;
            let refused = |code: &str| {
                Err(ApiError::Service {
                    code: code.to_owned(),
                    message: String::new(),
                })
            };
            match &*call.op {
                "CreateLaunchTemplate" if !names.insert(text(&input["LaunchTemplateName"])) => {
                    refused("InvalidLaunchTemplateName.AlreadyExistsException")
                }
                "CreateLaunchTemplate" => Ok(json!({})),
                "DeleteLaunchTemplate" if !names.remove(&text(&input["LaunchTemplateId"])) => {
                    refused("InvalidLaunchTemplateId.NotFound")
                }
                "DeleteLaunchTemplate" => Ok(json!({})),
                "DescribeLaunchTemplates" => {
                    let asked = input["LaunchTemplateNames"][0].as_str();
                    if asked.is_some_and(|name| !names.contains(name)) {
                        return refused("InvalidLaunchTemplateName.NotFoundException");
                    }
                    let found: Vec<Value> = names
                        .iter()
                        .filter(|name| asked.is_none_or(|asked| asked == **name))
                        .map(|name| json!({ "LaunchTemplateName": name, "LaunchTemplateId": name }))
                        .collect();
                    Ok(json!({ "LaunchTemplates": found }))
                }
                other => panic!("{other}"),
            }
        }
    }

    fn templates(account: &Arc<Account>) -> Arc<LaunchTemplates> {
        let clients = Arc::new(clients(Arc::clone(account) as Arc<dyn Answers>));
        Arc::new(LaunchTemplates::new(clients, Arc::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn many_launches_make_a_template_once() {
        let account = Arc::new(Account::default());
        let templates = templates(&account);
        let wanted = template();
        let all = (0..20).map(|_| templates.ensure(&wanted));
        let names = futures::future::try_join_all(all).await.unwrap();
        assert!(names.iter().all(|name| *name == wanted.name()));
        assert_eq!(
            account.calls(),
            ["DescribeLaunchTemplates", "CreateLaunchTemplate"]
        );
        templates.ensure(&wanted).await.unwrap();
        assert_eq!(account.calls(), Vec::<String>::new(), "it is known");
        templates.forget([&*wanted.name()]);
        templates.ensure(&wanted).await.unwrap();
        assert_eq!(account.calls(), ["DescribeLaunchTemplates"], "it exists");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nothing_uses_is_deleted_by_the_process_that_works() {
        let account = Arc::new(Account::default());
        let templates = templates(&account);
        let left = format!("{}1", tags::TEMPLATE_PREFIX);
        let foreign = "mine".to_owned();
        let both = [left.clone(), foreign.clone()];
        account.names.lock().unwrap().extend(both);
        templates.sweep().await.unwrap();
        tokio::time::advance(UNUSED).await;
        templates.sweep().await.unwrap();
        assert!(
            !account.calls().contains(&"DeleteLaunchTemplate".to_owned()),
            "this process never worked"
        );
        let used = template();
        let name = templates.ensure(&used).await.unwrap();
        templates.sweep().await.unwrap();
        assert_eq!(
            *account.names.lock().unwrap(),
            BTreeSet::from([name.clone(), foreign])
        );
        tokio::time::advance(UNUSED / 2).await;
        templates.ensure(&used).await.unwrap();
        tokio::time::advance(UNUSED / 2).await;
        templates.works();
        templates.sweep().await.unwrap();
        assert!(account.names.lock().unwrap().contains(&name), "in use");
        tokio::time::advance(UNUSED).await;
        templates.works();
        templates.sweep().await.unwrap();
        assert!(!account.names.lock().unwrap().contains(&name));
    }

    #[tokio::test(start_paused = true)]
    async fn templates_of_an_earlier_process_are_found_at_once() {
        let account = Arc::new(Account::default());
        let wanted = template();
        account.names.lock().unwrap().insert(wanted.name());
        let templates = templates(&account);
        templates.sweep().await.unwrap();
        account.calls();
        templates.ensure(&wanted).await.unwrap();
        assert_eq!(account.calls(), Vec::<String>::new());
        account.names.lock().unwrap().clear();
        tokio::time::advance(SWEEP).await;
        templates.sweep().await.unwrap();
        templates.ensure(&wanted).await.unwrap();
        assert!(account.names.lock().unwrap().contains(&wanted.name()));
    }
}
