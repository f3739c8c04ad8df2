//! Parameters of the Systems Manager: AWS publishes its images' ids there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::AwsClients;
use crate::failure::Failure;

/// How long AWS's own parameters are believed. A new image is seen at most a day late, as with the reference implementation.
const PUBLIC_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the user's own parameters are believed: people who change them wait for the effect.
const CUSTOM_TTL: Duration = Duration::from_secs(5 * 60);

/// Remembers parameters for a while. `None` is a parameter that does not exist.
#[derive(Debug)]
pub(crate) struct SsmParameterCache {
    clients: Arc<AwsClients>,
    known: Mutex<HashMap<String, (Instant, Option<String>)>>,
}

impl SsmParameterCache {
    /// Remembers nothing yet, and calls nothing.
    pub(crate) fn new(clients: Arc<AwsClients>) -> Self {
        Self {
            clients,
            known: Mutex::default(),
        }
    }

    /// The value of a parameter; `None` when there is none of that name.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<String>, Failure> {
        let ttl = if name.starts_with("/aws/service/") {
            PUBLIC_TTL
        } else {
            CUSTOM_TTL
        };
        let now = Instant::now();
        let remembered = self
            .lock()
            .get(name)
            .filter(|(at, _)| now.duration_since(*at) < ttl)
            .map(|(_, value)| value.clone());
        if let Some(value) = remembered {
            return Ok(value);
        }
        let value = match self.clients.ssm.get_parameter().name(name).send().await {
            Ok(answer) => answer.parameter.and_then(|parameter| parameter.value),
            Err(error) => match self.clients.failure("ssm:GetParameter", error) {
                failure if failure.is_not_found() => None,
                failure => return Err(failure),
            },
        };
        self.lock().insert(name.to_owned(), (now, value.clone()));
        Ok(value)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, Option<String>)>> {
        self.known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
