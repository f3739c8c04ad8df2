//! Calls of the simulated scheduler to the production extender, in process.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::k8s;
use mortise_planning::settings::Settings;
use mortise_sim::Extender;
use mortise_sim::baseline::SimulatedPolicy;
use mortise_sim::scenario::SimulatedService;
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::extender::wire::Args;
use mortise_webhooks::extender::{ExtenderState, filter, prioritize};
use mortise_webhooks::{ClusterView, Counters};

/// The extender handlers without HTTP. The state is separate from that of the service, so that external calls do not
/// change the history; the counters are those of the service.
pub(crate) struct InProcessExtender {
    memory: ExtenderState,
    counters: Arc<Counters>,
}

impl InProcessExtender {
    /// An extender that has seen nothing, and counts its calls here.
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self {
            memory: ExtenderState::default(),
            counters,
        }
    }
}

/// The service under this policy, with the extender that kube-scheduler calls, if it calls any.
#[must_use]
pub fn service_of(policy: SimulatedPolicy, settings: Settings) -> SimulatedService {
    let extender = || -> Box<dyn Extender> { Box::new(InProcessExtender::new(Arc::default())) };
    SimulatedService {
        settings: policy.settings(settings),
        deciders: Box::new(move || policy.deciders(mortise_deciders::all())),
        extender: policy.has_extender().then(extender),
    }
}

/// Cluster state at the time of one call.
struct Moment {
    snapshot: Arc<Snapshot>,
    now: Timestamp,
}

impl ClusterView for Moment {
    fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot)
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        self.now
    }
}

fn args<'a>(pod: &k8s::Pod, nodes: &'a [String]) -> Args<'a> {
    Args {
        pod: pod.clone(),
        nodes: None,
        node_names: Some(nodes.iter().map(|name| Cow::from(name.as_str())).collect()),
    }
}

impl Extender for InProcessExtender {
    fn filter(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<String> {
        self.counters.filter.inc();
        let moment = Moment {
            snapshot: Arc::clone(snapshot),
            now,
        };
        let args = args(pod, nodes);
        let answer = filter(&moment, &self.memory, &self.counters, &args, true);
        answer
            .node_names
            .into_iter()
            .flatten()
            .map(str::to_owned)
            .collect()
    }

    fn prioritize(
        &self,
        snapshot: &Arc<Snapshot>,
        now: Timestamp,
        pod: &k8s::Pod,
        nodes: &[String],
    ) -> Vec<(String, i64)> {
        self.counters.prioritize.inc();
        let moment = Moment {
            snapshot: Arc::clone(snapshot),
            now,
        };
        let args = args(pod, nodes);
        prioritize(&moment, &self.memory, &self.counters, &args)
            .into_iter()
            .map(|each| (each.host.to_owned(), each.score))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gallery::GALLERY;
    use crate::scenario_file::ScenarioFile;
    use mortise_manifests::migrate::SourceFile;
    use mortise_sim::Scores;
    use mortise_sim::scenario::{ScenarioReport, play};

    fn scores(name: &str, policy: SimulatedPolicy) -> Scores {
        played(name, policy).scores
    }

    fn played(name: &str, policy: SimulatedPolicy) -> ScenarioReport {
        let found = GALLERY.into_iter().find(|each| each.name == name).unwrap();
        let source = SourceFile {
            name: name.to_owned(),
            text: found.text.to_owned(),
        };
        let ScenarioFile { spec, objects, .. } = ScenarioFile::read(&[&[source]]).unwrap();
        let catalog = mortise_aws_catalog::embedded_catalog().unwrap();
        let types = catalog.simulated_instance_types(&spec.region).unwrap();
        let cloud = (types, mortise_aws_class::labels::well_known());
        let service = service_of(policy, Settings::default());
        play(&spec, objects, cloud, service).unwrap()
    }

    /// Without the extender, kube-scheduler gives the room of an agent to pods that were planned for another node.
    #[test]
    fn the_room_of_pods_of_daemon_sets_is_kept_for_them() {
        let [with, without] = [SimulatedPolicy::Mortise, SimulatedPolicy::MortiseAlone]
            .map(|policy| scores("heavy-agents", policy));
        assert!(
            with.daemon_pods > 20 && with.late_daemon_pods == 0,
            "{with:?}"
        );
        assert!(without.late_daemon_pods > 0, "{without:?}");
        assert_eq!(with.violations + without.violations, 0);
    }

    /// A taint of young nodes costs nodes until it is known.
    #[test]
    fn a_boot_taint_costs_no_node_after_the_first_wave() {
        let [ours, theirs] = [SimulatedPolicy::Mortise, SimulatedPolicy::Karpenter]
            .map(|policy| played("boot-taint", policy));
        assert_eq!(ours.totals.events.get("UndeclaredStartupTaint"), Some(&1));
        assert_eq!(ours.totals.violations, Vec::<String>::new());
        let [ours, theirs] = [ours, theirs].map(|report| report.scores.nodes_launched);
        assert!(ours * 2 <= theirs, "{ours} and {theirs} nodes");
    }

    /// What is launched for the first pods of a burst is still right when the last one is there.
    #[test]
    fn a_burst_launches_no_node_that_is_not_needed() {
        let burst = scores("burst", SimulatedPolicy::Mortise);
        assert_eq!(burst.nodes_launched, burst.most_nodes);
        assert_eq!(burst.evictions, 0);
    }

    /// Pods of a workload that shrinks leave whole nodes, so fewer are evicted, and it costs about the same.
    #[test]
    fn deletion_costs_take_the_place_of_evictions() {
        let [with, without] = [
            SimulatedPolicy::MortiseDeletionCosts,
            SimulatedPolicy::Mortise,
        ]
        .map(|policy| scores("black-friday", policy));
        assert_eq!(with.evictions, 0);
        assert!(without.evictions > 0, "{without:?}");
        assert!(with.spent_micro_usd * 100 <= without.spent_micro_usd * 102);
        assert_eq!(with.violations, 0);
    }
}
