//! The AdmissionReview envelope: one request in, one answer out, whatever the body.

use mortise_apis::deprecated_fields::kind_advice;
use mortise_apis::issues::MOST_FAULTS;
use mortise_apis::node_class::NodeClassRegistry;
use mortise_apis::schema::absent::drop_nulls;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::finding::AdmissionFinding;
use super::text::shorten;
use crate::Counters;

/// Most warnings of an answer: API servers cut what is longer than 4 KiB in sum, and no user reads more.
const MOST_WARNINGS: usize = 10;

/// The part of the request that is used.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest {
    /// To be echoed.
    pub uid: String,
    /// Group, version and kind of the object.
    pub kind: GroupVersionKind,
    /// Group, version and kind that the client sent, before the API server converted the object.
    pub request_kind: Option<GroupVersionKind>,
    /// Object name; may be empty on create.
    pub name: String,
    /// Namespace; empty for what is not in one.
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The object; null on delete. Names whose value is `null` are left out, as the API server leaves them out.
    #[serde(deserialize_with = "read_without_nulls")]
    pub object: Value,
    /// The object before an update or a deletion, likewise.
    #[serde(deserialize_with = "read_without_nulls")]
    pub old_object: Value,
    /// Nothing may be remembered of this request.
    pub dry_run: Option<bool>,
}

fn read_without_nulls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let mut object = Value::deserialize(deserializer)?;
    drop_nulls(&mut object);
    Ok(object)
}

impl AdmissionRequest {
    /// Something is to be checked: the object is made, or its spec is changed, and it is not on its way out.
    /// Finalizers, labels and status of any object can always be written.
    #[must_use]
    pub fn changes_spec(&self) -> bool {
        let deleting = self
            .object
            .pointer("/metadata/deletionTimestamp")
            .is_some_and(|time| !time.is_null());
        let same = self.operation == "UPDATE"
            && !self.old_object.is_null()
            && self.object.get("spec") == self.old_object.get("spec");
        self.operation != "DELETE" && !self.object.is_null() && !deleting && !same
    }

    /// What to write instead of the version that the client sent, when that is of before.
    #[must_use]
    pub fn newer_version(&self, classes: &NodeClassRegistry) -> Option<String> {
        self.request_kind
            .as_ref()
            .unwrap_or(&self.kind)
            .newer_version(classes)
    }

    /// The object before an update.
    #[must_use]
    pub fn before(&self) -> Option<&Value> {
        (self.operation == "UPDATE" && !self.old_object.is_null()).then_some(&self.old_object)
    }
}

/// Group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    /// API group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

impl GroupVersionKind {
    /// What to write instead of a version of before; `None` for one that is served.
    #[must_use]
    pub fn newer_version(&self, classes: &NodeClassRegistry) -> Option<String> {
        kind_advice(
            classes,
            &format!("{}/{}", self.group, self.version),
            &self.kind,
        )
    }
}

/// What is answered.
#[derive(Debug, Default, PartialEq)]
pub struct AdmissionResult {
    /// Why it is refused; empty = allowed.
    pub denied: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// JSON patch operations.
    pub patch: Vec<Value>,
    /// The same as `denied` and `warnings`, piece by piece.
    pub findings: Vec<AdmissionFinding>,
}

#[derive(Deserialize)]
struct AdmissionReview {
    #[serde(rename = "apiVersion", default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<AdmissionRequest>,
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
pub fn respond_to_review(
    body: &[u8],
    counters: &Counters,
    decide: impl FnOnce(&AdmissionRequest) -> AdmissionResult,
) -> ReviewAnswer {
    let read: Result<AdmissionReview, String> =
        serde_json::from_slice(body).map_err(|error| error.to_string());
    let (api_version, kind, request) = match read {
        Ok(AdmissionReview {
            api_version,
            kind,
            request: Some(request),
        }) => (api_version, kind, request),
        Ok(_) => return malformed_review(counters, "the review has no request"),
        Err(error) => return malformed_review(counters, &error),
    };
    let answer = decide(&request);
    let mut warnings: Vec<String> = answer.warnings.iter().map(|text| shorten(text)).collect();
    if warnings.len() > MOST_WARNINGS {
        let more = warnings.len() - (MOST_WARNINGS - 1);
        warnings.truncate(MOST_WARNINGS - 1);
        warnings.push(format!("and {more} more warnings"));
    }
    counters.admission_warnings.add(warnings.len() as u64);
    let mut response = json!({ "uid": request.uid, "allowed": answer.denied.is_empty() });
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !answer.denied.is_empty() {
        counters.admission_denied.inc();
        response["status"] =
            json!({ "code": 422, "reason": "Invalid", "message": denial_message(&answer.denied) });
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

/// One answer to a body that cannot be read.
fn malformed_review(counters: &Counters, error: &str) -> ReviewAnswer {
    counters.malformed.inc();
    let message = format!("body is not an AdmissionReview of admission.k8s.io/v1: {error}");
    ReviewAnswer {
        api_version: "admission.k8s.io/v1".to_owned(),
        kind: "AdmissionReview".to_owned(),
        response: json!({ "uid": "", "allowed": false, "status": { "code": 400, "reason": "BadRequest", "message": message } }),
    }
}

/// One reason stands by itself; several are a list.
fn denial_message(denied: &[String]) -> String {
    match denied {
        [only] => only.clone(),
        several => {
            let or_more = if several.len() < MOST_FAULTS {
                ""
            } else {
                " (or more)"
            };
            let mut text = format!("{} errors{or_more}:", several.len());
            for each in several {
                text.push_str("\n- ");
                text.push_str(each);
            }
            text
        }
    }
}
