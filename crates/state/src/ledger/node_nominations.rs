//! The nominations to one target, with their sum: the extender reads it for every node of every call.

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;

use super::Nomination;
use mortise_apis::resources::Resources;

/// The nominations to one target. Never empty.
#[derive(Debug)]
pub struct NodeNominations {
    nominations: Vec<Arc<Nomination>>,
    requests: Resources,
    least_priority: i32,
    first_end: Timestamp,
}

impl NodeNominations {
    /// `None` for an empty list. Cost: the number of nominations.
    pub(super) fn new(nominations: Vec<Arc<Nomination>>) -> Option<Self> {
        let least_priority = nominations.iter().map(|each| each.priority).min()?;
        let first_end = nominations.iter().map(|each| each.until).min()?;
        Some(Self {
            requests: sum(nominations.iter()),
            least_priority,
            first_end,
            nominations,
        })
    }

    /// Every nomination.
    pub fn nominations(&self) -> impl Iterator<Item = &Arc<Nomination>> {
        self.nominations.iter()
    }

    /// Requests of all nominations, including expired ones.
    #[must_use]
    pub const fn total(&self) -> &Resources {
        &self.requests
    }

    /// Whether any nomination is active after `now`.
    #[must_use]
    pub fn has_active(&self, now: Timestamp) -> bool {
        now < self.first_end || self.nominations.iter().any(|each| now < each.until)
    }

    /// Requests of the nominations that are active after `now` and have at least this priority. Cost: zero if these are all
    /// nominations, otherwise their number.
    #[must_use]
    pub fn requests(&self, priority: i32, now: Timestamp) -> Cow<'_, Resources> {
        if priority <= self.least_priority && now < self.first_end {
            return Cow::Borrowed(&self.requests);
        }
        Cow::Owned(sum(self.active(priority, now)))
    }

    /// The nominations that are active after `now` and have at least this priority.
    pub fn active(&self, priority: i32, now: Timestamp) -> impl Iterator<Item = &Arc<Nomination>> {
        let nominations = self.nominations.iter();
        nominations.filter(move |each| priority <= each.priority && now < each.until)
    }
}

fn sum<'a>(nominations: impl Iterator<Item = &'a Arc<Nomination>>) -> Resources {
    nominations.fold(Resources::zero(), |mut sum, each| {
        sum.add_assign(&each.requests);
        sum
    })
}
