//! The ConversionReview of `apiextensions.k8s.io/v1`: objects of one version in, the same objects in another out.
//!
//! An API server asks for every object that it stores in another version than a client wants, in lists too, and has no
//! failure policy: so the answer depends on nothing but the request, and says which object cannot be converted, and why.
//!
//! A list of everything comes in one body. It is read object by object: at no time is there more in memory than the two
//! texts and one object, and nothing behind an object that cannot be converted is read.

use std::fmt;

use mortise_apis::conversion;
use mortise_apis::node_class::NodeClassRegistry;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use crate::Counters;
use crate::limits::OBJECT;

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "ConversionReview";

/// Most objects of a body: its bytes hold no more of the smallest that an API server stores.
const MOST_OBJECTS: usize = 100_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConversionReview<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(borrow, default)]
    objects: Objects<'a>,
}

/// The objects as they are written; none of them has been read.
#[derive(Default)]
struct Objects<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawObjectsVisitor)
    }
}

struct RawObjectsVisitor;

impl<'de> Visitor<'de> for RawObjectsVisitor {
    type Value = Objects<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    /// As Go writes an empty list.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Objects::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut objects = Vec::new();
        while let Some(object) = list.next_element()? {
            if objects.len() == MOST_OBJECTS {
                let most = format!("more than {MOST_OBJECTS} objects");
                return Err(A::Error::custom(most));
            }
            objects.push(object);
        }
        Ok(Objects(objects))
    }
}

/// The answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Converted {
    api_version: &'static str,
    kind: &'static str,
    response: Response,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    converted_objects: Vec<Box<RawValue>>,
    result: Outcome,
}

#[derive(Debug, Serialize)]
struct Outcome {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Converts every object of a review, in their order. One that cannot be converted fails the review, with a message that
/// names the object, the field and the value.
///
/// # Errors
/// The body is no ConversionReview of `apiextensions.k8s.io/v1`; the text says where.
pub fn convert(
    classes: &NodeClassRegistry,
    body: &[u8],
    counters: &Counters,
) -> Result<Converted, String> {
    let wrong = |error: String| {
        counters.malformed.inc();
        format!("body is not a {KIND} of {API_VERSION}: {error}")
    };
    let review: ConversionReview<'_> =
        serde_json::from_slice(body).map_err(|error| wrong(error.to_string()))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(wrong(format!(
            "it is a {:?} of {:?}",
            review.kind, review.api_version
        )));
    }
    let Request {
        uid,
        desired,
        objects: Objects(objects),
    } = review.request;
    let mut converted = Vec::with_capacity(objects.len());
    let mut failed = None;
    for (position, object) in objects.into_iter().enumerate() {
        match convert_object(classes, object, &desired) {
            Ok(object) => converted.push(object),
            Err(FailedObject { label, problem }) => {
                let label = label.unwrap_or_else(|| format!("object {position}"));
                failed = Some(format!("{label}: {problem}"));
                break;
            }
        }
    }
    let result = match failed {
        None => {
            counters.converted.add(converted.len() as u64);
            Outcome {
                status: "Success",
                message: None,
            }
        }
        Some(message) => {
            counters.conversion_failed.inc();
            converted.clear();
            Outcome {
                status: "Failure",
                message: Some(message),
            }
        }
    };
    Ok(Converted {
        api_version: API_VERSION,
        kind: KIND,
        response: Response {
            uid,
            converted_objects: converted,
            result,
        },
    })
}

/// Why an object is not converted.
struct FailedObject {
    /// What the object calls itself; `None` where it was not read.
    label: Option<String>,
    problem: String,
}

/// Reads, converts and writes one object.
fn convert_object(
    classes: &NodeClassRegistry,
    written: &RawValue,
    desired: &str,
) -> Result<Box<RawValue>, FailedObject> {
    let invalid = |problem: String| FailedObject {
        label: None,
        problem,
    };
    OBJECT
        .check(written.get().as_bytes())
        .map_err(|error| invalid(error.to_string()))?;
    let object: Value =
        serde_json::from_str(written.get()).map_err(|error| invalid(error.to_string()))?;
    let label = object_label(&object);
    let failed = |problem: String| FailedObject {
        label: Some(label.clone()),
        problem,
    };
    let converted =
        conversion::convert(classes, object, desired).map_err(|error| failed(error.to_string()))?;
    to_raw_value(&converted).map_err(|error| failed(error.to_string()))
}

fn object_label(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    match (text("/kind"), text("/metadata/name")) {
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (Some(kind), None) => format!("{kind} without a name"),
        (None, Some(name)) => format!("object {name} without a kind"),
        (None, None) => "object without kind and name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn review(objects: &Value, desired: &str) -> Result<Value, String> {
        let body = json!({
            "apiVersion": API_VERSION,
            "kind": KIND,
            "request": { "uid": "u-1", "desiredAPIVersion": desired, "objects": objects },
        });
        let classes = NodeClassRegistry::default();
        convert(&classes, body.to_string().as_bytes(), &Counters::default())
            .map(|answer| serde_json::to_value(answer).unwrap())
    }

    fn pool(name: &str, policy: &Value) -> Value {
        json!({
            "apiVersion": "karpenter.sh/v1beta1",
            "kind": "NodePool",
            "metadata": { "name": name },
            "spec": { "disruption": { "consolidationPolicy": policy } },
        })
    }

    #[test]
    fn objects_come_back_in_their_order() {
        let objects = json!([
            pool("b", &json!("WhenEmpty")),
            pool("a", &json!("WhenUnderutilized"))
        ]);
        let answer = review(&objects, "karpenter.sh/v1").unwrap();
        assert_eq!(answer["apiVersion"], API_VERSION);
        assert_eq!(answer["kind"], KIND);
        let response = &answer["response"];
        assert_eq!(response["uid"], "u-1");
        assert_eq!(response["result"], json!({ "status": "Success" }));
        let converted = response["convertedObjects"].as_array().unwrap();
        let names: Vec<&Value> = converted
            .iter()
            .map(|each| &each["metadata"]["name"])
            .collect();
        assert_eq!(names, ["b", "a"]);
        assert!(
            converted
                .iter()
                .all(|each| each["apiVersion"] == "karpenter.sh/v1")
        );
    }

    #[test]
    fn an_object_that_cannot_be_converted_fails_the_review() {
        let objects = json!([pool("good", &json!("WhenEmpty")), pool("bad", &json!(7))]);
        let answer = review(&objects, "karpenter.sh/v1").unwrap();
        let response = &answer["response"];
        assert_eq!(response["uid"], "u-1");
        assert_eq!(response["result"]["status"], "Failure");
        assert_eq!(response["convertedObjects"], json!([]));
        let message = response["result"]["message"].as_str().unwrap();
        for part in ["NodePool bad", "spec.disruption.consolidationPolicy", "7"] {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }

    #[test]
    fn bodies_that_are_no_reviews() {
        let admission = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": { "uid": "", "desiredAPIVersion": "" } });
        for (body, part) in [
            ("", "EOF"),
            ("{}", "apiVersion"),
            ("[1", "invalid"),
            (&admission.to_string(), "AdmissionReview"),
        ] {
            let counters = Counters::default();
            let classes = NodeClassRegistry::default();
            let error = convert(&classes, body.as_bytes(), &counters).unwrap_err();
            assert!(
                error.contains(part) && error.contains(KIND),
                "{body}: {error}"
            );
            assert_eq!(counters.malformed.get(), 1);
        }
    }
}
