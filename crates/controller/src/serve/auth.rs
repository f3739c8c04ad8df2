//! Who may read debug paths.
//!
//! The API server authenticates a bearer token (TokenReview), and authorizes its user for the path (SubjectAccessReview on the
//! non-resource URL). An allowed client certificate of the extender CA is accepted instead.

use std::borrow::Cow;
use std::net::IpAddr;

use http::{Method, StatusCode};

use crate::client::reviews::{Review, Reviewer, Unreviewed};
use crate::metrics::Metrics;
use crate::tls::Peer;

/// Longer tokens are not reviewed.
const TOKEN_BYTES: usize = 16 << 10;

/// The rule for debug paths.
#[derive(Debug)]
pub enum DebugAccess {
    /// Every caller that reaches the listener. Only for loopback listeners.
    Loopback,
    /// Callers that the API server authorizes.
    Cluster(Box<Reviewer>),
    /// Only allowed client certificates: there is no API server.
    CertificateOnly,
}

/// The caller of a debug path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) method: &'a Method,
    /// A served path.
    pub(crate) path: &'a str,
    pub(crate) authorization: Option<&'a http::HeaderValue>,
    pub(crate) peer: &'a Peer,
    /// Names of allowed client certificates.
    pub(crate) allowed: &'a [String],
    /// The caller's address; `None` without a connection.
    pub(crate) remote: Option<IpAddr>,
}

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessDenied {
    /// 401, 403, 429 when too many tokens arrive, or 503 when the API server could not be reached.
    pub status: StatusCode,
    /// The message for users.
    pub message: String,
}

impl DebugAccess {
    /// Asks the API server with this reviewer. Its client should have no other use, so that reviews and other requests do not
    /// delay each other.
    #[must_use]
    pub fn cluster(reviewer: Reviewer) -> Self {
        Self::Cluster(Box::new(reviewer))
    }

    /// Whether a request is allowed.
    ///
    /// # Errors
    /// Why it is rejected.
    pub(crate) async fn check(
        &self,
        asker: &Asker<'_>,
        metrics: &Metrics,
    ) -> Result<(), AccessDenied> {
        if asker.peer.is_one_of(asker.allowed) || matches!(self, Self::Loopback) {
            return Ok(());
        }
        let Some(token) = asker.authorization.and_then(bearer) else {
            return Err(refused(
                StatusCode::UNAUTHORIZED,
                "a bearer token is required: curl -H \"Authorization: Bearer $(kubectl create token NAME)\"",
            ));
        };
        let Self::Cluster(reviewer) = self else {
            return Err(refused(
                StatusCode::FORBIDDEN,
                "token review is not available without a cluster; use a client certificate or --insecure-debug",
            ));
        };
        let verb = match *asker.method {
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
        let path = &*reviewed_path(asker.path);
        match reviewer
            .review(token, path, verb, asker.remote, metrics)
            .await
        {
            Ok(Review::Allowed) => Ok(()),
            Ok(Review::UnknownToken) => Err(refused(
                StatusCode::UNAUTHORIZED,
                "the API server rejected the token",
            )),
            Ok(Review::NoRight) => Err(refused(
                StatusCode::FORBIDDEN,
                &format!(
                    "the user has no permission to {verb} {path}; grant it with a ClusterRole rule of nonResourceURLs [\"{path}\"], verbs [\"{verb}\"]"
                ),
            )),
            Err(Unreviewed::TooMany) => Err(refused(
                StatusCode::TOO_MANY_REQUESTS,
                "too many unknown tokens at once; try again in one second",
            )),
            Err(Unreviewed::Failed(error)) => Err(refused(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("token review failed: {error}"),
            )),
        }
    }
}

fn refused(status: StatusCode, message: &str) -> AccessDenied {
    AccessDenied {
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

/// The path whose permission is reviewed. Every cluster lets all its users get `/api` and everything below (the role
/// `system:discovery`), so a permission for the page's data under its own path would be granted to all users.
fn reviewed_path(path: &str) -> Cow<'_, str> {
    if path == "/debug" {
        // A rule for `/debug/*` covers the index with this.
        return Cow::Borrowed("/debug/");
    }
    match path.strip_prefix("/api/v1/") {
        Some(rest) => Cow::Owned(format!("/debug/{rest}")),
        None => Cow::Borrowed(path),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_types, reason = "a client of a scripted API server")]
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
            DebugAccess::cluster(Reviewer::new(kube::Client::new(service, "default"))),
            calls,
        )
    }

    async fn status(access: &DebugAccess, path: &str, token: Option<&str>) -> u16 {
        let header =
            token.map(|token| http::HeaderValue::from_str(&format!("Bearer {token}")).unwrap());
        let metrics = Metrics::new("x", crate::TelemetryDetail::Bounded);
        let asker = Asker {
            method: &Method::GET,
            path,
            authorization: header.as_ref(),
            peer: &Peer::default(),
            allowed: &["x".to_owned()],
            remote: Some(IpAddr::from([10, 0, 0, 1])),
        };
        let result = access.check(&asker, &metrics).await;
        result.map_or_else(|refused| refused.status.as_u16(), |()| 200)
    }

    #[tokio::test]
    async fn tokens_need_an_authenticated_user_with_permission() {
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
    fn page_data_needs_an_explicit_permission() {
        for route in super::super::debug::DEBUG_ROUTES {
            let reviewed = reviewed_path(route.path);
            assert!(reviewed.starts_with("/debug/"), "{reviewed}");
        }
        assert_eq!(reviewed_path("/api/v1/state"), "/debug/state");
        assert_eq!(reviewed_path("/debug/config"), "/debug/config");
    }

    #[tokio::test]
    async fn certificates_and_loopback_need_no_token() {
        let allowed = ["x".to_owned()];
        let peer = Peer {
            is_replica: false,
            of_extender_ca: true,
            of_admission_ca: false,
            names: vec!["x".to_owned()],
        };
        let metrics = Metrics::new("x", crate::TelemetryDetail::Bounded);
        let asker = Asker {
            method: &Method::GET,
            path: "/debug/config",
            authorization: None,
            peer: &peer,
            allowed: &allowed,
            remote: None,
        };
        let checked = DebugAccess::CertificateOnly.check(&asker, &metrics).await;
        assert!(checked.is_ok());
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
