//! Counts of calls and answers, for metrics and summaries. Labels come from closed lists.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::extender::{Denial, FilterExemption};

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident => $label:literal,)*) => {
        /// One counter per thing that can happen.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $field: CallCounter,)*
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
pub struct CallCounter(AtomicU64);

impl CallCounter {
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
    /// Reviews of new pods, which get the scheduler of their namespace.
    scheduler_name => "scheduler_name",
    /// Objects that were converted to another version.
    converted => "converted",
    /// Conversion reviews with an object that could not be converted.
    conversion_failed => "conversion_failed",
    /// Reviews that were denied.
    admission_denied => "admission_denied",
    /// Validation reviews that were answered without facts of the cluster, because the caller did not show that it is an API
    /// server.
    withheld => "withheld",
    /// Warnings that were given.
    admission_warnings => "admission_warnings",
    /// Bodies that could not be read.
    malformed => "malformed",
    /// Handlers that panicked; the caller got the harmless answer.
    panics => "panics",
    /// Nodes denied because a disruption command is about to remove them.
    denied_disrupting => "denied_disrupting",
    /// Nodes denied because the cloud reclaims them.
    denied_interrupted => "denied_interrupted",
    /// Nodes denied because they are being drained.
    denied_draining => "denied_draining",
    /// Nodes denied because their room is nominated for other pods.
    denied_nominated => "denied_nominated",
    /// Nodes denied because their room is reserved for DaemonSet pods to come.
    denied_daemonset_reserved => "denied_daemonset_reserved",
    /// Nodes denied because the pod is nominated to another one.
    denied_nominated_elsewhere => "denied_nominated_elsewhere",
    /// Nodes denied, softly, because they should go and only wait for their pods.
    denied_drifted => "denied_drifted",
    /// Nodes denied, softly, because they end before the pod does.
    denied_expiring => "denied_expiring",
    /// Filter calls in which soft denials were dropped because nothing else was left.
    soft_denials_dropped => "soft_denials_dropped",
    /// Filter calls that left only the node that the pod is nominated to.
    sent_to_nominated_node => "sent_to_nominated_node",
    /// Filter calls about a pod that is nominated to a node that was not among those asked about: it goes where it can.
    nominated_node_absent => "nominated_node_absent",
    /// Extender calls answered without looking, because the snapshot was too old.
    passed_stale => "passed_stale",
    /// Extender calls answered without looking, because not all lists have been read yet.
    passed_unsynced => "passed_unsynced",
    /// Extender calls about a DaemonSet's pod, which is exempt.
    passed_daemon => "passed_daemon",
    /// Extender calls about a node's own pod, which is exempt.
    passed_static_pods => "passed_static_pods",
    /// Extender calls about a pod of the cluster's own priorities, which is exempt.
    passed_critical => "passed_critical",
    /// Extender calls about a pod of this service, which is exempt.
    passed_own_pods => "passed_own_pods",
    /// Annotations written on nodes so that the scheduler looks again at pods that were denied everything.
    wakeups => "wakeups",
    /// Extender calls in the mode that sends whole Node objects, which costs both sides a lot.
    full_nodes => "full_nodes",
}

impl Counters {
    /// A node was denied.
    pub fn count_denial(&self, denial: Denial) {
        match denial {
            Denial::Disrupting => self.denied_disrupting.inc(),
            Denial::Interrupted => self.denied_interrupted.inc(),
            Denial::Draining => self.denied_draining.inc(),
            Denial::Nominated => self.denied_nominated.inc(),
            Denial::DaemonSetReserved => self.denied_daemonset_reserved.inc(),
            Denial::NominatedElsewhere => self.denied_nominated_elsewhere.inc(),
            Denial::Drifted => self.denied_drifted.inc(),
            Denial::Expiring => self.denied_expiring.inc(),
        }
    }

    /// A pod was not checked.
    pub fn count_exemption(&self, exemption: FilterExemption) {
        match exemption {
            FilterExemption::Daemon => self.passed_daemon.inc(),
            FilterExemption::StaticPod => self.passed_static_pods.inc(),
            FilterExemption::Critical => self.passed_critical.inc(),
            FilterExemption::OwnPod => self.passed_own_pods.inc(),
        }
    }
}
