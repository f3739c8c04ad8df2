//! What is remembered of instances, so that few calls ask for it again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mortise_cloudprovider::{CapacityType, UnavailableOffering};
use tokio::time::Instant;

use crate::instances::record::InstanceRecord;

/// How long after its launch an instance that cannot be found is taken for "not visible yet" instead of "gone".
const VISIBLE: Duration = Duration::from_secs(60);
/// How long what is known of an instance is believed when it is compared with its class.
pub(super) const FRESH: Duration = Duration::from_secs(5 * 60);
/// How long instances are remembered at all.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// How often instances that are ending are described, all together. They take half a minute and more.
const LOOK: Duration = Duration::from_secs(10);

/// How far the end of an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// No caller asked for it.
    No,
    /// It was asked for, and described then.
    Asked { looked: Instant },
    /// EC2 has it no more.
    Gone,
}

/// What is known of the end of an instance without asking EC2.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EndingView {
    /// It was not asked to end.
    NotAsked,
    /// It was ending a moment ago.
    Recent,
    /// It is time to describe these, which are all that are ending. Who gets this answer does so; for all others they count as described.
    Due(Vec<String>),
    /// It is gone.
    Gone,
}

#[derive(Clone, Debug)]
struct CachedInstance {
    record: InstanceRecord,
    /// When EC2 last described it; `None` when only its launch is known.
    seen: Option<Instant>,
    launched: Option<Instant>,
    ending: Ending,
    touched: Instant,
}

/// Instances by id.
#[derive(Debug, Default)]
pub(super) struct KnownInstances {
    by_id: Mutex<HashMap<String, CachedInstance>>,
}

impl KnownInstances {
    /// It was launched just now; EC2 has not described it.
    pub(super) fn launched(&self, record: &InstanceRecord) {
        let now = Instant::now();
        self.lock().insert(
            record.id.clone(),
            CachedInstance {
                record: record.clone(),
                seen: None,
                launched: Some(now),
                ending: Ending::No,
                touched: now,
            },
        );
    }

    /// EC2 described it.
    pub(super) fn seen(&self, record: InstanceRecord) {
        let now = Instant::now();
        let mut all = self.lock();
        match all.get_mut(&record.id) {
            Some(known) => {
                // One that runs although it was asked to end is asked again.
                known.ending = match known.ending {
                    Ending::Asked { .. } if record.is_shutting_down() => {
                        Ending::Asked { looked: now }
                    }
                    _ => Ending::No,
                };
                known.record = record;
                known.seen = Some(now);
                known.touched = now;
            }
            None => {
                let known = CachedInstance {
                    record: record.clone(),
                    seen: Some(now),
                    launched: None,
                    ending: Ending::No,
                    touched: now,
                };
                all.insert(record.id, known);
            }
        }
    }

    /// EC2 listed these and no others. What it leaves out is forgotten, except for what may not be visible yet, what is ending (whose
    /// end is still to be seen), and what `keeps` names.
    pub(super) fn listed(&self, there: &BTreeSet<String>, keeps: impl Fn(&InstanceRecord) -> bool) {
        self.lock().retain(|id, known| {
            let is_new = known.launched.is_some_and(|at| at.elapsed() < VISIBLE);
            let stays = known.ending != Ending::No || keeps(&known.record);
            there.contains(id) || is_new || (stays && known.touched.elapsed() < REMEMBERED)
        });
    }

    /// What is known of an instance, however old.
    pub(super) fn get(&self, id: &str) -> Option<InstanceRecord> {
        self.lock().get(id).map(|known| known.record.clone())
    }

    /// What EC2 said of it a moment ago.
    pub(super) fn fresh(&self, id: &str) -> Option<InstanceRecord> {
        self.lock()
            .get(id)
            .filter(|known| known.seen.is_some_and(|at| at.elapsed() < FRESH))
            .map(|known| known.record.clone())
    }

    /// It may exist although EC2 does not find it.
    pub(super) fn just_launched(&self, id: &str) -> bool {
        self.lock()
            .get(id)
            .is_some_and(|known| known.launched.is_some_and(|at| at.elapsed() < VISIBLE))
    }

    /// It was launched a while ago, and EC2 has not described it since: the next list does.
    pub(super) fn awaits_list(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|known| {
            let is_new = known.launched.is_some_and(|at| at.elapsed() < FRESH);
            known.seen.is_none() && is_new
        })
    }

    /// Its termination was asked for.
    pub(super) fn ending(&self, id: &str) {
        let now = Instant::now();
        if let Some(known) = self.lock().get_mut(id) {
            known.ending = Ending::Asked { looked: now };
            known.touched = now;
        }
    }

    /// How far the end of an instance is, as far as that is known.
    pub(super) fn end_of(&self, id: &str) -> EndingView {
        let now = Instant::now();
        let mut all = self.lock();
        match all.get(id).map(|known| known.ending) {
            None | Some(Ending::No) => EndingView::NotAsked,
            Some(Ending::Gone) => EndingView::Gone,
            Some(Ending::Asked { looked }) if looked.elapsed() < LOOK => EndingView::Recent,
            Some(Ending::Asked { .. }) => {
                let mut ending = Vec::new();
                for (id, known) in all.iter_mut() {
                    if let Ending::Asked { looked } = &mut known.ending {
                        *looked = now;
                        ending.push(id.clone());
                    }
                }
                EndingView::Due(ending)
            }
        }
    }

    /// EC2 says that there is no such instance. Returns what was known of it, once.
    pub(super) fn gone(&self, id: &str) -> Option<InstanceRecord> {
        let mut all = self.lock();
        let known = all.get_mut(id)?;
        match known.ending {
            Ending::Gone => None,
            // Whoever asked for its end is still to hear of it.
            Ending::Asked { .. } => {
                known.ending = Ending::Gone;
                Some(known.record.clone())
            }
            Ending::No => all.remove(id).map(|known| known.record),
        }
    }

    /// These tags were added.
    pub(super) fn tagged(&self, id: &str, tags: &[(String, String)]) {
        if let Some(known) = self.lock().get_mut(id) {
            known.record.described.tags.extend(tags.iter().cloned());
        }
    }

    /// The spot offering that it was launched as, if it is known and spot.
    pub(super) fn spot_offering(&self, id: &str) -> Option<UnavailableOffering> {
        let record = self.get(id)?;
        (record.capacity_type == CapacityType::Spot).then(|| UnavailableOffering {
            instance_type: record.instance_type.into(),
            zone: record.zone.into(),
            capacity_type: CapacityType::Spot,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, CachedInstance>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instances::record::InstanceDescription;

    fn record(id: &str) -> InstanceRecord {
        InstanceRecord {
            id: id.to_owned(),
            instance_type: "m5.large".to_owned(),
            zone: "us-east-1a".to_owned(),
            capacity_type: CapacityType::Spot,
            reservation: None,
            subnet: None,
            image: None,
            dedicated: false,
            groups: Vec::new(),
            described: InstanceDescription::default(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_just_launched_is_not_gone() {
        let instances = KnownInstances::default();
        instances.launched(&record("i-1"));
        assert!(instances.just_launched("i-1") && !instances.just_launched("i-2"));
        assert_eq!(instances.fresh("i-1"), None, "EC2 has not described it");
        let zone = instances
            .spot_offering("i-1")
            .map(|each| each.zone.to_string());
        assert_eq!(zone.as_deref(), Some("us-east-1a"));
        instances.seen(record("i-1"));
        assert_eq!(instances.fresh("i-1"), Some(record("i-1")));
        tokio::time::advance(FRESH).await;
        assert_eq!(instances.fresh("i-1"), None);
        assert!(!instances.just_launched("i-1"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_forgets_what_it_leaves_out_unless_that_is_new_or_ending() {
        let instances = KnownInstances::default();
        for id in ["i-listed", "i-ending", "i-kept", "i-lost"] {
            instances.seen(record(id));
        }
        instances.launched(&record("i-new"));
        instances.ending("i-ending");
        let listed = BTreeSet::from(["i-listed".to_owned()]);
        let keeps = |each: &InstanceRecord| each.id == "i-kept";
        instances.listed(&listed, keeps);
        let left = |id: &str| instances.get(id).is_some();
        assert!(
            ["i-listed", "i-ending", "i-kept", "i-new"]
                .into_iter()
                .all(left)
        );
        assert!(!left("i-lost"));
        tokio::time::advance(REMEMBERED).await;
        instances.listed(&listed, keeps);
        assert!(left("i-listed") && !left("i-ending") && !left("i-kept") && !left("i-new"));
        assert!(instances.gone("i-listed").is_some() && instances.gone("i-listed").is_none());
    }
}
