//! The flag of traces.

use clap::Args;
use http::Uri;
use mortise_controller::TraceConfig;

/// Where collectors take traces, below their address.
const PATH: &str = "/v1/traces";

/// Flags of traces.
#[derive(Args, Clone, Debug)]
pub struct TraceArgs {
    /// Send traces of NodeClaims, and of requests whose callers trace them, to the OpenTelemetry collector at this URL (OTLP over HTTP)
    #[arg(long, env = "MORTISE_OTLP_ENDPOINT", value_name = "URL", value_parser = endpoint)]
    otlp_endpoint: Option<Uri>,
}

impl TraceArgs {
    /// Where traces are sent; `None` = nowhere.
    #[must_use]
    pub fn config(&self, cluster: &str) -> Option<TraceConfig> {
        Some(TraceConfig {
            endpoint: self.otlp_endpoint.clone()?,
            cluster: cluster.to_owned(),
        })
    }
}

/// The URL for traces, as OpenTelemetry's specification derives it from a collector's.
fn endpoint(text: &str) -> Result<Uri, String> {
    let wrong = || "must be a URL such as http://collector:4318".to_owned();
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    let is_http = matches!(uri.scheme_str(), Some("https" | "http"));
    if !is_http || uri.host().is_none_or(str::is_empty) || uri.query().is_some() {
        return Err(wrong());
    }
    if uri.authority().is_some_and(|it| it.as_str().contains('@')) {
        return Err("must have no user and no password: it is shown in logs".to_owned());
    }
    let path = uri.path().trim_end_matches('/');
    let path = match path.ends_with(PATH) {
        true => path.to_owned(),
        false => format!("{path}{PATH}"),
    };
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path.parse().map_err(|_| wrong())?);
    Uri::from_parts(parts).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_collector_becomes_that_of_its_traces() {
        let table = [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("http://collector:4318/", "http://collector:4318/v1/traces"),
            ("https://c.example/otlp", "https://c.example/otlp/v1/traces"),
            ("http://c:4318/v1/traces", "http://c:4318/v1/traces"),
            ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ];
        for (text, expected) in table {
            assert_eq!(endpoint(text).unwrap().to_string(), expected);
        }
        for text in [
            "",
            "collector:4318",
            "grpc://collector:4317",
            "/v1/traces",
            "http://",
            "http://c/?a=b",
            "http://user:secret@c:4318",
        ] {
            let message = endpoint(text).unwrap_err();
            assert!(message.starts_with("must "), "{text}: {message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
