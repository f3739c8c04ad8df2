//! The AdmissionReview envelope: one request in, one answer out, whatever the body.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Counters;

/// Longest warning: API servers cut what is longer in sum, and terminals wrap it.
const WARNING_MAX: usize = 120;

/// The part of the request that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// To be echoed.
    pub uid: String,
    /// Group, version and kind of the object.
    pub kind: Kind,
    /// Object name; may be empty on create.
    pub name: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The object; null on delete.
    pub object: Value,
    /// The object before an update or a deletion.
    pub old_object: Value,
    /// Nothing may be remembered of this request.
    pub dry_run: Option<bool>,
}

/// Group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Kind {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// What is answered.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// Why it is refused; empty = allowed.
    pub denied: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// JSON patch operations.
    pub patch: Vec<Value>,
}

#[derive(Deserialize)]
struct Review {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request>,
}

/// The answer envelope.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReviewAnswer {
    api_version: String,
    kind: String,
    response: Value,
}

/// Reads the envelope, asks, and wraps the answer. A body that is no review is answered with a refusal that says so: a
/// well-formed answer is what the API server can show to a user.
#[must_use]
pub fn review(
    body: &[u8],
    counters: &Counters,
    ask: impl FnOnce(&Request) -> Answer,
) -> ReviewAnswer {
    let read: Result<Review, String> =
        serde_json::from_slice(body).map_err(|error| error.to_string());
    let (api_version, kind, request) = match read {
        Ok(Review {
            api_version,
            kind,
            request: Some(request),
        }) => (api_version, kind, request),
        Ok(_) => return invalid(counters, "the review has no request"),
        Err(error) => return invalid(counters, &error),
    };
    let answer = ask(&request);
    let warnings: Vec<String> = answer.warnings.iter().map(|text| shortened(text)).collect();
    counters.admission_warnings.add(warnings.len() as u64);
    let mut response = json!({ "uid": request.uid, "allowed": answer.denied.is_empty() });
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !answer.denied.is_empty() {
        counters.admission_denied.inc();
        response["status"] =
            json!({ "code": 422, "reason": "Invalid", "message": answer.denied.join("; ") });
    } else if !answer.patch.is_empty() {
        use base64::Engine as _;
        let patch = Value::Array(answer.patch).to_string();
        response["patchType"] = json!("JSONPatch");
        response["patch"] = json!(base64::engine::general_purpose::STANDARD.encode(patch));
    }
    let or = |text: String, default: &str| {
        if text.is_empty() {
            default.to_owned()
        } else {
            text
        }
    };
    ReviewAnswer {
        api_version: or(api_version, "admission.k8s.io/v1"),
        kind: or(kind, "AdmissionReview"),
        response,
    }
}

fn invalid(counters: &Counters, error: &str) -> ReviewAnswer {
    counters.malformed.inc();
    let message = format!("body is not an AdmissionReview of admission.k8s.io/v1: {error}");
    ReviewAnswer {
        api_version: "admission.k8s.io/v1".to_owned(),
        kind: "AdmissionReview".to_owned(),
        response: json!({ "uid": "", "allowed": false, "status": { "code": 400, "reason": "BadRequest", "message": message } }),
    }
}

/// Cuts at a character, not in one.
fn shortened(text: &str) -> String {
    if text.chars().count() <= WARNING_MAX {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(WARNING_MAX - 3).collect();
    short.push_str("...");
    short
}
