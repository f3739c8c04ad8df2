//! Launches that are made together: of NodeClaims of one shape that were created together, or that are tried again together.
//!
//! ```text
//! created with a token ────────────── those with the token are awaited ── Launch, with the batch
//! the launch gave no instance ── window of its shape ─┬─ closed with others: all get a new token ── all have it ── Launch, with the batch
//!                                                     └─ closed alone, never had a token: Launch
//! the launch may have given one ───── Launch again, with the same token
//! ```
//!
//! Invariant: a NodeClaim has the token before it is launched by it, and keeps it until it has an instance or the cloud has said that
//! there is none. So a token that was used is used again after a crash, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use mortise_apis::karpenter::nodeclaim::NodeClaim;
use mortise_apis::labels;
use mortise_apis::names::{ClaimName, Uid};
use mortise_apis::schema::finalizers::has_finalizer;
use mortise_apis::values::{after, since};
use mortise_cloudprovider::{LaunchBatch, LaunchRequest, LaunchWindow};
use mortise_engine::effect::Effect;
use mortise_planning::settings::Settings;
use mortise_state::snapshot::Snapshot;

use crate::launch_shape::{LaunchShape, window};

/// A batch is launched without those of its NodeClaims that do not have the token by then. Most writes take milliseconds.
const WRITTEN_MS: i64 = 5_000;

/// How long a used token is remembered, so that NodeClaims that come late do not use it again. They come within seconds.
const REMEMBERED_MS: i64 = 15 * 60_000;

/// A window that takes whoever comes in the same step.
const AT_ONCE: LaunchWindow = LaunchWindow {
    quiet_ms: 0,
    longest_ms: 0,
    most: usize::MAX,
};

/// NodeClaims by UID.
pub(super) type Members = BTreeMap<Uid, ClaimName>;

/// NodeClaims that wait for others.
#[derive(Clone, Debug)]
struct MemberWindow {
    limits: LaunchWindow,
    opened: Timestamp,
    last: Timestamp,
    members: Members,
}

impl MemberWindow {
    const fn open(limits: LaunchWindow, now: Timestamp) -> Self {
        Self {
            limits,
            opened: now,
            last: now,
            members: Members::new(),
        }
    }

    fn add(&mut self, claim: &NodeClaim, uid: &Uid, now: Timestamp) {
        if self.members.insert(uid.clone(), claim.name()).is_none() {
            self.last = now;
        }
    }

    fn closes(&self) -> Timestamp {
        if self.members.len() >= self.limits.most {
            return self.opened;
        }
        let quiet = self.limits.quiet_ms + since(self.last, self.opened) / 2;
        after(self.last, quiet).min(after(self.opened, self.limits.longest_ms))
    }
}

/// A batch whose NodeClaims are given its token.
#[derive(Clone, Debug)]
struct AnnouncedBatch {
    members: Members,
    /// Those that do not show the token yet.
    missing: BTreeSet<Uid>,
    until: Timestamp,
}

/// A token that was used.
#[derive(Clone, Debug)]
struct UsedToken {
    /// The NodeClaims that were launched by it.
    members: BTreeSet<Uid>,
    last: Timestamp,
}

/// What is next for a NodeClaim that is to be launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaunchTurn {
    /// It waits for others, or for its token; or it is launched at the end of this step, with those that have the same token.
    Wait,
    /// It is launched by a call of its own.
    Alone,
}

/// Which launches are made together. See the module's documentation.
#[derive(Debug)]
pub(super) struct LaunchBatches {
    /// NodeClaims that were created with a token.
    arriving: BTreeMap<Arc<str>, MemberWindow>,
    /// NodeClaims that need a new token.
    retrying: BTreeMap<LaunchShape, MemberWindow>,
    shapes: BTreeMap<Uid, LaunchShape>,
    announced: BTreeMap<Arc<str>, AnnouncedBatch>,
    tokens: BTreeMap<Uid, Arc<str>>,
    /// Tokens that this process launched by lately.
    used: BTreeMap<Arc<str>, UsedToken>,
    /// NodeClaims of which the cloud said that they have no instance, with the token of that launch if it had one.
    answered: BTreeMap<Uid, Option<Arc<str>>>,
    /// NodeClaims that no other one joined.
    alone: BTreeSet<Uid>,
    /// NodeClaims that are launched at the end of this step.
    due: BTreeMap<Arc<str>, Members>,
}

impl LaunchBatches {
    pub(super) const fn new() -> Self {
        Self {
            arriving: BTreeMap::new(),
            retrying: BTreeMap::new(),
            shapes: BTreeMap::new(),
            announced: BTreeMap::new(),
            tokens: BTreeMap::new(),
            used: BTreeMap::new(),
            answered: BTreeMap::new(),
            alone: BTreeSet::new(),
            due: BTreeMap::new(),
        }
    }

    /// What is next for a NodeClaim that may be launched now and is not being launched.
    pub(super) fn turn(
        &mut self,
        settings: &Settings,
        claim: &NodeClaim,
        uid: &Uid,
        now: Timestamp,
    ) -> LaunchTurn {
        if self.alone.contains(uid) {
            return LaunchTurn::Alone;
        }
        let token = claim.annotation(labels::LAUNCH_BATCH);
        if let Some(given) = self.tokens.get(uid) {
            if token == Some(&**given)
                && let Some(batch) = self.announced.get_mut(given)
            {
                batch.missing.remove(uid);
            }
            return LaunchTurn::Wait;
        }
        let limits = window(settings, claim);
        let answered = self.answered.get(uid);
        if answered.is_some_and(|answered| answered.as_deref() == token) {
            return match (limits, token) {
                (None, None) => LaunchTurn::Alone,
                _ => self.retry(claim, uid, now, limits.unwrap_or(AT_ONCE)),
            };
        }
        let is_protected = has_finalizer(&claim.metadata, labels::TERMINATION_FINALIZER);
        let Some(token) = token.filter(|_| is_protected) else {
            return LaunchTurn::Alone; // it gets its finalizer first
        };
        match self.used.get(token) {
            None => {
                let limits = limits.unwrap_or(AT_ONCE);
                let window = self.arriving.entry(token.into());
                let window = window.or_insert_with(|| MemberWindow::open(limits, now));
                window.add(claim, uid, now);
                LaunchTurn::Wait
            }
            Some(used) if used.members.contains(uid) => {
                let due = self.due.entry(token.into()).or_default();
                due.insert(uid.clone(), claim.name());
                LaunchTurn::Wait
            }
            // It came late: the others are launched without it.
            Some(_) => self.retry(claim, uid, now, limits.unwrap_or(AT_ONCE)),
        }
    }

    fn retry(
        &mut self,
        claim: &NodeClaim,
        uid: &Uid,
        now: Timestamp,
        limits: LaunchWindow,
    ) -> LaunchTurn {
        let shapes = &mut self.shapes;
        let shape = shapes
            .entry(uid.clone())
            .or_insert_with(|| LaunchShape::of(claim));
        let window = self.retrying.entry(shape.clone());
        let window = window.or_insert_with(|| MemberWindow::open(limits, now));
        window.add(claim, uid, now);
        LaunchTurn::Wait
    }

    /// Takes out the NodeClaims that need a new token and wait for no more others, by shape.
    pub(super) fn close(&mut self, now: Timestamp) -> Vec<Members> {
        let over = self
            .retrying
            .extract_if(.., |_, window| window.closes() <= now);
        let closed: Vec<Members> = over.map(|(_, window)| window.members).collect();
        for uid in closed.iter().flat_map(BTreeMap::keys) {
            self.shapes.remove(uid);
        }
        closed
    }

    /// No other NodeClaim came: this one is launched alone.
    pub(super) fn leave_alone(&mut self, uid: &Uid) {
        self.alone.insert(uid.clone());
    }

    /// These NodeClaims are being given a token.
    pub(super) fn announce(&mut self, token: &Arc<str>, members: Members, now: Timestamp) {
        for uid in members.keys() {
            self.tokens.insert(uid.clone(), Arc::clone(token));
        }
        let batch = AnnouncedBatch {
            missing: members.keys().cloned().collect(),
            members,
            until: after(now, WRITTEN_MS),
        };
        self.announced.insert(Arc::clone(token), batch);
    }

    /// The token was not written: the NodeClaim needs another one.
    pub(super) fn refused(&mut self, uid: &Uid) {
        if let Some(token) = self.tokens.remove(uid)
            && let Some(batch) = self.announced.get_mut(&token)
        {
            batch.members.remove(uid);
            batch.missing.remove(uid);
        }
    }

    /// Takes out the NodeClaims that are to be launched, by token. Those that are not launched after all need another token.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<(Arc<str>, Members)> {
        let is_complete = |batch: &AnnouncedBatch| batch.missing.is_empty() || batch.until <= now;
        let announced = self
            .announced
            .extract_if(.., |_, batch| is_complete(batch))
            .map(|(token, batch)| (token, batch.members));
        let arrived = self
            .arriving
            .extract_if(.., |_, window| window.closes() <= now)
            .map(|(token, window)| (token, window.members));
        let again = std::mem::take(&mut self.due).into_iter();
        let mut due: BTreeMap<Arc<str>, Members> = BTreeMap::new();
        for (token, members) in announced.chain(arrived).chain(again) {
            for uid in members.keys() {
                self.tokens.remove(uid);
            }
            due.entry(token).or_default().extend(members);
        }
        due.into_iter().collect()
    }

    /// These NodeClaims are launched by the token, and no others of its batch: a request that is repeated for more of them would be
    /// another request, which the cloud refuses.
    pub(super) fn launched(&mut self, token: &Arc<str>, claims: &[Arc<NodeClaim>], now: Timestamp) {
        if claims.is_empty() {
            return;
        }
        self.used
            .retain(|_, used| since(now, used.last) < REMEMBERED_MS);
        let used = self.used.entry(Arc::clone(token));
        let used = used.or_insert_with(|| UsedToken {
            members: BTreeSet::new(),
            last: now,
        });
        used.last = now;
        used.members
            .extend(claims.iter().filter_map(|claim| claim.uid()));
    }

    /// The cloud said that a launch gave no instance: the next one is another one.
    pub(super) fn answered(&mut self, claim: &NodeClaim, uid: &Uid) {
        self.alone.remove(uid);
        let token = claim.annotation(labels::LAUNCH_BATCH).map(Arc::from);
        self.answered.insert(uid.clone(), token);
    }

    /// Another process may have led meanwhile: what it wrote is on the NodeClaims, what it launched alone is not.
    pub(super) fn reset(&mut self) {
        let answered = std::mem::take(&mut self.answered);
        *self = Self::new();
        self.answered = answered;
        self.answered.retain(|_, token| token.is_some());
    }

    /// The NodeClaim has an instance, or is gone.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.refused(uid);
        self.answered.remove(uid);
        self.alone.remove(uid);
        if let Some(shape) = self.shapes.remove(uid)
            && let Some(window) = self.retrying.get_mut(&shape)
        {
            window.members.remove(uid);
        }
    }

    /// When a window closes or a batch is launched as it is.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let arriving = self.arriving.values().map(MemberWindow::closes);
        let retrying = self.retrying.values().map(MemberWindow::closes);
        let announced = self.announced.values().map(|batch| batch.until);
        arriving.chain(retrying).chain(announced).min()
    }
}

/// The launch of a claim.
pub(super) fn launch_effect(
    snapshot: &Snapshot,
    claim: Arc<NodeClaim>,
    batch: Option<Arc<LaunchBatch>>,
) -> Effect {
    let node_class = snapshot.node_classes.get(&claim.node_class_key()).cloned();
    Effect::Launch(Box::new(LaunchRequest {
        claim,
        node_class,
        batch,
    }))
}

/// The claim of that name, if it is still the same object.
pub(super) fn current<'a>(
    snapshot: &'a Snapshot,
    name: &ClaimName,
    uid: &Uid,
) -> Option<&'a Arc<NodeClaim>> {
    snapshot
        .claims
        .get(name)
        .filter(|claim| claim.uid().as_ref() == Some(uid))
}

#[cfg(test)]
mod tests {
    use mortise_apis::node_class::served::ServedNodeClasses;
    use mortise_planning::settings::LaunchBatching;
    use serde_json::json;

    use super::*;

    fn at(ms: i64) -> Timestamp {
        after(Timestamp::UNIX_EPOCH, ms)
    }

    fn settings() -> Settings {
        let window = LaunchWindow {
            quiet_ms: 30,
            longest_ms: 200,
            most: 3,
        };
        Settings {
            launch_batching: vec![LaunchBatching {
                serves: ServedNodeClasses::All,
                window,
            }],
            ..Settings::default()
        }
    }

    fn claim(name: &str, token: Option<&str>) -> NodeClaim {
        let annotations = token.map(|token| json!({ labels::LAUNCH_BATCH: token }));
        serde_json::from_value(json!({
            "metadata": {
                "name": name, "uid": name, "annotations": annotations,
                "finalizers": [labels::TERMINATION_FINALIZER],
            },
            "spec": { "nodeClassRef": { "group": "g", "kind": "K", "name": "n" }, "requirements": [] },
        }))
        .unwrap()
    }

    fn turn(batches: &mut LaunchBatches, claim: &NodeClaim, ms: i64) -> LaunchTurn {
        let uid = claim.uid().unwrap();
        batches.turn(&settings(), claim, &uid, at(ms))
    }

    fn names(members: &Members) -> Vec<&str> {
        members.values().map(ClaimName::as_str).collect()
    }

    /// Takes out what is due and launches all of it.
    fn launch_due(batches: &mut LaunchBatches, ms: i64) -> Vec<(Arc<str>, Members)> {
        let due = batches.take_due(at(ms));
        for (token, members) in &due {
            let claims = members.values();
            let claims: Vec<_> = claims
                .map(|name| Arc::new(claim(name, Some(token))))
                .collect();
            batches.launched(token, &claims, at(ms));
        }
        due
    }

    #[test]
    fn claims_with_a_token_wait_for_each_other_and_late_ones_need_another() {
        let mut batches = LaunchBatches::new();
        assert_eq!(turn(&mut batches, &claim("x", None), 0), LaunchTurn::Alone);
        for (name, ms) in [("a", 0), ("b", 20)] {
            let claim = claim(name, Some("t"));
            assert_eq!(turn(&mut batches, &claim, ms), LaunchTurn::Wait);
        }
        assert_eq!(
            batches.next(),
            Some(at(60)),
            "30 ms and half of 20 after 20"
        );
        assert!(batches.take_due(at(59)).is_empty());
        let due = launch_due(&mut batches, 60);
        assert_eq!(names(&due[0].1), ["a", "b"]);
        turn(&mut batches, &claim("a", Some("t")), 100);
        let due = launch_due(&mut batches, 100);
        assert_eq!(names(&due[0].1), ["a"], "the same token again, at once");
        turn(&mut batches, &claim("late", Some("t")), 100);
        assert!(batches.take_due(at(500)).is_empty());
        assert_eq!(names(&batches.close(at(500))[0]), ["late"]);
    }

    #[test]
    fn what_gave_no_instance_gets_a_new_token_with_others_of_its_shape() {
        let mut batches = LaunchBatches::new();
        let [a, b] = [claim("a", Some("t")), claim("b", None)];
        for claim in [&a, &b] {
            batches.answered(claim, &claim.uid().unwrap());
            assert_eq!(turn(&mut batches, claim, 0), LaunchTurn::Wait);
        }
        assert!(batches.close(at(29)).is_empty());
        let closed = batches.close(at(30));
        assert_eq!(names(&closed[0]), ["a", "b"]);
        batches.announce(&"u".into(), closed[0].clone(), at(30));
        turn(&mut batches, &claim("a", Some("u")), 40);
        assert!(batches.take_due(at(40)).is_empty(), "b has no token yet");
        turn(&mut batches, &claim("b", Some("u")), 50);
        assert_eq!(names(&batches.take_due(at(50))[0].1), ["a", "b"]);
    }

    #[test]
    fn a_batch_is_launched_without_those_whose_token_is_not_written() {
        let mut batches = LaunchBatches::new();
        let members = |names: &[&str]| {
            let names = names.iter();
            names.map(|name| ((*name).into(), (*name).into())).collect()
        };
        batches.announce(&"u".into(), members(&["a", "b", "c"]), at(0));
        turn(&mut batches, &claim("a", Some("u")), 10);
        batches.refused(&"b".into());
        assert!(batches.take_due(at(10)).is_empty());
        assert_eq!(names(&batches.take_due(at(WRITTEN_MS))[0].1), ["a", "c"]);
        batches.announce(&"v".into(), members(&["d"]), at(0));
        batches.forget(&"d".into());
        assert_eq!(names(&batches.take_due(at(0))[0].1), [""; 0]);
    }

    /// The watch shows the token of one of them only when the others have been launched.
    #[test]
    fn those_that_a_request_was_made_without_get_another_token() {
        let mut batches = LaunchBatches::new();
        let members = |names: &[&str]| {
            let names = names.iter();
            names.map(|name| ((*name).into(), (*name).into())).collect()
        };
        batches.announce(&"u".into(), members(&["a", "b", "c"]), at(0));
        for name in ["a", "b"] {
            turn(&mut batches, &claim(name, Some("u")), 10);
        }
        let due = batches.take_due(at(WRITTEN_MS));
        assert_eq!(names(&due[0].1), ["a", "b", "c"]);
        let seen = ["a", "b"].map(|name| Arc::new(claim(name, Some("u"))));
        batches.launched(&due[0].0, &seen, at(WRITTEN_MS));
        turn(&mut batches, &claim("c", Some("u")), WRITTEN_MS + 10);
        assert!(batches.take_due(at(WRITTEN_MS + 10)).is_empty());
        let closed = batches.close(at(WRITTEN_MS + 300));
        assert_eq!(names(&closed[0]), ["c"]);
        // Nothing was launched: the token is as good as new.
        batches.announce(&"v".into(), members(&["d", "e"]), at(0));
        assert_eq!(batches.take_due(at(WRITTEN_MS)).len(), 1);
        for name in ["d", "e"] {
            turn(&mut batches, &claim(name, Some("v")), WRITTEN_MS + 10);
        }
        let due = launch_due(&mut batches, WRITTEN_MS + 300);
        assert_eq!(names(&due[0].1), ["d", "e"]);
    }

    #[test]
    fn another_term_uses_tokens_again_and_launches_alone_what_has_none() {
        let mut batches = LaunchBatches::new();
        let [a, b] = [claim("a", Some("t")), claim("b", None)];
        for claim in [&a, &b] {
            batches.answered(claim, &claim.uid().unwrap());
        }
        batches.reset();
        assert_eq!(turn(&mut batches, &b, 0), LaunchTurn::Alone);
        turn(&mut batches, &claim("c", Some("t")), 0);
        assert_eq!(names(&launch_due(&mut batches, 30)[0].1), ["c"]);
        turn(&mut batches, &a, 40);
        assert_eq!(
            names(&batches.close(at(70))[0]),
            ["a"],
            "its token is used up"
        );
    }
}
