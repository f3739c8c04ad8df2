//! Whether a class can be launched from, as its conditions say. Pure.

use mortise_apis::schema::conditions::{ConditionStatus, READY};
use mortise_aws_class::spec::Ec2NodeClass;
use mortise_cloudprovider::LaunchError;

use crate::launch::error::create_error;

/// Refuses a class whose conditions do not say that it is ready as it is now.
/// # Errors
/// It is not, or has not been checked yet.
pub(super) fn check_ready(class: &Ec2NodeClass) -> Result<(), LaunchError> {
    let not_ready = |message: &str| LaunchError::NodeClassNotReady {
        message: message.to_owned(),
    };
    let mut conditions = class.status.conditions.iter();
    let ready = conditions.find(|each| each.type_ == READY);
    let unknown = || create_error("NodeClassReadinessUnknown", "NodeClass is in Ready=Unknown");
    let ready = ready.ok_or_else(unknown)?;
    match ready.status {
        ConditionStatus::True => {}
        ConditionStatus::False => return Err(not_ready(&ready.message)),
        ConditionStatus::Unknown => return Err(unknown()),
    }
    if ready.observed_generation.unwrap_or(0) != class.metadata.generation.unwrap_or(0) {
        return Err(not_ready(
            "nodeclass status has not been reconciled against the latest spec",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn checked(conditions: Value) -> Result<(), String> {
        let class = json!({ "metadata": { "name": "c", "generation": 2 }, "spec": {}, "status": { "conditions": conditions } });
        check_ready(&serde_json::from_value(class).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn only_ready_classes_pass() {
        let ready = |status: &str, generation: i64| {
            checked(
                json!([{ "type": "Ready", "status": status, "reason": "x", "message": "AMIsReady=False", "observedGeneration": generation }]),
            )
        };
        assert_eq!(ready("True", 2), Ok(()));
        assert_eq!(
            ready("False", 2).unwrap_err(),
            "node class is not ready: AMIsReady=False"
        );
        let unknown = "NodeClassReadinessUnknown: NodeClass is in Ready=Unknown";
        assert_eq!(ready("Unknown", 2).unwrap_err(), unknown);
        assert_eq!(checked(json!([])).unwrap_err(), unknown);
        assert_eq!(
            ready("True", 1).unwrap_err(),
            "node class is not ready: nodeclass status has not been reconciled against the latest spec"
        );
    }
}
