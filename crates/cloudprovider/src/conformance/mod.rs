//! What every provider must do, whatever its cloud is: questions to a [`CloudProvider`] and the answers that the autoscaler
//! relies on. A provider is accepted when nothing fails against an emulator of its cloud.

mod batches;
mod catalog;
mod instances;

use std::fmt;

use serde_json::Value;

use crate::boxed::BoxFuture;
use crate::instance::Instance;
use crate::port::{CloudProvider, ResolvedNodeClass};
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;

/// How often a question is repeated while the cloud has not settled.
const ATTEMPTS: usize = 40;

/// The cloud below a provider under test, and the API server's part.
pub trait TestCloud: Send + Sync {
    /// A node class that can launch, with this status (a merge patch of the provider; `None` before it was resolved).
    fn node_class(&self, status: Option<&Value>) -> NodeClassObject;

    /// Lets some time of the cloud pass: what was launched or ended shows after some calls. A fraction of a second is enough.
    fn settle(&self) -> BoxFuture<'_, ()>;

    /// Ends an instance without the provider, as its owner can in a console.
    fn end_instance<'a>(&'a self, instance: &'a ProviderId) -> BoxFuture<'a, ()>;
}

/// A rule that a provider does not keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConformanceFailure {
    /// The rule, as a sentence.
    pub rule: &'static str,
    /// What was found instead.
    pub found: String,
}

impl fmt::Display for ConformanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.found)
    }
}

/// Asks a provider everything. It launches four instances at most and ends them; nothing else may use the cloud meanwhile.
pub async fn conformance(
    provider: &dyn CloudProvider,
    cloud: &dyn TestCloud,
) -> Vec<ConformanceFailure> {
    let mut check = ConformanceRun {
        provider,
        cloud,
        failures: Vec::new(),
    };
    check.descriptor();
    let Some(resolved) = check.resolved().await else {
        return check.failures;
    };
    check.catalog(&resolved.instance_types);
    check.instances(&resolved).await;
    check.failures
}

/// A run of the suite.
struct ConformanceRun<'a> {
    provider: &'a dyn CloudProvider,
    cloud: &'a dyn TestCloud,
    failures: Vec<ConformanceFailure>,
}

impl ConformanceRun<'_> {
    fn fail(&mut self, rule: &'static str, found: impl Into<String>) {
        let found = found.into();
        self.failures.push(ConformanceFailure { rule, found });
    }

    fn require(&mut self, is_kept: bool, rule: &'static str, found: impl FnOnce() -> String) {
        if !is_kept {
            self.fail(rule, found());
        }
    }

    fn descriptor(&mut self) {
        let descriptor = self.provider.descriptor();
        let name = descriptor.name;
        self.require(
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_lowercase()),
            "a provider has a name in lower case",
            || format!("{name:?}"),
        );
        self.require(
            !descriptor.node_classes.is_empty(),
            "a provider serves a kind of node class",
            || "none".to_owned(),
        );
        for policy in descriptor.repair_policies {
            self.require(
                policy.toleration_seconds > 0,
                "a condition that requires repair is tolerated for some time",
                || format!("{policy:?}"),
            );
        }
        let mut names: Vec<&str> = self
            .provider
            .workers()
            .iter()
            .map(|worker| worker.name)
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        self.require(
            names.len() == count,
            "workers of a provider have names of their own",
            || names.join(", "),
        );
    }

    /// The class, resolved until the provider knows all of it.
    async fn resolved(&mut self) -> Option<ResolvedNodeClass> {
        const RULE: &str = "a node class that can launch is resolved";
        let mut status = None;
        for _ in 0..ATTEMPTS {
            let class = self.cloud.node_class(status.as_ref());
            match self.provider.resolve(&class.into()).await {
                Ok(resolved) if resolved.again_ms.is_none() && resolved.status.is_none() => {
                    return Some(ResolvedNodeClass { status, ..resolved });
                }
                Ok(resolved) => status = resolved.status.or(status),
                Err(error) => {
                    self.fail(RULE, error.message);
                    return None;
                }
            }
            self.cloud.settle().await;
        }
        self.fail(
            RULE,
            format!("it changes still, last to {}", status.unwrap_or_default()),
        );
        None
    }

    /// Every instance, as soon as the list is as expected; else as it is in the end.
    async fn listed(
        &mut self,
        is_expected: impl Fn(&[Instance]) -> bool,
    ) -> Result<Vec<Instance>, String> {
        let mut last = Err("never asked".to_owned());
        for _ in 0..ATTEMPTS {
            last = self.provider.list_instances().await.map_err(|e| e.message);
            if last.as_ref().is_ok_and(|found| is_expected(found)) {
                break;
            }
            self.cloud.settle().await;
        }
        last
    }
}

#[cfg(test)]
mod tests;
