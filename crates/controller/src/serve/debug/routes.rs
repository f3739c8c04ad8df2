//! The table of paths that are read with GET: the router, the index, the labels of request metrics and the documentation
//! derive from it.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderMap, StatusCode, Uri};
use mortise_webhooks::Counters;
use mortise_webhooks::extender::ExtenderState;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::table::TextTable;
use super::{
    DebugView, buffers, capacity, costs, csv, decisions, disruption, extender, json, pauses,
    requests, respond, stream, subject, views,
};
use crate::service_state::ServiceState;

/// Every path that is read with GET, in the order of the index.
pub const DEBUG_ROUTES: &[DebugRoute] = &[
    DebugRoute {
        path: "/debug",
        query: &[],
        shows: "these paths",
        view: View::Page(|_, _| Ok(index())),
    },
    DebugRoute {
        path: "/debug/config",
        query: &[],
        shows: "settings in force",
        view: View::Page(|state, _| Ok(views::config(&state.shared))),
    },
    DebugRoute {
        path: "/debug/snapshot",
        query: &[],
        shows: "generation, age, counts, watches and catalogs of the current snapshot",
        view: View::Page(|state, _| Ok(views::snapshot(&state.shared))),
    },
    DebugRoute {
        path: "/debug/pending",
        query: &[],
        shows: "pending pods: age, requests, expected node, stalled or not (unschedulable for a minute while no node is being launched), or why not",
        view: View::Page(|state, _| Ok(views::pending(&state.shared))),
    },
    DebugRoute {
        path: "/debug/nominations",
        query: &[],
        shows: "nominations, expected NodeClaims, fences",
        view: View::Page(|state, _| Ok(views::nominations(&state.shared))),
    },
    DebugRoute {
        path: "/debug/capacity",
        query: &[],
        shows: "capacity that the cloud refused lately (what, why, and when it is asked for again), and capacity reservations with unused instances",
        view: View::Page(|state, _| Ok(capacity::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/costs",
        query: &[],
        shows: "what the nodes of NodePools cost, and the pods of namespaces and of values of a label: per hour now, in this hour, in 24 hours and 7 days (since this process began), and what the same instance types cost on-demand",
        view: View::Page(|state, _| Ok(costs::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/costs.csv",
        query: &[],
        shows: "the same for each hour of the last 7 days that is over, as comma-separated values",
        view: View::Csv(costs::csv_of_hours),
    },
    DebugRoute {
        path: "/debug/buffers",
        query: &[],
        shows: "capacity buffers: pods that room is kept for, how many of them fit on ready and on coming nodes and how many nowhere (on the replica that leads), until when its schedule is closed, what it has learned of its workload, or why the buffer is not served",
        view: View::Page(|state, _| Ok(buffers::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/requests",
        query: &[],
        shows: "ProvisioningRequests: whether room is searched or booked and until when, how many pods have no room in use yet and how many of these a place (on the replica that leads), or why there is none",
        view: View::Page(|state, _| Ok(requests::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/pauses",
        query: &[],
        shows: "where voluntary disruption is paused: the cluster, NodePoolPolicies, NodePools, nodes; until when, and why",
        view: View::Page(|state, _| Ok(pauses::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/disruption",
        query: &[],
        shows: "what keeps each node from voluntary disruption and what would free it, when it may be consolidated and expires, the budgets of NodePools, and nodes whose drain would never end by itself",
        view: View::Page(|state, _| Ok(disruption::view(&state.shared))),
    },
    DebugRoute {
        path: "/debug/decisions",
        query: &["limit"],
        shows: "the newest decisions and refusals with their reasons; 100 by default, at most 1,000",
        view: View::Page(decisions::view),
    },
    DebugRoute {
        path: "/debug/explain",
        query: &["pod", "namespace", "node", "nodepool", "nodeclaim"],
        shows: "everything about one object; a pod is NAMESPACE/NAME, or NAME with its namespace",
        view: View::Page(subject::view),
    },
    DebugRoute {
        path: "/debug/extender",
        query: &["limit"],
        shows: "schedulers that call, on a replica that does not lead the address of the leader, binds without a call, failed TLS handshakes, the newest calls and all counts",
        view: View::Page(extender::view),
    },
    DebugRoute {
        path: "/api/v1/state",
        query: &[],
        shows: "state of the cluster for the live page",
        view: View::Json(views::state),
    },
    DebugRoute {
        path: "/api/v1/stream",
        query: &[],
        shows: "the same and its changes, as server-sent events",
        view: View::Stream,
    },
];

/// One path.
#[derive(Debug)]
pub struct DebugRoute {
    /// Path.
    pub path: &'static str,
    /// Names of the parameters that it accepts.
    pub query: &'static [&'static str],
    /// What it shows, in a line.
    pub shows: &'static str,
    view: View,
}

/// What computes the response of a path.
#[derive(Clone, Copy, Debug)]
enum View {
    /// JSON or text.
    Page(fn(&DebugState, &Uri) -> Result<DebugView, DebugRefusal>),
    /// Comma-separated values.
    Csv(fn(&ServiceState) -> String),
    /// Data of the live page.
    Json(fn(&ServiceState) -> Value),
    /// Data of the live page, and its changes.
    Stream,
}

/// What responses are computed from.
#[derive(Clone, Debug)]
pub(crate) struct DebugState {
    pub(crate) shared: Arc<ServiceState>,
    pub(crate) extender: Arc<ExtenderState>,
    pub(crate) counters: Arc<Counters>,
}

/// Why there is no view: the request is wrong, or its subject does not exist.
#[derive(Debug)]
pub(super) enum DebugRefusal {
    BadRequest(String),
    NotFound(String),
}

impl DebugRefusal {
    fn into_response(self) -> Response {
        let (status, message) = match self {
            Self::BadRequest(message) => (StatusCode::BAD_REQUEST, message),
            Self::NotFound(message) => (StatusCode::NOT_FOUND, message),
        };
        (status, format!("{message}\n")).into_response()
    }
}

impl DebugRoute {
    /// The path with the parameters that it accepts: `/debug/decisions?limit=`.
    #[must_use]
    pub fn usage(&self) -> String {
        let query: Vec<String> = self.query.iter().map(|name| format!("{name}=")).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.path, query.join("|"))
    }
}

/// The parameters of a request.
///
/// # Errors
/// A parameter is unknown or invalid; the text says which.
pub(super) fn query<T: DeserializeOwned>(uri: &Uri) -> Result<T, String> {
    Query::try_from_uri(uri)
        .map(|Query(query)| query)
        .map_err(|error| error.body_text())
}

/// The paths of the table.
pub(crate) fn router(state: DebugState) -> Router {
    let routes = DEBUG_ROUTES.iter();
    let router = routes.fold(Router::new(), |router, route| match route.view {
        View::Page(view) => router.route(
            route.path,
            get(
                move |State(state): State<DebugState>, uri: Uri, headers: HeaderMap| async move {
                    view(&state, &uri)
                        .map_or_else(DebugRefusal::into_response, |view| respond(&headers, view))
                },
            ),
        ),
        View::Json(view) => router.route(
            route.path,
            get(move |State(state): State<DebugState>| async move { json(&view(&state.shared)) }),
        ),
        View::Csv(view) => router.route(
            route.path,
            get(move |State(state): State<DebugState>| async move { csv(view(&state.shared)) }),
        ),
        View::Stream => router.route(
            route.path,
            get(|State(state): State<DebugState>| stream::stream(state.shared)),
        ),
    });
    router.with_state(state)
}

/// The table itself.
fn index() -> DebugView {
    let mut text = TextTable::new(&["PATH", "SHOWS"]);
    let mut paths = Vec::new();
    for route in DEBUG_ROUTES {
        text.row(vec![route.usage(), route.shows.to_owned()]);
        paths.push(
            serde_json::json!({ "path": route.path, "query": route.query, "shows": route.shows }),
        );
    }
    DebugView {
        json: serde_json::json!({ "paths": paths }),
        text: text.render(""),
    }
}
