//! What AWS's error codes mean: classified once, here. Pure.
//!
//! # Source
//! The codes are those of the EC2 API reference; which of them count as a lack of capacity, and the reasons of failed launches, are
//! the reference implementation's, because users' dashboards and runbooks know them.

use mortise_cloudprovider::{CloudError, Prerequisite, Retry};

/// A failed call, in our own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was called, such as `ec2:CreateFleet`.
    pub action: &'static str,
    /// Where it was called: the endpoint or the region.
    pub place: String,
    /// What kind of failure.
    pub kind: FailureKind,
    /// The service's error code; empty when the service did not answer.
    pub code: String,
    /// What the service or the network said.
    pub message: String,
}

/// What kind of failure a call had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The service could not be reached.
    Unreachable,
    /// There are no usable credentials.
    Credentials,
    /// The call took too long; it may have taken effect.
    Timeout,
    /// The service answered with an error code.
    Service,
    /// The service answered with something that cannot be read.
    Unreadable,
}

const THROTTLED: [&str; 5] = [
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "RequestThrottled",
];
const UNAUTHORIZED: [&str; 5] = [
    "UnauthorizedOperation",
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "AWS.SimpleQueueService.AccessDenied",
];
const BAD_CREDENTIALS: [&str; 6] = [
    "InvalidClientTokenId",
    "ExpiredToken",
    "ExpiredTokenException",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "RequestExpired",
];
const SERVER: [&str; 5] = [
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
    "Unavailable",
    "InternalServerError",
];
const NOT_FOUND: [&str; 11] = [
    "InvalidCapacityReservationId.NotFound",
    "InvalidInstanceID.NotFound",
    "InvalidLaunchTemplateName.NotFoundException",
    "InvalidLaunchTemplateId.NotFound",
    "InvalidLaunchTemplateId.NotFoundException",
    "InvalidPlacementGroup.Unknown",
    "QueueDoesNotExist",
    "AWS.SimpleQueueService.NonExistentQueue",
    "ParameterNotFound",
    "ResourceNotFoundException",
    "NoSuchEntity",
];

impl Failure {
    /// A word from a closed list, for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let of = |codes: &[&str]| codes.contains(&&*self.code);
        match self.kind {
            FailureKind::Unreachable => "unreachable",
            FailureKind::Credentials => "credentials",
            FailureKind::Timeout => "timeout",
            FailureKind::Unreadable => "unreadable",
            FailureKind::Service if of(&THROTTLED) => "throttled",
            FailureKind::Service if of(&UNAUTHORIZED) => "unauthorized",
            FailureKind::Service if of(&BAD_CREDENTIALS) => "credentials",
            FailureKind::Service if of(&SERVER) => "server",
            FailureKind::Service if of(&NOT_FOUND) => "not_found",
            FailureKind::Service => "refused",
        }
    }

    /// Whether the thing asked for does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.label() == "not_found"
    }

    /// Whether the thing to be made exists.
    #[must_use]
    pub(crate) fn is_already_exists(&self) -> bool {
        self.kind == FailureKind::Service && self.code == "EntityAlreadyExists"
    }

    /// Whether IAM knows no such role. It has the same code for a profile, and only the text tells them apart.
    #[must_use]
    pub(crate) fn is_role_missing(&self) -> bool {
        let message = self.message.to_lowercase();
        self.kind == FailureKind::Service
            && self.code == "NoSuchEntity"
            && message.contains("role")
            && !message.starts_with("instance profile")
    }

    /// Whether the service refused the call because there are too many.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.label() == "throttled"
    }

    /// Whether the service says that an instance does not exist, and names it.
    pub(crate) fn names_missing(&self, id: &str) -> bool {
        let is_part = |each: char| each.is_ascii_alphanumeric() || each == '-';
        self.is_not_found()
            && self
                .message
                .split(|each| !is_part(each))
                .any(|word| word == id)
    }

    /// Whether the same call may work later without anybody doing anything.
    #[must_use]
    pub fn passes(&self) -> bool {
        matches!(
            self.label(),
            "unreachable" | "timeout" | "throttled" | "server" | "unreadable"
        )
    }

    /// What a person can do about it; empty when waiting is all.
    #[must_use]
    pub fn advice(&self) -> String {
        match self.label() {
            "unreachable" => "check the network, and --aws-endpoint-url or AWS_ENDPOINT_URL if one is set".to_owned(),
            "credentials" => {
                "give credentials: an IAM role for the service account, EKS Pod Identity, an instance role, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_owned()
            }
            "unauthorized" => format!("allow {} for the controller's role", self.action),
            _ => String::new(),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            action,
            place,
            message,
            code,
            ..
        } = self;
        write!(f, "{action} at {place} failed: ")?;
        match code.as_str() {
            "" => write!(f, "{message}")?,
            code => write!(f, "{code}: {message}")?,
        }
        match self.advice().as_str() {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for CloudError {
    fn from(failure: Failure) -> Self {
        // Credentials and permissions are fixed outside, without a sign to us: calling again is how we find out.
        let retry = if failure.label() == "refused" {
            Retry::Never
        } else {
            Retry::Again
        };
        Self {
            label: failure.label(),
            message: failure.to_string(),
            retry,
        }
    }
}

/// Codes that mean: this offering cannot be had just now.
pub(crate) const SHORTAGE: [&str; 8] = [
    "InsufficientInstanceCapacity",
    "MaxSpotInstanceCountExceeded",
    "VcpuLimitExceeded",
    "UnfulfillableCapacity",
    "Unsupported",
    "InsufficientFreeAddressesInSubnet",
    "MaxFleetCountExceeded",
    "ReservationCapacityExceeded",
];

/// The account may not make the role that spot instances need; no spot instance is available until it exists.
pub(crate) const SPOT_ROLE: &str = "AuthFailure.ServiceLinkedRoleCreationNotPermitted";
/// What the account lacks then.
pub(crate) const SPOT_PREREQUISITE: Prerequisite = Prerequisite {
    what: "no spot instance can be launched, because the account has no service-linked role for them and the controller may not make it",
    remedy: "run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once",
};
/// A subnet has no addresses left.
pub(crate) const SUBNET_FULL: &str = "InsufficientFreeAddressesInSubnet";
/// The same token was used before, with another request.
pub(crate) const TOKEN_MISMATCH: &str = "IdempotentParameterMismatch";

/// Whether an error of a fleet means that other offerings, or the same one later, may work.
#[must_use]
pub(crate) fn is_shortage(code: &str) -> bool {
    SHORTAGE.contains(&code) || code == SPOT_ROLE
}

/// Whether a launch failed because a template that it names has gone.
#[must_use]
pub(crate) fn is_template_missing(code: &str) -> bool {
    code.starts_with("InvalidLaunchTemplateName.NotFound")
}

/// Whether an error says that a spread placement group takes no more instances in a zone.
#[must_use]
pub(crate) fn is_spread_limit(message: &str) -> bool {
    message.contains("limit of instances in this spread placement group")
}

/// What says in an error that a permission is missing, whatever else it says.
const REFUSED: [&str; 3] = ["UnauthorizedOperation", "AccessDenied", "AuthFailure"];

/// What an error of a missing permission says further, with reason and message of the launch.
const REFUSALS: [(&str, &str, &str); 4] = [
    (
        "with an explicit deny in a permissions boundary",
        "Unauthorized",
        "User is not authorized to perform this operation due to a permission boundary",
    ),
    (
        "with an explicit deny in a service control policy",
        "Unauthorized",
        "User is not authorized to perform this operation due to a service control policy",
    ),
    (
        "Not authorized for images",
        "AMIAuthorizationFailure",
        "User is not authorized for AMI used in instance launch",
    ),
    (
        "",
        "Unauthorized",
        "User is not authorized to perform this operation because no identity-based policy allows it",
    ),
];

/// What other errors say, with reason and message of the launch.
const LAUNCH_REASONS: [(&str, &str, &str); 13] = [
    (
        "iamInstanceProfile.name is invalid",
        "InstanceProfileNameInvalid",
        "Instance profile name used from EC2NodeClass status does not exist",
    ),
    (
        "InvalidLaunchTemplateId.NotFound",
        "LaunchTemplateNotFound",
        "Launch template used for instance launch wasn't found",
    ),
    (
        "User data is limited to",
        "UserDataSizeLimitExceeded",
        "Rendered user data exceeds the EC2 user data size limit",
    ),
    (
        "InvalidAMIID.Malformed",
        "InvalidAMIID",
        "AMI used for instance launch is invalid",
    ),
    (
        "InvalidAMIID.NotFound",
        "AMINotFound",
        "AMI used for instance launch either does not exist or you don't have permissions to use it",
    ),
    (
        "RequestLimitExceeded",
        "RequestLimitExceeded",
        "Request limit exceeded",
    ),
    (
        "InternalError",
        "InternalError",
        "An internal error has occurred",
    ),
    (
        "not eligible for Free Tier",
        "FreeTierIneligible",
        "The specified instance type is not eligible for Free Tier",
    ),
    (
        "MaxFleetCountExceeded",
        "FleetQuotaExceeded",
        "A fleet launch was requested but this would exceed your fleet request quota",
    ),
    (
        "PendingVerification",
        "AccountPendingVerification",
        "An instance launch was requested but the request for launching resources in this region is still being verified",
    ),
    (
        "MaxSpotInstanceCountExceeded",
        "SpotQuotaExceeded",
        "A spot instance launch was requested but this would exceed your spot instance quota",
    ),
    (
        "VcpuLimitExceeded",
        "VCPULimitExceeded",
        "An instance was requested that would exceed your VCPU quota",
    ),
    (
        SUBNET_FULL,
        "InsufficientFreeAddressesInSubnet",
        "There are not enough free IP addresses to launch an instance in this subnet",
    ),
];

/// Reason and message of a failed launch, for the claim's condition, from the text of its error: codes and messages together. The
/// first match wins.
#[must_use]
pub(crate) fn launch_reason(text: &str) -> (&'static str, &'static str) {
    let has = |part: &str| text.contains(part);
    if has(SPOT_ROLE) {
        return (
            "SpotSLRCreationFailed",
            "User does not have sufficient permission to create the Spot ServiceLinkedRole to launch spot instances",
        );
    }
    let first = |table: &'static [(&str, &'static str, &'static str)]| {
        let mut rows = table.iter();
        rows.find(|(part, ..)| has(part))
            .map(|(_, reason, message)| (*reason, *message))
    };
    let refused = REFUSED.iter().any(|part| has(part));
    let refusal = refused.then(|| first(&REFUSALS)).flatten();
    let networks = || {
        (has("InvalidParameter") && has("belong to different networks")).then_some((
            "SecurityGroupSubnetVPCMismatch",
            "Security groups and subnets must be in the same VPC.",
        ))
    };
    refusal
        .or_else(networks)
        .or_else(|| first(&LAUNCH_REASONS))
        .unwrap_or(("LaunchFailed", "Instance launch failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind, code: &str) -> Failure {
        Failure {
            action: "ec2:CreateFleet",
            place: "region us-east-1".to_owned(),
            kind,
            code: code.to_owned(),
            message: "said".to_owned(),
        }
    }

    #[test]
    fn codes_are_classified_once() {
        for (code, label, retry) in [
            ("RequestLimitExceeded", "throttled", Retry::Again),
            ("UnauthorizedOperation", "unauthorized", Retry::Again),
            ("ExpiredToken", "credentials", Retry::Again),
            ("InternalError", "server", Retry::Again),
            ("InvalidInstanceID.NotFound", "not_found", Retry::Again),
            ("InvalidParameterValue", "refused", Retry::Never),
        ] {
            let error = CloudError::from(failure(FailureKind::Service, code));
            assert_eq!((error.label, error.retry), (label, retry), "{code}");
        }
    }

    #[test]
    fn a_missing_role_is_not_a_missing_profile() {
        let said = |message: &str| Failure {
            message: message.to_owned(),
            ..failure(FailureKind::Service, "NoSuchEntity")
        };
        assert!(said("The role with name node cannot be found.").is_role_missing());
        assert!(!said("Instance Profile role-1 cannot be found.").is_role_missing());
        assert!(!failure(FailureKind::Service, "AccessDenied").is_role_missing());
        assert!(failure(FailureKind::Service, "EntityAlreadyExists").is_already_exists());
    }

    #[test]
    fn texts_say_what_where_and_what_to_do() {
        assert_eq!(
            failure(FailureKind::Service, "UnauthorizedOperation").to_string(),
            "ec2:CreateFleet at region us-east-1 failed: UnauthorizedOperation: said; allow ec2:CreateFleet for the controller's role"
        );
        assert_eq!(
            failure(FailureKind::Unreachable, "").to_string(),
            "ec2:CreateFleet at region us-east-1 failed: said; check the network, and --aws-endpoint-url or AWS_ENDPOINT_URL if one is set"
        );
    }

    #[test]
    fn launch_reasons() {
        for (code, message, reason) in [
            (SPOT_ROLE, "", "SpotSLRCreationFailed"),
            (
                "UnauthorizedOperation",
                "x with an explicit deny in a service control policy",
                "Unauthorized",
            ),
            (
                "UnauthorizedOperation",
                "Not authorized for images: [ami-1]",
                "AMIAuthorizationFailure",
            ),
            (
                "InvalidParameterValue",
                "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name",
                "InstanceProfileNameInvalid",
            ),
            (
                "InvalidParameter",
                "security group and subnet belong to different networks.",
                "SecurityGroupSubnetVPCMismatch",
            ),
            ("InvalidAMIID.NotFound", "", "AMINotFound"),
            ("Whatever", "", "LaunchFailed"),
        ] {
            let text = format!("{code}: {message}");
            assert_eq!(launch_reason(&text).0, reason, "{text}");
        }
        assert!(
            is_shortage("InsufficientInstanceCapacity")
                && is_shortage(SPOT_ROLE)
                && !is_shortage("InvalidParameterValue")
        );
        assert!(
            is_template_missing("InvalidLaunchTemplateName.NotFoundException")
                && !is_template_missing("InvalidLaunchTemplateId.NotFound")
        );
    }
}
