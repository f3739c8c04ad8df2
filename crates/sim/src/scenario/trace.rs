//! Workloads that were recorded elsewhere: a table of pods, with the times at which they came and went.
//!
//! # Shape
//! Comma-separated values with a heading, in the columns of public cluster traces: `cpu_milli`, `memory_mib`, `creation_time` and
//! `deletion_time` in seconds from a common beginning, and optionally `name`, `num_gpu` and `qos`. Other columns are ignored. A pod
//! without a `deletion_time` runs until the end.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord};
use mortise_apis::nearest::nearest;
use serde_json::{Value, json};
use thiserror::Error;

use crate::workloads::{Job, JobArrival};

/// Most pods of a trace.
const MOST_PODS: usize = 200_000;
/// Run time in milliseconds of a pod that does not end: longer than any scenario.
const NEVER_ENDS_MS: i64 = 10 * 366 * 24 * 3_600_000;
/// The extended resource of `num_gpu`.
const GPU: &str = "nvidia.com/gpu";
/// Columns that every trace has.
const REQUIRED: [&str; 4] = ["cpu_milli", "memory_mib", "creation_time", "deletion_time"];

/// Why a trace cannot be played.
#[derive(Debug, Error)]
pub enum TraceError {
    /// It is not comma-separated.
    #[error("{0}")]
    Unreadable(#[from] csv::Error),
    /// A required column is missing.
    #[error("there is no column {column}{meant}; the columns are {columns}")]
    NoColumn {
        /// The column.
        column: &'static str,
        /// The nearest one that is there, as a question.
        meant: String,
        /// Those that are there.
        columns: String,
    },
    /// A cell has no number.
    #[error("{column} is {given:?}; a whole number from 0 on is allowed")]
    NoNumber {
        /// Line of the file.
        line: u64,
        /// The column.
        column: &'static str,
        /// What it holds.
        given: String,
    },
    /// A pod ends before it begins.
    #[error("deletion_time {until} is before creation_time {from}")]
    EndsFirst {
        /// Line of the file.
        line: u64,
        /// When it is created.
        from: i64,
        /// When it is deleted.
        until: i64,
    },
    /// Two pods have one name.
    #[error("the pod of line {first} is named {name:?} too")]
    SameName {
        /// Line of the file.
        line: u64,
        /// Line of the other one.
        first: u64,
        /// Their name.
        name: String,
    },
    /// There is nothing to play, or too much.
    #[error("{0} pods; from 1 to 200,000 are allowed")]
    Size(usize),
}

impl TraceError {
    /// The line of the file that it is about.
    #[must_use]
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Unreadable(error) => error.position().map(csv::Position::line),
            Self::NoColumn { .. } => Some(1),
            Self::NoNumber { line, .. }
            | Self::EndsFirst { line, .. }
            | Self::SameName { line, .. } => Some(*line),
            Self::Size(_) => None,
        }
    }
}

/// The columns of a trace, by name.
struct Columns(BTreeMap<String, usize>);

impl Columns {
    fn new(heading: &StringRecord) -> Result<Self, TraceError> {
        let all: BTreeMap<String, usize> = heading.iter().map(str::to_owned).zip(0..).collect();
        for column in REQUIRED {
            if !all.contains_key(column) {
                let near = nearest(column, heading.iter());
                let meant = near.map(|near| format!(" (is {near:?} it?)"));
                return Err(TraceError::NoColumn {
                    column,
                    meant: meant.unwrap_or_default(),
                    columns: heading.iter().collect::<Vec<_>>().join(", "),
                });
            }
        }
        Ok(Self(all))
    }

    fn text<'r>(&self, row: &'r StringRecord, column: &str) -> &'r str {
        let at = self.0.get(column);
        at.and_then(|at| row.get(*at)).unwrap_or_default()
    }

    /// The number of a cell; `None` for an empty one.
    fn number(&self, row: &StringRecord, column: &'static str) -> Result<Option<i64>, TraceError> {
        let given = self.text(row, column);
        if given.is_empty() {
            return Ok(None);
        }
        match given.parse::<i64>() {
            Ok(number @ 0..) => Ok(Some(number)),
            _ => Err(TraceError::NoNumber {
                line: line_of(row),
                column,
                given: given.to_owned(),
            }),
        }
    }

    /// The number of a cell that must have one.
    fn required(&self, row: &StringRecord, column: &'static str) -> Result<i64, TraceError> {
        let missing = || TraceError::NoNumber {
            line: line_of(row),
            column,
            given: String::new(),
        };
        self.number(row, column)?.ok_or_else(missing)
    }
}

fn line_of(row: &StringRecord) -> u64 {
    row.position().map_or(0, csv::Position::line)
}

/// The pods of a trace as jobs of one pod each, the first of them at once. All times are divided by `speed`.
///
/// # Errors
/// The text is not such a table.
pub fn trace_jobs(text: &str, speed: u32) -> Result<Vec<JobArrival>, TraceError> {
    let mut reader = ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    let columns = Columns::new(reader.headers()?)?;
    let mut names: BTreeMap<String, u64> = BTreeMap::new();
    let mut jobs: Vec<JobArrival> = Vec::new();
    for row in reader.records() {
        let row = row?;
        let line = line_of(&row);
        let from = columns.required(&row, "creation_time")?;
        let until = columns.number(&row, "deletion_time")?;
        if let Some(until) = until.filter(|until| *until < from) {
            return Err(TraceError::EndsFirst { line, from, until });
        }
        let name = match columns.text(&row, "name") {
            "" => format!("trace-{line}"),
            name => name.to_owned(),
        };
        if let Some(first) = names.insert(name.clone(), line) {
            return Err(TraceError::SameName { line, first, name });
        }
        let scaled = |seconds: i64| seconds.saturating_mul(1_000) / i64::from(speed.max(1));
        jobs.push(JobArrival {
            after_ms: scaled(from),
            job: Job {
                name,
                template: template(&columns, &row)?,
                completions: 1,
                parallelism: 1,
                // A pod that came and went within one second of the trace still runs for a moment.
                run_ms: until.map_or(NEVER_ENDS_MS, |until| scaled(until - from).max(1)),
            },
        });
    }
    if jobs.is_empty() || jobs.len() > MOST_PODS {
        return Err(TraceError::Size(jobs.len()));
    }
    let first = jobs.iter().map(|each| each.after_ms).min();
    let first = first.unwrap_or_default();
    jobs.iter_mut().for_each(|each| each.after_ms -= first);
    jobs.sort_by_key(|each| each.after_ms);
    Ok(jobs)
}

/// The pod of a row. A GPU of which a pod uses a part counts as one.
fn template(columns: &Columns, row: &StringRecord) -> Result<Value, TraceError> {
    let cpu = columns.required(row, "cpu_milli")?;
    let memory = columns.required(row, "memory_mib")?;
    let mut requests = json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi") });
    let mut limits = json!({});
    if let Some(gpus @ 1..) = columns.number(row, "num_gpu")? {
        requests[GPU] = json!(gpus.to_string());
        limits[GPU] = json!(gpus.to_string());
    }
    let mut labels = json!({ "app": "trace" });
    let qos = columns.text(row, "qos");
    if !qos.is_empty() {
        labels["qos"] = json!(qos);
    }
    let resources = json!({ "requests": requests, "limits": limits });
    Ok(json!({
        "metadata": { "labels": labels },
        "spec": { "containers": [{ "name": "main", "image": "registry.test/trace", "resources": resources }] },
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    const HEADING: &str =
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time\n";

    fn said(error: &TraceError) -> String {
        format!("{:?}: {error}", error.line())
    }

    fn jobs(rows: &str, speed: u32) -> Result<Vec<JobArrival>, String> {
        trace_jobs(&format!("{HEADING}{rows}"), speed).map_err(|error| said(&error))
    }

    #[test]
    fn pods_come_and_go_by_the_clock_of_the_trace() {
        let rows = "b,500,1024,0,0,LS,130,190\na,12000,16384,1,460,BE,100,100\n,250,64,,,,160,\n";
        let found = jobs(rows, 10).unwrap();
        let times: Vec<(&str, i64, i64)> = found
            .iter()
            .map(|each| (&*each.job.name, each.after_ms, each.job.run_ms))
            .collect();
        assert_eq!(
            times,
            [
                ("a", 0, 1),
                ("b", 3_000, 6_000),
                ("trace-4", 6_000, NEVER_ENDS_MS)
            ]
        );
        let of = |at: usize, pointer: &str| found[at].job.template.pointer(pointer).cloned();
        let resources = "/spec/containers/0/resources";
        assert_eq!(
            of(0, resources),
            Some(
                json!({ "requests": { "cpu": "12000m", "memory": "16384Mi", GPU: "1" }, "limits": { GPU: "1" } })
            )
        );
        assert_eq!(
            of(1, resources),
            Some(json!({ "requests": { "cpu": "500m", "memory": "1024Mi" }, "limits": {} }))
        );
        assert_eq!(of(0, "/metadata/labels/qos"), Some(json!("BE")));
        assert_eq!(of(2, "/metadata/labels/qos"), None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let table = [
            (
                "a,1x,1,,,,0,1",
                "Some(2): cpu_milli is \"1x\"; a whole number",
            ),
            (
                "a,1,1,,,,0,1\nb,1,-1,,,,0,1",
                "Some(3): memory_mib is \"-1\"; a whole number",
            ),
            ("a,1,1,,,,,1", "Some(2): creation_time is \"\""),
            (
                "a,1,1,,,,9,5",
                "Some(2): deletion_time 5 is before creation_time 9",
            ),
            (
                "a,1,1,,,,0,1\na,1,1,,,,2,3",
                "Some(3): the pod of line 2 is named \"a\" too",
            ),
            ("a,1,1", "Some(2): "),
            ("", "None: 0 pods; from 1 to 200,000 are allowed"),
        ];
        for (rows, part) in table {
            let said = jobs(rows, 1).unwrap_err();
            assert!(said.contains(part), "{said:?} for {rows:?}");
        }
        let heading = "cpu_mili,memory_mib,creation_time,deletion_time\n1,1,0,1\n";
        let said = said(&trace_jobs(heading, 1).unwrap_err());
        assert_eq!(
            said,
            "Some(1): there is no column cpu_milli (is \"cpu_mili\" it?); the columns are cpu_mili, memory_mib, creation_time, deletion_time"
        );
    }
}
