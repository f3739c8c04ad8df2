//! How many pods a buffer keeps room for.

use super::failure::BufferFailure;
use mortise_apis::karpenter::capacitybuffer::CapacityBufferSpec;
use mortise_apis::resources::{Limits, Resources};

/// Most pods of one buffer. Each costs some hundred bytes and a microsecond in every pass.
pub const MOST_PODS: i64 = 10_000;

/// The number of pods: the larger of `replicas` and `percentage` of the workload's replicas, rounded up and at least one if
/// both factors are positive, but no more than fit into `limits`. Without either of them, as many as fit into `limits`.
///
/// `scalable`: replicas of the workload; `None` with `podTemplateRef`, where a percentage has no effect. `learned`: the pods that
/// its size follows from as well, as far as a buffer applies what it learned.
///
/// # Errors
/// The limits cannot be read, or leave the size open; or the buffer is too large.
pub fn buffer_size(
    spec: &CapacityBufferSpec,
    scalable: Option<i32>,
    learned: Option<i64>,
    requests: &Resources,
) -> Result<i64, BufferFailure> {
    let fixed = spec.replicas.map(|count| i64::from(count).max(0));
    let share = spec
        .percentage
        .zip(scalable)
        .map(|(percent, replicas)| i64::from(percent.max(0)) * i64::from(replicas.max(0)))
        .map(|hundredths| hundredths.saturating_add(99) / 100);
    let wanted = fixed.into_iter().chain(share).chain(learned).max();
    let limit = limit(spec, requests)?;
    let size = match (wanted, limit) {
        (Some(wanted), Limit::Pods(most)) => wanted.min(most),
        (Some(wanted), Limit::None | Limit::OfOthers(_)) => wanted,
        (None, Limit::Pods(most)) => most,
        (None, Limit::None) => 0,
        (None, Limit::OfOthers(names)) => return Err(BufferFailure::UnlimitedPods(names)),
    };
    if size > MOST_PODS {
        return Err(BufferFailure::TooManyPods(size));
    }
    Ok(size)
}

/// What limits say about the number of pods.
enum Limit {
    /// There are none.
    None,
    /// At most this many fit.
    Pods(i64),
    /// They limit resources that the pods do not request.
    OfOthers(String),
}

fn limit(spec: &CapacityBufferSpec, requests: &Resources) -> Result<Limit, BufferFailure> {
    let Some(list) = spec.limits.as_ref().filter(|list| !list.is_empty()) else {
        return Ok(Limit::None);
    };
    let limits =
        Limits::from_api(list).map_err(|error| BufferFailure::InvalidLimits(error.to_string()))?;
    let fit = limits.iter().filter_map(|(name, most)| {
        let request = requests.get(name);
        (request > 0).then(|| most.max(0) / request)
    });
    Ok(match fit.min() {
        Some(pods) => Limit::Pods(pods),
        None => {
            let names: Vec<&str> = list.keys().map(String::as_str).collect();
            Limit::OfOthers(names.join(", "))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn size(spec: Value, scalable: Option<i32>) -> Result<i64, String> {
        size_of_both(spec, scalable, None)
    }

    fn size_of_both(
        spec: Value,
        scalable: Option<i32>,
        learned: Option<i64>,
    ) -> Result<i64, String> {
        let spec: CapacityBufferSpec = serde_json::from_value(spec).unwrap();
        let requests = Resources::new(500, 1 << 30).with("pods", 1);
        buffer_size(&spec, scalable, learned, &requests).map_err(|failure| failure.to_string())
    }

    /// Every combination of present and absent sizes, by hand.
    #[test]
    fn the_larger_of_both_sizes_counts_and_limits_cap_it() {
        let two_cpus = || json!({ "cpu": "2" });
        let cases = [
            (json!({}), None, 0),
            (json!({}), Some(10), 0),
            (json!({ "replicas": 3 }), None, 3),
            (json!({ "replicas": 0 }), None, 0),
            (json!({ "replicas": 3 }), Some(10), 3),
            (json!({ "percentage": 20 }), Some(10), 2),
            (json!({ "percentage": 21 }), Some(10), 3),
            (json!({ "percentage": 1 }), Some(1), 1),
            (json!({ "percentage": 250 }), Some(2), 5),
            (json!({ "percentage": 20 }), Some(0), 0),
            (json!({ "percentage": 0 }), Some(10), 0),
            (json!({ "replicas": 3, "percentage": 20 }), Some(10), 3),
            (json!({ "replicas": 1, "percentage": 20 }), Some(10), 2),
            (json!({ "replicas": 2, "percentage": 20 }), Some(0), 2),
            (json!({ "limits": two_cpus() }), None, 4),
            (json!({ "limits": two_cpus() }), Some(10), 4),
            (
                json!({ "limits": { "cpu": "2", "memory": "3Gi" } }),
                None,
                3,
            ),
            (json!({ "limits": { "cpu": "2", "pods": "1" } }), None, 1),
            (json!({ "limits": { "cpu": "499m" } }), None, 0),
            (json!({ "limits": { "cpu": "0" } }), None, 0),
            (json!({ "limits": {} }), None, 0),
            (json!({ "replicas": 3, "limits": two_cpus() }), None, 3),
            (json!({ "replicas": 9, "limits": two_cpus() }), None, 4),
            (json!({ "replicas": 0, "limits": two_cpus() }), None, 0),
            (
                json!({ "percentage": 90, "limits": two_cpus() }),
                Some(10),
                4,
            ),
            (
                json!({ "percentage": 10, "limits": two_cpus() }),
                Some(10),
                1,
            ),
            (
                json!({ "percentage": 10, "limits": two_cpus() }),
                Some(0),
                0,
            ),
            (json!({ "percentage": 10, "limits": two_cpus() }), None, 4),
            (
                json!({ "replicas": 1, "percentage": 90, "limits": two_cpus() }),
                Some(10),
                4,
            ),
            (
                json!({ "replicas": 9, "percentage": 10, "limits": { "nvidia.com/gpu": "1" } }),
                Some(10),
                9,
            ),
        ];
        for (spec, scalable, want) in cases {
            let found = size(spec.clone(), scalable);
            assert_eq!(found, Ok(want), "{spec} of {scalable:?}");
        }
    }

    #[test]
    fn what_was_learned_is_one_more_size() {
        let cases = [
            (json!({}), Some(7), 7),
            (json!({ "replicas": 9 }), Some(7), 9),
            (json!({ "percentage": 50 }), Some(7), 7),
            (json!({ "percentage": 100 }), Some(7), 10),
            (json!({ "limits": { "cpu": "2" } }), None, 4),
            (json!({ "limits": { "cpu": "2" } }), Some(0), 0),
            (json!({ "limits": { "cpu": "2" } }), Some(7), 4),
        ];
        for (spec, learned, want) in cases {
            let found = size_of_both(spec.clone(), Some(10), learned);
            assert_eq!(found, Ok(want), "{spec} and {learned:?}");
        }
    }

    #[test]
    fn a_size_that_cannot_be_told_is_an_error_that_names_the_field() {
        let text = |spec: Value| size(spec, None).unwrap_err();
        assert_eq!(
            text(json!({ "limits": { "nvidia.com/gpu": "1" } })),
            "spec.limits is the only size, and the pods request no nvidia.com/gpu; set replicas, or limit a resource that they request"
        );
        assert_eq!(
            text(json!({ "replicas": 10_001 })),
            "the buffer is for 10001 pods; at most 10000 are allowed, lower replicas, percentage or limits"
        );
        let text = text(json!({ "replicas": 1, "limits": { "cpu": "two" } }));
        assert!(
            text.starts_with("spec.limits: resource \"cpu\": "),
            "{text}"
        );
    }
}
