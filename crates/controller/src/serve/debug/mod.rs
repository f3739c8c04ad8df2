//! Debug views for users and the page: cluster state, nominations, decisions and their reasons.
//!
//! Every path responds with JSON, or with text for `Accept: text/plain`. Responses are computed from the snapshot, the ledger
//! and the decision log; none contains Secrets or values of environment variables, because the watches do not keep those.

mod explain;
mod extender;
mod node;
mod quantities;
mod stream;
mod table;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, header};
use mortise_apis::names::PodKey;
use serde::Deserialize;
use serde_json::Value;

use crate::service_state::ServiceState;
pub use explain::Subject;
pub(crate) use extender::router as extender;

/// Maximum decisions per response.
const MOST_DECISIONS: usize = 1000;

/// A response in both forms.
#[derive(Clone, Debug)]
pub struct DebugView {
    /// JSON, for programs.
    pub json: Value,
    /// Text, for users; ends with a line feed.
    pub text: String,
}

/// The debug paths and the data of the page.
pub(crate) fn router(shared: Arc<ServiceState>) -> Router {
    Router::new()
        .route(
            "/debug/config",
            get(
                |State(shared): State<Arc<ServiceState>>, headers: HeaderMap| async move {
                    respond(&headers, views::config(&shared))
                },
            ),
        )
        .route(
            "/debug/snapshot",
            get(
                |State(shared): State<Arc<ServiceState>>, headers: HeaderMap| async move {
                    respond(&headers, views::snapshot(&shared))
                },
            ),
        )
        .route(
            "/debug/pending",
            get(
                |State(shared): State<Arc<ServiceState>>, headers: HeaderMap| async move {
                    respond(&headers, views::pending(&shared))
                },
            ),
        )
        .route(
            "/debug/nominations",
            get(
                |State(shared): State<Arc<ServiceState>>, headers: HeaderMap| async move {
                    respond(&headers, views::nominations(&shared))
                },
            ),
        )
        .route("/debug/decisions", get(decisions))
        .route("/debug/explain", get(explain))
        .route(
            "/api/v1/state",
            get(|State(shared): State<Arc<ServiceState>>| async move { json(&views::state(&shared)) }),
        )
        .route("/api/v1/stream", get(stream::stream))
        .with_state(shared)
}

/// Facts about an object, and the reasons for its state.
///
/// # Errors
/// There is no such object; the text names similar ones.
pub fn explanation(shared: &ServiceState, subject: &Subject) -> Result<DebugView, String> {
    explain::explain(shared, subject)
}

#[derive(Deserialize)]
struct DecisionsQuery {
    limit: Option<usize>,
}

async fn decisions(
    State(shared): State<Arc<ServiceState>>,
    headers: HeaderMap,
    query: Result<Query<DecisionsQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    match query {
        Ok(Query(DecisionsQuery { limit })) => respond(
            &headers,
            views::decisions(&shared, limit.unwrap_or(100).min(MOST_DECISIONS)),
        ),
        Err(error) => (
            StatusCode::BAD_REQUEST,
            format!(
                "limit must be a number of decisions, at most {MOST_DECISIONS}: {}\n",
                error.body_text()
            ),
        )
            .into_response(),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainQuery {
    pod: Option<String>,
    namespace: Option<String>,
    node: Option<String>,
    nodepool: Option<String>,
    nodeclaim: Option<String>,
}

async fn explain(
    State(shared): State<Arc<ServiceState>>,
    headers: HeaderMap,
    query: Result<Query<ExplainQuery>, axum::extract::rejection::QueryRejection>,
) -> Response {
    const USAGE: &str =
        "exactly one of pod=NAMESPACE/NAME, node=NAME, nodepool=NAME, nodeclaim=NAME is required\n";
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => {
            return (
                StatusCode::BAD_REQUEST,
                format!("{}\n{USAGE}", error.body_text()),
            )
                .into_response();
        }
    };
    let pod = query
        .pod
        .map(|text| match (&query.namespace, text.contains('/')) {
            (Some(namespace), false) => PodKey::new(namespace.as_str(), text),
            _ => PodKey::parse(&text),
        });
    let asked = [
        pod.map(Subject::Pod),
        query.node.map(|name| Subject::Node(name.into())),
        query.nodepool.map(|name| Subject::Pool(name.into())),
        query.nodeclaim.map(|name| Subject::Claim(name.into())),
    ];
    let mut asked = asked.into_iter().flatten();
    let (Some(subject), None) = (asked.next(), asked.next()) else {
        return (StatusCode::BAD_REQUEST, USAGE).into_response();
    };
    match explain::explain(&shared, &subject) {
        Ok(view) => respond(&headers, view),
        Err(message) => (StatusCode::NOT_FOUND, format!("{message}\n")).into_response(),
    }
}

fn respond(headers: &HeaderMap, view: DebugView) -> Response {
    let wants_text = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/plain"));
    if wants_text {
        (
            [(header::CONTENT_TYPE, "text/plain; charset=utf-8")],
            view.text,
        )
            .into_response()
    } else {
        json(&view.json)
    }
}

fn json(value: &Value) -> Response {
    let mut body = value.to_string();
    body.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests;
