//! Parameters of the Systems Manager: AWS publishes its images' ids there.
//!
//! Invariant: a parameter that cannot be read is never taken for one that does not exist. What was read before is used instead.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::AwsClients;
use crate::failure::Failure;

/// How long AWS's own parameters are believed. A new image is seen at most a day late, as with the reference implementation.
const PUBLIC_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the user's own parameters are believed: people who change them wait for the effect.
const CUSTOM_TTL: Duration = Duration::from_secs(5 * 60);
/// How long a parameter is believed not to exist at first: AWS publishes the images of a release one after the other.
const ABSENT_TTL: Duration = Duration::from_secs(5 * 60);
/// How long one of AWS's own is believed not to exist at most: some families have no image of a variant, and never will.
const MAX_ABSENT_TTL: Duration = Duration::from_secs(3600);
/// How old a value must be before it is read again because its image was deprecated.
/// # Source
/// The reference implementation looks for deprecated images this often.
const DEPRECATED_TTL: Duration = Duration::from_secs(30 * 60);

#[derive(Clone, Debug)]
struct Parameter {
    read: Instant,
    /// `None` for one that does not exist.
    value: Option<String>,
    /// For how long it had been absent when it was read, without a value in between.
    absent: Duration,
}

impl Parameter {
    fn is_fresh(&self, name: &str) -> bool {
        let is_public = name.starts_with("/aws/service/");
        let ttl = match &self.value {
            // As long again as it has been absent.
            None if is_public => self.absent.clamp(ABSENT_TTL, MAX_ABSENT_TTL),
            None => ABSENT_TTL,
            Some(_) if is_public => PUBLIC_TTL,
            Some(_) => CUSTOM_TTL,
        };
        self.read.elapsed() < ttl
    }
}

/// Remembers parameters for a while.
#[derive(Debug)]
pub(crate) struct SsmParameterCache {
    clients: Arc<AwsClients>,
    known: Mutex<HashMap<String, Parameter>>,
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
    /// # Errors
    /// It could not be read, now or ever before.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<String>, Failure> {
        let remembered = self.lock().get(name).cloned();
        if let Some(parameter) = remembered.as_ref().filter(|each| each.is_fresh(name)) {
            return Ok(parameter.value.clone());
        }
        let value = match self.clients.ssm.get_parameter().name(name).send().await {
            Ok(answer) => answer.parameter.and_then(|parameter| parameter.value),
            Err(error) => match self.clients.failure("ssm:GetParameter", error) {
                failure if failure.is_not_found() => None,
                failure => return known_before(name, remembered, failure),
            },
        };
        let before = remembered.filter(|each| value.is_none() && each.value.is_none());
        let parameter = Parameter {
            read: Instant::now(),
            value: value.clone(),
            absent: before.map_or(Duration::ZERO, |each| each.absent + each.read.elapsed()),
        };
        self.lock().insert(name.to_owned(), parameter);
        Ok(value)
    }

    /// The image that a parameter names was deprecated: what names the latest image is read again, unless it was read recently.
    pub(crate) fn deprecated(&self, name: &str) {
        let mut known = self.lock();
        if known
            .get(name)
            .is_some_and(|each| each.read.elapsed() >= DEPRECATED_TTL)
        {
            known.remove(name);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Parameter>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value that was read before, however old, in place of one that cannot be read.
fn known_before(
    name: &str,
    remembered: Option<Parameter>,
    failure: Failure,
) -> Result<Option<String>, Failure> {
    match remembered {
        Some(Parameter {
            value: Some(value), ..
        }) => {
            tracing::warn!(parameter = name, error = %failure, "failed to read SSM parameter, the previous value stays in use");
            Ok(Some(value))
        }
        _ => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::{Value, json};

    use super::*;
    use crate::facts::api::wire::{ApiCall, ApiError};
    use crate::facts::api::{self, Answers};

    /// Answers every call with the same until told otherwise, and counts them.
    #[derive(Debug)]
    struct Ssm(Mutex<(usize, Result<&'static str, &'static str>)>);

    impl Answers for Ssm {
        fn answer(&self, _: ApiCall) -> Result<Value, ApiError> {
            let mut state = self.0.lock().unwrap();
            state.0 += 1;
            match state.1 {
                Ok(value) => Ok(json!({ "Parameter": { "Value": value } })),
                Err(code) => Err(ApiError::Service {
                    code: code.to_owned(),
                    message: String::new(),
                }),
            }
        }
    }

    fn cache(answer: Result<&'static str, &'static str>) -> (Arc<Ssm>, SsmParameterCache) {
        let ssm = Arc::new(Ssm(Mutex::new((0, answer))));
        let answers: Arc<dyn Answers> = Arc::clone(&ssm) as _;
        (ssm, SsmParameterCache::new(Arc::new(api::clients(answers))))
    }

    #[tokio::test(start_paused = true)]
    async fn an_old_value_is_used_for_one_that_cannot_be_read() {
        let (ssm, cache) = cache(Ok("ami-1"));
        assert_eq!(cache.get("/mine").await.unwrap().as_deref(), Some("ami-1"));
        ssm.0.lock().unwrap().1 = Err("ThrottlingException");
        tokio::time::advance(CUSTOM_TTL).await;
        assert_eq!(cache.get("/mine").await.unwrap().as_deref(), Some("ami-1"));
        assert!(cache.get("/other").await.is_err(), "nothing is known of it");
        ssm.0.lock().unwrap().1 = Err("ParameterNotFound");
        assert_eq!(cache.get("/mine").await.unwrap(), None, "it has gone");
    }

    #[tokio::test(start_paused = true)]
    async fn parameters_are_read_again_when_their_image_is_deprecated() {
        let (ssm, cache) = cache(Ok("ami-1"));
        let name = "/aws/service/x";
        cache.get(name).await.unwrap();
        cache.deprecated(name);
        cache.get(name).await.unwrap();
        assert_eq!(ssm.0.lock().unwrap().0, 1, "it was read a moment ago");
        tokio::time::advance(DEPRECATED_TTL).await;
        cache.deprecated(name);
        cache.get(name).await.unwrap();
        assert_eq!(ssm.0.lock().unwrap().0, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_exist_is_asked_for_again_soon() {
        let (ssm, cache) = cache(Err("ParameterNotFound"));
        for _ in 0..2 {
            assert_eq!(cache.get("/aws/service/x").await.unwrap(), None);
        }
        assert_eq!(ssm.0.lock().unwrap().0, 1);
        tokio::time::advance(ABSENT_TTL).await;
        ssm.0.lock().unwrap().1 = Ok("ami-1");
        assert!(cache.get("/aws/service/x").await.unwrap().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_image_that_was_never_published_is_asked_for_less_and_less() {
        let (ssm, cache) = cache(Err("ParameterNotFound"));
        for _ in 0..12 * 60 {
            cache.get("/aws/service/x").await.unwrap();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        // At 0, 5, 10, 20, 40, 80 minutes, and every hour then.
        assert_eq!(ssm.0.lock().unwrap().0, 6 + 10);
        for _ in 0..12 * 60 {
            cache.get("/mine").await.unwrap();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        assert_eq!(ssm.0.lock().unwrap().0, 16 + 144, "users wait for theirs");
    }
}
