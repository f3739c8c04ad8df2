//! The events of one message.

use jiff::Timestamp;
use mortise_engine::effect::Event;

/// Events that are written out; further ones of a message are only counted.
pub(super) const WRITTEN: usize = 20;
/// Longest text of an event, in characters.
const TEXT: usize = 300;

/// An event that is to be notified.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) at: Timestamp,
    pub(super) warning: bool,
    pub(super) reason: String,
    pub(super) kind: String,
    /// `None` for objects without a namespace.
    pub(super) namespace: Option<String>,
    pub(super) name: String,
    pub(super) message: String,
}

impl Notice {
    pub(super) fn new(event: &Event, at: Timestamp) -> Self {
        Self {
            at,
            warning: event.warning,
            reason: event.reason.to_string(),
            kind: event.target.kind().to_owned(),
            namespace: event.target.namespace().map(str::to_owned),
            name: event.target.name().to_owned(),
            message: shortened(&event.message),
        }
    }

    /// Kind and name of the object.
    pub(super) fn object(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{} {namespace}/{}", self.kind, self.name),
            None => format!("{} {}", self.kind, self.name),
        }
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(TEXT).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// What one message says.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// In the order in which they came.
    pub(super) written: Vec<Notice>,
    /// Events that are only counted.
    pub(super) omitted: usize,
}

impl Batch {
    pub(super) fn new(first: Notice) -> Self {
        Self {
            written: vec![first],
            omitted: 0,
        }
    }

    pub(super) fn add(&mut self, notice: Notice) {
        if self.written.len() < WRITTEN {
            self.written.push(notice);
        } else {
            self.omitted += 1;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.written.len() + self.omitted
    }
}
