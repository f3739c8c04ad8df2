//! The listeners: requests, connections, handshakes, tokens and certificates.

use std::time::Duration;

use super::families::Buckets;
use super::labels;
use super::series::series;

series! {
    /// The families.
    HttpMetrics {
        requests: always counter[labels::Request; 40] "mortise_http_requests" "HTTP requests by path and status class";
        request_duration: always histogram[labels::Path; 12; Buckets::SHORT] "mortise_http_request_duration_seconds" "Duration of HTTP requests";
        panics: always counter[] "mortise_http_panics" "HTTP requests whose handler panicked";
        connections: always gauge[] "mortise_https_connections" "Open HTTPS connections";
        handshakes_failed: always counter[labels::Cause; 8] "mortise_tls_handshakes_failed" "TLS handshakes that failed or timed out, by cause";
        connections_ended: always counter[labels::PortCause; 12] "mortise_connections_ended" "Connections rejected or closed by the server, by cause";
        token_reviews: always counter[labels::Outcome; 5] "mortise_token_reviews" "Token reviews of callers of debug paths, by outcome";
        forwarded: always counter[labels::Outcome; 4] "mortise_extender_forwarded" "Extender calls that reached this replica while another one leads, by what came of forwarding them: answered, refused, failed, not_sent";
        unasked_binds: always gauge[] "mortise_extender_unasked_binds" "Pods bound without an extender call in the previous minute, since the last call";
        certificate_reloads: always counter[labels::Outcome; 4] "mortise_certificate_reloads" "Certificate reloads by outcome";
    }
}

impl HttpMetrics {
    /// Counts a request and its status.
    pub(crate) fn request(&self, path: &'static str, status: http::StatusCode, took: Duration) {
        let status = status_class(status);
        self.requests.count(&labels::Request { path, status });
        self.request_duration
            .observe(&labels::Path { path }, took.as_secs_f64());
    }

    /// Counts a panic of a handler.
    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    /// Counts a connection that was opened (`true`) or closed.
    pub(crate) fn connection(&self, opened: bool) {
        if opened {
            self.connections.inc();
        } else {
            self.connections.dec();
        }
    }

    /// Counts a failed TLS handshake.
    pub(crate) fn handshake_failed(&self, cause: &'static str) {
        self.handshakes_failed.count(&labels::Cause { cause });
    }

    /// Counts a connection that this process rejected or closed.
    pub(crate) fn connection_ended(&self, port: &'static str, cause: &'static str) {
        self.connections_ended
            .count(&labels::PortCause { port, cause });
    }

    /// Counts the review of a caller's token.
    pub(crate) fn token_reviewed(&self, outcome: &'static str) {
        self.token_reviews.count(&labels::Outcome { outcome });
    }

    /// Counts a call that was to be forwarded to the leader.
    pub(crate) fn forwarded(&self, outcome: &'static str) {
        self.forwarded.count(&labels::Outcome { outcome });
    }

    /// Sets the number of pods bound without an extender call.
    pub(crate) fn set_unasked_binds(&self, binds: u64) {
        self.unasked_binds
            .set(i64::try_from(binds).unwrap_or(i64::MAX));
    }

    /// Counts a reload of certificates.
    pub(crate) fn certificates_reloaded(&self, outcome: &'static str) {
        self.certificate_reloads.count(&labels::Outcome { outcome });
    }
}

const fn status_class(status: http::StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "2xx",
        300..=399 => "3xx",
        401 => "401",
        403 => "403",
        400..=499 => "4xx",
        _ => "5xx",
    }
}
