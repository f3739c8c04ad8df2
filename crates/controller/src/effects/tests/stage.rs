//! What effects meet in tests: an API server and a cloud that give set answers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;

use kube::client::Body;
use mortise_apis::NodeClaim;
use mortise_apis::labels::WellKnown;
use mortise_apis::names::{ObjectRef, ProviderId};
use mortise_apis::node_class::{NodeClassKind, NodeClassObject};
use mortise_cloudprovider::{
    BoxFuture, CloudError, CloudProvider, DriftReason, Instance, LaunchError, LaunchRequest,
    LaunchedInstance, ProviderDescriptor, ResolveRequest, ResolvedNodeClass, Retry,
    TerminationStatus,
};
use mortise_engine::engine::Term;
use mortise_engine::write::{NodeClaimStatusEdit, ObjectEdit, ObjectWrite, StatusEdit};
use mortise_state::resource_kinds::{Object, ObjectKey};
use serde_json::{Value, json};

use super::super::*;
use crate::client::resource_kinds::ResourceKinds;
use crate::client::token_bucket::TokenBucket;
use crate::testing;

/// An API server that gives these answers in turn, and notes what it was asked.
#[derive(Clone, Default)]
pub(super) struct Server {
    pub(super) answers: Arc<Mutex<VecDeque<(u16, Value)>>>,
    pub(super) asked: Arc<Mutex<Vec<(String, String, Value)>>>,
}

impl Server {
    pub(super) fn answering(answers: &[(u16, Value)]) -> Self {
        let server = Self::default();
        server
            .answers
            .lock()
            .unwrap()
            .extend(answers.iter().cloned());
        server
    }

    pub(super) fn client(&self) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let path = parts.uri.path_and_query().unwrap().to_string();
                server
                    .asked
                    .lock()
                    .unwrap()
                    .push((parts.method.to_string(), path, body));
                let answer = server.answers.lock().unwrap().pop_front();
                let Some((code, answer)) = answer else {
                    return std::future::pending().await;
                };
                let response = http::Response::builder().status(code);
                Ok::<_, tower::BoxError>(
                    response
                        .body(Body::from(answer.to_string().into_bytes()))
                        .unwrap(),
                )
            }
        });
        kube::Client::new(service, "default")
    }

    /// Method and path of every request.
    pub(super) fn requests(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect()
    }

    pub(super) fn body(&self, index: usize) -> Value {
        self.asked.lock().unwrap()[index].2.clone()
    }
}

pub(super) fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message }),
    )
}

/// A cloud that launches at once, and waits indefinitely when asked to terminate.
pub(super) struct Cloud {
    pub(super) name: &'static str,
    /// How often it refuses to list its instances.
    pub(super) refusals: Mutex<u32>,
}

pub(super) const KIND: NodeClassKind = NodeClassKind {
    group: "g",
    version: "v1",
    kind: "K",
    plural: "ks",
};

impl CloudProvider for Cloud {
    fn descriptor(&self) -> ProviderDescriptor {
        ProviderDescriptor {
            name: self.name,
            node_classes: &[KIND],
            repair_policies: &[],
            tagged_annotations: &[],
            reservation_labels: &[],
            launch_window: None,
        }
    }
    fn well_known(&self) -> WellKnown {
        WellKnown::core()
    }
    fn resolve<'a>(
        &'a self,
        _: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        Box::pin(async {
            Err(CloudError {
                label: "unauthorized",
                message: "no".to_owned(),
                retry: Retry::Never,
            })
        })
    }
    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        let provider_id = ProviderId::new(format!("fake://{}", request.claim.name()));
        Box::pin(async move {
            Ok(LaunchedInstance {
                provider_id,
                image_id: None,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
                capacity: BTreeMap::new(),
                allocatable: BTreeMap::new(),
            })
        })
    }
    fn terminate<'a>(
        &'a self,
        _: &'a ProviderId,
        _: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        Box::pin(std::future::pending())
    }
    fn instance<'a>(
        &'a self,
        _: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        Box::pin(async { Ok(None) })
    }
    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        let mut left = self.refusals.lock().unwrap();
        let refuse = *left > 0;
        *left = left.saturating_sub(1);
        Box::pin(async move {
            if refuse {
                return Err(CloudError {
                    label: "throttled",
                    message: "slow down".to_owned(),
                    retry: Retry::Again,
                });
            }
            Ok(Vec::new())
        })
    }
    fn drifted<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>> {
        Box::pin(async { Ok(None) })
    }
}

pub(super) struct Bench {
    pub(super) server: Server,
    pub(super) commands: mpsc::UnboundedSender<ExecutorMessage>,
    pub(super) results: mpsc::Receiver<DriverMessage>,
    pub(super) shared: Arc<ServiceState>,
    pub(super) license: Arc<LeadershipDeadline>,
}

impl Bench {
    /// Runs effects as the leader against these answers.
    pub(super) fn leading(answers: &[(u16, Value)]) -> Self {
        let server = Server::answering(answers);
        let shared = testing::shared();
        let license = Arc::new(LeadershipDeadline::new());
        license.extend_indefinitely();
        let api = ApiWriter::new(
            server.client(),
            Arc::new(TokenBucket::new(1000.0, 1000)),
            Arc::new(ResourceKinds::new(&[KIND])),
            Arc::clone(&license),
        );
        let (events, send) = Events::new(api.clone(), Arc::clone(&shared), None);
        tokio::spawn(send);
        let clouds = CloudProviders::new(vec![Arc::new(Cloud {
            name: "fake",
            refusals: Mutex::new(1),
        })]);
        let outside = EffectClients {
            api,
            clouds,
            events,
            shared: Arc::clone(&shared),
            license: Arc::clone(&license),
        };
        let (commands, orders) = mpsc::unbounded_channel();
        let (send, results) = mpsc::channel(64);
        tokio::spawn(run(orders, send, outside, 4));
        commands.send(ExecutorMessage::Leading(true)).unwrap();
        Self {
            server,
            commands,
            results,
            shared,
            license,
        }
    }

    pub(super) fn order(&self, effect: Effect) {
        let order = EffectRequest {
            decider: DeciderId::Lifecycle,
            term: Term::default(),
            effect: Arc::new(effect),
        };
        self.commands
            .send(ExecutorMessage::Order {
                order,
                why: "provisioned",
            })
            .unwrap();
    }

    /// The next answer in a few words.
    pub(super) async fn next(&mut self) -> String {
        match self.results.recv().await.unwrap() {
            DriverMessage::Input(EngineInput::News(ObjectEvent::Applied(
                Object::Claim(claim),
                _,
            ))) => {
                format!("news of {}", claim.name())
            }
            DriverMessage::Input(EngineInput::News(ObjectEvent::Deleted(
                ObjectKey::Claim(name),
                _,
            ))) => {
                format!("end of {name}")
            }
            DriverMessage::Input(EngineInput::Outcome { outcome, .. }) => match outcome.result {
                Ok(done) => format!("{done:?}")
                    .split(['(', ' '])
                    .next()
                    .unwrap()
                    .to_owned(),
                Err(error) => error.label().to_owned(),
            },
            other => panic!("{other:?}"),
        }
    }
}

pub(super) fn claim(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": { "name": name, "resourceVersion": "5", "labels": { "karpenter.sh/nodepool": pool } },
        "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "default" }, "requirements": [] },
    })
}

pub(super) fn as_claim(value: Value) -> Arc<NodeClaim> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// A write of the status, or of the labels of a NodeClaim.
pub(super) fn claim_write(status: bool) -> Effect {
    let edit = if status {
        ObjectEdit::SetStatus(StatusEdit::NodeClaim(NodeClaimStatusEdit {
            node_name: Some("n".to_owned()),
            ..NodeClaimStatusEdit::default()
        }))
    } else {
        ObjectEdit::SetLabels(BTreeMap::from([("a".to_owned(), "b".to_owned())]))
    };
    Effect::Write(ObjectWrite {
        target: ObjectRef::Claim("c".into()),
        resource_version: Some("7".to_owned()),
        edit,
    })
}
