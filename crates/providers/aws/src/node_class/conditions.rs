//! Conditions of a class, from what was found for it. Pure.

use jiff::Timestamp;
use mortise_apis::schema::conditions::{
    Condition, ConditionStatus, Conditions, KnownConditions, READY, find, status_of,
};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_aws_class::status::{CONDITIONS, CONDITIONS_WITHOUT_RESERVED};

use crate::failure::Failure;
use crate::node_class::lookup::{ClassPart, FoundParts, PartProblem, UnmetCondition};

/// Conditions that must hold before a class can be validated.
const DEPENDENCIES: [&str; 4] = [
    "AMIsReady",
    "InstanceProfileReady",
    "SecurityGroupsReady",
    "SubnetsReady",
];
/// Whether the class can be launched with.
pub(crate) const VALIDATION: &str = "ValidationSucceeded";
const RESERVATIONS: &str = "CapacityReservationsReady";
/// There is something to say about the prices in use. The class is as ready as without it: a price only decides what is launched first.
pub(crate) const PRICES_UNCERTAIN: &str = "PricesUncertain";

/// Whether the class as it is can be launched with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    Invalid(UnmetCondition),
    /// A dependency has this status, which is not True.
    Waiting(ConditionStatus),
    /// It could not be found out now, for this reason if it is one that does not go away by itself: the condition stays.
    Unknown(Option<Failure>),
}

const fn known(reserved: bool) -> KnownConditions {
    if reserved {
        CONDITIONS
    } else {
        CONDITIONS_WITHOUT_RESERVED
    }
}

/// The stored conditions, brought up to date with what was found. The one about validity stays. `reserved`: reserved capacity is used.
pub(crate) fn assess(
    object: &Ec2NodeClass,
    found: &FoundParts,
    reserved: bool,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = object.status.conditions.clone();
    let mut set = Conditions::new(known(reserved), &object.metadata, &mut conditions, now);
    put(&mut set, "AMIsReady", &found.amis);
    put(&mut set, "SubnetsReady", &found.subnets);
    put(&mut set, "SecurityGroupsReady", &found.groups);
    // A profile that could not be made says nothing about the one that the status names.
    if let Ok(Some(_)) = &found.profile {
        set.set_true("InstanceProfileReady");
    }
    put(&mut set, "PlacementGroupReady", &found.placement_group);
    if reserved {
        put(&mut set, RESERVATIONS, &found.reservations);
    } else {
        set.clear(RESERVATIONS);
    }
    conditions
}

fn put<T>(set: &mut Conditions<'_>, type_: &str, part: &ClassPart<T>) {
    match part {
        Ok(_) => {
            set.set_true(type_);
        }
        Err(PartProblem::Unmet(problem)) => {
            set.set_false(type_, problem.reason, &problem.message);
        }
        Err(PartProblem::Failed(_)) => {}
    }
}

/// The status of what a class must have before it can be validated: False if any is, else Unknown if any is; `None` if it has all.
pub(crate) fn unmet_dependencies(conditions: &[Condition]) -> Option<ConditionStatus> {
    let has = |status: ConditionStatus| {
        DEPENDENCIES
            .iter()
            .any(|each| status_of(conditions, each) == status)
    };
    [ConditionStatus::False, ConditionStatus::Unknown]
        .into_iter()
        .find(|status| has(*status))
}

/// Writes down whether the class is valid.
pub(crate) fn validated(
    object: &mut Ec2NodeClass,
    validity: &Validity,
    reserved: bool,
    now: Timestamp,
) {
    let metadata = &object.metadata;
    let list = &mut object.status.conditions;
    let mut set = Conditions::new(known(reserved), metadata, list, now);
    let message = "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution";
    match validity {
        Validity::Valid => set.set_true(VALIDATION),
        Validity::Invalid(problem) => set.set_false(VALIDATION, problem.reason, &problem.message),
        Validity::Waiting(ConditionStatus::False) => {
            set.set_false(VALIDATION, "DependenciesNotReady", message)
        }
        Validity::Waiting(_) => set.set_unknown(VALIDATION, "DependenciesNotReady", message),
        Validity::Unknown(_) => false,
    };
}

/// Writes down what there is to say about prices; `None` when all are live and new.
pub(crate) fn priced(
    object: &mut Ec2NodeClass,
    note: Option<&str>,
    reserved: bool,
    now: Timestamp,
) {
    let metadata = &object.metadata;
    let list = &mut object.status.conditions;
    let mut set = Conditions::new(known(reserved), metadata, list, now);
    match note {
        Some(note) => set.set_true_with_reason(PRICES_UNCERTAIN, "OldOrUnknown", note),
        None => set.clear(PRICES_UNCERTAIN),
    };
}

/// Why the class cannot be used, in the words of its conditions.
pub(crate) fn not_ready(conditions: &[Condition]) -> Option<String> {
    match find(conditions, READY) {
        Some(ready) if ready.status == ConditionStatus::True => None,
        _ => {
            let unmet = conditions
                .iter()
                .filter(|each| each.type_ != READY && each.status != ConditionStatus::True);
            Some(
                unmet
                    .map(|each| format!("{}: {}", each.type_, each.message))
                    .collect::<Vec<_>>()
                    .join("; "),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, status: ConditionStatus) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status,
            ..Condition::default()
        }
    }

    #[test]
    fn a_false_dependency_counts_more_than_an_unknown_one() {
        let all = |amis: ConditionStatus, subnets: ConditionStatus| {
            unmet_dependencies(&[
                condition("AMIsReady", amis),
                condition("SubnetsReady", subnets),
                condition("SecurityGroupsReady", ConditionStatus::True),
                condition("InstanceProfileReady", ConditionStatus::True),
            ])
        };
        let (yes, no, unknown) = (
            ConditionStatus::True,
            ConditionStatus::False,
            ConditionStatus::Unknown,
        );
        assert_eq!(all(yes, yes), None);
        assert_eq!(all(unknown, no), Some(no));
        assert_eq!(all(unknown, yes), Some(unknown));
        assert_eq!(
            unmet_dependencies(&[]),
            Some(unknown),
            "nothing was found out yet"
        );
    }

    #[test]
    fn prices_have_a_condition_while_there_is_something_to_say_about_them() {
        let mut object = Ec2NodeClass::default();
        let now = Timestamp::UNIX_EPOCH;
        validated(&mut object, &Validity::Valid, false, now);
        let before = object.status.conditions.clone();
        priced(&mut object, Some("spot prices are not known"), false, now);
        let conditions = &object.status.conditions;
        let found = find(conditions, PRICES_UNCERTAIN).unwrap();
        assert_eq!(found.message, "spot prices are not known");
        assert_eq!(found.status, ConditionStatus::True);
        assert_eq!(
            find(conditions, READY).map(|ready| (ready.status, ready.message.clone())),
            find(&before, READY).map(|ready| (ready.status, ready.message.clone())),
            "the class is as ready as before"
        );
        priced(&mut object, None, false, now);
        assert_eq!(object.status.conditions, before);
    }

    #[test]
    fn what_could_not_be_found_out_leaves_the_condition() {
        let mut object = Ec2NodeClass::default();
        let now = Timestamp::UNIX_EPOCH;
        validated(&mut object, &Validity::Valid, false, now);
        let before = object.status.conditions.clone();
        validated(&mut object, &Validity::Unknown(None), false, now);
        assert_eq!(object.status.conditions, before);
        assert_eq!(status_of(&before, VALIDATION), ConditionStatus::True);
    }
}
