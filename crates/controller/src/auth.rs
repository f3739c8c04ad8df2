//! Who may look at debug paths.
//!
//! A bearer token is checked by the API server (TokenReview), and then whether its user may use the path
//! (SubjectAccessReview on the non-resource URL). Both answers are kept for a minute at most. An allowed client
//! certificate of the extender CA does as well.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};

use crate::effects::retry;
use crate::tls::Peer;

/// How long an answer is believed. A withdrawn right may work this much longer.
const BELIEVED: Duration = Duration::from_secs(60);
/// Answers kept; beyond that the cache is emptied rather than grown.
const KEPT: usize = 1000;
/// Tokens longer than this are not asked about.
const TOKEN_BYTES: usize = 16 << 10;

/// The rule for debug paths.
#[derive(Debug)]
pub enum DebugAccess {
    /// Everybody who reaches the listener. Only for loopback listeners.
    Loopback,
    /// Whoever the API server lets.
    Cluster(Box<Reviewer>),
    /// Only allowed client certificates: there is no API server to ask.
    CertificateOnly,
}

/// Asks the API server, and remembers.
pub struct Reviewer {
    client: kube::Client,
    answers: Mutex<BTreeMap<Question, (Instant, Answer)>>,
}

type Question = (String, String, &'static str);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Allowed,
    UnknownToken,
    NoRight,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// 401, 403, or 503 when the API server could not be asked.
    pub status: StatusCode,
    /// For people.
    pub message: String,
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reviewer")
    }
}

impl DebugAccess {
    /// Asks the cluster behind this client.
    #[must_use]
    pub fn cluster(client: kube::Client) -> Self {
        Self::Cluster(Box::new(Reviewer {
            client,
            answers: Mutex::default(),
        }))
    }

    /// Whether a request may go on.
    ///
    /// # Errors
    /// Why it may not.
    pub async fn check(
        &self,
        method: &Method,
        path: &str,
        authorization: Option<&http::HeaderValue>,
        peer: &Peer,
        allowed: &[String],
    ) -> Result<(), Refused> {
        if peer.is_one_of(allowed) || matches!(self, Self::Loopback) {
            return Ok(());
        }
        let Some(token) = authorization.and_then(bearer) else {
            return Err(refused(
                StatusCode::UNAUTHORIZED,
                "a bearer token is needed: curl -H \"Authorization: Bearer $(kubectl create token NAME)\"",
            ));
        };
        let Self::Cluster(reviewer) = self else {
            return Err(refused(
                StatusCode::FORBIDDEN,
                "tokens cannot be checked here: there is no cluster; use a client certificate or --insecure-debug",
            ));
        };
        let verb = match *method {
            Method::GET => "get",
            Method::POST => "post",
            Method::HEAD => "head",
            _ => {
                return Err(refused(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "only GET and POST are served",
                ));
            }
        };
        let path = &*reviewed(path);
        match reviewer.answer(token, path, verb).await {
            Ok(Answer::Allowed) => Ok(()),
            Ok(Answer::UnknownToken) => Err(refused(
                StatusCode::UNAUTHORIZED,
                "the API server does not know this token",
            )),
            Ok(Answer::NoRight) => Err(refused(
                StatusCode::FORBIDDEN,
                &format!(
                    "the user of this token may not {verb} {path}: grant it with a ClusterRole rule of nonResourceURLs [\"{path}\"], verbs [\"{verb}\"]"
                ),
            )),
            Err(error) => Err(refused(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("the API server could not be asked: {error}"),
            )),
        }
    }
}

fn refused(status: StatusCode, message: &str) -> Refused {
    Refused {
        status,
        message: message.to_owned(),
    }
}

fn bearer(header: &http::HeaderValue) -> Option<&str> {
    let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && token.len() <= TOKEN_BYTES)
        .then_some(token)
}

/// The path whose right is asked about. Every cluster lets all its users get `/api` and everything below (the role
/// `system:discovery`), so a right to the page's data under its own path would be everybody's.
fn reviewed(path: &str) -> Cow<'_, str> {
    match path.strip_prefix("/api/v1/") {
        Some(rest) => Cow::Owned(format!("/debug/{rest}")),
        None => Cow::Borrowed(path),
    }
}

impl Reviewer {
    async fn answer(&self, token: &str, path: &str, verb: &'static str) -> Result<Answer, String> {
        let question = (token.to_owned(), path.to_owned(), verb);
        if let Some(known) = self.known(&question) {
            return Ok(known);
        }
        let answer = self.ask(token, path, verb).await?;
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= KEPT {
            answers.clear();
        }
        answers.insert(question, (Instant::now(), answer));
        Ok(answer)
    }

    fn known(&self, question: &Question) -> Option<Answer> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers
            .get(question)
            .filter(|(at, _)| at.elapsed() < BELIEVED)
            .map(|(_, answer)| *answer)
    }

    async fn ask(&self, token: &str, path: &str, verb: &str) -> Result<Answer, String> {
        let text = |error: kube::Error| retry::message(&error);
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
            return Ok(Answer::UnknownToken);
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
            Answer::Allowed
        } else {
            Answer::NoRight
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows the token `good` of a user who may get `/debug/config`.
    fn cluster() -> (DebugAccess, Arc<AtomicUsize>) {
        let calls = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&calls);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            count.fetch_add(1, Ordering::Relaxed);
            async move {
                let tokens = request.uri().path().ends_with("/tokenreviews");
                let body =
                    String::from_utf8(request.into_body().collect_bytes().await.unwrap().to_vec())
                        .unwrap();
                let answer = if tokens {
                    let known = body.contains("\"good\"");
                    format!(
                        r#"{{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","metadata":{{}},"spec":{{}},"status":{{"authenticated":{known},"user":{{"username":"u"}}}}}}"#
                    )
                } else {
                    let allowed = body.contains("/debug/config") && body.contains("\"user\":\"u\"");
                    format!(
                        r#"{{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","metadata":{{}},"spec":{{}},"status":{{"allowed":{allowed}}}}}"#
                    )
                };
                Ok::<_, tower::BoxError>(http::Response::new(kube::client::Body::from(
                    answer.into_bytes(),
                )))
            }
        });
        (
            DebugAccess::cluster(kube::Client::new(service, "default")),
            calls,
        )
    }

    async fn status(access: &DebugAccess, path: &str, token: Option<&str>) -> u16 {
        let header =
            token.map(|token| http::HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        let result = access
            .check(
                &Method::GET,
                path,
                header.as_ref(),
                &Peer::default(),
                &["x".to_owned()],
            )
            .await;
        result.map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn a_token_must_be_known_and_its_user_must_have_the_right() {
        let (access, calls) = cluster();
        assert_eq!(status(&access, "/debug/config", None).await, 401);
        assert_eq!(calls.load(Ordering::Relaxed), 0, "no token, no call");
        assert_eq!(status(&access, "/debug/config", Some("bad")).await, 401);
        assert_eq!(status(&access, "/debug/config", Some("good")).await, 200);
        assert_eq!(status(&access, "/debug/snapshot", Some("good")).await, 403);
        let before = calls.load(Ordering::Relaxed);
        assert_eq!(status(&access, "/debug/config", Some("good")).await, 200);
        assert_eq!(status(&access, "/debug/config", Some("bad")).await, 401);
        assert_eq!(calls.load(Ordering::Relaxed), before, "remembered");
    }

    #[test]
    fn the_pages_data_needs_a_right_that_not_everybody_has() {
        assert_eq!(reviewed("/api/v1/state"), "/debug/state");
        assert_eq!(reviewed("/debug/config"), "/debug/config");
    }

    #[tokio::test]
    async fn certificates_and_loopback_need_no_token() {
        let allowed = ["x".to_owned()];
        let peer = Peer {
            names: vec!["x".to_owned()],
        };
        assert!(
            DebugAccess::CertificateOnly
                .check(&Method::GET, "/debug/config", None, &peer, &allowed)
                .await
                .is_ok()
        );
        assert_eq!(
            status(&DebugAccess::CertificateOnly, "/debug/config", None).await,
            401
        );
        assert_eq!(
            status(&DebugAccess::CertificateOnly, "/debug/config", Some("any")).await,
            403
        );
        assert_eq!(
            status(&DebugAccess::Loopback, "/debug/config", None).await,
            200
        );
    }
}
