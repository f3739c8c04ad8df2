//! What is held on one place, with its sum: the extender asks for it for every node of every call.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use super::Nomination;
use mortise_apis::resources::Resources;

/// The promises on one place. Never empty.
#[derive(Debug)]
pub struct NodeNominations {
    promises: Vec<Arc<Nomination>>,
    requests: Resources,
    least_priority: i32,
    first_end: Timestamp,
}

impl NodeNominations {
    /// `None` when nothing is held. Cost: their number.
    pub(super) fn of(promises: Vec<Arc<Nomination>>) -> Option<Self> {
        let least_priority = promises.iter().map(|each| each.priority).min()?;
        let first_end = promises.iter().map(|each| each.until).min()?;
        Some(Self {
            requests: sum(promises.iter()),
            least_priority,
            first_end,
            promises,
        })
    }

    /// Every promise.
    pub fn promises(&self) -> impl Iterator<Item = &Arc<Nomination>> {
        self.promises.iter()
    }

    /// What all promises take together, whether or not they still hold.
    #[must_use]
    pub const fn all(&self) -> &Resources {
        &self.requests
    }

    /// Whether some promise holds after `now`.
    #[must_use]
    pub fn holds(&self, now: Timestamp) -> bool {
        now < self.first_end || self.promises.iter().any(|each| now < each.until)
    }

    /// What the promises take that hold after `now` and are of this priority or above. Cost: nothing where that is all of
    /// them, else their number.
    #[must_use]
    pub fn requests(&self, priority: i32, now: Timestamp) -> Cow<'_, Resources> {
        if priority <= self.least_priority && now < self.first_end {
            return Cow::Borrowed(&self.requests);
        }
        Cow::Owned(sum(self.before(priority, now)))
    }

    /// The promises that hold after `now` and are of this priority or above.
    pub fn before(&self, priority: i32, now: Timestamp) -> impl Iterator<Item = &Arc<Nomination>> {
        let promises = self.promises.iter();
        promises.filter(move |each| priority <= each.priority && now < each.until)
    }
}

fn sum<'a>(promises: impl Iterator<Item = &'a Arc<Nomination>>) -> Resources {
    promises.fold(Resources::zero(), |mut sum, each| {
        sum.add_assign(&each.requests);
        sum
    })
}
