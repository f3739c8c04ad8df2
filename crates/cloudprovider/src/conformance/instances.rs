//! Rules of instances, from their launch to their end.

use std::sync::Arc;

use serde_json::json;

use super::batches::keeps_batches;
use super::{ATTEMPTS, ConformanceRun};
use crate::capacity_type::CapacityType;
use crate::error::LaunchError;
use crate::instance::{Instance, TerminationStatus};
use crate::instance_type::{InstanceType, Offering};
use crate::launch::{LaunchRequest, LaunchedInstance};
use crate::port::ResolvedNodeClass;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::ProviderId;
use mortise_apis::node_class::NodeClassObject;
use mortise_apis::resources::Resources;

/// What a NodeClaim of the suite asks for.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    instance_type: &'a str,
    zone: &'a str,
    capacity_type: &'a str,
}

impl ConformanceRun<'_> {
    pub(super) async fn instances(&mut self, resolved: &ResolvedNodeClass) {
        let class = self.cloud.node_class(resolved.status.as_ref());
        let Some((instance_type, offering)) = cheapest(&resolved.instance_types) else {
            return;
        };
        let wanted = Wanted {
            instance_type: &instance_type.name,
            zone: &offering.zone,
            capacity_type: offering.capacity_type.as_str(),
        };
        self.refused_launches(wanted, &class).await;
        let first = claim("conformance-1", wanted, &class);
        let second = claim("conformance-2", wanted, &class);
        let (Some(one), Some(two)) = (
            self.launched(&first, &class).await,
            self.launched(&second, &class).await,
        ) else {
            return;
        };
        self.is_as_wanted(&one, wanted);
        self.require(
            one.provider_id != two.provider_id,
            "each NodeClaim gets an instance of its own",
            || one.provider_id.to_string(),
        );
        if let Some(again) = self.launched(&first, &class).await {
            self.require(
                again.provider_id == one.provider_id,
                "a repeated launch of a NodeClaim returns the instance of the first",
                || format!("{} and {}", one.provider_id, again.provider_id),
            );
        }
        self.are_listed(&[&first, &second], &[&one, &two]).await;
        self.is_not_drifted(&first, &one, &class).await;
        self.ends(&one.provider_id, "conformance-1").await;
        self.cloud.end_instance(&two.provider_id).await;
        self.is_gone(&two.provider_id).await;
        self.ends(&two.provider_id, "conformance-2").await;
        let together = ["conformance-3", "conformance-4"];
        let claims = together.map(|name| claim(name, wanted, &class));
        let launched = keeps_batches(self, &claims, &class).await;
        for (id, name) in launched.iter().zip(together) {
            self.ends(id, name).await;
        }
    }

    /// Launches that must fail, and leave nothing behind.
    async fn refused_launches(&mut self, wanted: Wanted<'_>, class: &NodeClassObject) {
        let impossible = Wanted {
            instance_type: "no-such-type",
            ..wanted
        };
        let request = request("conformance-0", impossible, class);
        match self.provider.launch(&request).await {
            Err(LaunchError::InsufficientCapacity { .. }) => {}
            other => self.fail(
                "without an offering that a NodeClaim allows, its launch fails for insufficient capacity",
                format!("{other:?}"),
            ),
        }
        let request = LaunchRequest {
            node_class: None,
            ..self::request("conformance-0", wanted, class)
        };
        let result = self.provider.launch(&request).await;
        self.require(
            result.is_err(),
            "without its node class nothing is launched",
            || format!("{result:?}"),
        );
    }

    async fn launched(
        &mut self,
        claim: &Arc<NodeClaim>,
        class: &NodeClassObject,
    ) -> Option<LaunchedInstance> {
        let request = LaunchRequest {
            claim: Arc::clone(claim),
            node_class: Some(class.clone()),
            batch: None,
        };
        match self.provider.launch(&request).await {
            Ok(launched) => Some(launched),
            Err(error) => {
                self.fail(
                    "an offering that is available is launched",
                    error.to_string(),
                );
                None
            }
        }
    }

    fn is_as_wanted(&mut self, launched: &LaunchedInstance, wanted: Wanted<'_>) {
        for (label, value) in [
            (labels::INSTANCE_TYPE, wanted.instance_type),
            (labels::TOPOLOGY_ZONE, wanted.zone),
            (labels::CAPACITY_TYPE, wanted.capacity_type),
        ] {
            let found = launched.labels.get(label);
            self.require(
                found.is_some_and(|found| found == value),
                "an instance has what its NodeClaim requires, as labels",
                || format!("{label}: {found:?} instead of {value}"),
            );
        }
        for resource in ["cpu", "memory", "pods"] {
            self.require(
                launched.capacity.contains_key(resource)
                    && launched.allocatable.contains_key(resource),
                "the capacity of a launched instance is known",
                || resource.to_owned(),
            );
        }
    }

    async fn are_listed(
        &mut self,
        claims: &[&Arc<NodeClaim>; 2],
        launched: &[&LaunchedInstance; 2],
    ) {
        const RULE: &str = "an instance that runs is listed once, with its NodeClaim";
        let is_running = |found: &[Instance], id: &ProviderId| {
            found
                .iter()
                .filter(|each| each.provider_id == *id && !each.terminating)
                .count()
                == 1
        };
        let ids = launched.map(|each| &each.provider_id);
        let listed = self
            .listed(|found| ids.iter().all(|id| is_running(found, id)))
            .await;
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return self.fail(RULE, error),
        };
        for (id, claim) in ids.into_iter().zip(claims) {
            self.require(is_running(&listed, id), RULE, || {
                format!("{id} is not in {listed:?}")
            });
            let name = claim.name();
            for each in listed.iter().filter(|each| each.provider_id == *id) {
                self.require(
                    each.claim
                        .as_deref()
                        .is_none_or(|found| found == name.as_str()),
                    RULE,
                    || format!("{id} belongs to {:?} instead of {name}", each.claim),
                );
            }
            match self.provider.instance(id).await {
                Ok(Some(found)) if found.provider_id == *id && !found.terminating => {}
                other => self.fail(
                    "an instance that runs is found by its ID",
                    format!("{id}: {other:?}"),
                ),
            }
        }
    }

    async fn is_not_drifted(
        &mut self,
        claim: &NodeClaim,
        launched: &LaunchedInstance,
        class: &NodeClassObject,
    ) {
        let mut claim = claim.clone();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(launched.labels.clone());
        let annotations = claim.metadata.annotations.get_or_insert_default();
        annotations.extend(launched.annotations.clone());
        claim.status.provider_id = Some(launched.provider_id.to_string());
        claim.status.image_id.clone_from(&launched.image_id);
        let drift = self.provider.drifted(&claim, class).await;
        self.require(
            drift == Ok(None),
            "an instance that was just launched is not drifted",
            || format!("{drift:?}"),
        );
    }

    /// Terminates, twice, whatever the instance is doing.
    async fn ends(&mut self, id: &ProviderId, claim: &str) {
        for _ in 0..2 {
            let result = self.provider.terminate(id, claim).await;
            self.require(
                result.is_ok(),
                "terminating an instance again, or one that is gone, is no error",
                || format!("{id}: {result:?}"),
            );
        }
        self.is_gone(id).await;
        let mut result = self.provider.terminate(id, claim).await;
        for _ in 0..ATTEMPTS {
            if result == Ok(TerminationStatus::Gone) {
                return;
            }
            self.cloud.settle().await;
            result = self.provider.terminate(id, claim).await;
        }
        self.fail(
            "a termination tells in the end that the instance is gone",
            format!("{id}: {result:?}"),
        );
    }

    /// Neither the list nor the ID shows the instance as running.
    async fn is_gone(&mut self, id: &ProviderId) {
        const RULE: &str = "an instance that ended is not shown as running";
        let is_over = |found: &Instance| found.terminating || found.provider_id != *id;
        let listed = self.listed(|found| found.iter().all(is_over)).await;
        match listed {
            Ok(listed) => self.require(listed.iter().all(is_over), RULE, || {
                format!("{id} is in {listed:?}")
            }),
            Err(error) => self.fail(RULE, error),
        }
        let found = self.provider.instance(id).await;
        self.require(
            matches!(&found, Ok(found) if found.as_ref().is_none_or(is_over)),
            RULE,
            || format!("{id}: {found:?}"),
        );
    }
}

/// The cheapest on-demand offering that is available, of a type with capacity for what the suite's NodeClaims request; any that
/// is available if none is sold on demand.
fn cheapest(types: &[InstanceType]) -> Option<(&InstanceType, &Offering)> {
    let all = types
        .iter()
        .flat_map(|each| each.offerings.iter().map(move |offering| (each, offering)));
    all.filter(|(each, offering)| offering.available && requests().fits_in(&each.allocatable()))
        .min_by_key(|(each, offering)| {
            let is_other = offering.capacity_type != CapacityType::OnDemand;
            (
                is_other,
                offering.price.is_none(),
                offering.price,
                &each.name,
            )
        })
}

/// What the suite's NodeClaims request.
fn requests() -> Resources {
    let mut requests = Resources::new(100, 128 << 20);
    requests.pods = 1;
    requests
}

fn request(name: &str, wanted: Wanted<'_>, class: &NodeClassObject) -> LaunchRequest {
    LaunchRequest {
        claim: claim(name, wanted, class),
        node_class: Some(class.clone()),
        batch: None,
    }
}

/// A NodeClaim as a pool makes it.
fn claim(name: &str, wanted: Wanted<'_>, class: &NodeClassObject) -> Arc<NodeClaim> {
    let key = &class.key;
    let require =
        |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    let object = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "uid": format!("00000000-0000-4000-8000-{name}"),
            "labels": { labels::NODEPOOL: "conformance" },
        },
        "spec": {
            "nodeClassRef": { "group": key.group, "kind": key.kind, "name": key.name },
            "requirements": [
                require(labels::INSTANCE_TYPE, wanted.instance_type),
                require(labels::TOPOLOGY_ZONE, wanted.zone),
                require(labels::CAPACITY_TYPE, wanted.capacity_type),
            ],
            "resources": { "requests": requests().to_api() },
        },
    });
    Arc::new(serde_json::from_value(object).unwrap_or_default())
}
