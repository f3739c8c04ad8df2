//! Keeps the pods that stand for ProvisioningRequests up to date with the requests, their templates and the pods that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Index;
use super::kinds::pod;
use crate::ledger::{LedgerOp, Nomination};
use crate::snapshot::demand::nearest_template;
use crate::snapshot::requested_room::check_counts;
use crate::snapshot::{
    BufferTemplate, GangKey, GangKind, Pod, RequestFailure, RequestedPods, RequestedRoom, Snapshot,
    TemplateKey, TemplateKind,
};
use mortise_apis::k8s::{self, ProvisioningClass, ProvisioningRequest, RequestPhase};
use mortise_apis::names::{NamespacedName, PodKey};

/// Which requests must be resolved again.
#[derive(Debug, Default)]
pub(super) struct RequestIndex {
    /// Whether requests are served at all.
    pub(super) is_on: bool,
    outdated: BTreeSet<NamespacedName>,
}

impl RequestIndex {
    /// A request was made, changed or deleted.
    pub(super) fn changed(&mut self, request: &NamespacedName) {
        self.outdated.insert(request.clone());
    }

    /// A PodTemplate was made, changed or deleted.
    pub(super) fn template_changed(&mut self, template: &TemplateKey, state: &Snapshot) {
        if template.kind != TemplateKind::PodTemplate {
            return;
        }
        let requests = state.gangs.requests.iter();
        let of_template = requests.filter(|(key, request)| {
            let mut sets = request.spec.pod_sets.iter();
            key.namespace == template.name.namespace
                && sets.any(|set| *set.pod_template_ref.name == *template.name.name)
        });
        self.outdated
            .extend(of_template.map(|(key, _)| key.clone()));
    }

    /// A pod that uses a request came, ended or was deleted.
    pub(super) fn pod_changed(
        &mut self,
        before: Option<&Pod>,
        after: Option<&Pod>,
        state: &Snapshot,
    ) {
        let request = |pod: Option<&Pod>| {
            let gang = pod.filter(|pod| pod.requested.is_none())?.gang.as_ref()?;
            (gang.kind == GangKind::Request).then(|| gang.group.clone())
        };
        let (before, after) = (request(before), request(after));
        if before != after {
            let known = before.into_iter().chain(after);
            let known = known.filter(|key| state.gangs.requests.contains_key(key));
            self.outdated.extend(known);
        }
    }
}

/// Resolves the requests again that changed, or on whose pods something changed.
///
/// # Cost
/// The pods of these requests.
pub(super) fn resolve(index: &mut Index) {
    for key in std::mem::take(&mut index.requests.outdated) {
        index.changes.requests = true;
        let known = index.state.requested.get(&key).cloned();
        let known = known.iter().filter_map(|known| known.pods.as_ref().ok());
        let known: BTreeSet<PodKey> = known.flat_map(|pods| pods.iter().cloned()).collect();
        let served = index.requests.is_on.then_some(&key);
        let now = served.and_then(|key| resolution(key, &index.state));
        let wanted = now.as_ref().and_then(|(_, pods)| pods.as_ref().ok());
        let wanted: BTreeSet<&PodKey> = wanted.into_iter().flat_map(BTreeMap::keys).collect();
        let leaving: Vec<&PodKey> = known.iter().filter(|pod| !wanted.contains(pod)).collect();
        hand_over(index, &key, &leaving);
        for pod in leaving {
            pod::remove(index, pod);
        }
        let all = Arc::make_mut(&mut index.state.requested);
        let Some((request, pods)) = now else {
            all.remove(&key);
            continue;
        };
        let names = pods.as_ref().map(|pods| pods.keys().cloned().collect());
        let requested = RequestedPods {
            uid: request.metadata.uid.as_deref().unwrap_or_default().into(),
            pods: names.map_err(RequestFailure::clone),
        };
        all.insert(key, Arc::new(requested));
        for (name, number) in pods.into_iter().flatten() {
            put(index, &request, &name, number);
        }
    }
}

/// Nominates waiting pods that use a request to the places of those that leave for them, so that no other pod comes in between.
fn hand_over(index: &mut Index, key: &NamespacedName, leaving: &[&PodKey]) {
    let ledger = &index.state.ledger;
    let leaving = leaving.iter().filter_map(|pod| index.state.pods.get(*pod));
    let places = leaving.filter_map(|pod| ledger.nomination(&pod.uid));
    let mut places: Vec<Arc<Nomination>> = places.cloned().collect();
    let waiting = users(key, &index.state).filter(|pod| {
        index.state.pending.contains(&pod.key) && ledger.nomination(&pod.uid).is_none()
    });
    let mut nominations = Vec::new();
    for user in waiting {
        let requests = &user.class.requests;
        let alike = places.iter().position(|place| place.requests == *requests);
        if let Some(at) = alike {
            let Nomination { place, until, .. } = &*places.swap_remove(at);
            nominations.push(user.nomination(place.clone(), index.now, *until));
        }
    }
    for nomination in nominations {
        index.change_ledger(LedgerOp::Nominate(nomination));
    }
}

/// Pods that use a request.
fn users<'s>(key: &NamespacedName, state: &'s Snapshot) -> impl Iterator<Item = &'s Arc<Pod>> {
    let gang = GangKey {
        kind: GangKind::Request,
        group: key.clone(),
    };
    let members: Vec<&PodKey> = state.gangs.members(&gang).collect();
    let members = members.into_iter().filter_map(|pod| state.pods.get(pod));
    members.filter(|pod| pod.requested.is_none())
}

/// A request that is served, and its pods by name with the set of each and its number there. `None` if nothing is to be done for it.
type Resolution = (
    Arc<ProvisioningRequest>,
    Result<BTreeMap<PodKey, (usize, i64)>, RequestFailure>,
);

fn resolution(key: &NamespacedName, state: &Snapshot) -> Option<Resolution> {
    let request = state.gangs.requests.get(key)?;
    request.class()?;
    if request.phase() == RequestPhase::Over {
        return None;
    }
    Some((Arc::clone(request), pods(key, request, state)))
}

fn pods(
    key: &NamespacedName,
    request: &ProvisioningRequest,
    state: &Snapshot,
) -> Result<BTreeMap<PodKey, (usize, i64)>, RequestFailure> {
    check_counts(request)?;
    let mut templates = Vec::new();
    for set in &request.spec.pod_sets {
        templates.push(template(key, &set.pod_template_ref.name, state)?);
    }
    let sets = request.spec.pod_sets.iter();
    let mut left: Vec<i64> = sets.map(|set| set.count.max(0)).collect();
    if matches!(request.phase(), RequestPhase::Booked(_)) {
        take_places(key, state, &templates, &mut left);
    }
    let numbered = left.into_iter().enumerate();
    let numbered = numbered.flat_map(|(set, count)| (0..count).map(move |number| (set, number)));
    let named = numbered.map(|(set, number)| {
        let name = format!("{}-{set}-{number}", key.name);
        (PodKey::new(Arc::clone(&key.namespace), name), (set, number))
    });
    Ok(named.collect())
}

fn template<'s>(
    key: &NamespacedName,
    name: &str,
    state: &'s Snapshot,
) -> Result<&'s BufferTemplate, RequestFailure> {
    let of = TemplateKey {
        kind: TemplateKind::PodTemplate,
        name: NamespacedName::new(Arc::clone(&key.namespace), name),
    };
    let Some(template) = state.templates.get(&of) else {
        return Err(RequestFailure::NoTemplate {
            name: name.to_owned(),
            nearest: nearest_template(&of, state),
        });
    };
    match &template.class().malformed {
        Some(fault) => Err(RequestFailure::InvalidTemplate {
            name: name.to_owned(),
            fault: fault.to_string(),
        }),
        None => Ok(template),
    }
}

/// Each pod that uses the request takes a place: of a set of pods of its size, or else of the first that has some left.
fn take_places(
    key: &NamespacedName,
    state: &Snapshot,
    templates: &[&BufferTemplate],
    left: &mut [i64],
) {
    for user in users(key, state) {
        let is_alike =
            |set: usize| templates[set].class().requests == user.class.requests && left[set] > 0;
        let mut sets = 0..left.len();
        let set = sets
            .clone()
            .find(|set| is_alike(*set))
            .or_else(|| sets.find(|set| left[*set] > 0));
        if let Some(set) = set {
            left[set] -= 1;
        }
    }
}

/// Makes one of the pods, or gives it the phase of its request.
fn put(
    index: &mut Index,
    request: &ProvisioningRequest,
    name: &PodKey,
    (set, number): (usize, i64),
) {
    // Once there was room for all of them, what becomes of it is the matter of the pods that use it.
    let room = match (request.phase(), request.class()) {
        (RequestPhase::Booked(_), _) => RequestedRoom::Booked,
        (_, Some(ProvisioningClass::BestEffortAtomic)) => RequestedRoom::OnAny,
        _ => RequestedRoom::OnExisting,
    };
    if let Some(known) = index.state.pods.get(name) {
        // A pod of the API has this name: it keeps it, and the request lacks a place.
        let Some(was) = known.requested else { return };
        if was == room {
            return;
        }
    }
    let key = request.key();
    let of_set = &request.spec.pod_sets[set].pod_template_ref.name;
    let Ok(template) = template(&key, of_set, &index.state) else {
        return;
    };
    let Some(given) = template.given.clone() else {
        return;
    };
    let object = object(request, &given, name, (set, number));
    let pod = Pod {
        launch_hold: None,
        gang: Some(Arc::new(GangKey {
            kind: GangKind::Request,
            group: key,
        })),
        requested: Some(room),
        unschedulable: true,
        refusal: None,
        ..index.pods.convert(&object)
    };
    pod::insert(index, pod);
}

/// The pod as the API server would have it. Volumes whose claim is made with the pod are left out, as are gates.
fn object(
    request: &ProvisioningRequest,
    template: &k8s::PodTemplate,
    name: &PodKey,
    (set, number): (usize, i64),
) -> k8s::Pod {
    let mut metadata = template.metadata.clone();
    metadata.name = Some(name.name.to_string());
    metadata.namespace = Some(name.namespace.to_string());
    let uid = request.metadata.uid.as_deref().unwrap_or_default();
    metadata.uid = Some(format!("{uid}-{set}-{number}"));
    metadata.creation_timestamp = Some(Time(request.created()));
    let mut spec = template.spec.clone();
    spec.volumes.retain(|volume| volume.ephemeral.is_none());
    spec.scheduling_gates.clear();
    spec.node_name = None;
    k8s::Pod {
        metadata,
        spec,
        status: k8s::PodStatus {
            phase: "Pending".to_owned(),
            ..k8s::PodStatus::default()
        },
    }
}
