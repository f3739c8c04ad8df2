//! Classification of failed calls to the API server.

use kube::core::Status;
use mortise_engine::effect::EffectError;

/// Class of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// May succeed later: no connection, 5xx, 429, timeouts.
    Transient,
    /// Another client wrote in between, or a precondition fails.
    Conflict,
    /// An object of that name exists.
    AlreadyExists,
    /// No such object exists.
    NotFound,
    /// A PodDisruptionBudget forbids the eviction for now.
    Blocked,
    /// More than one PodDisruptionBudget selects the pod.
    MultipleBudgets,
    /// The same call will be rejected again.
    Refused,
}

/// The class of an error.
pub(crate) fn classify(error: &kube::Error) -> ErrorClass {
    match error {
        kube::Error::Api(status) => classify_status(status),
        kube::Error::HyperError(_) | kube::Error::Service(_) | kube::Error::ReadEvents(_) => {
            ErrorClass::Transient
        }
        _ => ErrorClass::Refused,
    }
}

fn classify_status(status: &Status) -> ErrorClass {
    match status.code {
        404 => ErrorClass::NotFound,
        409 if status.reason == "AlreadyExists" => ErrorClass::AlreadyExists,
        409 => ErrorClass::Conflict,
        // Load shedding responds with 429 as well; only the Eviction API names the budget as the cause.
        429 if is_budget(status) => ErrorClass::Blocked,
        // Not a fault of the server: the Eviction API responds like this for a pod with more than one PodDisruptionBudget.
        500 if status.message.contains("more than one PodDisruptionBudget") => {
            ErrorClass::MultipleBudgets
        }
        408 | 429 | 500..=599 => ErrorClass::Transient,
        _ => ErrorClass::Refused,
    }
}

fn is_budget(status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .map(|details| details.causes.as_slice())
        .unwrap_or_default();
    causes
        .iter()
        .any(|cause| cause.reason == "DisruptionBudget")
        || status.message.contains("disruption budget")
}

/// Seconds of the `Retry-After` of a response.
pub(crate) fn retry_after(error: &kube::Error) -> Option<std::time::Duration> {
    let kube::Error::Api(status) = error else {
        return None;
    };
    let seconds = status
        .details
        .as_ref()
        .map_or(0, |details| details.retry_after_seconds);
    (seconds > 0).then(|| std::time::Duration::from_secs(u64::from(seconds.min(10))))
}

/// The message of the server, without the parts known from the request.
pub(crate) fn message(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// The error as deciders see it.
pub(crate) fn effect_error(error: &kube::Error) -> EffectError {
    let message = message(error);
    let code = if let kube::Error::Api(status) = error {
        status.code
    } else {
        0
    };
    match classify(error) {
        ErrorClass::Transient => EffectError::Unavailable(message),
        ErrorClass::Conflict => EffectError::Conflict(message),
        ErrorClass::NotFound => EffectError::NotFound(message),
        ErrorClass::Blocked => EffectError::Blocked(message),
        ErrorClass::MultipleBudgets => EffectError::MultipleBudgets(message),
        ErrorClass::AlreadyExists | ErrorClass::Refused => EffectError::Refused { code, message },
    }
}

#[cfg(test)]
mod tests {
    use kube::core::response::{StatusCause, StatusDetails};

    use super::*;

    #[track_caller]
    fn case(code: u16, reason: &str, message: &str, cause: Option<&str>, want: ErrorClass) {
        let causes = cause
            .map(|reason| StatusCause {
                reason: reason.to_owned(),
                message: String::new(),
                field: String::new(),
            })
            .into_iter()
            .collect();
        let details = StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes,
            retry_after_seconds: 3,
        };
        let status = Status::failure(message, reason)
            .with_code(code)
            .with_details(details);
        let error = kube::Error::Api(status.boxed());
        assert_eq!(classify(&error), want, "{code} {reason} {message}");
        assert_eq!(retry_after(&error), Some(std::time::Duration::from_secs(3)));
    }

    #[test]
    fn errors_have_one_class_each() {
        case(
            404,
            "NotFound",
            "nodes \"a\" not found",
            None,
            ErrorClass::NotFound,
        );
        case(
            409,
            "AlreadyExists",
            "nodeclaims \"a\" already exists",
            None,
            ErrorClass::AlreadyExists,
        );
        case(
            409,
            "Conflict",
            "the object has been modified",
            None,
            ErrorClass::Conflict,
        );
        case(
            429,
            "TooManyRequests",
            "Cannot evict pod as it would violate the pod's disruption budget.",
            Some("DisruptionBudget"),
            ErrorClass::Blocked,
        );
        case(
            429,
            "TooManyRequests",
            "too many requests, please try again later",
            None,
            ErrorClass::Transient,
        );
        case(
            500,
            "InternalError",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            None,
            ErrorClass::MultipleBudgets,
        );
        case(
            500,
            "InternalError",
            "etcdserver: request timed out",
            None,
            ErrorClass::Transient,
        );
        case(
            503,
            "ServiceUnavailable",
            "not yet",
            None,
            ErrorClass::Transient,
        );
        case(403, "Forbidden", "no", None, ErrorClass::Refused);
        case(
            422,
            "Invalid",
            "spec is immutable",
            None,
            ErrorClass::Refused,
        );
    }

    #[test]
    fn a_lost_connection_is_transient() {
        let lost = kube::Error::Service(Box::new(std::io::Error::from(
            std::io::ErrorKind::ConnectionReset,
        )));
        assert_eq!(classify(&lost), ErrorClass::Transient);
        assert!(matches!(effect_error(&lost), EffectError::Unavailable(_)));
        assert_eq!(retry_after(&lost), None);
    }
}
