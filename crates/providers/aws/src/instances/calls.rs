//! The calls about instances: each is made for all that ask for the same at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aws_sdk_ec2::types::{Filter, Instance as Ec2Instance, InstanceStateName, Reservation, Tag};

use crate::failure::{Failure, FailureKind};
use crate::instances::ask_by_id::{Answers, Persistence, ask_by_id};
use crate::instances::record;
use crate::sdk::AwsClients;
use crate::sdk::arguments::filter;
use crate::sdk::batch::{BatchLimits, Batcher, INSTANCES};
use crate::sdk::call_budget::Urgency;
use crate::tags;

const DESCRIBE: &str = "ec2:DescribeInstances";
const TERMINATE: &str = "ec2:TerminateInstances";
const CREATE_TAGS: &str = "ec2:CreateTags";

/// States in which an instance exists and may run.
const ALIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];
/// All states but `terminated`.
const EXISTING: [&str; 5] = ["pending", "running", "stopping", "stopped", "shutting-down"];

/// Claims are asked for by their UID in a filter, which takes 200 values.
const CLAIMS: BatchLimits = BatchLimits {
    items: 200,
    ..INSTANCES
};

/// Tags that are added, sorted by key.
pub(crate) type NewTags = Vec<(String, String)>;
/// An instance; `None` for one that EC2 does not have, or has terminated.
type Described = Result<Option<Ec2Instance>, Failure>;
/// The instances of a claim.
type OfClaim = Result<Vec<Ec2Instance>, Failure>;
/// The state that an instance goes to; `None` when EC2 does not say.
type Terminating = Result<Option<InstanceStateName>, Failure>;

/// Calls about instances.
#[derive(Debug)]
pub(super) struct InstanceCalls {
    clients: Arc<AwsClients>,
    describe: Batcher<(), (String, Urgency), Described>,
    look: Batcher<(), String, Described>,
    of_claim: Batcher<(), String, OfClaim>,
    terminate: Batcher<(), String, Terminating>,
    tag: Batcher<NewTags, String, Result<(), Failure>>,
}

impl InstanceCalls {
    /// Calls nothing yet.
    pub(super) fn new(clients: &Arc<AwsClients>) -> Self {
        let [of_describe, of_look, of_claims, of_terminate, of_tag] =
            std::array::from_fn(|_| Arc::clone(clients));
        Self {
            clients: Arc::clone(clients),
            describe: Batcher::new(INSTANCES, move |(), items| {
                let urgency = items.iter().map(|(_, urgency)| *urgency).min();
                let urgency = urgency.unwrap_or(Urgency::Background);
                let ids = items.into_iter().map(|(id, _)| id).collect();
                Box::pin(describe_all(
                    Arc::clone(&of_describe),
                    ids,
                    urgency,
                    OF_DESCRIBE,
                ))
            }),
            look: Batcher::new(INSTANCES, move |(), ids| {
                Box::pin(describe_all(
                    Arc::clone(&of_look),
                    ids,
                    Urgency::Terminate,
                    OF_LOOK,
                ))
            }),
            of_claim: Batcher::new(CLAIMS, move |(), uids| {
                Box::pin(find_claims(Arc::clone(&of_claims), uids))
            }),
            terminate: Batcher::new(INSTANCES, move |(), ids| {
                Box::pin(terminate_all(Arc::clone(&of_terminate), ids))
            }),
            tag: Batcher::new(INSTANCES, move |tags, ids| {
                Box::pin(tag_all(Arc::clone(&of_tag), tags, ids))
            }),
        }
    }

    /// An instance as EC2 describes it now; `None` for one that is terminated, or that EC2 does not find.
    pub(super) async fn describe(&self, id: &str, urgency: Urgency) -> Described {
        let answer = self.describe.call((), (id.to_owned(), urgency)).await;
        answer.unwrap_or_else(|_| Err(self.lost(DESCRIBE)))
    }

    /// An instance that is ending; `None` once it is terminated. It is expected to be missing, so that it is asked for once.
    pub(super) async fn look(&self, id: &str) -> Described {
        let answer = self.look.call((), id.to_owned()).await;
        answer.unwrap_or_else(|_| Err(self.lost(DESCRIBE)))
    }

    /// The living instances that were launched for a claim UID, sorted by id.
    pub(super) async fn of_claim(&self, uid: &str) -> OfClaim {
        let answer = self.of_claim.call((), uid.to_owned()).await;
        answer.unwrap_or_else(|_| Err(self.lost(DESCRIBE)))
    }

    /// The living instances that were launched by a batch.
    pub(super) async fn of_batch(&self, token: &str) -> OfClaim {
        let filters = vec![
            filter(format!("tag:{}", tags::LAUNCH_BATCH), [token]),
            filter("instance-state-name", ALIVE),
        ];
        describe_pages(&self.clients, filters, Urgency::Launch).await
    }

    /// Ends an instance.
    pub(super) async fn terminate(&self, id: &str) -> Terminating {
        let answer = self.terminate.call((), id.to_owned()).await;
        answer.unwrap_or_else(|_| Err(self.lost(TERMINATE)))
    }

    /// Adds tags to an instance.
    pub(super) async fn tag(&self, id: &str, tags: NewTags) -> Result<(), Failure> {
        let answer = self.tag.call(tags, id.to_owned()).await;
        answer.unwrap_or_else(|_| Err(self.lost(CREATE_TAGS)))
    }

    /// All instances that were launched for a NodePool of a cluster.
    pub(super) async fn list(&self, cluster: &str) -> Result<Vec<Ec2Instance>, Failure> {
        let filters = vec![
            filter("tag-key", [tags::NODEPOOL]),
            filter("tag-key", [tags::NODE_CLASS]),
            filter(format!("tag:{}", tags::EKS_CLUSTER), [cluster]),
            filter("instance-state-name", EXISTING),
        ];
        describe_pages(&self.clients, filters, Urgency::Background).await
    }

    fn lost(&self, action: &'static str) -> Failure {
        Failure {
            action,
            place: self.clients.place.clone(),
            kind: FailureKind::Unreadable,
            code: String::new(),
            message: "the batch ended without an answer".to_owned(),
        }
    }
}

fn instances(reservations: Option<Vec<Reservation>>) -> impl Iterator<Item = Ec2Instance> {
    reservations
        .unwrap_or_default()
        .into_iter()
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
}

async fn describe_pages(
    clients: &AwsClients,
    filters: Vec<Filter>,
    urgency: Urgency,
) -> Result<Vec<Ec2Instance>, Failure> {
    let mut found = Vec::new();
    let mut next = None;
    loop {
        clients.budget.take(DESCRIBE, urgency).await;
        let call = clients
            .ec2
            .describe_instances()
            .set_filters(Some(filters.clone()))
            .set_next_token(next)
            .max_results(1000);
        let page = call.send().await;
        let page = page.map_err(|error| clients.failure(DESCRIBE, error))?;
        found.extend(instances(page.reservations));
        next = page.next_token.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(found);
        }
    }
}

/// The answers in the order of the questions; the same id may be asked for several times.
fn in_order<T: Clone>(ids: &[String], answers: &Answers<T>) -> Vec<Result<Option<T>, Failure>> {
    let answer = |id: &String| answers.get(id).cloned().unwrap_or(Ok(None));
    ids.iter().map(answer).collect()
}

fn distinct(ids: &[String]) -> Vec<String> {
    let all: BTreeSet<&String> = ids.iter().collect();
    all.into_iter().cloned().collect()
}

/// A failed description may be the fault of one id, except for what is no single id's fault: permissions are for the call as a whole.
const OF_DESCRIBE: Persistence = Persistence {
    blames: |failure| !failure.passes() && failure.label() != "unauthorized",
    again: true,
};
/// What is ending is described again soon.
const OF_LOOK: Persistence = Persistence {
    again: false,
    ..OF_DESCRIBE
};
/// Permissions to terminate may depend on the tags of each instance.
const OF_TERMINATE: Persistence = Persistence {
    blames: |failure| !failure.passes(),
    again: true,
};
/// Tags can wait until they are asked for again.
const OF_TAG: Persistence = Persistence {
    again: false,
    ..OF_TERMINATE
};

async fn describe_all(
    clients: Arc<AwsClients>,
    ids: Vec<String>,
    urgency: Urgency,
    persistence: Persistence,
) -> Vec<Described> {
    let ask = |ids| describe_once(Arc::clone(&clients), urgency, ids);
    let answers = ask_by_id(distinct(&ids), persistence, ask).await;
    in_order(&ids, &answers)
}

async fn describe_once(
    clients: Arc<AwsClients>,
    urgency: Urgency,
    ids: Vec<String>,
) -> Result<BTreeMap<String, Ec2Instance>, Failure> {
    clients.budget.take(DESCRIBE, urgency).await;
    let call = clients
        .ec2
        .describe_instances()
        .set_instance_ids(Some(ids))
        .filters(filter("instance-state-name", EXISTING));
    let answer = call.send().await;
    let answer = answer.map_err(|error| clients.failure(DESCRIBE, error))?;
    let found = instances(answer.reservations)
        .filter_map(|each| Some((each.instance_id()?.to_owned(), each)));
    Ok(found.collect())
}

async fn find_claims(clients: Arc<AwsClients>, uids: Vec<String>) -> Vec<OfClaim> {
    let filters = vec![
        filter(format!("tag:{}", tags::NODECLAIM_UID), distinct(&uids)),
        filter("instance-state-name", ALIVE),
    ];
    let found = describe_pages(&clients, filters, Urgency::Launch).await;
    let of_claim = |uid: &String| {
        let all = found.as_ref().map_err(Clone::clone)?;
        let mut own: Vec<Ec2Instance> = all
            .iter()
            .filter(|each| record::tag(each, tags::NODECLAIM_UID) == Some(uid))
            .cloned()
            .collect();
        own.sort_by(|a, b| a.instance_id().cmp(&b.instance_id()));
        Ok(own)
    };
    uids.iter().map(of_claim).collect()
}

async fn terminate_all(clients: Arc<AwsClients>, ids: Vec<String>) -> Vec<Terminating> {
    let ask = |ids| terminate_once(Arc::clone(&clients), ids);
    let answers = ask_by_id(distinct(&ids), OF_TERMINATE, ask).await;
    in_order(&ids, &answers)
}

async fn terminate_once(
    clients: Arc<AwsClients>,
    ids: Vec<String>,
) -> Result<BTreeMap<String, InstanceStateName>, Failure> {
    clients.budget.take(TERMINATE, Urgency::Terminate).await;
    let call = clients
        .ec2
        .terminate_instances()
        .set_instance_ids(Some(ids));
    let answer = call.send().await;
    let answer = answer.map_err(|error| clients.failure(TERMINATE, error))?;
    let ending = answer.terminating_instances().iter().filter_map(|each| {
        let state = each.current_state()?.name()?;
        let ends = matches!(
            state,
            InstanceStateName::ShuttingDown | InstanceStateName::Terminated
        );
        ends.then_some((each.instance_id()?.to_owned(), state.clone()))
    });
    Ok(ending.collect())
}

async fn tag_all(
    clients: Arc<AwsClients>,
    tags: NewTags,
    ids: Vec<String>,
) -> Vec<Result<(), Failure>> {
    let tags: Vec<Tag> = tags
        .into_iter()
        .map(|(key, value)| Tag::builder().key(key).value(value).build())
        .collect();
    let ask = |ids| tag_once(Arc::clone(&clients), tags.clone(), ids);
    let answers = ask_by_id(distinct(&ids), OF_TAG, ask).await;
    let answers = in_order(&ids, &answers);
    answers.into_iter().map(|each| each.map(|_| ())).collect()
}

async fn tag_once(
    clients: Arc<AwsClients>,
    tags: Vec<Tag>,
    ids: Vec<String>,
) -> Result<BTreeMap<String, ()>, Failure> {
    clients.budget.take(CREATE_TAGS, Urgency::Background).await;
    let call = clients
        .ec2
        .create_tags()
        .set_resources(Some(ids.clone()))
        .set_tags(Some(tags));
    let answer = call.send().await;
    answer.map_err(|error| clients.failure(CREATE_TAGS, error))?;
    Ok(ids.into_iter().map(|id| (id, ())).collect())
}
