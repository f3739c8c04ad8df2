//! The plain form: names and policy documents of one account, for `aws iam` and for checks.

use serde_json::{Value, json};

use super::document::{NODE_POLICIES, controller_policies, controller_trust, node_trust};
use super::installation::{AccountFacts, Installation, InvalidOption};
use super::template::{fill, fill_document};

impl Installation {
    /// Roles with their policies.
    /// # Errors
    /// The account or the region cannot exist, or the issuer of tokens is missing.
    pub fn plain(&self, account: &AccountFacts) -> Result<Value, InvalidOption> {
        account.check()?;
        self.check_issuer()?;
        let value = |each| account.value(self, each);
        let policies = controller_policies(self).into_iter().map(|policy| {
            json!({
                "name": fill(&policy.name(), value),
                "document": fill_document(&policy.document, &value),
            })
        });
        let managed = NODE_POLICIES
            .map(|name| fill(&format!("arn:${{Partition}}:iam::aws:policy/{name}"), value));
        Ok(json!({
            "controllerRole": {
                "name": fill(&self.controller_role, value),
                "trustPolicy": fill_document(&controller_trust(self), &value),
                "policies": policies.collect::<Vec<_>>(),
            },
            "nodeRole": {
                "name": fill(&self.node_role, value),
                "trustPolicy": fill_document(&node_trust(), &value),
                "managedPolicies": managed,
            },
        }))
    }
}
