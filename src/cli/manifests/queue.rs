//! `mortise manifests queue`: the queue of interruption messages, and the rules that fill it.

use clap::{Args, ValueEnum};
use mortise_aws_class::install::Queue;

use super::yaml;

/// How it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum QueueFormat {
    /// A template for `aws cloudformation deploy`
    Cloudformation,
    /// A configuration of the AWS provider
    Terraform,
}

/// AWS: queue of interruption messages, and the EventBridge rules that fill it
#[derive(Args)]
pub(super) struct QueueArgs {
    /// Name of the EKS cluster; a parameter of the template and of the configuration, with this default
    #[arg(long, env = "CLUSTER_NAME")]
    cluster_name: String,
    /// Form
    #[arg(long, value_enum, default_value = "cloudformation")]
    format: QueueFormat,
    /// Name of the queue [default: the cluster's name]
    #[arg(long, env = "INTERRUPTION_QUEUE", value_name = "NAME")]
    interruption_queue: Option<String>,
}

impl QueueArgs {
    /// What is written.
    pub(super) fn text(&self) -> anyhow::Result<String> {
        let name = self.interruption_queue.clone();
        let queue = Queue {
            cluster: self.cluster_name.clone(),
            name: name.unwrap_or_else(|| "${ClusterName}".to_owned()),
        };
        queue.check()?;
        match self.format {
            QueueFormat::Cloudformation => yaml(&queue.cloud_formation()),
            QueueFormat::Terraform => Ok(queue.terraform()),
        }
    }
}
