//! Every attempt of an EC2 call counts against its limit, also those that the SDK repeats by itself and those that wait for nothing.
//!
//! What can wait does so before it is sent ([`CallBudget::take`]). A launch or a look at a node class does not wait: it is charged, and
//! what can wait waits longer for it.

use aws_sdk_ec2::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_ec2::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_ec2::error::BoxError;
use aws_smithy_runtime_api::client::orchestrator::Metadata;
use aws_smithy_runtime_api::client::retries::RequestAttempts;

use crate::sdk::call_budget::CallBudget;

/// Calls whose first attempt took its token before.
const PREPAID: [&str; 3] = ["DescribeInstances", "TerminateInstances", "CreateTags"];

/// Charges attempts to the budget.
#[derive(Debug)]
pub(crate) struct ChargedAttempts(pub(crate) CallBudget);

impl Intercept for ChargedAttempts {
    fn name(&self) -> &'static str {
        "ChargedAttempts"
    }

    fn read_before_transmit(
        &self,
        _context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let attempts = cfg.load::<RequestAttempts>();
        let is_first = attempts.is_none_or(|attempts| attempts.attempts() <= 1);
        if let Some(operation) = cfg.load::<Metadata>().map(Metadata::name)
            && !(is_first && PREPAID.contains(&operation))
        {
            self.0.charge(&format!("ec2:{operation}"));
        }
        Ok(())
    }
}
