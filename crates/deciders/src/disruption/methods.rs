//! The methods of disruption, one after another, and what they remember from one look to the next.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::RECHECK_MS;
use super::reporter::DisruptionReporter;
use crate::tracking::request_tracker::RequestTracker;
use mortise_apis::names::{ClaimName, PoolName};
use mortise_apis::values::after;
use mortise_planning::disruption::candidate::{Candidate, CandidateBlocker, DisruptionClass};
use mortise_planning::disruption::candidate_cache::CandidateCache;
use mortise_planning::disruption::disruption_view::{AssumedCluster, DisruptionView};
use mortise_planning::disruption::refusals::Refusals;
use mortise_planning::disruption::search::{
    self, ConsolidationSearch, FoundCommand, Ineligible, SearchOutcome,
};
use mortise_planning::disruption::{simulation, static_drift};
use mortise_planning::pause::Pause;

/// A look that ran out of time goes on after this, so that other deciders have their turn.
pub(super) const RESUME_MS: i64 = 100;

/// After this, consolidation forgets what it refused. Events expire after an hour.
const RENEW_MS: i64 = 30 * 60_000;

/// What the methods read in a look, and what they say.
pub(super) struct Look<'l, 'w, 'i> {
    /// The cluster.
    pub(super) world: &'l DisruptionView<'w>,
    /// Until when nodes rest that moved pods came to.
    pub(super) received: &'l BTreeMap<ClaimName, Timestamp>,
    /// NodePools whose replacements failed.
    pub(super) failures: &'l RequestTracker<PoolName>,
    /// Events and records.
    pub(super) words: DisruptionReporter<'l, 'i>,
    /// When something that blocks a node ends by itself.
    pub(super) wakes: Option<Timestamp>,
    /// Whether time has run out.
    pub(super) stop: &'l dyn Fn() -> bool,
}

/// What each method remembers from one look to the next, so that none has to begin where another ended.
#[derive(Debug, Default)]
pub(super) struct Methods {
    /// Refusals of emptiness and of drift.
    pub(super) empty: Refusals,
    pub(super) drift: Refusals,
    /// Nodes as the last look found them.
    pub(super) nodes: CandidateCache,
    /// The cluster with the pods of commands at their destinations, at the last look.
    pub(super) assumed: Option<AssumedCluster>,
    /// How far consolidation is.
    search: ConsolidationSearch,
    /// Consolidation ran out of time.
    pub(super) unfinished: bool,
    /// When consolidation last began with nothing remembered.
    renewed: Option<Timestamp>,
    /// When it last began with refusals in doubt.
    doubted: Option<Timestamp>,
    /// What it goes on with.
    kept: Option<KeptNodes>,
    /// Since it was renewed, more changed than the nodes.
    pub(super) outdated: bool,
    /// Since consolidation began last, pods can find more room.
    pub(super) grew: bool,
    /// Since refusals of groups were forgotten, pods can find more room.
    grew_for_groups: bool,
}

impl Methods {
    /// Begins consolidation again, with what it refused before while that still holds. From time to time refusals are doubted, since
    /// nominations end, pods that wait go away, and spread becomes more even without more room on any node; and forgotten, so that
    /// their events do not expire.
    pub(super) fn restart_consolidation(&mut self, now: Timestamp) {
        let is_due = |last: Option<Timestamp>, ms| last.is_none_or(|at| after(at, ms) <= now);
        let grew = std::mem::take(&mut self.grew);
        self.grew_for_groups |= grew;
        if std::mem::take(&mut self.outdated) || is_due(self.renewed, RENEW_MS) {
            self.search.restart();
            self.renewed = Some(now);
            self.doubted = Some(now);
            self.grew_for_groups = false;
        } else if is_due(self.doubted, RECHECK_MS) {
            let regroup = std::mem::take(&mut self.grew_for_groups);
            self.search.restart_with_room(&self.nodes, regroup);
            self.doubted = Some(now);
        } else if grew {
            self.search.restart_with_room(&self.nodes, false);
        } else {
            self.search.resume(&self.nodes);
        }
    }

    /// The next look sees other nodes, or other times: nothing of the last one is kept but memory.
    pub(super) fn refresh(&mut self, world: &DisruptionView<'_>) {
        self.kept = None;
        self.grew |= self.nodes.refresh(world);
    }

    /// One look, method after method, each with what-ifs of its own; the first that finds something ends it. Next to what
    /// was found: when to go on with what there was no time for.
    ///
    /// A look that goes on with consolidation alone, among the same nodes, reads none of them again.
    pub(super) fn find(
        &mut self,
        look: &mut Look<'_, '_, '_>,
    ) -> (Option<Box<FoundCommand>>, Option<Timestamp>) {
        let KeptNodes { eligible, mut due } = match self.kept.take() {
            Some(kept) => kept,
            None => match self.others(look) {
                Ok(nodes) => nodes,
                Err((found, due)) => return (Some(found), due.at),
            },
        };
        let Look {
            world,
            words,
            wakes,
            stop,
            ..
        } = look;
        let refused = |candidate: &Candidate, refusal: &simulation::DisruptionRejection| {
            if let Some(until) = refusal.waits_until() {
                *wakes = Some(wakes.map_or(until, |known| known.min(until)));
                words.waits_for_others(candidate, until);
            } else {
                words.unconsolidatable(candidate, refusal);
            }
        };
        world.give_rest();
        let looked = self
            .search
            .evaluate(eligible.iter().collect(), world, refused, stop);
        self.unfinished = matches!(looked, SearchOutcome::Unfinished);
        if self.unfinished && !due.is_unfinished {
            self.kept = Some(KeptNodes { eligible, due });
        }
        let found = due.take(looked, world);
        (found, due.at)
    }

    /// The methods before consolidation. Returns the nodes that consolidation may have, or what was found.
    fn others(
        &mut self,
        look: &mut Look<'_, '_, '_>,
    ) -> Result<KeptNodes, (Box<FoundCommand>, NextLook)> {
        let Look {
            world,
            received,
            failures,
            words,
            wakes,
            stop,
        } = look;
        let mut due = NextLook::default();
        let mut graceful: Vec<Candidate> = Vec::new();
        let mut eventual: Vec<Candidate> = Vec::new();
        let mut sooner =
            |at: Timestamp| *wakes = Some(wakes.map_or(at, |known: Timestamp| known.min(at)));
        for node in world.nodes() {
            match self.nodes.candidate(node, world, DisruptionClass::Graceful) {
                Ok(candidate) => {
                    eventual.push(candidate.clone());
                    graceful.push(candidate);
                }
                Err(blocker) => {
                    words.blocked(node, &blocker);
                    if let CandidateBlocker::Paused(Pause {
                        until: Some(until), ..
                    }) = &blocker
                    {
                        sooner(*until);
                    }
                    node.pods
                        .iter()
                        .filter_map(|pod| pod.protected_until())
                        .filter(|until| *until > world.now)
                        .for_each(&mut sooner);
                    eventual.extend(Candidate::new(node, world, DisruptionClass::Eventual));
                }
            }
        }
        words.eligible("empty", search::count_empty(&graceful, world));
        words.eligible("drifted", search::count_drifted(&eventual));
        self.empty.retain(&graceful);
        self.drift.retain(&eventual);
        world.give_share();
        let empty = search::empty(&graceful, world, &mut self.empty, stop);
        if let Some(found) = due.take(empty, world) {
            return Err((found, due));
        }
        let now = world.now;
        let rests_until = |pool: &PoolName| failures.waits_until(pool).filter(|at| *at > now);
        let rests = |pool: &PoolName| rests_until(pool).is_some();
        for candidate in &eventual {
            let is_wanted = candidate.is_consolidatable() || candidate.drifted().is_some();
            if let Some(until) = rests_until(&candidate.pool_name).filter(|_| is_wanted) {
                sooner(until);
                words.rests(candidate, until);
            }
        }
        let mut stays = |candidate: &Candidate, refusal: &simulation::DisruptionRejection| {
            words.stays(&candidate.node, refusal.reasons.clone());
        };
        world.give_share();
        let refusals = &mut self.drift;
        let drifted = search::drifted(&eventual, world, rests, refusals, &mut stays, stop);
        if let Some(found) = due.take(drifted, world) {
            return Err((found, due));
        }
        let drifted = static_drift::drifted(&eventual, world, rests, stays);
        if let Some(found) = due.take(drifted, world) {
            return Err((found, due));
        }
        let mut eligible: Vec<Candidate> = Vec::new();
        for candidate in graceful {
            match search::eligible(&candidate, world, received) {
                Ok(()) if rests(&candidate.pool_name) => {}
                Ok(()) => eligible.push(candidate),
                Err(Ineligible::NotYet) => {}
                // Its record says until when the NodePool rests.
                Err(Ineligible::Resting(_)) if rests(&candidate.pool_name) => {}
                Err(Ineligible::Refused(refusal)) => words.unconsolidatable(&candidate, &refusal),
                Err(Ineligible::Resting(until)) => {
                    sooner(until);
                    words.rests(&candidate, until);
                }
            }
        }
        words.eligible("underutilized", eligible.len());
        Ok(KeptNodes { eligible, due })
    }
}

/// Nodes that consolidation goes on with while nothing changes.
#[derive(Debug)]
struct KeptNodes {
    eligible: Vec<Candidate>,
    /// When the other methods are due.
    due: NextLook,
}

/// When to go on with what there was no time for.
#[derive(Clone, Copy, Debug, Default)]
struct NextLook {
    at: Option<Timestamp>,
    /// A method did not end.
    is_unfinished: bool,
}

impl NextLook {
    /// Notes how a method ended, or returns what it found.
    fn take(
        &mut self,
        looked: SearchOutcome,
        world: &DisruptionView<'_>,
    ) -> Option<Box<FoundCommand>> {
        let at = match looked {
            SearchOutcome::Found(found) => return Some(found),
            SearchOutcome::Unfinished => {
                self.is_unfinished = true;
                Some(after(world.now, RESUME_MS))
            }
            SearchOutcome::Waiting(at) => Some(at),
            SearchOutcome::Nothing => None,
        };
        self.at = self.at.into_iter().chain(at).min();
        None
    }
}
