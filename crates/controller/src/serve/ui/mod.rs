//! The live page: one self-contained file. It holds no data of its own; it requests `/api/v1/` and `/debug/`.

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::header;

const PAGE: &str = include_str!("index.html");

/// The page may connect only to this service, and may not be framed. Its script and style are inline.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The routes of the page.
pub(crate) fn routes() -> Router {
    Router::new().route("/ui/", get(page))
}

async fn page() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::CACHE_CONTROL, "no-cache"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, PAGE).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let foreign = ["src=", "@import", "url(", "http://", "https://"];
        let allowed = ["http://www.w3.org/2000/svg"];
        let page = allowed
            .iter()
            .fold(PAGE.to_owned(), |page, allowed| page.replace(allowed, ""));
        for each in foreign {
            assert!(
                !page.contains(each),
                "the page refers to something outside: {each}"
            );
        }
        assert!(
            !page.contains("innerHTML"),
            "names and texts come from the cluster: they are text, never markup"
        );
    }

    #[test]
    fn every_verdict_has_a_place_in_the_list() {
        use mortise_engine::record::Verdict;
        let verdicts = [
            Verdict::Nominated,
            Verdict::NodePlanned,
            Verdict::Unschedulable,
            Verdict::Ignored,
            Verdict::Launched,
            Verdict::LaunchFailed,
            Verdict::Registered,
            Verdict::Initialized,
            Verdict::Disrupted,
            Verdict::Refused,
            Verdict::Blocked,
            Verdict::Abandoned,
            Verdict::Evicted,
            Verdict::Removed,
            Verdict::Notified,
            Verdict::Condition,
        ];
        for verdict in verdicts {
            assert!(
                PAGE.contains(&format!("\"{}\"", verdict.label())),
                "{} is in no group of the page",
                verdict.label()
            );
        }
    }
}
