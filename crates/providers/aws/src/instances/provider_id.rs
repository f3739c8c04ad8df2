//! The instance that a provider id names. Pure.

use mortise_cloudprovider::{CloudError, Retry};

use crate::tags;

/// The part of a provider id that EC2 knows: `i-...` of `aws:///us-east-1a/i-...`.
/// # Errors
/// It does not have this form.
pub(super) fn instance_id(provider_id: &str) -> Result<&str, CloudError> {
    tags::instance_id(provider_id)
        .ok_or_else(|| CloudError {
            label: "invalid_id",
            message: format!(
                "provider id does not match known format (provider-id={provider_id}); expected aws:///<zone>/<instance id>"
            ),
            retry: Retry::Never,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ids_with_a_place_and_an_instance_are_read() {
        for (text, id) in [
            ("aws:///us-east-1a/i-0abc", Some("i-0abc")),
            ("aws:///us-east-1a/x/i-0abc", Some("i-0abc")),
            ("aws:///us-east-1a/", None),
            ("aws:///", None),
            ("aws://x/i-0abc", None),
            ("i-0abc", None),
            ("kwok://x", None),
            ("", None),
        ] {
            assert_eq!(instance_id(text).ok(), id, "{text}");
        }
        let error = instance_id("nonsense").unwrap_err();
        assert!(error.message.contains("(provider-id=nonsense)"), "{error}");
        assert_eq!(error.retry, Retry::Never);
    }
}
