//! The extender of kube-scheduler: a server on loopback, without TLS, for scenarios only.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as ApiPod;
use mortise_apis::k8s;
use mortise_apis::names::PodKey;
use mortise_state::index::Index;
use mortise_state::ledger::{LedgerOp, Nomination, NominationTarget};
use mortise_state::resource_kinds::{EventSource, Object, ObjectEvent};
use mortise_state::snapshot::Snapshot;
use mortise_webhooks::extender::wire::{Args, Failed, FilterResult, HostPriority, PreemptionArgs};
use mortise_webhooks::extender::{ExtenderState, filter, preempt, prioritize};
use mortise_webhooks::{ClusterView, Counters};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::plan::Plan;
use crate::harness::ExtenderConfig;

/// Which extender kube-scheduler calls, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Advice {
    /// No extender: kube-scheduler may bind a pod to any node that its own filters allow, also one that was launched for
    /// another pod.
    None,
    /// Each pod may go to the node that the plan has it on, and nowhere else: its filters judge the plan itself.
    Plan,
    /// mortise's extender, with the plan's nominations in its ledger.
    Promises,
}

impl Advice {
    /// What it means, in a line.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "no extender",
            Self::Plan => "each pod to its planned node",
            Self::Promises => "mortise's extender keeps nominations",
        }
    }

    /// As on the command line.
    #[must_use]
    pub const fn argument(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Plan => "plan",
            Self::Promises => "promises",
        }
    }
}

/// Expiry of nominations; scenarios are over before.
const NOMINATED_FOR: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default)]
struct PlanState {
    places: BTreeMap<String, String>,
    index: Option<Index>,
}

struct Shared {
    advice: Advice,
    plan_state: Mutex<PlanState>,
    memory: ExtenderState,
    counters: Counters,
}

impl Shared {
    fn plan_state(&self) -> MutexGuard<'_, PlanState> {
        self.plan_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClusterView for Shared {
    fn snapshot(&self) -> Arc<Snapshot> {
        let now = Timestamp::now();
        let mut plan_state = self.plan_state();
        let nothing = || Index::new(mortise_apis::labels::WellKnown::core(), true, now);
        Arc::new(plan_state.index.get_or_insert_with(nothing).freeze(now))
    }

    fn age_ms(&self) -> i64 {
        0
    }

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Answers kube-scheduler.
pub(crate) struct Adviser {
    shared: Arc<Shared>,
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Adviser {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Adviser {
    /// Listens on a free port.
    pub(crate) async fn start(advice: Advice) -> Result<Self> {
        let shared = Arc::new(Shared {
            advice,
            plan_state: Mutex::default(),
            memory: ExtenderState::default(),
            counters: Counters::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let of_task = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&of_task);
                let service = service_fn(move |request| serve(Arc::clone(&shared), request));
                tokio::spawn(async move {
                    // A connection that breaks is the scheduler's to report.
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .ok();
                });
            }
        });
        Ok(Self {
            shared,
            address,
            task,
        })
    }

    /// The entry of kube-scheduler's configuration.
    pub(crate) fn config(&self, ca: &Path) -> ExtenderConfig {
        let mut config = ExtenderConfig::new(&format!("http://{}", self.address), ca, None);
        // A call that fails must be seen, not passed over.
        config.ignorable = false;
        config
    }

    /// From now on it knows this plan; `index` knows the nodes of it.
    pub(crate) fn learn(&self, plan: &Plan, mut index: Index) {
        let now = Timestamp::now();
        let snapshot = index.freeze(now);
        for (name, node) in &plan.places {
            let (namespace, pod) = name.split_once('/').unwrap_or_default();
            let key = PodKey::new(namespace, pod);
            let Some(pod) = snapshot.pods.get(&key) else {
                continue;
            };
            index.change_ledger(LedgerOp::Nominate(Nomination {
                uid: pod.uid.clone(),
                place: NominationTarget::Node(node.as_str().into()),
                requests: pod.class.requests.clone(),
                priority: pod.class.priority,
                from: now,
                until: now + NOMINATED_FOR,
                pod: key,
            }));
        }
        *self.shared.plan_state() = PlanState {
            places: plan.places.clone(),
            index: Some(index),
        };
    }

    /// Where a pod may go that had no place before.
    pub(crate) fn forget_places(&self) {
        self.shared.plan_state().places.clear();
    }

    /// The watch tells of a pod.
    pub(crate) fn seen(&self, pod: &ApiPod) -> Result<()> {
        if self.shared.advice != Advice::Promises {
            return Ok(());
        }
        let pod: k8s::Pod = serde_json::from_value(serde_json::to_value(pod)?)?;
        if let Some(index) = &mut self.shared.plan_state().index {
            index.apply(ObjectEvent::Applied(
                Object::Pod(Box::new(pod)),
                EventSource::Watch,
            ));
        }
        Ok(())
    }
}

async fn serve(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = request.uri().path().to_owned();
    let answer = match request.into_body().collect().await {
        Ok(body) => answer(&shared, &path, &body.to_bytes()),
        Err(error) => Err(error.into()),
    };
    let (status, body) = match answer {
        Ok(body) => (200, body),
        Err(error) => (400, format!("{error:#}").into_bytes()),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    Ok(response)
}

fn answer(shared: &Shared, path: &str, body: &[u8]) -> Result<Vec<u8>> {
    let Shared {
        memory, counters, ..
    } = shared;
    if path == "/preempt" {
        let args: PreemptionArgs = serde_json::from_slice(body)?;
        return Ok(serde_json::to_vec(&preempt(
            shared, memory, counters, args,
        ))?);
    }
    let args: Args<'_> = serde_json::from_slice(body)?;
    let keeps_nominations = shared.advice == Advice::Promises;
    match path {
        "/filter" if keeps_nominations => {
            let result = filter(shared, memory, counters, &args, true);
            Ok(serde_json::to_vec(&result)?)
        }
        "/filter" => Ok(serde_json::to_vec(&planned_only(shared, &args))?),
        "/prioritize" if keeps_nominations => {
            let scores = prioritize(shared, memory, counters, &args);
            Ok(serde_json::to_vec(&scores)?)
        }
        "/prioritize" => {
            let names = args.names().into_iter();
            let scores: Vec<_> = names.map(|host| HostPriority { host, score: 0 }).collect();
            Ok(serde_json::to_vec(&scores)?)
        }
        other => Ok(serde_json::to_vec(
            &json!({"Error": format!("no path {other}")}),
        )?),
    }
}

/// Lets a pod go to its planned node only; one that has none goes anywhere.
fn planned_only<'a>(shared: &Shared, args: &'a Args<'_>) -> FilterResult<'a> {
    let metadata = &args.pod.metadata;
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    let key = format!("{}/{}", of(&metadata.namespace), of(&metadata.name));
    let place = shared.plan_state().places.get(&key).cloned();
    let allowed = |name: &str| place.as_ref().is_none_or(|place| place == name);
    let names = args.names();
    let failed: Vec<(&str, &'static str)> = names
        .iter()
        .filter(|name| !allowed(name))
        .map(|name| (*name, "the plan has it elsewhere"))
        .collect();
    FilterResult {
        nodes: None,
        node_names: Some(names.into_iter().filter(|name| allowed(name)).collect()),
        failed_nodes: None,
        failed_and_unresolvable_nodes: (!failed.is_empty()).then_some(Failed(failed)),
        error: String::new(),
        nominated_node: None,
    }
}
