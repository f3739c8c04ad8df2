//! What is remembered of instance profiles: what IAM said, what may not be repeated yet, and what must not be deleted. Pure except for
//! the clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::failure::Failure;
use crate::node_class::instance_profiles::calls::FoundProfile;

/// How long a profile is taken to be as it was read.
const PROFILE_FRESH: Duration = Duration::from_secs(15 * 60);
/// How long a role is taken to be missing.
const ROLE_MISSING: Duration = Duration::from_secs(60);
/// How long no second profile is made for the same role of a class, for a status that could not be written.
const MADE: Duration = Duration::from_secs(60);
/// How long a profile is kept after a class began or ceased to use it: launches with it may be on their way.
const PROTECTED: Duration = Duration::from_secs(60 * 60);
/// How old the news of a class may be for its profiles to be deleted. Less than [`PROTECTED`]: a claim that is newer than the news
/// was launched with a profile that is protected.
const CLASS_FRESH: Duration = Duration::from_secs(30 * 60);

/// Values that are forgotten some time after they were put in.
#[derive(Debug)]
struct ExpiringMap<V> {
    lifetime: Duration,
    values: BTreeMap<String, (V, Instant)>,
}

impl<V: Clone> ExpiringMap<V> {
    const fn new(lifetime: Duration) -> Self {
        Self {
            lifetime,
            values: BTreeMap::new(),
        }
    }

    fn get(&self, key: &str) -> Option<V> {
        let (value, put) = self.values.get(key)?;
        (put.elapsed() < self.lifetime).then(|| value.clone())
    }

    fn insert(&mut self, key: String, value: V) {
        let lifetime = self.lifetime;
        self.values.retain(|_, (_, put)| put.elapsed() < lifetime);
        self.values.insert(key, (value, Instant::now()));
    }
}

/// What a class uses, as it was when the class was last resolved.
#[derive(Clone, Debug)]
struct ClassNews {
    /// Profile in its status, and those that its claims were launched with.
    used: BTreeSet<String>,
    at: Instant,
}

/// What happens to a profile of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProfileFate {
    /// It is in use, or that is not known well enough.
    Keep,
    /// Its class does not use it any more.
    Delete,
    /// Its class does not exist any more, so no class speaks for the instances that may be left of it.
    DeleteIfUnused,
}

#[derive(Debug)]
struct Remembered {
    profiles: ExpiringMap<FoundProfile>,
    missing_roles: ExpiringMap<Failure>,
    made: ExpiringMap<String>,
    protected: ExpiringMap<()>,
    classes: BTreeMap<String, ClassNews>,
    /// When the first class was resolved.
    since: Option<Instant>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct ProfileMemory {
    remembered: Mutex<Remembered>,
}

impl Default for ProfileMemory {
    fn default() -> Self {
        Self {
            remembered: Mutex::new(Remembered {
                profiles: ExpiringMap::new(PROFILE_FRESH),
                missing_roles: ExpiringMap::new(ROLE_MISSING),
                made: ExpiringMap::new(MADE),
                protected: ExpiringMap::new(PROTECTED),
                classes: BTreeMap::new(),
                since: None,
            }),
        }
    }
}

impl ProfileMemory {
    /// A profile as it was read or made a moment ago.
    pub(crate) fn profile(&self, name: &str) -> Option<FoundProfile> {
        self.lock().profiles.get(name)
    }

    pub(crate) fn learn(&self, profile: FoundProfile) {
        self.lock().profiles.insert(profile.name.clone(), profile);
    }

    /// Why no profile can be made for the role.
    pub(crate) fn missing_role(&self, role: &str) -> Option<Failure> {
        self.lock().missing_roles.get(role)
    }

    pub(crate) fn miss_role(&self, role: &str, failure: Failure) {
        self.lock().missing_roles.insert(role.to_owned(), failure);
    }

    /// The profile that was made for the role of the class a moment ago.
    pub(crate) fn made(&self, role: &str, class_uid: &str) -> Option<String> {
        self.lock().made.get(&format!("{role}/{class_uid}"))
    }

    pub(crate) fn remember_made(&self, role: &str, class_uid: &str, name: &str) {
        self.lock()
            .made
            .insert(format!("{role}/{class_uid}"), name.to_owned());
    }

    /// Keeps a profile for an hour.
    pub(crate) fn protect(&self, name: &str) {
        self.lock().protected.insert(name.to_owned(), ());
    }

    #[cfg(test)]
    pub(crate) fn is_protected(&self, name: &str) -> bool {
        self.lock().protected.get(name).is_some()
    }

    /// Forgets a profile that was deleted.
    pub(crate) fn forget(&self, name: &str) {
        let mut remembered = self.lock();
        remembered.profiles.values.remove(name);
        remembered.protected.values.remove(name);
        remembered.made.values.retain(|_, (made, _)| made != name);
    }

    /// A class is there, and it and its claims use these profiles.
    pub(crate) fn class_uses(&self, class_uid: &str, used: BTreeSet<String>) {
        let mut remembered = self.lock();
        let at = Instant::now();
        remembered.since.get_or_insert(at);
        remembered
            .classes
            .insert(class_uid.to_owned(), ClassNews { used, at });
    }

    /// A class has been released.
    pub(crate) fn forget_class(&self, class_uid: &str) {
        self.lock().classes.remove(class_uid);
    }

    /// Whether classes are being resolved here: a process that does not lead knows none, and must delete nothing.
    pub(crate) fn knows_classes(&self) -> bool {
        let remembered = self.lock();
        remembered
            .classes
            .values()
            .any(|each| each.at.elapsed() < CLASS_FRESH)
    }

    /// What to do with a profile of a class.
    pub(crate) fn fate(&self, name: &str, class_uid: &str) -> ProfileFate {
        let remembered = self.lock();
        if remembered.protected.get(name).is_some() {
            return ProfileFate::Keep;
        }
        match remembered.classes.get(class_uid) {
            Some(news) if news.used.contains(name) || news.at.elapsed() >= CLASS_FRESH => {
                ProfileFate::Keep
            }
            // The claims of another class may name it: a profile is only a name there.
            _ if remembered
                .classes
                .values()
                .any(|each| each.used.contains(name)) =>
            {
                ProfileFate::Keep
            }
            Some(_) => ProfileFate::Delete,
            // Every class is resolved soon after the first.
            None if remembered
                .since
                .is_some_and(|since| since.elapsed() >= CLASS_FRESH) =>
            {
                ProfileFate::DeleteIfUnused
            }
            None => ProfileFate::Keep,
        }
    }

    /// Protected profiles, and `role/class UID` of those that were made a moment ago.
    #[cfg(test)]
    pub(crate) fn remembered_names(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let remembered = self.lock();
        (
            remembered.protected.values.keys().cloned().collect(),
            remembered.made.values.keys().cloned().collect(),
        )
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
