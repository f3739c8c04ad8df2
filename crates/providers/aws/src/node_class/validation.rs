//! Whether a class as it is can be launched with: first what its own fields say, then what AWS says when it is asked to launch nothing.
//!
//! Invariant: a class counts as valid only after every check, and AWS is asked again only when something that it was asked about
//! changes, or after half an hour.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_apis::karpenter::nodepool::NodePool;
use mortise_aws_class::kubelet_configuration;
use mortise_aws_class::spec::Ec2NodeClassSpec;
use serde_json::json;
use tokio::time::Instant;

use crate::config::AwsConfig;
use crate::node_class::cache::CachedNodeClass;
use crate::node_class::conditions::{self, Validity};
use crate::node_class::launch_trial::{LaunchTrial, Verdict};
use crate::node_class::lookup::{ClassPart, ClassResult, PartProblem, UnmetCondition};
use crate::offerings::region_offerings::OfferingsView;
use crate::sdk::cluster_info::ClusterInfo;
use crate::tags;
use mortise_aws_catalog::ami_family::AmiFamily;
use mortise_aws_catalog::expression_values::ExpressionValues;
use mortise_aws_catalog::instance_type_info::InstanceTypeInfo;
use mortise_aws_catalog::node_settings::{self, NodeClassFieldError, NodeSettings};

/// How long AWS's verdict is believed.
const TTL: Duration = Duration::from_secs(30 * 60);

/// Tag keys that a class may not set, because they are ours.
const RESTRICTED_TAGS: [&str; 4] = [
    tags::EKS_CLUSTER,
    tags::NODEPOOL,
    tags::NODECLAIM,
    tags::NODE_CLASS,
];

/// A class and what it is judged by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValidationInput<'a> {
    pub(crate) class: &'a CachedNodeClass,
    pub(crate) cluster: &'a ClassPart<Arc<ClusterInfo>>,
    /// What the region offers.
    pub(crate) offerings: &'a OfferingsView,
    /// Pools that refer to the class: what is likely to be launched with it.
    pub(crate) pools: &'a [Arc<NodePool>],
}

/// A verdict of AWS.
#[derive(Clone, Debug)]
struct KnownVerdict {
    until: Instant,
    problem: Option<UnmetCondition>,
}

/// Validates classes.
#[derive(Debug)]
pub(crate) struct Validation {
    config: Arc<AwsConfig>,
    trial: Arc<dyn LaunchTrial>,
    /// Verdicts by what was asked about.
    known: Mutex<HashMap<String, KnownVerdict>>,
}

impl Validation {
    /// Knows no verdict yet, and calls nothing.
    pub(crate) fn new(config: Arc<AwsConfig>, trial: Arc<dyn LaunchTrial>) -> Self {
        Self {
            config,
            trial,
            known: Mutex::default(),
        }
    }

    /// Judges a class.
    pub(crate) async fn judge(&self, input: ValidationInput<'_>) -> Validity {
        let class = input.class;
        let spec = &class.object.spec;
        let cluster = match input.cluster {
            Ok(cluster) => cluster,
            Err(PartProblem::Failed(failure)) => return Validity::Unknown(Some(failure.clone())),
            Err(PartProblem::Unmet(problem)) => return Validity::Invalid(problem.clone()),
        };
        if let Err(problem) = joinable(cluster, AmiFamily::of(spec)) {
            return Validity::Invalid(problem);
        }
        if let Err(problem) = kubelet(spec, &self.config) {
            return Validity::Invalid(problem);
        }
        if let Some(status) = conditions::unmet_dependencies(&class.object.status.conditions) {
            return Validity::Waiting(status);
        }
        if input.offerings.types().is_empty() {
            return Validity::Unknown(None);
        }
        if let Some(message) = unevaluable(input.offerings.types(), &class.settings) {
            let reason = "KubeletExpressionEvaluationFailed";
            return Validity::Invalid(UnmetCondition::new(reason, message));
        }
        if let Err(problem) = restricted_tags(spec) {
            return Validity::Invalid(problem);
        }
        let question = question(class);
        if let Some(problem) = self.remembered(&question) {
            return problem.map_or(Validity::Valid, Validity::Invalid);
        }
        if self.config.disable_dry_run || self.config.read_only {
            self.remember(question, None);
            return Validity::Valid;
        }
        let known = input.offerings.types();
        match self.trial.run(class, cluster, known, input.pools).await {
            Verdict::Passed => {
                self.remember(question, None);
                Validity::Valid
            }
            Verdict::Refused(problem) => {
                self.remember(question, Some(problem.clone()));
                Validity::Invalid(problem)
            }
            Verdict::RefusedForNow(problem) => Validity::Invalid(problem),
            Verdict::Unknown(failure) => Validity::Unknown(failure),
        }
    }

    fn remembered(&self, question: &str) -> Option<Option<UnmetCondition>> {
        let now = Instant::now();
        let known = self.lock();
        let verdict = known.get(question).filter(|known| known.until > now)?;
        Some(verdict.problem.clone())
    }

    fn remember(&self, question: String, problem: Option<UnmetCondition>) {
        let now = Instant::now();
        let mut known = self.lock();
        known.retain(|_, verdict| verdict.until > now);
        let until = now + TTL;
        known.insert(question, KnownVerdict { until, problem });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, KnownVerdict>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that AWS's verdict depends on. Annotations are in it so that a person can have it asked for again.
fn question(class: &CachedNodeClass) -> String {
    let (metadata, status) = (&class.object.metadata, &class.object.status);
    let mut subnets: Vec<&str> = status.subnets.iter().map(|each| &*each.id).collect();
    subnets.sort_unstable();
    json!([
        metadata.name,
        metadata.uid,
        metadata.annotations,
        class.object.spec,
        subnets,
        status.security_groups,
        status.amis,
        status.instance_profile,
    ])
    .to_string()
}

/// Whether enough is known of the cluster for nodes of the family to join it.
fn joinable(cluster: &ClusterInfo, family: AmiFamily) -> ClassResult<()> {
    if family == AmiFamily::Al2023 && cluster.service_cidr.is_none() {
        return Err(UnmetCondition::new(
            "ClusterCIDRResolutionFailed",
            "Failed to detect the cluster CIDR",
        ));
    }
    if cluster.endpoint.is_empty() && family != AmiFamily::Custom {
        return Err(UnmetCondition::new(
            "ClusterEndpointResolutionFailed",
            "the API server address is unknown; set --cluster-endpoint or CLUSTER_ENDPOINT",
        ));
    }
    Ok(())
}

/// Whether nodes of the class can be given what it says about the kubelet.
fn kubelet(spec: &Ec2NodeClassSpec, config: &AwsConfig) -> ClassResult<()> {
    let family = AmiFamily::of(spec);
    let settings = NodeSettings::read(spec, config.shape);
    if let Some(kubelet) = &spec.kubelet {
        let faults = kubelet_configuration::faults(kubelet);
        if !faults.is_empty() {
            return Err(UnmetCondition::new(
                "InvalidKubeletConfiguration",
                faults.join("; "),
            ));
        }
        if !config.shape.expressions && !node_settings::expressions(spec).is_empty() {
            return Err(UnmetCondition::new(
                "KubeletExpressionsDisabled",
                "spec.kubelet contains a CEL expression, but the NodeClassCEL feature gate is disabled",
            ));
        }
        if let Err(error) = &settings
            && error.message.starts_with("compiling expression, ")
        {
            return Err(UnmetCondition::new(
                "KubeletExpressionInvalid",
                format!(
                    "validating expression, {} (field=spec.{})",
                    error.message, error.field
                ),
            ));
        }
        if let Some(message) = kubelet_configuration::unsupported(family.as_str(), kubelet) {
            return Err(UnmetCondition::new(
                "UnsupportedKubeletConfiguration",
                message,
            ));
        }
    }
    let invalid = |error: NodeClassFieldError| {
        UnmetCondition::new("InvalidKubeletConfiguration", error.to_string())
    };
    settings.map(|_| ()).map_err(invalid)
}

/// Why an expression of the class has no value for some type; `None` when all have one for all.
fn unevaluable(types: &[InstanceTypeInfo], settings: &NodeSettings) -> Option<String> {
    types.iter().find_map(|each| {
        let values = ExpressionValues::new(each, settings);
        values
            .max_pods_problem()
            .or_else(|| values.reserved_failure())
    })
}

/// A rule that is in the CRD too, for objects that were stored before the rule was.
fn restricted_tags(spec: &Ec2NodeClassSpec) -> ClassResult<()> {
    let restricted = |key: &&String| {
        RESTRICTED_TAGS.contains(&key.as_str()) || key.starts_with("kubernetes.io/cluster/")
    };
    let mut keys = spec.tags.iter().flat_map(|tags| tags.keys());
    match keys.find(restricted) {
        None => Ok(()),
        Some(key) => Err(UnmetCondition::new(
            "TagValidationFailed",
            format!("tags failed validation requirements (tags={key:?})"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::launch::DryRuns;
    use crate::launch::templates::LaunchTemplates;

    #[test]
    fn our_tags_are_refused() {
        for key in ["kubernetes.io/cluster/x", "karpenter.sh/nodeclaim"] {
            let spec = Ec2NodeClassSpec {
                tags: Some(BTreeMap::from([
                    ("a".to_owned(), String::new()),
                    (key.to_owned(), String::new()),
                ])),
                ..Ec2NodeClassSpec::default()
            };
            let problem = restricted_tags(&spec).unwrap_err();
            assert_eq!(problem.reason, "TagValidationFailed");
            assert_eq!(
                problem.message,
                format!("tags failed validation requirements (tags=\"{key}\")")
            );
        }
    }

    #[test]
    fn kubelet_settings_are_checked_in_order() {
        let reason = |family: &str, kubelet: serde_json::Value| {
            let spec = Ec2NodeClassSpec {
                ami_family: Some(family.to_owned()),
                kubelet: kubelet.as_object().cloned(),
                ..Ec2NodeClassSpec::default()
            };
            kubelet_result(&spec)
        };
        fn kubelet_result(spec: &Ec2NodeClassSpec) -> Option<&'static str> {
            kubelet(spec, &AwsConfig::default())
                .err()
                .map(|problem| problem.reason)
        }
        assert_eq!(reason("AL2023", json!({ "maxPods": 10 })), None);
        assert_eq!(
            reason("Bottlerocket", json!({ "maxPods": "vcpus", "nothing": 1 })),
            Some("InvalidKubeletConfiguration")
        );
        assert_eq!(
            reason(
                "Bottlerocket",
                json!({ "maxPods": "vcpus", "podsPerCore": 1 })
            ),
            Some("KubeletExpressionsDisabled")
        );
        assert_eq!(
            reason("Bottlerocket", json!({ "podsPerCore": 1 })),
            Some("UnsupportedKubeletConfiguration")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_is_believed_until_what_it_depends_on_changes() {
        let clients = Arc::new(crate::facts::api::clients(Arc::new(Nothing)));
        let config = Arc::new(AwsConfig::default());
        let templates = LaunchTemplates::new(Arc::clone(&clients), Arc::clone(&config));
        let dry_runs = DryRuns::new(clients, Arc::clone(&config), Arc::new(templates));
        let validation = Validation::new(config, Arc::new(dry_runs));
        let mut class = crate::launch::tests::class();
        let before = question(&class);
        validation.remember(before.clone(), None);
        assert_eq!(validation.remembered(&before), Some(None));
        class.object.metadata.annotations =
            Some(BTreeMap::from([("again".to_owned(), String::new())]));
        assert_eq!(validation.remembered(&question(&class)), None);
        tokio::time::advance(TTL).await;
        assert_eq!(validation.remembered(&before), None);
    }

    /// Nothing answers.
    #[derive(Debug)]
    struct Nothing;

    impl crate::facts::api::Answers for Nothing {
        fn answer(
            &self,
            call: crate::facts::api::wire::ApiCall,
        ) -> Result<serde_json::Value, crate::facts::api::wire::ApiError> {
            Err(crate::facts::api::wire::ApiError::Transport(call.op))
        }
    }
}
