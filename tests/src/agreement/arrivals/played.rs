//! What became of a timetable.

use std::fmt;

use serde::Serialize;

use super::Kind;

/// A pod that does not run although all its nodes could be ready.
#[derive(Clone, Debug, Serialize)]
pub struct Waiting {
    /// Namespace and name; of a pod that does not exist, the Deployment's.
    pub pod: String,
    /// What it asks.
    pub kind: Kind,
    /// Node that it is bound to, and does not run on.
    pub node: Option<String>,
    /// What kube-scheduler said last.
    pub message: Option<String>,
    /// What `/debug/nominations` says about it, JSON.
    pub promises: Vec<String>,
    /// What `/debug/explain` says about it, a text of several lines.
    pub explained: String,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} ({})", self.pod, self.kind.label())?;
        if let Some(node) = &self.node {
            writeln!(f, "    bound to {node} and does not run")?;
        }
        let message = self.message.as_deref().unwrap_or("no word");
        writeln!(f, "    kube-scheduler: {message}")?;
        for nomination in &self.promises {
            writeln!(f, "    nomination: {nomination}")?;
        }
        for line in self.explained.lines() {
            writeln!(f, "    explain: {line}")?;
        }
        Ok(())
    }
}

/// How a timetable went.
#[derive(Clone, Debug, Serialize)]
pub struct Played {
    /// Its name.
    pub name: String,
    /// The command that plays it again.
    pub replay: String,
    /// Pods, by what they ask.
    pub pods: Vec<(Kind, usize)>,
    /// Those that did not run after 60 s without progress, with all nodes ready.
    pub waiting: Vec<Waiting>,
    /// How many did not run 70 s after the last arrival and the longest boot, regardless of progress. On a busy test host some
    /// are late that do not stay pending.
    pub late: usize,
    /// Nodes at the end.
    pub nodes: usize,
    /// From the last arrival until every pod ran, less the longest time that a node takes to register, in milliseconds;
    /// `None` when pods wait. Negative when no pod had to wait for a node that long.
    pub settled_ms: Option<i64>,
    /// How long all of it took, in milliseconds.
    pub millis: u64,
}

impl Played {
    /// Pods of all kinds.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pods.iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waiting, all) = (self.waiting.len(), self.count());
        writeln!(
            f,
            "{}: {waiting} of {all} pods wait, {} were late, {} nodes, {} s",
            self.name,
            self.late,
            self.nodes,
            self.millis / 1_000
        )?;
        for each in &self.waiting {
            write!(f, "  {each}")?;
        }
        if waiting > 0 {
            writeln!(f, "  again: {}", self.replay)?;
        }
        Ok(())
    }
}
