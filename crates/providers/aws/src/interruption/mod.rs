//! Interruption notices: the queue, and the messages in it.

pub mod event;

mod queue;

pub(crate) use self::queue::InterruptionQueue;
