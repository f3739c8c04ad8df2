//! When pods were bound, by the API server's own clock.
//!
//! A watch is no clock: under load the API server tells of binds seconds after they were made, and then of thousands at once. Its
//! audit log has each with the time at which it was answered, in microseconds.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use mortise_tests::harness::{StateDir, wait_until};
use serde::Deserialize;
use serde_json::json;

/// The line of a bind may come a moment after the watch has told of it.
const LATE: Duration = Duration::from_secs(30);

/// An audit log that has binds and nothing else.
pub(super) struct Binds {
    dir: StateDir,
    /// What was read before is left out.
    read: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    stage_timestamp: Timestamp,
    response_status: Status,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

impl Binds {
    pub(super) fn new() -> Result<Self> {
        let mut dir = StateDir::create("binds")?;
        // There is no receiver after the end, regardless of how it ended.
        dir.discard();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [
                { "level": "Metadata", "resources": [{ "group": "", "resources": ["pods/binding"] }] },
                { "level": "None" },
            ],
        });
        let binds = Self { dir, read: 0 };
        std::fs::write(binds.policy(), policy.to_string())?;
        Ok(binds)
    }

    fn policy(&self) -> PathBuf {
        self.dir.path().join("policy.json")
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("audit.log")
    }

    /// Flags of the API server that writes it.
    pub(super) fn flags(&self) -> [String; 3] {
        [
            format!("--audit-policy-file={}", self.policy().display()),
            format!("--audit-log-path={}", self.log().display()),
            // Megabytes: it is read as one file.
            "--audit-log-maxsize=8192".to_owned(),
        ]
    }

    /// Times of the next `count` binds, in order.
    pub(super) async fn next(&mut self, count: usize) -> Result<Vec<Timestamp>> {
        let (mut times, end) = wait_until("the audit log to have all binds", LATE, || async {
            let (times, end) = self.after(self.read)?;
            ensure!(times.len() >= count, "it has {} of {count}", times.len());
            Ok((times, end))
        })
        .await?;
        ensure!(times.len() == count, "{} binds, not {count}", times.len());
        self.read = end;
        times.sort_unstable();
        Ok(times)
    }

    /// Binds after this place of the log, as they stand there, and where its last whole line ends.
    fn after(&self, from: u64) -> Result<(Vec<Timestamp>, u64)> {
        let mut file = File::open(self.log()).context("no audit log")?;
        file.seek(SeekFrom::Start(from))?;
        let (mut lines, mut line, mut end) = (BufReader::new(file), String::new(), from);
        let mut times = Vec::new();
        while lines.read_line(&mut line)? > 0 && line.ends_with('\n') {
            let read: Line = serde_json::from_str(&line).with_context(|| line.clone())?;
            if read.response_status.code == 201 {
                times.push(read.stage_timestamp);
            }
            end += u64::try_from(line.len())?;
            line.clear();
        }
        Ok((times, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_that_were_made_are_read_once() {
        let line = |second: u32, code: u16| {
            json!({ "kind": "Event", "stage": "ResponseComplete", "verb": "create",
                "responseStatus": { "metadata": {}, "code": code },
                "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z",
                "stageTimestamp": format!("2026-01-01T00:00:0{second}.123456Z") })
            .to_string()
        };
        let binds = Binds::new().unwrap();
        let all = [line(2, 201), line(1, 201), line(3, 409)].join("\n") + "\n";
        let half = line(4, 201).replace('}', "");
        std::fs::write(binds.log(), format!("{all}{half}")).unwrap();
        let (times, end) = binds.after(0).unwrap();
        let expected = ["2026-01-01T00:00:02.123456Z", "2026-01-01T00:00:01.123456Z"]
            .map(|time| time.parse().unwrap());
        assert_eq!(times, expected);
        assert_eq!(end, all.len() as u64, "the line that is not whole is left");
        assert!(binds.after(end).unwrap().0.is_empty());
    }
}
