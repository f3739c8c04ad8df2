//! Counts of calls and answers, for metrics and summaries. Labels come from closed lists.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident => $label:literal,)*) => {
        /// One counter per thing that can happen.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $field: Counter,)*
        }

        impl Counters {
            /// Every counter by its label.
            #[must_use]
            pub fn snapshot(&self) -> BTreeMap<&'static str, u64> {
                BTreeMap::from([$(($label, self.$field.get()),)*])
            }
        }
    };
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds some.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

counters! {
    /// Filter calls.
    filter => "filter",
    /// Prioritize calls.
    prioritize => "prioritize",
    /// Preempt calls.
    preempt => "preempt",
    /// Validation reviews.
    validate => "validate",
    /// Defaulting reviews.
    default => "default",
    /// Objects that were converted to another version.
    converted => "converted",
    /// Conversion reviews with an object that could not be converted.
    conversion_failed => "conversion_failed",
    /// Reviews that were denied.
    admission_denied => "admission_denied",
    /// Warnings that were given.
    admission_warnings => "admission_warnings",
    /// Bodies that could not be read.
    malformed => "malformed",
    /// Handlers that panicked; the caller got the harmless answer.
    panics => "panics",
    /// Nodes denied because a fence is around them.
    denied_fenced => "denied_fenced",
    /// Nodes denied because their room is promised to other pods.
    denied_reserved => "denied_reserved",
    /// Filter calls that left only the node on which room is kept for the pod.
    sent_to_own_room => "sent_to_own_room",
    /// Extender calls answered without looking, because the picture was too old or not complete yet.
    passed_stale => "passed_stale",
    /// Extender calls answered without looking, because the pod is exempt.
    passed_exempt => "passed_exempt",
    /// Extender calls in the mode that sends whole Node objects, which costs both sides a lot.
    full_nodes => "full_nodes",
}
