//! The plain form: names and policy documents of one account, for `aws iam` and for checks.

use serde_json::{Value, json};

use super::document::{NODE_POLICIES, controller_policies, controller_trust, node_trust};
use super::installation::{AccountFacts, Installation, InvalidOption};
use super::template::{fill, fill_document};

/// Roles with their policies.
/// # Errors
/// The account or the region cannot exist, or the issuer of tokens is missing.
pub fn plain(installation: &Installation, account: &AccountFacts) -> Result<Value, InvalidOption> {
    account.check()?;
    installation.check_issuer()?;
    let value = |each| account.value(installation, each);
    let policies = controller_policies(installation).into_iter().map(|policy| {
        json!({
            "name": fill(&policy.name(), value),
            "document": fill_document(&policy.document, &value),
        })
    });
    let managed = NODE_POLICIES
        .map(|name| fill(&format!("arn:${{Partition}}:iam::aws:policy/{name}"), value));
    Ok(json!({
        "controllerRole": {
            "name": fill(&installation.controller_role, value),
            "trustPolicy": fill_document(&controller_trust(installation), &value),
            "policies": policies.collect::<Vec<_>>(),
        },
        "nodeRole": {
            "name": fill(&installation.node_role, value),
            "trustPolicy": fill_document(&node_trust(), &value),
            "managedPolicies": managed,
        },
    }))
}
