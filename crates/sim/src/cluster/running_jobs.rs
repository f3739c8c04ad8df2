//! Jobs that are not done, and those that the clock will create.

use std::collections::VecDeque;

use jiff::Timestamp;
use mortise_apis::values::after;

use crate::workloads::{ConcurrencyPolicy, CronJob, Job, Workloads};

/// A job that is not done.
#[derive(Clone, Debug)]
pub(super) struct RunningJob {
    pub(super) job: Job,
    /// Pods that completed.
    succeeded: u32,
    /// CronJob that created it.
    cron: Option<String>,
}

/// All jobs that are not done, in the order of their creation.
#[derive(Debug, Default)]
pub(super) struct RunningJobs {
    running: Vec<RunningJob>,
    /// With the time of the next job; `None`: there will be none.
    cron_jobs: Vec<(CronJob, Option<Timestamp>)>,
    /// Jobs that will be created once, the next one first.
    arrivals: VecDeque<(Timestamp, Job)>,
}

impl RunningJob {
    /// One that has just been created, not by a CronJob.
    const fn new(job: Job) -> Self {
        Self {
            job,
            succeeded: 0,
            cron: None,
        }
    }

    /// Pods that are created now, with `active` ones there.
    pub(super) fn creates(&self, active: usize) -> usize {
        let open = self.job.completions.saturating_sub(self.succeeded);
        let most = usize::try_from(open.min(self.job.parallelism)).unwrap_or(usize::MAX);
        most.saturating_sub(active)
    }
}

impl RunningJobs {
    /// The jobs of a cluster that begins now.
    pub(super) fn new(workloads: &Workloads, now: Timestamp) -> Self {
        let running = workloads.jobs.iter().cloned().map(RunningJob::new);
        let arrivals = workloads.arrivals.iter();
        let cron_jobs = workloads.cron_jobs.iter();
        Self {
            running: running.collect(),
            cron_jobs: cron_jobs
                .map(|each| (each.clone(), each.schedule.next(now)))
                .collect(),
            arrivals: arrivals
                .map(|each| (after(now, each.after_ms), each.job.clone()))
                .collect(),
        }
    }

    /// Adds a job that is created now.
    pub(super) fn create(&mut self, job: Job) {
        self.running.push(RunningJob::new(job));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RunningJob> {
        self.running.iter()
    }

    /// A pod of a job completed; the job may be done now.
    pub(super) fn completed(&mut self, job: &str) {
        for each in self.running.iter_mut().filter(|each| each.job.name == job) {
            each.succeeded += 1;
        }
        let is_open = |each: &RunningJob| each.succeeded < each.job.completions;
        self.running.retain(is_open);
    }

    /// Creates the jobs that are due. Returns whether there are any, and the names of the jobs that they replace.
    pub(super) fn start_due(&mut self, now: Timestamp) -> (bool, Vec<String>) {
        let has_come = |(at, _): &mut (Timestamp, Job)| *at <= now;
        let mut has_begun = false;
        while let Some((_, job)) = self.arrivals.pop_front_if(has_come) {
            self.running.push(RunningJob::new(job));
            has_begun = true;
        }
        let mut replaced = Vec::new();
        for (cron, next) in &mut self.cron_jobs {
            let Some(mut due) = next.filter(|next| *next <= now) else {
                continue;
            };
            let name = &cron.job.name;
            let is_own = |each: &RunningJob| each.cron.as_ref() == Some(name);
            match cron.concurrency {
                // It stays due until the one before has ended, as without `startingDeadlineSeconds` in Kubernetes.
                ConcurrencyPolicy::Forbid if self.running.iter().any(is_own) => continue,
                ConcurrencyPolicy::Replace => {
                    let old = self.running.iter().filter(|each| is_own(each));
                    replaced.extend(old.map(|each| each.job.name.clone()));
                    self.running.retain(|each| !is_own(each));
                }
                ConcurrencyPolicy::Forbid | ConcurrencyPolicy::Allow => {}
            }
            // Of several times that passed, the last one counts.
            let has_passed = |later: &Timestamp| *later <= now;
            while let Some(later) = cron.schedule.next(due).filter(has_passed) {
                due = later;
            }
            *next = cron.schedule.next(due);
            let mut job = cron.job.clone();
            // As the CronJob controller names them; finer schedules are refused.
            job.name = format!("{name}-{}", due.as_second() / 60);
            self.running.push(RunningJob {
                job,
                succeeded: 0,
                cron: Some(name.clone()),
            });
            has_begun = true;
        }
        (has_begun, replaced)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use mortise_apis::values::CronSchedule;
    use serde_json::json;

    use super::*;
    use crate::workloads::JobArrival;

    fn job(completions: u32, parallelism: u32) -> Job {
        Job {
            name: "j".to_owned(),
            template: json!({}),
            completions,
            parallelism,
            run_ms: 1000,
        }
    }

    #[test]
    fn as_many_pods_as_remain_and_may_run() {
        for (completions, parallelism, succeeded, active, want) in [
            (1, 1, 0, 0, 1),
            (1, 1, 0, 1, 0),
            (5, 2, 0, 0, 2),
            (5, 2, 0, 1, 1),
            (5, 2, 4, 0, 1),
            (5, 2, 4, 2, 0),
            (5, 0, 0, 0, 0),
        ] {
            let running = RunningJob {
                job: job(completions, parallelism),
                succeeded,
                cron: None,
            };
            assert_eq!(running.creates(active), want, "{running:?}");
        }
    }

    #[test]
    fn a_job_is_done_with_its_last_completion() {
        let workloads = Workloads {
            jobs: vec![job(2, 1)],
            ..Workloads::default()
        };
        let mut jobs = RunningJobs::new(&workloads, Timestamp::UNIX_EPOCH);
        jobs.completed("other");
        jobs.completed("j");
        assert_eq!(jobs.iter().count(), 1);
        jobs.completed("j");
        assert_eq!(jobs.iter().count(), 0);
    }

    #[test]
    fn a_job_that_comes_later_is_created_once() {
        let arrivals = [(0, "a"), (2_000, "b"), (2_000, "c")];
        let workloads = Workloads {
            arrivals: arrivals
                .map(|(after_ms, name)| JobArrival {
                    after_ms,
                    job: Job {
                        name: name.to_owned(),
                        ..job(1, 1)
                    },
                })
                .into(),
            ..Workloads::default()
        };
        let start = Timestamp::UNIX_EPOCH;
        let mut jobs = RunningJobs::new(&workloads, start);
        let mut names = |ms: i64| {
            let (has_begun, _) = jobs.start_due(after(start, ms));
            let names: Vec<String> = jobs.iter().map(|each| each.job.name.clone()).collect();
            (has_begun, names.join(" "))
        };
        assert_eq!(names(0), (true, "a".to_owned()));
        assert_eq!(names(1_999), (false, "a".to_owned()));
        assert_eq!(names(5_000), (true, "a b c".to_owned()));
        assert_eq!(names(9_000), (false, "a b c".to_owned()));
    }

    #[test]
    fn a_job_that_is_due_while_another_runs() {
        for (concurrency, want, replaced) in [
            (ConcurrencyPolicy::Allow, &["j-5", "j-10"][..], &[][..]),
            (ConcurrencyPolicy::Forbid, &["j-5"], &[]),
            (ConcurrencyPolicy::Replace, &["j-10"], &["j-5"]),
        ] {
            let cron = CronJob {
                job: job(1, 1),
                schedule: CronSchedule::parse("*/5 * * * *").unwrap(),
                concurrency,
            };
            let workloads = Workloads {
                cron_jobs: vec![cron],
                ..Workloads::default()
            };
            let start = Timestamp::UNIX_EPOCH;
            let mut jobs = RunningJobs::new(&workloads, start);
            let mut gone = Vec::new();
            for second in 0..=650 {
                gone.extend(jobs.start_due(after(start, second * 1000)).1);
            }
            let names: Vec<&str> = jobs.iter().map(|each| &*each.job.name).collect();
            assert_eq!(names, want, "{concurrency:?}");
            assert_eq!(gone, replaced, "{concurrency:?}");
        }
    }

    #[test]
    fn a_forbidden_job_begins_when_the_one_before_has_ended() {
        let cron = CronJob {
            job: job(1, 1),
            schedule: CronSchedule::parse("*/5 * * * *").unwrap(),
            concurrency: ConcurrencyPolicy::Forbid,
        };
        let workloads = Workloads {
            cron_jobs: vec![cron],
            ..Workloads::default()
        };
        let start = Timestamp::UNIX_EPOCH;
        let mut jobs = RunningJobs::new(&workloads, start);
        let mut starts = Vec::new();
        for second in 0..=1_250 {
            if jobs.start_due(after(start, second * 1000)).0 {
                let names = jobs.iter().map(|each| each.job.name.clone());
                starts.push((second, names.collect::<Vec<_>>()));
            }
            // Minutes 10 and 15 pass while the first one runs.
            if second == 1_000 {
                jobs.completed("j-5");
            }
        }
        let want = [(300, "j-5"), (1_001, "j-15")];
        let want = want.map(|(second, name)| (second, vec![name.to_owned()]));
        assert_eq!(starts, want);
    }
}
