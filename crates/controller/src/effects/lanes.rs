//! Which effect may run next: bounded per lane, in order per object, urgent objects first, else fair between them. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mortise_apis::names::ObjectRef;
use mortise_engine::effect::Effect;
use mortise_engine::write::WritePriority;

/// Kinds of work with a bound of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lane {
    /// Writes to the API server.
    Write,
    /// Launches.
    Launch,
    /// Terminations.
    Terminate,
    /// Questions to a cloud.
    Ask,
    /// Acknowledgements of messages.
    Acknowledge,
}

impl Lane {
    pub(crate) const ALL: [Self; 5] = [
        Self::Write,
        Self::Launch,
        Self::Terminate,
        Self::Ask,
        Self::Acknowledge,
    ];

    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Launch => "launch",
            Self::Terminate => "terminate",
            Self::Ask => "ask",
            Self::Acknowledge => "acknowledge",
        }
    }

    /// The lane of an effect. Events have a queue of their own and never come here.
    pub(crate) const fn of(effect: &Effect) -> Self {
        match effect {
            Effect::CreateClaim(_)
            | Effect::Write(_)
            | Effect::Delete { .. }
            | Effect::Evict { .. }
            | Effect::Event(_) => Self::Write,
            Effect::Launch(_) => Self::Launch,
            Effect::Terminate { .. } => Self::Terminate,
            Effect::ListInstances
            | Effect::ListPods(_)
            | Effect::FindInstance { .. }
            | Effect::Resolve(_)
            | Effect::CheckDrift { .. }
            | Effect::TagInstance(_) => Self::Ask,
            Effect::Acknowledge { .. } => Self::Acknowledge,
        }
    }
}

/// Priority of the effects in one lane. A thousand nodes deleted at once evict ten thousand pods; these evictions must not
/// delay the taint of the next node, or a write for a node that becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EffectPriority {
    /// Before all else.
    First,
    /// In its turn.
    Usual,
    /// When nothing else waits.
    Last,
}

impl EffectPriority {
    /// The rank of an effect.
    pub(crate) fn of(effect: &Effect) -> Self {
        match effect {
            Effect::Write(write) if write.edit.priority() == WritePriority::Immediate => {
                Self::First
            }
            Effect::Evict { .. }
            | Effect::Delete {
                target: ObjectRef::Pod(_),
                ..
            } => Self::Last,
            _ => Self::Usual,
        }
    }
}

/// What keeps its order: the effects of one object in one lane, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LaneKey {
    /// In order with others about this object.
    Object(ObjectRef),
    /// In order with nothing.
    Single(u64),
}

/// Work that waits and runs.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: BTreeMap<Lane, LaneQueue<T>>,
    singles: u64,
}

/// While something urgent runs, all else has this part of its lane.
const SHARE_OF_OTHERS: usize = 4;

#[derive(Debug)]
struct LaneQueue<T> {
    most: usize,
    running: usize,
    /// How many of them are urgent.
    urgent: usize,
    waiting: usize,
    /// Keys that have work and do not run, by rank and then by when they became so.
    ready: BTreeSet<(EffectPriority, u64, LaneKey)>,
    turns: u64,
    /// Every key that has work or runs.
    work: BTreeMap<LaneKey, PendingEffect<T>>,
}

/// What waits about one key.
#[derive(Debug)]
struct PendingEffect<T> {
    items: VecDeque<(EffectPriority, T)>,
    /// Where the key stands among those that are ready; `None` while it runs.
    turn: Option<(EffectPriority, u64)>,
    /// What runs is urgent.
    is_urgent: bool,
}

impl<T> PendingEffect<T> {
    /// The rank of its most urgent work: what is before that has to go first.
    fn rank(&self) -> Option<EffectPriority> {
        self.items.iter().map(|(rank, _)| *rank).min()
    }
}

impl<T> LaneQueue<T> {
    fn push(&mut self, key: LaneKey, rank: EffectPriority, item: T) {
        self.waiting += 1;
        let is_new = !self.work.contains_key(&key);
        let work = self
            .work
            .entry(key.clone())
            .or_insert_with(|| PendingEffect {
                items: VecDeque::new(),
                turn: None,
                is_urgent: false,
            });
        work.items.push_back((rank, item));
        let moves_up = work.turn.is_some_and(|(known, _)| rank < known);
        if is_new || moves_up {
            self.make_ready(key);
        }
    }

    /// Puts a key with work among those that are ready, or to where it belongs among them now.
    fn make_ready(&mut self, key: LaneKey) {
        let Some(work) = self.work.get_mut(&key) else {
            return;
        };
        let Some(rank) = work.rank() else {
            self.work.remove(&key);
            return;
        };
        self.turns += 1;
        if let Some((old, turn)) = work.turn.replace((rank, self.turns)) {
            self.ready.remove(&(old, turn, key.clone()));
        }
        self.ready.insert((rank, self.turns, key));
    }

    fn next(&mut self) -> Option<(LaneKey, T)> {
        if self.running >= self.most {
            return None;
        }
        let (rank, _, _) = self.ready.first()?;
        let is_urgent = *rank == EffectPriority::First;
        let others = self.running - self.urgent;
        if !is_urgent && self.urgent > 0 && others >= (self.most / SHARE_OF_OTHERS).max(1) {
            return None;
        }
        let (_, _, key) = self.ready.pop_first()?;
        let work = self.work.get_mut(&key)?;
        work.turn = None;
        let (_, item) = work.items.pop_front()?;
        work.is_urgent = is_urgent;
        self.urgent += usize::from(is_urgent);
        self.running += 1;
        self.waiting -= 1;
        Some((key, item))
    }

    fn ended(&mut self, key: LaneKey) {
        self.running = self.running.saturating_sub(1);
        if let Some(work) = self.work.get_mut(&key)
            && std::mem::take(&mut work.is_urgent)
        {
            self.urgent = self.urgent.saturating_sub(1);
        }
        self.make_ready(key);
    }
}

impl<T> Lanes<T> {
    /// Lanes with these bounds.
    pub(crate) fn new(most: impl Fn(Lane) -> usize) -> Self {
        let queue = |lane| LaneQueue {
            most: most(lane).max(1),
            running: 0,
            urgent: 0,
            waiting: 0,
            ready: BTreeSet::new(),
            turns: 0,
            work: BTreeMap::new(),
        };
        Self {
            lanes: Lane::ALL
                .into_iter()
                .map(|lane| (lane, queue(lane)))
                .collect(),
            singles: 0,
        }
    }

    /// Adds work; `about` is what it keeps order with.
    pub(crate) fn push(
        &mut self,
        (lane, rank): (Lane, EffectPriority),
        about: Option<ObjectRef>,
        item: T,
    ) {
        let key = about.map_or_else(
            || {
                self.singles += 1;
                LaneKey::Single(self.singles)
            },
            LaneKey::Object,
        );
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.push(key, rank, item);
        }
    }

    /// Takes the next work that may run.
    pub(crate) fn next(&mut self) -> Option<(Lane, LaneKey, T)> {
        self.lanes
            .iter_mut()
            .find_map(|(lane, queue)| queue.next().map(|(key, item)| (*lane, key, item)))
    }

    /// Says that work taken with this key has ended.
    pub(crate) fn done(&mut self, lane: Lane, key: LaneKey) {
        if let Some(queue) = self.lanes.get_mut(&lane) {
            queue.ended(key);
        }
    }

    /// Takes everything that waits out; what runs goes on.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        for queue in self.lanes.values_mut() {
            for work in queue.work.values_mut() {
                all.extend(work.items.drain(..).map(|(_, item)| item));
            }
            queue.work.retain(|_, work| work.turn.is_none());
            queue.ready.clear();
            queue.waiting = 0;
        }
        all
    }

    /// Waiting and running work of every lane.
    pub(crate) fn depths(&self) -> impl Iterator<Item = (Lane, usize, usize)> {
        self.lanes
            .iter()
            .map(|(lane, queue)| (*lane, queue.waiting, queue.running))
    }

    /// Nothing runs.
    #[cfg(test)]
    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.values().all(|queue| queue.running == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Option<ObjectRef> {
        Some(ObjectRef::Node(name.into()))
    }

    #[test]
    fn one_object_keeps_its_order_and_others_go_past_it() {
        let mut lanes = Lanes::new(|_| 2);
        for (about, item) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("c", "c1")] {
            lanes.push((Lane::Write, EffectPriority::Usual), node(about), item);
        }
        lanes.push((Lane::Launch, EffectPriority::Usual), node("a"), "launch");
        let (_, a, first) = lanes.next().unwrap();
        let (_, b, second) = lanes.next().unwrap();
        assert_eq!((first, second), ("a1", "b1"));
        assert_eq!(
            lanes.next().map(|(lane, _, item)| (lane, item)),
            Some((Lane::Launch, "launch")),
            "a lane of its own"
        );
        assert!(lanes.next().is_none(), "the lane is full");
        lanes.done(Lane::Write, b);
        let (_, c, third) = lanes.next().unwrap();
        assert_eq!(third, "c1");
        lanes.done(Lane::Write, c);
        assert!(lanes.next().is_none(), "a2 waits for a1");
        lanes.done(Lane::Write, a);
        assert_eq!(lanes.next().map(|(_, _, item)| item), Some("a2"));
    }

    #[test]
    fn the_urgent_goes_first_with_what_is_before_it_about_the_same_object() {
        let mut lanes = Lanes::new(|_| 1);
        let mut push = |about, rank, item| lanes.push((Lane::Write, rank), node(about), item);
        push("pod", EffectPriority::Last, "evict");
        push("a", EffectPriority::Usual, "a1");
        push("b", EffectPriority::Usual, "b1");
        push("b", EffectPriority::First, "b2");
        push("c", EffectPriority::First, "c1");
        let order = std::iter::from_fn(|| {
            let (lane, key, item) = lanes.next()?;
            lanes.done(lane, key);
            Some(item)
        });
        assert_eq!(
            order.collect::<Vec<_>>(),
            ["b1", "c1", "b2", "a1", "evict"],
            "b1 is before b2"
        );
    }

    #[test]
    fn while_the_urgent_runs_others_have_a_quarter() {
        let mut lanes = Lanes::new(|_| 8);
        for n in 0..20 {
            lanes.push(
                (Lane::Write, EffectPriority::Usual),
                node(&format!("n{n}")),
                "usual",
            );
        }
        lanes.push((Lane::Write, EffectPriority::First), node("a"), "urgent");
        let take = |lanes: &mut Lanes<_>| {
            let mut keys = Vec::new();
            while let Some((_, key, item)) = lanes.next() {
                keys.push((item, key));
            }
            keys
        };
        let mut running = take(&mut lanes);
        let items: Vec<_> = running.iter().map(|(item, _)| *item).collect();
        assert_eq!(items, ["urgent", "usual", "usual"]);
        lanes.push((Lane::Write, EffectPriority::First), node("b"), "urgent");
        let (item, b) = take(&mut lanes).remove(0);
        assert_eq!(item, "urgent", "there is room for it at once");
        lanes.done(Lane::Write, running.remove(0).1);
        assert!(lanes.next().is_none(), "another one still runs");
        lanes.done(Lane::Write, b);
        assert_eq!(take(&mut lanes).len(), 6, "the whole lane");
    }

    #[test]
    fn draining_takes_what_waits_and_leaves_what_runs() {
        let mut lanes = Lanes::new(|_| 1);
        lanes.push((Lane::Write, EffectPriority::Usual), node("a"), "a1");
        lanes.push((Lane::Write, EffectPriority::Usual), node("a"), "a2");
        lanes.push((Lane::Write, EffectPriority::Usual), None, "x");
        let (lane, key, _) = lanes.next().unwrap();
        let mut drained = lanes.drain();
        drained.sort_unstable();
        assert_eq!(drained, ["a2", "x"]);
        assert!(!lanes.is_idle());
        lanes.done(lane, key);
        assert!(lanes.is_idle() && lanes.next().is_none());
        lanes.push((Lane::Write, EffectPriority::Usual), node("a"), "a3");
        assert_eq!(lanes.next().map(|(_, _, item)| item), Some("a3"));
    }
}
