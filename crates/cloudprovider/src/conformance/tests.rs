//! A provider that keeps every rule, and what the suite says when one of them is broken.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use serde_json::json;

use super::*;
use crate::capacity_type::CapacityType;
use crate::drift::DriftReason;
use crate::error::{CloudError, LaunchError, Retry};
use crate::instance::{InstanceDetails, TerminationStatus};
use crate::instance_type::{InstanceType, Offering};
use crate::launch::{LaunchRequest, LaunchedInstance};
use crate::port::{ProviderDescriptor, ProviderWorker, ResolveRequest};
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels::{self, WellKnown};
use mortise_apis::names::NodeClassKey;
use mortise_apis::node_class::NodeClassKind;
use mortise_apis::requirements::{Requirement, Requirements};
use mortise_apis::resources::Resources;
use mortise_apis::values::money::MicroUsd;

/// A rule that the provider breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    UnknownPriceIsZero,
    MoreAllocatableThanCapacity,
    ClassNeverSettles,
    LaunchesAnything,
    LaunchesTwice,
    ForgetsLabels,
    ListsNothing,
    DriftsAtOnce,
    TerminatesOnce,
    NeverEnds,
    WorkersShareAName,
}

const KIND: NodeClassKind = NodeClassKind {
    group: "g",
    version: "v1",
    kind: "K",
    plural: "ks",
};

/// Instances by ID: UID and name of the claim, and whether they run.
struct Provider {
    fault: Fault,
    instances: Mutex<BTreeMap<ProviderId, (String, String)>>,
    count: Mutex<u64>,
}

impl Provider {
    fn new(fault: Fault) -> Self {
        Self {
            fault,
            instances: Mutex::default(),
            count: Mutex::default(),
        }
    }

    fn type_(&self) -> InstanceType {
        let mut requirements = Requirements::new();
        for (key, value) in [
            (labels::INSTANCE_TYPE, "small"),
            (labels::ARCH, "amd64"),
            (labels::TOPOLOGY_ZONE, "a"),
        ] {
            requirements.add(Requirement::is(key, value));
        }
        let mut capacity = Resources::new(2000, 4 << 30);
        capacity.pods = 110;
        let overhead = match self.fault {
            Fault::MoreAllocatableThanCapacity => Resources::new(-100, 0),
            _ => Resources::new(100, 1 << 20),
        };
        let price = match self.fault {
            Fault::UnknownPriceIsZero => MicroUsd(0),
            _ => MicroUsd(10_000),
        };
        InstanceType {
            name: "small".into(),
            requirements,
            capacity,
            overhead,
            offerings: vec![Offering {
                zone: "a".into(),
                capacity_type: CapacityType::OnDemand,
                price: Some(price),
                available: true,
                reservation: None,
                labels: Vec::new(),
            }],
            devices: std::sync::Arc::default(),
        }
    }

    fn launch_instance(&self, request: &LaunchRequest) -> Result<LaunchedInstance, LaunchError> {
        let requirements = request.claim.requirements();
        let is_small = requirements
            .get(labels::INSTANCE_TYPE)
            .is_some_and(|types| types.has("small"));
        if (!is_small || request.node_class.is_none()) && self.fault != Fault::LaunchesAnything {
            return Err(LaunchError::InsufficientCapacity {
                message: "none".to_owned(),
                unavailable: Vec::new(),
                again_ms: None,
                missing: None,
            });
        }
        let uid = request.claim.metadata.uid.clone().unwrap_or_default();
        let mut instances = self.instances.lock().unwrap();
        let known = instances
            .iter()
            .find(|(_, (of, _))| *of == uid && self.fault != Fault::LaunchesTwice)
            .map(|(id, _)| id.clone());
        let id = known.unwrap_or_else(|| {
            let mut count = self.count.lock().unwrap();
            *count += 1;
            ProviderId::from(format!("test://{count}"))
        });
        let name = request.claim.name().to_string();
        instances.insert(id.clone(), (uid, name));
        let mut all = BTreeMap::from([
            (labels::INSTANCE_TYPE.to_owned(), "small".to_owned()),
            (labels::TOPOLOGY_ZONE.to_owned(), "a".to_owned()),
            (labels::CAPACITY_TYPE.to_owned(), "on-demand".to_owned()),
        ]);
        if self.fault == Fault::ForgetsLabels {
            all.remove(labels::TOPOLOGY_ZONE);
        }
        let type_ = self.type_();
        Ok(LaunchedInstance {
            provider_id: id,
            image_id: None,
            labels: all,
            annotations: BTreeMap::new(),
            capacity: type_.capacity.to_api(),
            allocatable: type_.allocatable().to_api(),
        })
    }

    fn found(&self) -> Vec<Instance> {
        let instances = self.instances.lock().unwrap();
        let of = |(id, (_, claim)): (&ProviderId, &(String, String))| Instance {
            provider_id: id.clone(),
            claim: Some(claim.clone()),
            batch: None,
            created: None,
            terminating: false,
            details: InstanceDetails::default(),
        };
        instances.iter().map(of).collect()
    }
}

fn ready<T: Send + 'static>(value: T) -> BoxFuture<'static, T> {
    Box::pin(std::future::ready(value))
}

impl CloudProvider for Provider {
    fn descriptor(&self) -> ProviderDescriptor {
        ProviderDescriptor {
            name: "test",
            node_classes: &[KIND],
            repair_policies: &[],
            tagged_annotations: &[],
            reservation_labels: &[],
            launch_window: None,
        }
    }

    fn workers(&self) -> Vec<ProviderWorker> {
        let second = match self.fault {
            Fault::WorkersShareAName => "prices",
            _ => "types",
        };
        let worker = |name| ProviderWorker {
            name,
            run: ready(()),
        };
        vec![worker("prices"), worker(second)]
    }

    fn well_known(&self) -> WellKnown {
        WellKnown::core()
    }

    fn resolve<'a>(
        &'a self,
        request: &'a ResolveRequest,
    ) -> BoxFuture<'a, Result<ResolvedNodeClass, CloudError>> {
        let is_told = request.class.object.get("status").is_some();
        let changes = !is_told || self.fault == Fault::ClassNeverSettles;
        ready(Ok(ResolvedNodeClass {
            status: changes.then(|| json!({ "images": ["i"] })),
            annotations: BTreeMap::new(),
            finalizer: None,
            instance_types: vec![self.type_()],
            shifted_zones: Vec::new(),
            again_ms: None,
        }))
    }

    fn launch<'a>(
        &'a self,
        request: &'a LaunchRequest,
    ) -> BoxFuture<'a, Result<LaunchedInstance, LaunchError>> {
        ready(self.launch_instance(request))
    }

    fn terminate<'a>(
        &'a self,
        instance: &'a ProviderId,
        _claim: &'a str,
    ) -> BoxFuture<'a, Result<TerminationStatus, CloudError>> {
        if self.fault == Fault::NeverEnds {
            return ready(Ok(TerminationStatus::Started));
        }
        let removed = self.instances.lock().unwrap().remove(instance);
        ready(match removed {
            Some(_) => Ok(TerminationStatus::Started),
            None if self.fault == Fault::TerminatesOnce => Err(CloudError {
                label: "gone",
                message: "no such instance".to_owned(),
                retry: Retry::Never,
            }),
            None => Ok(TerminationStatus::Gone),
        })
    }

    fn instance<'a>(
        &'a self,
        instance: &'a ProviderId,
    ) -> BoxFuture<'a, Result<Option<Instance>, CloudError>> {
        let mut found = self.found().into_iter();
        ready(Ok(found.find(|each| each.provider_id == *instance)))
    }

    fn list_instances(&self) -> BoxFuture<'_, Result<Vec<Instance>, CloudError>> {
        ready(Ok(match self.fault {
            Fault::ListsNothing => Vec::new(),
            _ => self.found(),
        }))
    }

    fn drifted<'a>(
        &'a self,
        _: &'a NodeClaim,
        _: &'a NodeClassObject,
    ) -> BoxFuture<'a, Result<Option<DriftReason>, CloudError>> {
        let drifts = self.fault == Fault::DriftsAtOnce;
        ready(Ok(drifts.then(|| DriftReason::new("Drift"))))
    }
}

impl TestCloud for Provider {
    fn node_class(&self, status: Option<&Value>) -> NodeClassObject {
        let mut object = json!({ "metadata": { "name": "default" } });
        if let Some(status) = status {
            object["status"] = status.clone();
        }
        NodeClassObject::new(NodeClassKey::new("g", "K", "default"), object)
    }

    fn settle(&self) -> BoxFuture<'_, ()> {
        ready(())
    }

    fn end_instance<'a>(&'a self, instance: &'a ProviderId) -> BoxFuture<'a, ()> {
        self.instances.lock().unwrap().remove(instance);
        ready(())
    }
}

/// Rules that a provider with this fault breaks. Nothing of it waits.
fn broken(fault: Fault) -> Vec<&'static str> {
    let provider = Provider::new(fault);
    let mut run = Box::pin(conformance(&provider, &provider));
    let Poll::Ready(failures) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits");
    };
    let mut rules: Vec<_> = failures.into_iter().map(|failure| failure.rule).collect();
    rules.dedup();
    rules
}

#[test]
fn a_provider_that_keeps_every_rule_passes() {
    assert_eq!(broken(Fault::None), Vec::<&str>::new());
}

#[test]
fn each_broken_rule_is_named() {
    for (fault, rule) in [
        (
            Fault::UnknownPriceIsZero,
            "a price is unknown or above zero",
        ),
        (
            Fault::MoreAllocatableThanCapacity,
            "allocatable is between zero and the capacity",
        ),
        (
            Fault::ClassNeverSettles,
            "a node class that can launch is resolved",
        ),
        (
            Fault::LaunchesAnything,
            "without its node class nothing is launched",
        ),
        (
            Fault::LaunchesTwice,
            "a repeated launch of a NodeClaim returns the instance of the first",
        ),
        (
            Fault::ForgetsLabels,
            "an instance has what its NodeClaim requires, as labels",
        ),
        (
            Fault::ListsNothing,
            "an instance that runs is listed once, with its NodeClaim",
        ),
        (
            Fault::DriftsAtOnce,
            "an instance that was just launched is not drifted",
        ),
        (
            Fault::TerminatesOnce,
            "terminating an instance again, or one that is gone, is no error",
        ),
        (
            Fault::NeverEnds,
            "a termination tells in the end that the instance is gone",
        ),
        (
            Fault::WorkersShareAName,
            "workers of a provider have names of their own",
        ),
    ] {
        let rules = broken(fault);
        assert!(rules.contains(&rule), "{fault:?}: {rules:?}");
    }
}
