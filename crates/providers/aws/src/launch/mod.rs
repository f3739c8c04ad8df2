//! Launches: selection, launch templates, fleet requests, client tokens.

mod batch_request;
mod batch_results;
mod client_tokens;
mod dry_runs;
mod error;
pub(crate) mod filters;
pub(crate) mod fleet_input;
mod fleet_request;
mod fleet_response;
mod launch_price;
mod launched;
mod launcher;
pub(crate) mod partition;
mod pending_launch;
mod probe_type;
mod readiness;
pub(crate) mod selection;
mod subnet_addresses;
pub(crate) mod template;
mod template_data;
pub(crate) mod templates;

pub(crate) use self::dry_runs::DryRuns;
pub(crate) use self::launcher::{LaunchServices, Launcher};

#[cfg(test)]
pub(crate) use self::pending_launch::{LaunchMember, PendingLaunch};

#[cfg(test)]
pub(crate) mod tests {
    use mortise_aws_catalog::node_settings::NodeSettings;
    use mortise_aws_class::spec::Ec2NodeClass;
    use mortise_cloudprovider::CapacityType;
    use tokio::time::Instant;

    use crate::instances::{InstanceDescription, InstanceRecord};
    use crate::node_class::CachedNodeClass;

    /// An instance with these tags.
    pub(crate) fn instance(id: &str, tags: &[(&str, &str)]) -> InstanceRecord {
        let tags = tags.iter();
        InstanceRecord {
            id: id.to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-west-2a".to_owned(),
            capacity_type: CapacityType::OnDemand,
            reservation: None,
            subnet: None,
            image: None,
            dedicated: false,
            groups: Vec::new(),
            described: InstanceDescription {
                tags: tags
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
                ..InstanceDescription::default()
            },
        }
    }

    /// A class that selects nothing.
    pub(crate) fn class() -> CachedNodeClass {
        CachedNodeClass {
            object: Ec2NodeClass::default(),
            settings: NodeSettings::default(),
            subnets: Vec::new(),
            groups: Vec::new(),
            amis: Vec::new(),
            reservations: Vec::new(),
            placement_group: None,
            profile: None,
            types: Vec::new(),
            images: Vec::new(),
            hash: None,
            not_ready: None,
            found: Instant::now(),
        }
    }
}
