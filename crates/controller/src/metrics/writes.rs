//! Labels of a write request to the API server: verb, resource and subresource, from closed lists.

use http::Method;

use super::labels::ApiWrite;

/// Resources with a label of their own; node classes share one, and so do all others.
const RESOURCES: [&str; 12] = [
    "nodeclaims",
    "nodepools",
    "nodes",
    "pods",
    "events",
    "leases",
    "secrets",
    "nodeoverlays",
    "capacitybuffers",
    "tokenreviews",
    "subjectaccessreviews",
    "selfsubjectaccessreviews",
];
const SUBRESOURCES: [&str; 3] = ["status", "eviction", "scale"];

/// The entry of a list that equals this text.
fn word(list: &[&'static str], text: &str) -> Option<&'static str> {
    list.iter().copied().find(|each| *each == text)
}

/// The labels of a write request; `None` for a read.
pub(super) fn parse_request(method: &Method, path: &str) -> Option<ApiWrite> {
    let verb = match *method {
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => return None,
    };
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    // "api/v1" or "apis/GROUP/VERSION"
    let prefix = if parts.next() == Some("api") { 1 } else { 2 };
    for _ in 0..prefix {
        parts.next();
    }
    let mut resource = parts.next().unwrap_or_default();
    if resource == "namespaces" {
        let mut of_namespace = parts.clone();
        of_namespace.next();
        if let Some(inner) = of_namespace.next() {
            resource = inner;
            parts = of_namespace;
        }
    }
    let of_class = || resource.ends_with("nodeclasses").then_some("nodeclasses");
    parts.next(); // the name
    let subresource = parts.next().unwrap_or_default();
    Some(ApiWrite {
        verb,
        resource: word(&RESOURCES, resource)
            .or_else(of_class)
            .unwrap_or("other"),
        subresource: word(&SUBRESOURCES, subresource).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn case(method: Method, path: &str, want: Option<(&str, &str, &str)>) {
        let got = parse_request(&method, path);
        let got = got
            .as_ref()
            .map(|each| (each.verb, each.resource, each.subresource));
        assert_eq!(got, want, "{method} {path}");
    }

    #[test]
    fn requests_have_labels_of_closed_lists() {
        let claims = "/apis/karpenter.sh/v1/nodeclaims";
        case(Method::GET, claims, None);
        case(Method::POST, claims, Some(("POST", "nodeclaims", "")));
        case(
            Method::PATCH,
            "/apis/karpenter.sh/v1/nodeclaims/a/status",
            Some(("PATCH", "nodeclaims", "status")),
        );
        case(
            Method::DELETE,
            "/api/v1/nodes/n",
            Some(("DELETE", "nodes", "")),
        );
        case(
            Method::POST,
            "/api/v1/namespaces/a/pods/p/eviction",
            Some(("POST", "pods", "eviction")),
        );
        case(
            Method::PUT,
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/l",
            Some(("PUT", "leases", "")),
        );
        case(
            Method::PATCH,
            "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/c/status",
            Some(("PATCH", "nodeclasses", "status")),
        );
        case(
            Method::PATCH,
            "/api/v1/namespaces/a",
            Some(("PATCH", "other", "")),
        );
        case(Method::POST, "/", Some(("POST", "other", "")));
    }
}
