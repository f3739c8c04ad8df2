//! Which effect may run next: bounded per lane, in order per object, fair between objects. Pure.

use std::collections::{BTreeMap, VecDeque};

use mortise_core::effect::{Effect, ObjectRef};

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
            | Effect::Patch(_)
            | Effect::Delete { .. }
            | Effect::Evict { .. }
            | Effect::Event(_) => Self::Write,
            Effect::Launch(_) => Self::Launch,
            Effect::Terminate { .. } => Self::Terminate,
            Effect::ListInstances | Effect::Resolve(_) | Effect::CheckDrift { .. } => Self::Ask,
            Effect::Acknowledge { .. } => Self::Acknowledge,
        }
    }
}

/// What keeps its order: the effects of one object in one lane, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// In order with others about this object.
    Object(ObjectRef),
    /// In order with nothing.
    Single(u64),
}

/// Work that waits and runs.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    lanes: BTreeMap<Lane, Queue<T>>,
    singles: u64,
}

#[derive(Debug)]
struct Queue<T> {
    most: usize,
    running: usize,
    waiting: usize,
    /// Keys that have work and do not run.
    ready: VecDeque<Key>,
    /// Waiting work of every key that has some or runs.
    work: BTreeMap<Key, VecDeque<T>>,
}

impl<T> Lanes<T> {
    /// Lanes with these bounds.
    pub(crate) fn new(most: impl Fn(Lane) -> usize) -> Self {
        let queue = |lane| Queue {
            most: most(lane).max(1),
            running: 0,
            waiting: 0,
            ready: VecDeque::new(),
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
    pub(crate) fn push(&mut self, lane: Lane, about: Option<ObjectRef>, item: T) {
        let key = about.map_or_else(
            || {
                self.singles += 1;
                Key::Single(self.singles)
            },
            Key::Object,
        );
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        queue.waiting += 1;
        match queue.work.get_mut(&key) {
            Some(work) => work.push_back(item),
            None => {
                queue.work.insert(key.clone(), VecDeque::from([item]));
                queue.ready.push_back(key);
            }
        }
    }

    /// Takes the next work that may run.
    pub(crate) fn next(&mut self) -> Option<(Lane, Key, T)> {
        self.lanes
            .iter_mut()
            .filter(|(_, queue)| queue.running < queue.most)
            .find_map(|(lane, queue)| {
                let key = queue.ready.pop_front()?;
                let item = queue.work.get_mut(&key)?.pop_front()?;
                queue.running += 1;
                queue.waiting -= 1;
                Some((*lane, key, item))
            })
    }

    /// Says that work taken with this key has ended.
    pub(crate) fn done(&mut self, lane: Lane, key: Key) {
        let Some(queue) = self.lanes.get_mut(&lane) else {
            return;
        };
        queue.running = queue.running.saturating_sub(1);
        match queue.work.get(&key) {
            Some(work) if !work.is_empty() => queue.ready.push_back(key),
            _ => drop(queue.work.remove(&key)),
        }
    }

    /// Takes everything that waits out; what runs goes on.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let mut all = Vec::new();
        for queue in self.lanes.values_mut() {
            for work in queue.work.values_mut() {
                all.extend(work.drain(..));
            }
            let ready: Vec<Key> = queue.ready.drain(..).collect();
            for key in ready {
                queue.work.remove(&key);
            }
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
            lanes.push(Lane::Write, node(about), item);
        }
        lanes.push(Lane::Launch, node("a"), "launch");
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
    fn draining_takes_what_waits_and_leaves_what_runs() {
        let mut lanes = Lanes::new(|_| 1);
        lanes.push(Lane::Write, node("a"), "a1");
        lanes.push(Lane::Write, node("a"), "a2");
        lanes.push(Lane::Write, None, "x");
        let (lane, key, _) = lanes.next().unwrap();
        let mut drained = lanes.drain();
        drained.sort_unstable();
        assert_eq!(drained, ["a2", "x"]);
        assert!(!lanes.is_idle());
        lanes.done(lane, key);
        assert!(lanes.is_idle() && lanes.next().is_none());
        lanes.push(Lane::Write, node("a"), "a3");
        assert_eq!(lanes.next().map(|(_, _, item)| item), Some("a3"));
    }
}
