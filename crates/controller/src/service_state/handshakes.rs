//! Failed TLS handshakes: counted by cause, kept for debug pages, and logged at most once a minute per cause.
//!
//! A caller that rejects the server certificate reports nothing else: kube-scheduler skips an extender that it cannot reach.
//! The server sees an alert and the requested name; together they give the cause.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rustls::{AlertDescription, Error};
use serde::Serialize;

/// Time between two log lines about the same cause.
const QUIET: SignedDuration = SignedDuration::from_secs(60);

/// Why a handshake failed. Closed: it is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeCause {
    /// This process has no certificate yet.
    NoCertificate,
    /// The caller did not finish in time.
    TimedOut,
    /// The caller closed the connection before the handshake completed; load balancers probe open ports like this.
    Closed,
    /// The bytes are not TLS, such as plain HTTP.
    NotTls,
    /// The caller rejected the server certificate, which does not have the requested name.
    NameNotInCertificate,
    /// The caller rejected the server certificate: it trusts another CA, or expects an IP address that is not in it.
    CertificateRefused,
    /// The caller's own certificate was rejected.
    ClientCertificate,
    /// Anything else: no common version or cipher.
    Other,
}

impl HandshakeCause {
    /// The label of metrics.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoCertificate => "no_certificate",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::NotTls => "not_tls",
            Self::NameNotInCertificate => "name_not_in_certificate",
            Self::CertificateRefused => "certificate_refused",
            Self::ClientCertificate => "client_certificate",
            Self::Other => "other",
        }
    }

    /// How to fix it.
    const fn advice(self) -> &'static str {
        match self {
            Self::NoCertificate => "wait until /readyz returns ok",
            Self::TimedOut => "check the network between the caller and this process",
            Self::Closed => "none, if the caller only checks whether the port is open",
            Self::NotTls => "use https:// in the caller's URL",
            Self::NameNotInCertificate => {
                "remove serverName from the scheduler's tlsConfig, or add the name with --server-names"
            }
            Self::CertificateRefused => {
                "configure the caller with the ca.crt of this certificate, and add the address of its URL with --server-names"
            }
            Self::ClientCertificate => {
                "configure the caller with the extender-client.crt signed by extender-ca.crt"
            }
            Self::Other => "compare the TLS versions that both sides allow",
        }
    }

    /// The cause of an error of the TLS library. `asked` is the requested server name, `names` are those of the server
    /// certificate.
    pub(crate) fn from_error(
        error: &std::io::Error,
        asked: Option<&str>,
        names: &[String],
    ) -> Self {
        let Some(error) = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<Error>())
        else {
            return Self::Closed;
        };
        match error {
            Error::AlertReceived(alert) if refuses_certificate(*alert) => match asked {
                Some(asked) if !covers(names, asked) => Self::NameNotInCertificate,
                _ => Self::CertificateRefused,
            },
            Error::AlertReceived(
                AlertDescription::CloseNotify | AlertDescription::UserCanceled,
            ) => Self::Closed,
            Error::InvalidCertificate(_)
            | Error::NoCertificatesPresented
            | Error::InvalidCertRevocationList(_) => Self::ClientCertificate,
            Error::InvalidMessage(_) => Self::NotTls,
            _ => Self::Other,
        }
    }
}

const fn refuses_certificate(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
    )
}

/// Whether one of a certificate's names, wildcards included, matches.
fn covers(names: &[String], asked: &str) -> bool {
    names.iter().any(|name| {
        name.eq_ignore_ascii_case(asked)
            || name.strip_prefix("*.").is_some_and(|parent| {
                asked
                    .split_once('.')
                    .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent))
            })
    })
}

/// A failed handshake.
#[derive(Clone, Debug)]
pub(crate) struct FailedHandshake {
    pub(crate) cause: HandshakeCause,
    pub(crate) peer: IpAddr,
    /// The requested server name.
    pub(crate) asked: Option<String>,
    /// Names of the server certificate.
    pub(crate) names: Vec<String>,
    /// Message of the TLS library.
    pub(crate) error: String,
}

/// The latest failure of a cause.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HandshakeFailures {
    pub(crate) cause: HandshakeCause,
    /// Since the start.
    pub(crate) count: u64,
    /// Time of the latest.
    pub(crate) last: Timestamp,
    /// Address of its caller.
    pub(crate) peer: String,
    /// The requested server name, if any.
    pub(crate) asked_for: Option<String>,
    /// Names of the server certificate.
    pub(crate) certificate_names: Vec<String>,
    /// How to fix it.
    pub(crate) advice: &'static str,
    #[serde(skip)]
    logged: Timestamp,
    #[serde(skip)]
    logged_count: u64,
}

/// Failures by cause. Bounded by the number of causes.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    inner: Mutex<BTreeMap<HandshakeCause, HandshakeFailures>>,
}

impl Handshakes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<HandshakeCause, HandshakeFailures>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a failure. Returns the number since the last log line if another one is due.
    fn record(&self, failed: &FailedHandshake, now: Timestamp) -> Option<u64> {
        let mut inner = self.lock();
        let logged = inner
            .get(&failed.cause)
            .map(|kept| (kept.count, kept.logged, kept.logged_count));
        let count = logged.map_or(0, |(count, ..)| count) + 1;
        let due = logged.is_none_or(|(_, at, _)| now.duration_since(at) >= QUIET);
        let (at, told) = match logged {
            Some((_, at, told)) if !due => (at, told),
            _ => (now, count),
        };
        let before = logged.map_or(0, |(.., told)| told);
        inner.insert(
            failed.cause,
            HandshakeFailures {
                cause: failed.cause,
                count,
                last: now,
                peer: failed.peer.to_string(),
                asked_for: failed.asked.clone(),
                certificate_names: failed.names.clone(),
                advice: failed.cause.advice(),
                logged: at,
                logged_count: told,
            },
        );
        due.then_some(count - before)
    }

    /// Stores a failure and logs it, unless one of the same cause was logged within a minute.
    pub(crate) fn report(&self, failed: &FailedHandshake, now: Timestamp) {
        let Some(count) = self.record(failed, now) else {
            return;
        };
        let FailedHandshake {
            cause,
            peer,
            asked,
            names,
            error,
        } = failed;
        let (cause, advice) = (cause.label(), cause.advice());
        let names = names.join(", ");
        // Port probes are frequent, and no fault.
        if failed.cause == HandshakeCause::Closed {
            tracing::debug!(cause, %peer, count, error, "TLS handshakes failed");
        } else {
            tracing::warn!(
                cause, %peer, count, asked_for = asked.as_deref().unwrap_or_default(), certificate_names = names, error, advice,
                "TLS handshakes failed"
            );
        }
    }

    /// The failures of every cause.
    pub(crate) fn all(&self) -> Vec<HandshakeFailures> {
        self.lock().values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn io(error: Error) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidData, error)
    }

    #[test]
    fn each_error_has_its_cause() {
        let names = ["localhost", "127.0.0.1", "*.kube-system.svc"].map(str::to_owned);
        let refused = || io(Error::AlertReceived(AlertDescription::BadCertificate));
        for (error, asked, want) in [
            (
                refused(),
                Some("mortise.other.svc"),
                HandshakeCause::NameNotInCertificate,
            ),
            (
                refused(),
                Some("mortise.kube-system.svc"),
                HandshakeCause::CertificateRefused,
            ),
            (
                refused(),
                Some("LOCALHOST"),
                HandshakeCause::CertificateRefused,
            ),
            (refused(), None, HandshakeCause::CertificateRefused),
            (
                io(Error::InvalidMessage(
                    rustls::InvalidMessage::InvalidContentType,
                )),
                None,
                HandshakeCause::NotTls,
            ),
            (
                io(Error::InvalidCertificate(
                    rustls::CertificateError::UnknownIssuer,
                )),
                None,
                HandshakeCause::ClientCertificate,
            ),
            (
                std::io::ErrorKind::UnexpectedEof.into(),
                Some("localhost"),
                HandshakeCause::Closed,
            ),
        ] {
            assert_eq!(
                HandshakeCause::from_error(&error, asked, &names),
                want,
                "{error} {asked:?}"
            );
        }
    }

    #[test]
    fn a_cause_is_logged_once_a_minute_with_the_omitted_count() {
        let handshakes = Handshakes::default();
        let at = |seconds: i64| Timestamp::from_second(1_700_000_000 + seconds).unwrap();
        let failed = |cause| FailedHandshake {
            cause,
            peer: IpAddr::from([10, 0, 0, 7]),
            asked: Some("mortise.kube-system.svc".to_owned()),
            names: vec!["localhost".to_owned()],
            error: String::new(),
        };
        let name = failed(HandshakeCause::NameNotInCertificate);
        assert_eq!(handshakes.record(&name, at(0)), Some(1));
        for second in 1..60 {
            assert_eq!(handshakes.record(&name, at(second)), None);
        }
        let other = failed(HandshakeCause::NotTls);
        assert_eq!(handshakes.record(&other, at(30)), Some(1), "its own minute");
        assert_eq!(handshakes.record(&name, at(60)), Some(60));
        assert_eq!(handshakes.record(&name, at(119)), None);
        let all = handshakes.all();
        let count = |cause| {
            all.iter()
                .find(|kept| kept.cause == cause)
                .map(|kept| kept.count)
        };
        assert_eq!(count(HandshakeCause::NameNotInCertificate), Some(62));
        assert_eq!(count(HandshakeCause::NotTls), Some(1));
    }
}
