//! Flags of notifications.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use mortise_controller::{NotificationConfig, NotificationFormat};
use mortise_engine::events::RULES;

use super::Millis;

/// Flags of notifications.
#[derive(Args, Clone, Debug)]
pub struct NotificationArgs {
    /// Send events that need attention to the webhook whose URL is in this file
    #[arg(long, env = "MORTISE_NOTIFICATION_URL_FILE", value_name = "FILE")]
    notification_url_file: Option<PathBuf>,
    /// What the webhook reads: the events as JSON, or a message of a chat program (Mattermost, Rocket.Chat and Google Chat read that of Slack)
    #[arg(
        long,
        env = "MORTISE_NOTIFICATION_FORMAT",
        value_enum,
        default_value = "json"
    )]
    notification_format: Format,
    /// Reasons of the events that are sent, such as SpotInterrupted; without the flag every warning that is not about a pod
    #[arg(long, env = "MORTISE_NOTIFICATION_REASONS", value_name = "REASON", value_delimiter = ',', value_parser = PossibleValuesParser::new(reasons()), hide_possible_values = true)]
    notification_reasons: Vec<String>,
    /// Least time between two notifications; what happens meanwhile is in the next one
    #[arg(long, env = "MORTISE_NOTIFICATION_INTERVAL", default_value = "30s")]
    notification_interval: Millis,
}

/// Formats of messages, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Slack,
    Teams,
    Discord,
}

/// Every reason of an event, each once.
fn reasons() -> Vec<&'static str> {
    let mut all: Vec<&str> = RULES.iter().map(|rule| rule.reason).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl NotificationArgs {
    /// What is notified; `None` = nothing.
    #[must_use]
    pub fn config(&self, cluster: &str) -> Option<NotificationConfig> {
        let url_file = self.notification_url_file.clone()?;
        let interval = u64::try_from(self.notification_interval.0).unwrap_or_default();
        Some(NotificationConfig {
            url_file,
            format: match self.notification_format {
                Format::Json => NotificationFormat::Json,
                Format::Slack => NotificationFormat::Slack,
                Format::Teams => NotificationFormat::Teams,
                Format::Discord => NotificationFormat::Discord,
            },
            reasons: self.notification_reasons.clone(),
            interval: Duration::from_millis(interval),
            cluster: cluster.to_owned(),
        })
    }
}
