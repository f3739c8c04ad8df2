//! Token reviews, limited so that callers cannot flood the API server with them.
//!
//! Any caller that reaches the port can send a token, and each unknown token costs the API server a TokenReview and usually a
//! SubjectAccessReview. Therefore results are cached for a minute under a hash of the token; concurrent identical requests
//! share one review; the rest is limited per address and in total. The client has no other use: a flood here delays no watch,
//! effect or Lease request.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use rustls::crypto::aws_lc_rs;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::error_class;
use super::token_bucket::TokenBucket;
use crate::metrics::Metrics;

/// How long a result is cached. A withdrawn permission may work this much longer.
const BELIEVED: Duration = Duration::from_secs(60);
/// Cached results of each kind, accepted and rejected: a flood of bad tokens evicts no accepted one.
const KEPT: usize = 500;
/// Rate and burst of reviews, of all callers.
const ALL: (f64, u32) = (20.0, 80);
/// The same per address: opening every debug path with two tokens is not limited.
const OF_ONE: (f64, u32) = (5.0, 40);
/// Addresses whose reviews are counted separately.
const ADDRESSES: usize = 256;
/// Timeout of both reviews.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of the API server for a token and a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Review {
    /// Its user has the permission.
    Allowed,
    /// The token is not authenticated.
    UnknownToken,
    /// Its user lacks the permission.
    NoRight,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreviewed {
    /// The rate limit is exceeded.
    TooMany,
    /// The API server could not be reached.
    Failed(String),
}

/// A salted hash of the token, the path and the verb: tokens are not stored, and callers cannot construct a collision.
type Question = ([u8; 48], String, &'static str);
type UnderWay = Arc<OnceCell<Result<Review, Unreviewed>>>;

/// Sends reviews to the API server, and caches the results.
pub struct Reviewer {
    client: kube::Client,
    salt: [u8; 32],
    all: TokenBucket,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    good: Kept,
    bad: Kept,
    under_way: BTreeMap<Question, UnderWay>,
    addresses: HashMap<IpAddr, (Arc<TokenBucket>, Instant)>,
}

/// Results of one kind; the oldest is evicted first.
#[derive(Default)]
struct Kept(BTreeMap<Question, (Instant, Review)>);

impl Kept {
    fn get(&self, question: &Question) -> Option<Review> {
        let (at, answer) = self.0.get(question)?;
        (at.elapsed() < BELIEVED).then_some(*answer)
    }

    fn insert(&mut self, question: Question, answer: Review) {
        if self.0.len() >= KEPT {
            self.0.retain(|_, (at, _)| at.elapsed() < BELIEVED);
        }
        if self.0.len() >= KEPT {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at);
            if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(question, (Instant::now(), answer));
    }
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviewer")
    }
}

impl Reviewer {
    pub(crate) fn new(client: kube::Client) -> Self {
        let mut salt = [0; 32];
        // Without a salt these are the hashes of the tokens themselves, which still cannot be inverted.
        if aws_lc_rs::default_provider()
            .secure_random
            .fill(&mut salt)
            .is_err()
        {
            tracing::warn!("no random source, token hashes are not salted");
        }
        Self {
            client,
            salt,
            all: TokenBucket::new(ALL.0, ALL.1),
            inner: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hash(&self, token: &str) -> [u8; 48] {
        let mut salted = self.salt.to_vec();
        salted.extend_from_slice(token.as_bytes());
        let mut hashed = [0; 48];
        if let Some(suite) = aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384.tls13() {
            let output = suite.common.hash_provider.hash(&salted);
            for (to, from) in hashed.iter_mut().zip(output.as_ref()) {
                *to = *from;
            }
        }
        hashed
    }

    /// Whether the user of a token may use a path. `remote` is the sender.
    pub(crate) async fn review(
        &self,
        token: &str,
        path: &str,
        verb: &'static str,
        remote: Option<IpAddr>,
        metrics: &Metrics,
    ) -> Result<Review, Unreviewed> {
        let question = (self.hash(token), path.to_owned(), verb);
        let (cell, is_first) = {
            let mut inner = self.lock();
            let known = inner
                .good
                .get(&question)
                .or_else(|| inner.bad.get(&question));
            if let Some(known) = known {
                metrics.http.token_reviewed("remembered");
                return Ok(known);
            }
            match inner.under_way.get(&question) {
                Some(cell) => (Arc::clone(cell), false),
                None => {
                    if !self.try_acquire(&mut inner, remote) {
                        metrics.http.token_reviewed("limited");
                        return Err(Unreviewed::TooMany);
                    }
                    let cell = UnderWay::default();
                    inner.under_way.insert(question.clone(), Arc::clone(&cell));
                    (cell, true)
                }
            }
        };
        metrics
            .http
            .token_reviewed(if is_first { "asked" } else { "joined" });
        let _ended = is_first.then(|| Ended {
            reviewer: self,
            question: &question,
        });
        // If the first caller disconnects, the next waiting one sends the review.
        let answer = cell
            .get_or_init(|| async {
                let asked =
                    tokio::time::timeout(REVIEW_TIMEOUT, self.review_access(token, path, verb));
                let late = || Err("request timed out".to_owned());
                let answer = asked.await.unwrap_or_else(|_| late());
                if let Ok(answer) = answer {
                    let mut inner = self.lock();
                    let kept = match answer {
                        Review::Allowed => &mut inner.good,
                        Review::UnknownToken | Review::NoRight => &mut inner.bad,
                    };
                    kept.insert(question.clone(), answer);
                }
                answer.map_err(Unreviewed::Failed)
            })
            .await;
        answer.clone()
    }

    /// Takes a token from the bucket of the address and from the one of all.
    fn try_acquire(&self, inner: &mut Inner, remote: Option<IpAddr>) -> bool {
        if let Some(remote) = remote {
            let now = Instant::now();
            if inner.addresses.len() >= ADDRESSES && !inner.addresses.contains_key(&remote) {
                let oldest = inner.addresses.iter().min_by_key(|(_, (_, used))| *used);
                if let Some(oldest) = oldest.map(|(address, _)| *address) {
                    inner.addresses.remove(&oldest);
                }
            }
            let (limiter, used) = inner
                .addresses
                .entry(remote)
                .or_insert_with(|| (Arc::new(TokenBucket::new(OF_ONE.0, OF_ONE.1)), now));
            *used = now;
            if !limiter.try_acquire() {
                return false;
            }
        }
        self.all.try_acquire()
    }

    async fn review_access(&self, token: &str, path: &str, verb: &str) -> Result<Review, String> {
        let text = |error: kube::Error| error_class::message(&error);
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let reviewed = Api::<TokenReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(text)?;
        let status = reviewed.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Review::UnknownToken);
        };
        let UserInfo {
            username,
            groups,
            uid,
            extra,
        } = user;
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: username,
                groups,
                uid,
                extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let reviewed = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await
            .map_err(text)?;
        Ok(if reviewed.status.is_some_and(|status| status.allowed) {
            Review::Allowed
        } else {
            Review::NoRight
        })
    }
}

/// Removes a review in flight, also when its caller disconnected.
struct Ended<'a> {
    reviewer: &'a Reviewer,
    question: &'a Question,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.reviewer.lock().under_way.remove(self.question);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Responds after a second, and counts requests. Tokens that begin with `good` are valid.
    fn reviewer() -> (Arc<Reviewer>, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let is_token = request.uri().path().ends_with("/tokenreviews");
                let body = request.into_body().collect_bytes().await.unwrap();
                let known = String::from_utf8_lossy(&body).contains("\"good");
                let (kind, group, status) = if is_token {
                    let status =
                        format!(r#"{{"authenticated":{known},"user":{{"username":"u"}}}}"#);
                    ("TokenReview", "authentication", status)
                } else {
                    (
                        "SubjectAccessReview",
                        "authorization",
                        r#"{"allowed":true}"#.to_owned(),
                    )
                };
                let answer = format!(
                    r#"{{"apiVersion":"{group}.k8s.io/v1","kind":"{kind}","metadata":{{}},"spec":{{}},"status":{status}}}"#
                );
                Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(
                    answer.into_bytes(),
                )))
            }
        });
        let client = kube::Client::new(service, "default");
        (Arc::new(Reviewer::new(client)), calls)
    }

    async fn review(reviewer: &Reviewer, token: &str, from: u8) -> Result<Review, Unreviewed> {
        let metrics = Metrics::new("x", crate::TelemetryDetail::Bounded);
        let remote = Some(IpAddr::from([10, 0, 0, from]));
        reviewer
            .review(token, "/debug/config", "get", remote, &metrics)
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_identical_reviews_send_one_request() {
        let (reviewer, calls) = reviewer();
        let all = futures::future::join_all((0..50).map(|from| review(&reviewer, "good", from)));
        assert!(
            all.await
                .iter()
                .all(|answer| *answer == Ok(Review::Allowed))
        );
        assert_eq!(calls.load(Ordering::Relaxed), 2, "one of each review");
        assert_eq!(review(&reviewer, "good", 1).await, Ok(Review::Allowed));
        assert_eq!(calls.load(Ordering::Relaxed), 2, "remembered");
        tokio::time::sleep(BELIEVED).await;
        assert_eq!(review(&reviewer, "good", 1).await, Ok(Review::Allowed));
        assert_eq!(calls.load(Ordering::Relaxed), 4, "results expire");
        assert!(reviewer.lock().under_way.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_limited_per_address() {
        let (reviewer, calls) = reviewer();
        assert_eq!(review(&reviewer, "good-0", 1).await, Ok(Review::Allowed));
        let before = calls.load(Ordering::Relaxed);
        let tokens: Vec<String> = (0..2_000).map(|each| format!("bad-{each}")).collect();
        let flood = tokens.iter().map(|token| review(&reviewer, token, 66));
        let answers = futures::future::join_all(flood).await;
        let asked = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(asked, 40, "the burst of one address");
        assert_eq!(calls.load(Ordering::Relaxed) - before, 40);
        assert!(
            answers
                .iter()
                .flat_map(|answer| answer.as_ref().err())
                .all(|why| *why == Unreviewed::TooMany)
        );
        assert_eq!(
            review(&reviewer, "good-1", 2).await,
            Ok(Review::Allowed),
            "another address"
        );
        // From many addresses: the total is limited too.
        let flood = tokens
            .iter()
            .zip((0..200).cycle())
            .map(|(token, from)| review(&reviewer, token, from));
        let answers = futures::future::join_all(flood).await;
        // Results of the first flood are cached, and the rest is the total burst.
        assert!(answers.iter().filter(|answer| answer.is_ok()).count() <= 40 + 80);
        assert_eq!(
            review(&reviewer, "good-0", 1).await,
            Ok(Review::Allowed),
            "remembered"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn rejected_tokens_evict_no_accepted_one() {
        let (reviewer, _) = reviewer();
        assert_eq!(review(&reviewer, "good", 1).await, Ok(Review::Allowed));
        for each in 0..3 * KEPT {
            let question = (reviewer.hash(&format!("bad-{each}")), String::new(), "get");
            reviewer.lock().bad.insert(question, Review::UnknownToken);
            let remote = Some(IpAddr::from(u32::try_from(each).unwrap().to_be_bytes()));
            reviewer.try_acquire(&mut reviewer.lock(), remote);
        }
        let inner = reviewer.lock();
        assert_eq!((inner.good.0.len(), inner.bad.0.len()), (1, KEPT));
        assert_eq!(inner.addresses.len(), ADDRESSES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_takes_over_a_cancelled_review() {
        let (reviewer, _) = reviewer();
        let first = {
            let reviewer = Arc::clone(&reviewer);
            tokio::spawn(async move { review(&reviewer, "good", 1).await })
        };
        tokio::task::yield_now().await;
        let second = {
            let reviewer = Arc::clone(&reviewer);
            tokio::spawn(async move { review(&reviewer, "good", 2).await })
        };
        tokio::task::yield_now().await;
        first.abort();
        assert_eq!(second.await.unwrap(), Ok(Review::Allowed));
        assert!(reviewer.lock().under_way.is_empty());
    }

    #[test]
    fn tokens_are_stored_as_hashes() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(tower::BoxError::from("unused"))
        });
        let make = || Reviewer::new(kube::Client::new(service, "default"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let _in_it = runtime.enter();
        let (one, other) = (make(), make());
        assert_eq!(one.hash("token"), one.hash("token"));
        assert_ne!(one.hash("token"), one.hash("tokeN"));
        assert_ne!(one.hash("token"), other.hash("token"), "another salt");
        assert_ne!(one.hash("token"), [0; 48]);
    }
}
