//! Debug views for users and the page: cluster state, nominations, decisions and their reasons.
//!
//! Every path responds with JSON, or with text for `Accept: text/plain`. Responses are computed from the snapshot, the ledger
//! and the decision log; none contains Secrets or values of environment variables, because the watches do not keep those.

mod buffers;
mod capacity;
mod costs;
mod decisions;
mod deletion_order;
mod disruption;
mod explain;
mod extender;
mod handing_over;
mod node;
mod pauses;
mod policy;
mod quantities;
mod requests;
mod routes;
mod stream;
mod subject;
mod table;
mod views;

use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, header};
use serde_json::Value;

use crate::service_state::ServiceState;
pub use routes::{DEBUG_ROUTES, DebugRoute};
pub(crate) use routes::{DebugState, router};
pub use subject::Subject;

/// A response in both forms.
#[derive(Clone, Debug)]
pub struct DebugView {
    /// JSON, for programs.
    pub json: Value,
    /// Text, for users; ends with a line feed.
    pub text: String,
}

/// Facts about an object, and the reasons for its state.
///
/// # Errors
/// There is no such object; the text names similar ones.
pub fn explanation(shared: &ServiceState, subject: &Subject) -> Result<DebugView, String> {
    explain::explain(shared, subject)
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

fn csv(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response()
}

fn json(value: &Value) -> Response {
    let mut body = value.to_string();
    body.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests;
