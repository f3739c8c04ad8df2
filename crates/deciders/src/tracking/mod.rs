//! What every decider keeps track of: timers, requests in flight, writes, and events that were reported.

pub(crate) mod event_throttle;
pub(crate) mod request_tracker;
pub(crate) mod status_reports;
pub(crate) mod timer_queue;
pub(crate) mod write_tracker;
